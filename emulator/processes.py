"""Processes as Linux shows them in /proc (proc(5)): to whom they belong, and how they are ended."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT_VARIABLE = "TRAINWRIGHT_ROOT"

_PROC = Path("/proc")
_POLL = 0.03
_KILL_SECONDS = 5.0


def started(pid: int) -> int | None:
    """When the process started, in clock ticks since the machine's boot; None if there is none, or it is a zombie.

    Together with its number this names a process for good: numbers are used again.
    """
    stat = _stat(pid)
    return None if stat is None else stat[1]


def belonging_to(root: Path) -> set[int]:
    """The processes that run on the node with this root folder, or on any node below this folder.

    Those are all whose environment names it in TRAINWRIGHT_ROOT, and their descendants, which may have
    changed their environment. The calling process is never among them.
    """
    own = os.fsencode(f"{ROOT_VARIABLE}={root}")
    parents: dict[int, int] = {}
    found: set[int] = set()
    for pid in _pids():
        if (stat := _stat(pid)) is not None:
            parents[pid] = stat[0]
            if any(entry == own or entry.startswith(own + b"/") for entry in _strings(pid, "environ")):
                found.add(pid)
    while heirs := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= heirs
    return found - {os.getpid()}


def commands() -> Iterator[tuple[int, list[str]]]:
    """Each process of the machine, with its command line."""
    for pid in _pids():
        yield pid, [os.fsdecode(argument) for argument in _strings(pid, "cmdline")]


def end(find: Callable[[], set[int]], grace: float) -> set[int]:
    """End what `find` finds, again and again until it finds nothing: SIGTERM once each, after `grace` seconds SIGKILL.

    Returns what is still there five seconds after the first SIGKILL, normally nothing.
    """
    deadline = time.monotonic() + grace
    asked: set[int] = set()
    while pids := find():
        now = time.monotonic()
        if now > deadline + _KILL_SECONDS:
            return pids
        if now >= deadline:
            _signal(pids, signal.SIGKILL)
        else:
            _signal(pids - asked, signal.SIGTERM)
            asked |= pids
        time.sleep(_POLL)
    return set()


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> tuple[int, int] | None:
    """The parent and the start time of a process that is there and no zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The second field, the command's name in parentheses, may itself hold blanks and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def _strings(pid: int, name: str) -> list[bytes]:
    try:
        return (_PROC / str(pid) / name).read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []
