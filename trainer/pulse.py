"""How an agent learns that a worker hangs: the worker promises, in a file, to write there again within some seconds.

The file, which `TRAINWRIGHT_PULSE` names, holds one line, `SECONDS WHAT`: how long the next line may take, and what is
done meanwhile. Any script may keep one (`echo "600 evaluating" > $TRAINWRIGHT_PULSE`); one that writes none is never
taken to hang. Who promises sets the limit, above what it may honestly take; the agent only holds it to its word.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

LINE = 80
"""Bytes of a line, filled with blanks: written over the last one at once, it is never seen half."""

LONGEST_GAP_S = 2.0
"""Most that one look may add to observed time, so that a pause of the agent's own is not held against its workers."""


class Pulse:
    """A worker's side: where it writes, or nowhere where `path` is None, or its disk is full."""

    def __init__(self, path: Path | None) -> None:
        self._file: int | None = None
        if path is not None:
            with suppress(OSError):
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def promise(self, what: str, within_s: float) -> None:
        """Say what is done now, and that the next promise comes within so many seconds."""
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, f"{within_s:g} {what}".encode()[: LINE - 1].ljust(LINE - 1) + b"\n", 0)


class Pulses:
    """An agent's side: the pulses of its workers, by rank."""

    def __init__(self, paths: Mapping[int, Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = paths
        self._clock = clock
        self._looked = clock()
        self._observed = 0.0
        self._last: dict[int, tuple[int, float]] = {}
        self.doing: dict[int, str] = {}
        """What each rank was at by its last promise that was read."""

    def broken(self) -> dict[int, str]:
        """What the ranks were at that have broken their promise. To be asked every second or so."""
        now = self._clock()
        self._observed += min(now - self._looked, LONGEST_GAP_S)
        self._looked = now
        found = {}
        for rank, path in self._paths.items():
            try:
                written = path.stat().st_mtime_ns
                seconds, _, what = path.read_text().strip().partition(" ")
                within_s = float(seconds)
            except (OSError, ValueError):
                continue  # no promise, or none that we understand
            self.doing[rank] = what
            if self._last.get(rank, (0, 0.0))[0] != written:
                self._last[rank] = (written, self._observed)
            elif self._observed - self._last[rank][1] > within_s:
                found[rank] = what
        return found
