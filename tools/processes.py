"""Starting a helper program with a limit on its time, and learning in one line why it failed."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path


class Failed(Exception):
    """A step did not work; the message is the reason, in one line."""


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    limit: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    on_line: Callable[[str], None] = lambda _line: None,
) -> str:
    """Runs a program to its end and returns its last line of output (stdout and stderr together).

    `limit` is in seconds; `environment` is added to ours. The program and all that it started are killed at the
    limit and when this call is interrupted. Raises Failed: can't be started, exit code not 0, or past the limit.
    """
    try:
        # In a session of its own, so that its children can be ended with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        raise Failed(f"{command[0]} can't be started: {error.strerror}") from None
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        _kill(process)

    timer = threading.Timer(limit, expire)
    timer.daemon = True
    timer.start()
    last = ""
    try:
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                last = line.strip() or last
                on_line(line.rstrip())
    except BaseException:
        _kill(process)
        raise
    finally:
        timer.cancel()
    if expired.is_set():
        raise Failed(f"not done after {limit:.0f} seconds")
    if process.returncode != 0:
        raise Failed(last or f"{command[0]} ended with code {process.returncode}")
    return last


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
