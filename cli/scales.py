"""The arithmetic of charts: scales, ticks on round numbers, smoothing, and thinning to what a screen can show. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

Point = tuple[float, float]

ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
ROUND_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True)
class Scale:
    """Maps values between `low` and `high` linearly to places between `start` and `end`, in pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


def ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """Round numbers from `low` to `high`, evenly spaced, at most `most` of them; whole numbers only, if so asked."""
    if not high > low or most < 2:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    spacings = (power * factor for factor in (*ROUND, 20.0) if not whole or (power * factor).is_integer())
    spacing = next((spacing for spacing in spacings if _count(low, high, spacing) <= most), 1.0)
    return _multiples(low, high, spacing)


def time_ticks(high: float, most: int) -> list[float]:
    """Round times from 0 to `high` seconds, evenly spaced, at most `most` of them."""
    days = math.ceil(high / most / ROUND_SECONDS[-1]) * ROUND_SECONDS[-1]
    spacing = next((spacing for spacing in ROUND_SECONDS if _count(0, high, spacing) <= most), days)
    return _multiples(0, high, spacing)


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Each value as the mean of those around it. Near the ends fewer count, evenly, so that nothing is shifted."""
    sums = [0.0, *accumulate(values)]
    last = len(values) - 1
    reach = (min(window // 2, index, last - index) for index in range(len(values)))
    return [(sums[i + r + 1] - sums[i - r]) / (2 * r + 1) for i, r in enumerate(reach)]


def thin(points: Sequence[Point], columns: int) -> list[Point]:
    """At most four points for each of so many columns that look like all: first, lowest, highest and last of each."""
    if len(points) <= 2 * columns:
        return list(points)
    low, high = points[0][0], points[-1][0]
    column = Scale(low, high, 0, columns - 1)
    thinned: list[Point] = []
    for _, group in groupby(points, key=lambda point: round(column(point[0]))):
        held = list(group)
        lowest, highest = min(held, key=lambda point: point[1]), max(held, key=lambda point: point[1])
        thinned.extend(sorted({held[0], lowest, highest, held[-1]}))
    return thinned


def _count(low: float, high: float, spacing: float) -> int:
    return math.floor(high / spacing + 1e-9) - math.ceil(low / spacing - 1e-9) + 1


def _multiples(low: float, high: float, spacing: float) -> list[float]:
    first = math.ceil(low / spacing - 1e-9)
    return [(first + index) * spacing for index in range(_count(low, high, spacing))]
