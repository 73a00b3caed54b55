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
from trainer.pulse import WITH_PEERS

TAIL = 64 * 1024
"""Bytes of a log's end that are read: a log may have gigabytes, and its node goes on beating meanwhile."""

LONGEST_REASON = 200

RAISED = 1
"""The exit code of a Python that ends by an exception."""

ABORTED = (-signal.SIGABRT, 128 + signal.SIGABRT)
"""The codes of a process that aborted itself, and of a shell whose command did."""

BY_WATCHDOG = re.compile(
    r"(?:taking the entire process down|Watchdog caught collective operation timeout"
    r"|watchdog thread terminated with exception: (?:\[Rank \d+\] )?NCCL error).*"
)
"""What torch's watchdog says before it aborts (pytorch, `ProcessGroupNCCL.cpp`; found in libtorch_cuda 2.15)."""

BROKEN = re.compile(r"(?:torch\.distributed\.)?Dist(?:Backend|Network|Store)Error\b|.*NCCL error")
"""How an exception begins that torch.distributed raises; gloo's are RuntimeErrors that name its own sources."""

IN_VAIN = re.compile(rf"(?<!connection )timed out|timing out|timeout|{WITH_PEERS}", re.IGNORECASE)
"""What is said by who waited for a peer, of torch's or by its own promise. TCP says `Connection timed out` (errno(3)),
where only the network is gone."""

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


def told(code: int | None) -> str:
    """An exit code in words. Linux has real-time signals without a name of their own (signal(7))."""
    if code is None or code >= 0:
        return "goes on" if code is None else f"exited with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def tail(log: Path, begun: int = 0) -> str:
    """The end of a log, from the byte `begun` on at the most; empty where there is none."""
    return _RANK.sub("", _end(log, begun))


def lost_peer(code: int, log: str) -> str:
    """What a worker that ended so says of a peer that is gone; empty where its end has another cause."""
    if code in ABORTED:
        found = [] if OF_ITS_OWN.search(log) else BY_WATCHDOG.findall(log)
        return short(next(filter(waited_in_vain, found), next(iter(found), "")))
    error = _raised(log) if code == RAISED else ""
    return short(error) if _of_a_lost_peer(error) else ""


def waited_in_vain(reason: str) -> bool:
    """Whether who stopped for this reason had waited for a peer; its connection may else have broken on either side."""
    return IN_VAIN.search(reason) is not None


def account(code: int | None, own: Path, log: Path, *, mixed: bool = False) -> tuple[str, str]:
    """What went wrong, and what its own code raised if it did: by the file of its `own`, or else by its log's end.

    A log that is `mixed`, of many ranks and of what started them, ends with words on those, and not with the cause.
    """
    died = told(code)
    if code and code < 0:
        return died, ""  # the log's last line is of before, and not the cause
    try:
        error = json.loads(own.read_text())
        said = short(f"{error['type']}: {error['message']}")
        return f"{died}: {said}", said if error.get("raised") else ""
    except (OSError, ValueError, KeyError, TypeError):
        written = tail(log).strip()
        last = written.rsplit("\n", 1)[-1], "Traceback (most" in written
        said, raised = _cause(_end(log)) if mixed else last
        said = short(said)
        return f"{died}: {said}" if written else died, said if code == RAISED and raised else ""


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


def _end(log: Path, begun: int = 0) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(begun, file.seek(0, os.SEEK_END) - TAIL))
            return file.read(TAIL).decode(errors="replace")
    except OSError:
        return ""


def _cause(log: str) -> tuple[str, bool]:
    """The first exception of a log of many ranks that is not of a lost peer, else its first; and whether it is not.

    The others follow from it. Where torch has marked what a rank did not catch, nothing else is one: what is caught may
    be logged as well, at the start for instance. Without any, the log's last line with a word in it.
    """
    marked = _RANK.sub("", "\n".join(line for line in log.split("\n") if _RANK.match(line)))
    parts = (marked if _TRACEBACK in marked else _RANK.sub("", log)).split(_TRACEBACK)
    raised = [_exception(part) for part in parts[1:]]
    own = [error for error in raised if not _of_a_lost_peer(error)]
    words = (line.strip() for line in reversed(log.split("\n")) if re.search(r"\w", line))
    return next(iter([*own, *raised]), next(words, "")), bool(own)


def _of_a_lost_peer(error: str) -> bool:
    """Whether an exception, with what follows it, is raised where a peer is gone."""
    return bool(BROKEN.match(error) or "/gloo/" in error) and not OF_ITS_OWN.search(error)


def _raised(log: str) -> str:
    """The exception of the last traceback, and what follows it."""
    return _exception(log.rpartition(_TRACEBACK)[2]) if _TRACEBACK in log else ""


def _exception(frames: str) -> str:
    return "\n".join(dropwhile(lambda line: line.startswith(" "), frames.split("\n")))
