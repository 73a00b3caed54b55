"""The cache folder for what is downloaded or built once: outside the repository, filled whole or not at all."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.processes import Failed

_POLL = 0.2
"""Seconds between two tries for the lock."""


def folder() -> Path:
    """`${XDG_CACHE_HOME:-~/.cache}/trainwright`; a relative XDG_CACHE_HOME is ignored, as its standard asks."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "trainwright"


@contextmanager
def lock(entry: Path, *, limit: float, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds the lock of a cache entry, so that two checkouts don't fill it at once.

    The lock goes with its process, however that ends. `on_wait` is called once if another holds it.
    Raises Failed if it isn't free after `limit` seconds, OSError if the cache can't be written.
    """
    entry.parent.mkdir(parents=True, exist_ok=True)
    path = entry.with_name(f"{entry.name}.lock")
    deadline = time.monotonic() + limit
    with path.open("w") as file:
        waiting = False
        while not _try_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise Failed(f"another process has held {path} for {limit:.0f} seconds")
            if not waiting:
                waiting = True
                on_wait()
            time.sleep(_POLL)
        yield


def fill(entry: Path, make: Callable[[Path], None]) -> None:
    """Fills a cache entry through `make`, which gets an empty folder; call it under the entry's lock.

    The entry appears by one rename after `make` has returned, so nobody ever sees half of it. What a killed
    process left is cleared first. Raises what `make` raises, and then leaves nothing.
    """
    for remains in entry.parent.glob(f"{entry.name}.partial-*"):
        shutil.rmtree(remains)
    partial = Path(tempfile.mkdtemp(prefix=f"{entry.name}.partial-", dir=entry.parent))
    try:
        make(partial)
        # mkdtemp gives 0700, which would hide a shared cache from its other users.
        partial.chmod(0o755)
        if entry.exists():
            shutil.rmtree(entry)
        partial.rename(entry)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
