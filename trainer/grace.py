"""How long a worker that was asked to leave may still take, as its agent says in the file that TRAINWRIGHT_GRACE names.

The agent writes, with SIGTERM, the seconds from then until SIGKILL, and may write others later. A rank may learn from
its peers that the run drains, and that before its own agent asks.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

GRACE_S = 110.0
"""How long workers may take to save and leave when asked, unless more is known: AWS takes a spot instance 120 s after
its notice, and groups give a node as long."""

MARGIN_S = 10.0
"""Seconds before that, in which a worker says how its save ended, and leaves."""

MOST_S = 3600.0
"""More than any agent gives."""


def left(path: Path | None, since: float) -> float:
    """Seconds from now; `since` is when the drain was noticed, by the system's clock, for where no agent says."""
    given = GRACE_S
    if path is not None:
        with suppress(OSError, ValueError):  # not asked yet, or being asked
            given, since = min(MOST_S, float(path.read_text())), path.stat().st_mtime
    return given - MARGIN_S - max(0.0, time.time() - since)
