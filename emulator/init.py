"""A node's first process: runs the user-data, takes in the node's orphans, and ends with the daemon.

Started by the node runner as ``python -S -m emulator.init DAEMON CORE [USER-DATA]`` in the node's own environment.
It is to the node what power is to a machine: as long as it runs, the node is up. It ends with an error when the
user-data does, and when the daemon dies, however that dies, it kills all that the node started. For that it has the
kernel's word: the death signal of its parent, and the subreaper's right to every orphan (prctl(2)).
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from emulator import processes

CANNOT_RUN = 126

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(daemon: int, core: int, user_data: str | None) -> NoReturn:
    """Be the first process of the node whose root folder TRAINWRIGHT_ROOT names, on this one core."""
    signal.signal(signal.SIGTERM, _power_off)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != daemon:
        sys.exit("The daemon ended before its node could start.")
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    os.sched_setaffinity(0, {core})
    os.chdir(_root())
    child = None if user_data is None else _start(user_data)
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            signal.pause()
            continue
        if child is not None and pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            print(f"user-data ended: {_words(code)}", flush=True)
            if code != 0:
                sys.exit(code if code > 0 else 128 - code)


def _start(user_data: str) -> "subprocess.Popen[bytes]":
    """The caller must hold on to the answer: a process object that is dropped reaps its process unseen."""
    try:
        return subprocess.Popen(
            [user_data],
            start_new_session=True,
            preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 (one thread only)
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"user-data cannot be run: {error}", flush=True)
        sys.exit(CANNOT_RUN)


def _power_off(number: int, _frame: FrameType | None) -> NoReturn:
    processes.end(lambda: processes.belonging_to(_root()), grace=0)
    os._exit(128 + number)


def _root() -> Path:
    return Path(os.environ[processes.ROOT_VARIABLE])


def _words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
