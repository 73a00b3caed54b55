"""The language host: a gRPC server that the Pulumi CLI starts to run programs and plugins written in Python.

It does what the official `pulumi-language-python` does, as far as running needs it, over the SDK's own protocol stubs
(`pulumi/language.proto`). The CLI starts it in a process group of its own with a pipe as stdin, reads the port from
its stdout, and interrupts the group when it is done.
"""

# ruff: noqa: N802, ARG002 - the protocol gives the methods their names and arguments

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

import grpc
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import language_pb2 as messages
from pulumi.runtime.proto import language_pb2_grpc as service
from pulumi.runtime.proto import plugin_pb2

PROGRAM = Path(__file__).with_name("program.py")
REPORTED = 32
"""Exit code of a program whose error the user has seen already."""

_THREADS = 64
"""Calls at once: one for each running program or plugin, and a few short ones."""

_GRACE = 3.0
"""Seconds that programs and calls get to end, of the five that the CLI gives this host."""


class LanguageHost(service.LanguageRuntimeServicer):
    """Answers the engine. Every program and plugin it starts ends with it."""

    def __init__(self, engine: str, stop: "queue.SimpleQueue[str]") -> None:
        self._engine = engine
        self._stop = stop
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def Handshake(
        self, request: messages.LanguageHandshakeRequest, context: grpc.ServicerContext
    ) -> messages.LanguageHandshakeResponse:
        """Learns the engine's address."""
        self._engine = request.engine_address
        return messages.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """Says nothing of a version: the host goes with the checkout."""
        return plugin_pb2.PluginInfo()

    def GetRequiredPackages(
        self, request: messages.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> messages.GetRequiredPackagesResponse:
        """Asks for no plugin to be downloaded: providers are on PATH or installed by the user."""
        return messages.GetRequiredPackagesResponse()

    def GetRequiredPlugins(
        self, request: messages.GetRequiredPluginsRequest, context: grpc.ServicerContext
    ) -> messages.GetRequiredPluginsResponse:
        """As GetRequiredPackages, for older engines."""
        return messages.GetRequiredPluginsResponse()

    def About(self, request: messages.AboutRequest, context: grpc.ServicerContext) -> messages.AboutResponse:
        """Names the interpreter, for `pulumi about`."""
        return messages.AboutResponse(executable=str(interpreter(request.info)), version=sys.version.split()[0])

    def Run(self, request: messages.RunRequest, context: grpc.ServicerContext) -> messages.RunResponse:
        """Runs a Pulumi program to its end."""
        settings = {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "project": request.project,
            "stack": request.stack,
            "parallel": request.parallel,
            "dry_run": request.dryRun,
            "organization": request.organization,
            "root_directory": request.info.root_directory,
        }
        python = interpreter(request.info)
        child = self._start(
            [python, "-u", PROGRAM, json.dumps(settings), request.info.entry_point, *request.args],
            context,
            folder=request.pwd,
            environment={
                **activated(python, os.environ),
                "PULUMI_CONFIG": json.dumps(dict(request.config)),
                "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
            },
        )
        code = self._wait(child)
        if code == REPORTED or self._stopping:
            return messages.RunResponse(bail=True)
        return messages.RunResponse(error=f"the Python program ended with code {code}" if code else "")

    def RunPlugin(
        self, request: messages.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[messages.RunPluginResponse]:
        """Runs a plugin's folder (a policy pack or a provider): passes its output on, then its exit code."""
        python = interpreter(request.info)
        child = self._start(
            [python, "-u", request.info.program_directory, *request.args],
            context,
            folder=request.pwd,
            environment=activated(python, dict(pair.split("=", 1) for pair in request.env) or os.environ),
            output=subprocess.PIPE,
        )
        yield from _output(child)
        yield messages.RunPluginResponse(exitcode=self._wait(child))

    def Cancel(self, request: Empty, context: grpc.ServicerContext) -> Empty:
        """Ends the programs, and then the host."""
        self._stop.put("cancelled")
        return Empty()

    def end_children(self) -> None:
        """Ends every program and plugin: asks first, and kills after the grace time."""
        with self._lock:
            self._stopping = True
            children = list(self._children)
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                child.kill()

    def _start(
        self,
        command: list[str | Path],
        context: grpc.ServicerContext,
        *,
        folder: str,
        environment: Mapping[str, str],
        output: int | None = None,
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopping:
                context.abort(grpc.StatusCode.CANCELLED, "the language host is ending")
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, env=environment
            )
            self._children.add(child)
        # Called when the call ends in any way; a child that has ended by then takes no harm.
        context.add_callback(child.terminate)
        return child

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        code = child.wait()
        with self._lock:
            self._children.discard(child)
        return code


def interpreter(info: messages.ProgramInfo) -> Path:
    """The Python for a program: of the virtual environment that its Pulumi.yaml names, else the one that runs us."""
    option = dict(info.options).get("virtualenv")
    if not option:
        return Path(sys.executable)
    python = Path(info.root_directory, str(option), "bin", "python")
    if python.exists():
        return python
    print(
        f"{python.parent.parent} (runtime.options.virtualenv) is not there: running with {sys.executable}",
        file=sys.stderr,
        flush=True,
    )
    return Path(sys.executable)


def activated(python: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with that interpreter's folder first on PATH, as an activated virtual environment has it."""
    path = os.pathsep.join(filter(None, [str(python.parent), environment.get("PATH", "")]))
    return {**environment, "PATH": path}


def _output(child: subprocess.Popen[bytes]) -> Iterator[messages.RunPluginResponse]:
    """What a program writes to stdout and stderr, as it writes it, until both are closed."""
    assert child.stdout is not None
    assert child.stderr is not None
    responses: queue.SimpleQueue[messages.RunPluginResponse | None] = queue.SimpleQueue()

    def read(stream: IO[bytes], respond: Callable[[bytes], messages.RunPluginResponse]) -> None:
        while data := os.read(stream.fileno(), 65536):
            responses.put(respond(data))
        responses.put(None)

    for arguments in (
        (child.stdout, lambda data: messages.RunPluginResponse(stdout=data)),
        (child.stderr, lambda data: messages.RunPluginResponse(stderr=data)),
    ):
        threading.Thread(target=read, args=arguments, daemon=True).start()
    for _ in ("stdout", "stderr"):
        yield from iter(responses.get, None)


def serve(arguments: list[str]) -> None:
    """Serves until the CLI interrupts us, cancels, or is gone. The last argument, if any, is the engine's address."""
    stop: queue.SimpleQueue[str] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.put("interrupted"))
    server = grpc.server(ThreadPoolExecutor(_THREADS), options=[("grpc.max_receive_message_length", -1)])
    host = LanguageHost(arguments[-1] if arguments else "", stop)
    service.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    threading.Thread(target=_await_parent, args=(stop,), daemon=True).start()
    stop.get()
    host.end_children()
    server.stop(_GRACE).wait()


def _await_parent(stop: "queue.SimpleQueue[str]") -> None:
    """Reads the pipe from the CLI, which writes nothing: its end means that the CLI is gone."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    stop.put("alone")


if __name__ == "__main__":
    serve(sys.argv[1:])
