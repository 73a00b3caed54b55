"""How long a rank may take for its next step before it counts as hanging, by the steps that it has taken.

A step too early costs every rank a restart, and what was computed since the last checkpoint, minutes perhaps; a hang
found late, the difference to a collective's own limit, a minute at most. So what is rare and honest is left out of it:
a generation's first step, which may compile; the copy of a checkpoint and the steps while it is written, which fill
disk and network; reading data, since Lustre and NFS stall for all ranks alike while a server is replaced; and the last
checkpoint. These have limits of their own. What is the same for all ranks, as they wait for each other, is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

FIRST_STEP_S = 3600.0
"""Seconds that the first step of a generation may take, which may compile."""

STEP_S = 600.0
"""Most seconds for any other, and what one has of which too little is known."""

LEAST_S = 10.0
"""Fewest: swapping, a disk that flushes, or a neighbour on the machine stop a process for seconds, a step of a
millisecond as well as one of a second."""

TIMES = 5
"""By how much a step may be slower than the slowest of the last: NVIDIA's fault tolerance takes as much of what it has
observed (nvidia-resiliency-ext, "FaultToleranceConfig", `safety_factor`)."""

LAST = 100
"""Steps that count, the first one among them: what was slow then may be again."""

ENOUGH = 20
"""Steps to have seen: caches are cold after a start."""


def limit(taken: Sequence[float]) -> float:
    """Seconds for the next step, after the last ones took so many each."""
    return min(STEP_S, max(LEAST_S, TIMES * max(taken))) if len(taken) >= ENOUGH else STEP_S
