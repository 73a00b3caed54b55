"""One worker of the bundled trainer.

    python -m trainer.train --job job.json --data DATASET            one process
    torchrun --standalone --nproc_per_node 2 -m trainer.train --job job.json --data DATASET --store RUN

An agent gives everything through the environment (TRAINWRIGHT_JOB, TRAINWRIGHT_DATA, TRAINWRIGHT_STORE, ...) and needs
no argument. The exit code is 0 when the run is done, 75 when SIGTERM or ^C made it save and leave, 69 when another
rank was lost, 1 when it failed; under torchrun, ^C ends all with torchrun's own code, 1.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import FrameType

from trainer import exits
from trainer.pulse import Pulse
from trainer.store import StoreError, open_store
from trainer.train import checkpoint, config
from trainer.train.alone import alone
from trainer.train.checkpoint import CHECKPOINTS, FIND_S, Found
from trainer.train.errors import CheckpointError, TrainingError
from trainer.train.setting import Setting, from_environment

FAILED = 1

START_S = 600
"""Seconds within which torch is imported and all ranks have met."""


def uncollected() -> None:
    """Stop Python's collector of cycles for the start: it takes a sixth of the time that torch is imported in, and
    finds nothing. `loop.train` sets it going again.
    """
    gc.disable()


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as the environment and `arguments` say; the exit code."""
    uncollected()
    asked = _on_request()
    options = _options().parse_args(arguments)
    try:
        job = config.read(options.job)
        setting = from_environment(os.environ, run=job.name, data=options.data, store=options.store)
        Pulse(setting.pulse).promise("its start", START_S)
        with alone(setting):
            found = _looking_for_checkpoint(setting)
            # torch takes a second and more to import: bad input is refused, and the store asked, before it is there.
            from trainer.train.loop import train  # noqa: PLC0415

            return train(job, setting, found=found, asked=asked)
    except Exception as error:
        _describe(error)
        return exits.PEER_LOST if _is_loss_of_a_peer(error) else FAILED


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    job = os.environ.get("TRAINWRIGHT_JOB")
    parser.add_argument(
        "--job", type=Path, default=job and Path(job), required=job is None, help="the job's file (TRAINWRIGHT_JOB)"
    )
    parser.add_argument("--data", type=Path, help="the dataset's folder (TRAINWRIGHT_DATA)")
    parser.add_argument(
        "--store", help="where checkpoints go: a folder or s3://bucket/prefix (TRAINWRIGHT_STORE; default runs/<name>)"
    )
    return parser


def _on_request() -> Callable[[], bool]:
    """Whether this worker was told to drain, from now on. The handler only notes it: the loop's ranks agree on it."""
    asked = Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        asked.set()
        # A second ^C, from someone who won't wait for the checkpoint, ends the process.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    return asked.is_set


def _looking_for_checkpoint(setting: Setting) -> Callable[[], Found | None]:
    """Start to look for the newest checkpoint, on rank 0, while torch is imported and the others come; gives it."""

    def say(text: str) -> None:
        with suppress(OSError):  # a log that is full
            print(text, flush=True)

    def look() -> Found | None:
        return checkpoint.find(setting.scratch / CHECKPOINTS, open_store(setting.store), say)

    if setting.rank:
        return lambda: None
    looking = ThreadPoolExecutor(1, "find").submit(look)

    def found() -> Found | None:
        try:
            return looking.result(FIND_S)
        except TimeoutError:
            reason = f"{setting.store}: not searched for a checkpoint within {FIND_S} s; see to the store"
            raise CheckpointError(reason) from None

    return found


def _is_loss_of_a_peer(error: Exception) -> bool:
    """Whether another rank is what went wrong. gloo says it in plain RuntimeErrors that name its own sources."""
    if exits.OF_ITS_OWN.search(str(error)):
        return False
    distributed = sys.modules.get("torch.distributed")
    return (distributed is not None and isinstance(error, distributed.DistError)) or "/gloo/" in str(error)


def _describe(error: Exception) -> None:
    """Say what went wrong: one line for an error that we expect, else its traceback; both go to TRAINWRIGHT_ERROR.

    Where neither can be written, as on a disk that is full, the exit code alone tells.
    """
    rank = os.environ.get("RANK", "0")
    with suppress(OSError):
        if isinstance(error, TrainingError | StoreError):
            print(f"rank {rank}: {error}", file=sys.stderr)
        else:
            traceback.print_exception(error)
    if path := os.environ.get("TRAINWRIGHT_ERROR"):
        described = {
            "type": type(error).__name__,
            "message": str(error),
            "traceback": "".join(traceback.format_exception(error)),
            "rank": int(rank) if rank.isdecimal() else 0,
            "raised": not isinstance(error, TrainingError | StoreError),
        }
        temporary = Path(f"{path}.tmp")
        with suppress(OSError):
            temporary.write_text(json.dumps(described), encoding="utf-8")
            temporary.replace(path)


def leave(code: int) -> None:
    """End the process now: threads stuck in an upload or in a collective with a lost peer must not hold it up."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
