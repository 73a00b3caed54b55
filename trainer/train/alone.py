"""A run of one process keeps others off its scratch: two would take each other's checkpoints for their own."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from trainer.train.errors import InvalidSetting
from trainer.train.setting import Setting

LOCK = "lock"

UNKNOWN = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""What a file system answers that has no locks."""


@contextmanager
def alone(setting: Setting) -> Iterator[None]:
    """Hold the lock of the run's scratch. Raises `InvalidSetting` where it is held.

    Agents see to it themselves, by generations, and under torchrun a rank that froze must not keep off the one that
    takes its place. A file system that has no locks is trusted.
    """
    if setting.generation or setting.world > 1:
        yield
        return
    setting.scratch.mkdir(parents=True, exist_ok=True)
    with (setting.scratch / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidSetting(
                f"{setting.scratch}: another process trains into it; give --store another folder, or end that one"
            ) from None
        except OSError as error:
            if error.errno not in UNKNOWN:
                raise
        yield
