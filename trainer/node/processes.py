"""Processes as Linux shows them in /proc (proc(5)), found by what stands in the environment that they began with."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1  # Linux, include/uapi/linux/prctl.h

_PROC = Path("/proc")


def dying_with_parent() -> Callable[[], None]:
    """What a child of this process is to call before all else, to end when the *thread* ends that started it."""
    libc, parent = ctypes.CDLL(None, use_errno=True), os.getpid()

    def die_with_its_parent() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return die_with_its_parent


def having(setting: str) -> set[int]:
    """The processes that began with this `NAME=value` in their environment, whoever has started them since."""
    return {int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit() and setting in _environment(entry)}


def outermost(pids: Collection[int], names: Collection[str]) -> set[int]:
    """Those of `pids` that began with any of these variables, and whose parents, of `pids` too, did not.

    So none that a process has left behind which had them: it has another parent.
    """
    found = {pid for pid in pids if any(entry.split("=")[0] in names for entry in _environment(_PROC / str(pid)))}
    return {pid for pid in found if _parent(pid) in {*pids} - found}


def state(pid: int) -> str:
    """Its state's letter (proc_pid_stat(5)), such as `T` where it is stopped; empty where there is no such process."""
    return next(iter(_stat(pid)), "")


def runs(pid: int) -> bool:
    """Whether there is such a process, which has not ended to wait for its parent."""
    return state(pid) not in {"", "Z", "X"}


def send(pids: Collection[int], number: signal.Signals) -> None:
    """Send a signal to those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _environment(folder: Path) -> set[str]:
    """Empty for one that has ended, that isn't ours to see, or that is of the kernel's."""
    try:
        return set((folder / "environ").read_bytes().decode(errors="replace").split("\0"))
    except OSError:
        return set()


def _parent(pid: int) -> int:
    return int(next(iter(_stat(pid)[1:]), 0))


def _stat(pid: int) -> list[str]:
    """What the kernel says of it, from its state on: its name, which may hold anything, is before."""
    try:
        return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
