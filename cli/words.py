"""How the command says durations, numbers and foreign text, in the terminal and on the page alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from components.plan import Plan

Tone = Literal["good", "busy", "bad", "quiet"]
"""What a word or line is like, for whoever gives it a colour."""

MINUTE, HOUR, DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """A length of time, in the two largest units that say something: `3.2 s`, `1 min 32 s`, `2 h 05 min`."""
    whole = round(seconds)
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02d} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02d} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def about(seconds: float) -> str:
    """A length of time that changes while it is read: as `duration`, in whole seconds."""
    return f"{max(round(seconds), 0)} s" if round(seconds) < MINUTE else duration(seconds)


def stamp(seconds: float) -> str:
    """A point in a run, counted from its start: `0:07`, `1:02:33`."""
    whole = max(int(seconds), 0)
    hours, rest = divmod(whole, HOUR)
    minutes, second = divmod(rest, MINUTE)
    return f"{hours}:{minutes:02d}:{second:02d}" if hours else f"{minutes}:{second:02d}"


def loss(value: float) -> str:
    """A loss, to four digits."""
    if not math.isfinite(value):
        return "not finite"
    return f"{value:#.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def size(count: float) -> str:
    """A number of bytes, in decimal units: `840 B`, `3.1 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 node`, `12 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def fleet(plan: Plan) -> str:
    """A cluster's fleet, where it is, and its run: `2 nodes of m6a.large, 1 worker each, in us-west-2; run a-1b2c`."""
    nodes = f"{counted(plan.fleet.desired, 'node')} of {plan.instance.name}"
    return f"{nodes}, {counted(plan.workers, 'worker')} each, in {plan.spec.region}; run {plan.run.id}"


def plain(text: str, most: int = 300) -> str:
    """Text of someone else's making on one line: no control characters, and not more than `most` characters."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
