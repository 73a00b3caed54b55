"""What a worker's end tells, by its exit code and the end of its log: in words, and whether a peer was the cause.

Scripts that run under torchrun know nothing of our exit codes: one that loses a peer ends by an uncaught exception, or,
with NCCL, by torch's watchdog, which aborts the process. Neither is a failure of the node that it happens on.
"""

from __future__ import annotations

import json
import os
import re
import signal
from itertools import dropwhile
from pathlib import Path

from trainer.exits import OF_ITS_OWN

TAIL = 64 * 1024
"""Bytes of a log's end that are read: a log may have gigabytes, and its node goes on beating meanwhile."""

LONGEST_REASON = 200

RAISED = 1
"""The exit code of a Python that ends by an exception."""

ABORTED = (-signal.SIGABRT, 128 + signal.SIGABRT)
"""The codes of a process that aborted itself, and of a shell whose command did."""

BY_WATCHDOG = re.compile(
    r".*(?:taking the entire process down|Watchdog caught collective operation timeout"
    r"|watchdog thread terminated with exception: (?:\[Rank \d+\] )?NCCL error).*"
)
"""What torch's watchdog says before it aborts (pytorch, `ProcessGroupNCCL.cpp`; found in libtorch_cuda 2.15)."""

BROKEN = re.compile(r"(?:torch\.distributed\.)?Dist(?:Backend|Network|Store)Error\b|.*NCCL error")
"""How an exception begins that torch.distributed raises; gloo's are RuntimeErrors that name its own sources."""

OF_THE_MACHINE = re.compile(
    r"uncorrectable (?:ECC|NVLink) error|system not yet initialized|GPU is lost|fallen off the bus"
    r"|\[Errno 5\] Input/output error|\[Errno 30\] Read-only file system",
    re.IGNORECASE,
)
"""What no code brings about: errors 214, 220 and 802 of CUDA (`driver_types.h`; the words of `cudaGetErrorString`), of
NVML, and of a disk that fails. Others of CUDA's, such as 700 (an illegal address), are as a rule the code's."""

_TRACEBACK = "Traceback (most recent call last):\n"

_RANK = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""What torch puts before each line of an uncaught exception (`distributed_c10d.py`, `_distributed_excepthook`)."""


def tail(log: Path, begun: int = 0) -> str:
    """The end of a log, from the byte `begun` on at the most; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(begun, file.seek(0, os.SEEK_END) - TAIL))
            return _RANK.sub("", file.read(TAIL).decode(errors="replace"))
    except OSError:
        return ""


def lost_peer(code: int, log: str) -> str:
    """What a worker that ended so says of a peer that is gone; empty where its end has another cause."""
    if code in ABORTED:
        found = None if OF_ITS_OWN.search(log) else BY_WATCHDOG.search(log)
        return short(found[0]) if found else ""
    error = _raised(log) if code == RAISED else ""
    told = (BROKEN.match(error) or "/gloo/" in error) and not OF_ITS_OWN.search(error)
    return short(error) if told else ""


def account(code: int | None, own: Path, log: Path, *, mixed: bool = False) -> tuple[str, str]:
    """What went wrong, and what its own code raised if it did: by the file of its `own`, or else by its log's end.

    A log that is `mixed`, of many ranks and of what started them, ends with words on those, and not with the cause.
    """
    if code and code < 0:
        died = f"was killed by {signal.Signals(-code).name}"
        return died, ""  # the log's last line is of before, and not the cause
    died = f"exited with {code}"
    try:
        error = json.loads(own.read_text())
        said = short(f"{error['type']}: {error['message']}")
        return f"{died}: {said}", said if error.get("raised") else ""
    except (OSError, ValueError, KeyError, TypeError):
        written = tail(log).strip()
        said = short(_cause(written) if mixed else written.rsplit("\n", 1)[-1])
        return f"{died}: {said}" if written else died, said if code == RAISED and "Traceback (most" in written else ""


def of_the_machine(code: int | None, reason: str, log: str) -> bool:
    """Whether a worker ended by a fault of the node that it ran on: by the reason told, or by its log's end."""
    said = log if code in ABORTED else f"{reason}\n{_raised(log)}"
    return OF_THE_MACHINE.search(said) is not None


def short(reason: str) -> str:
    """A reason's first line, cut where it runs on: the whole of it is in the worker's log."""
    line = reason.strip().split("\n")[0]
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}…"


def place(stack: str) -> str:
    """The innermost place of the main thread in what faulthandler wrote, which shows that thread last."""
    places = re.findall(r"most recent call first\):\n  File \"(.+)\", line (\d+) in (\S+)", stack)
    if not places:
        return ""
    path, line, function = places[-1]
    return f"at {Path(path).name}:{line} in {function}"


def _cause(log: str) -> str:
    """The first exception of a log; without any, its last line with a word in it."""
    if _TRACEBACK in log:
        return _exception(log.partition(_TRACEBACK)[2])
    return next((line.strip() for line in reversed(log.split("\n")) if re.search(r"\w", line)), "")


def _raised(log: str) -> str:
    """The exception of the last traceback, and what follows it."""
    return _exception(log.rpartition(_TRACEBACK)[2]) if _TRACEBACK in log else ""


def _exception(frames: str) -> str:
    return "\n".join(dropwhile(lambda line: line.startswith(" "), frames.split("\n")))
