"""Runs a stand-in as a plugin: `python -m emulator.provider PACKAGE [engine's address]`, its port on stdout."""

import importlib.util
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import grpc

from emulator import cloud

WORKERS = 32
MESSAGE_BYTES = 400 * 1024 * 1024
PARENT_CHECK_S = 0.5
IN_FLIGHT_S = 20.0


def endpoint() -> str | None:
    """Address of the embedded cloud whose home the environment names; None if none runs."""
    home = os.environ.get("TRAINWRIGHT_HOME")
    running = cloud.find(Path(home)) if home else None
    return running.endpoint if running else None


def take_protocol_only() -> None:
    """Lets `pulumi.runtime.proto` be imported without the rest of the SDK: a third of the start of each command.

    For a process that needs nothing else of it.
    """
    spec = importlib.util.find_spec("pulumi")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the Python package pulumi is not installed where this provider runs; set PULUMI_PYTHON_CMD")
    root = Path(spec.submodule_search_locations[0])
    for name, folder in (("pulumi", root), ("pulumi.runtime", root / "runtime")):
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package


def main() -> None:
    """Serves until the engine cancels, a signal comes, or the parent goes."""
    take_protocol_only()
    from emulator.provider.server import register  # noqa: PLC0415 - imports what the line above prepares
    from emulator.provider.stand_in import StandIn  # noqa: PLC0415

    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    parent = os.getppid()
    limits = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)]
    server = grpc.server(ThreadPoolExecutor(WORKERS), options=limits)
    register(server, StandIn(sys.argv[1], endpoint), stopped)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    while not stopped.wait(PARENT_CHECK_S) and os.getppid() == parent:
        pass
    # What is being made is finished and told: on Ctrl-C the engine would otherwise not hear of it, and leave it behind.
    server.stop(grace=IN_FLIGHT_S).wait()
    os._exit(0)


if __name__ == "__main__":
    main()
