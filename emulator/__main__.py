"""The embedded cloud's daemon: ``python -m emulator --home DIR``, in the foreground until SIGTERM or Ctrl-C.

It holds the API server, the node runner and the instances' metadata services, and logs to standard error.
`cloud.start` runs it in the background.
"""

import argparse
import logging
import os
import resource
import signal
import stat
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from emulator import cloud, server
from emulator.instances import Api
from emulator.nodes import Runner

_POLL = 0.25
_MAX_LOG = 8 << 20
_KEPT_LOG = 1 << 20

_log = logging.getLogger("emulator")


def main(home: Path) -> None:
    """Be the embedded cloud of this home; returns when its record there has been removed."""
    cloud.make_folder(home / "cloud")
    nodes = home / "cloud" / "nodes"
    nodes.mkdir(parents=True, exist_ok=True)
    _raise_file_limit()
    endpoint = server.serve()
    runner = Runner(Api(endpoint), nodes, server.regions_with_groups)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    record = cloud.publish(home, endpoint)
    _log.info("ready: %s", endpoint)
    try:
        while record.exists():
            runner.tick()
            trim_log(sys.stderr.fileno(), _MAX_LOG, _KEPT_LOG)
            time.sleep(_POLL)
        _log.info("%s is gone", record)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _log.info("ending all nodes")
        runner.close()


def trim_log(descriptor: int, limit: int, keep: int) -> None:
    """If it leads to a file, opened for appending, of more than `limit` bytes, leave only its last `keep`."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size > limit:
        with Path(f"/proc/self/fd/{descriptor}").open("rb") as file:
            file.seek(-keep, os.SEEK_END)
            last = file.read(keep)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"(what came before was dropped)\n" + last[last.find(b"\n") + 1 :])


def _raise_file_limit() -> None:
    """Each object above moto's buffer keeps a file open, and each of its versions does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m emulator", description="Run the embedded cloud in the foreground.")
    parser.add_argument("--home", type=Path, required=True, help="the local folder; the cloud lives in its cloud/")
    where = parser.parse_args().home.resolve()
    if running := cloud.find(where):
        sys.exit(f"The embedded cloud of {where} runs already, as process {running.pid}: stop it first.")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    main(where)
