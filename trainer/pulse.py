"""How an agent learns that a worker hangs: the worker promises, in a file, to write there again within some seconds.

The file, which `TRAINWRIGHT_PULSE` names, holds one line, `SECONDS WHAT`: how long the next line may take, and what is
done meanwhile. Any script may keep one (`echo "600 evaluating" > $TRAINWRIGHT_PULSE`); one that writes none is never
taken to hang. Who promises sets the limit, above what it may honestly take; the agent only holds it to its word.

Where one rank hangs, its peers wait for it and break their promises as well. What they are at tells them apart: words
that end in `with its peers` say that a rank can't go on before the others do. It is given longer, so that who holds
them all up is found first, and is never itself what is found to hang.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

LINE = 80
"""Bytes of a line, filled with blanks: written over the last one at once, it is never seen half."""

WITH_PEERS = "with its peers"
"""How the words of a promise end that others may break."""

PATIENCE_S = 55.0
"""Seconds more for such a promise: a collective gives up first, by its own limit. Where one rank alone waits for a file
system that fails over, its peers must be as patient as they are without a pulse."""

STOPPED_S = 4.0
"""Seconds that a process may be stopped (SIGSTOP), whatever it promised: it does nothing until it is continued."""

DOUBT_S = 60.0
"""Seconds more for every promise in a generation that follows a failure without a new checkpoint: what takes long for
an honest reason, at the same step each time, must not end the run."""

FIRST_S = 600.0
"""Seconds within which the bundled trainer makes its first promise: all that comes before is a Python's own start, or
torch's import, from a disk that may still be being filled."""

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
    """An agent's side: the pulses of its workers, by rank, of which `stopped` says whether one's process is.

    Every promise holds `more_s` longer than it says, and the first is to come within `first_s`.
    """

    def __init__(
        self,
        paths: Mapping[int, Path],
        clock: Callable[[], float] = time.monotonic,
        *,
        stopped: Callable[[int], bool] = lambda _: False,
        more_s: float = 0.0,
        first_s: float = math.inf,
    ) -> None:
        self._paths = paths
        self._stopped = stopped
        self._more_s = more_s
        self._first_s = first_s
        self._clock = clock
        self._looked = clock()
        self._observed = 0.0
        self._last: dict[int, tuple[tuple[int, bool], float]] = {}
        """For each rank: when it promised and whether it is stopped, and since when that is so."""
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
                within_s = float(seconds) + self._more_s + PATIENCE_S * what.endswith(WITH_PEERS)
            except FileNotFoundError:
                if self._observed > self._first_s:
                    found[rank] = "its start"
                continue
            except (OSError, ValueError):
                continue  # no promise that we understand, or none for want of room on the disk
            self.doing[rank] = what
            state = (written, self._stopped(rank))
            if self._last.get(rank, ((0, False), 0.0))[0] != state:
                self._last[rank] = (state, self._observed)
            elif self._observed - self._last[rank][1] > (STOPPED_S if state[1] else within_s):
                found[rank] = what
        return found

    def held_up(self, ranks: Iterable[int]) -> list[int]:
        """Those of these ranks that only wait for peers."""
        waiting = (rank for rank in ranks if self.doing.get(rank, "").endswith(WITH_PEERS))
        return [rank for rank in waiting if not self._stopped(rank)]
