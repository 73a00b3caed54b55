"""The embedded cloud's daemon: ``python -m emulator --home DIR``, in the foreground until SIGTERM or Ctrl-C.

It holds the API server, the node runner and the instances' metadata services, and logs to standard error.
`cloud.start` runs it in the background.
"""

import argparse
import logging
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from emulator import cloud, server
from emulator.instances import Api
from emulator.nodes import Runner

_POLL = 0.25

_log = logging.getLogger("emulator")


def main(home: Path) -> None:
    """Be the embedded cloud of this home; returns when its record there has been removed."""
    nodes = home / "cloud" / "nodes"
    nodes.mkdir(parents=True, exist_ok=True)
    endpoint = server.serve()
    runner = Runner(Api(endpoint), nodes, server.regions_with_groups)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    record = cloud.publish(home, endpoint)
    _log.info("ready: %s", endpoint)
    try:
        while record.exists():
            runner.tick()
            time.sleep(_POLL)
        _log.info("%s is gone", record)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _log.info("ending all nodes")
        runner.close()


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
