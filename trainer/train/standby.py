"""A worker-to-be: it has imported what takes seconds to, and waits to be told which worker it is.

    python -m trainer.train.standby

One line of JSON on stdin tells: `environment`, all of what a worker finds in its own, and `log`, where its output goes.
From then on it is a worker like any other. Where stdin ends without a line, nobody needs it, and it ends.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

from trainer.train.__main__ import leave, main, uncollected

AHEAD = ("trainer.train.loop", "torch._dynamo", "boto3")
"""What a worker spends its first seconds on: torch, what DDP asks of it, and what its store needs."""


def wait() -> None:
    """Import, wait for the line, and become what it says."""
    uncollected()
    for module in AHEAD:
        import_module(module)
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        leave(0)
    told = json.loads(line)
    os.environ.clear()
    os.environ.update(told["environment"])
    log = os.open(told["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    leave(main([]))


if __name__ == "__main__":
    wait()
