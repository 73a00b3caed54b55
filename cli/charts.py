"""The page's charts, as SVG: loss, throughput, and the timeline of nodes. Their colours stand in `cli/style.py`.

Each is drawn twice, for wide and for narrow screens, since text in a picture that shrinks can't be read. What a chart
holds is bounded by its width, not by the length of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from statistics import median

from cli.history import History
from cli.moments import fault, why
from cli.nodes import BOOT_STEPS
from cli.scales import Point, Scale, smooth, thin, ticks, time_ticks
from cli.words import duration, loss, stamp

WIDE, NARROW = 1040, 372
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 26, 30
ASIDE = 60
"""Room around a plot for what its axes say, in pixels; `ASIDE` for a value beside the end of a line."""

SMOOTHING = 40
LEAST_SMOOTHED = 9
"""A smoothed line takes means over this part of all points, and over this many at least."""

FEW = 30
"""Points up to which a smoothed line would say less than they do."""

MARK = 8
"""Pixels that a mark takes; of those closer together, one is drawn."""

GAP = 3
"""Pixels from which on a gap in a line is shown."""

MOST_ROWS = 40
MOST_BARS = 400
MOST_BANDS = 100
"""Nodes and their generations in the timeline, and generations in the throughput chart; the newest are shown."""


@dataclass(frozen=True)
class Plot:
    """An area with two scales, and what is common to all charts on it."""

    x: Scale
    y: Scale

    def curve(self, points: Sequence[Point]) -> str:
        """What was measured, thin, below its mean; as it is where there are few points."""
        if len(points) <= FEW:
            return self.line(points, "each")
        return self.line(points, "raw") + self.line(_smoothed(points), "mean", finest=2)

    def line(self, points: Sequence[Point], kind: str, finest: int = 1) -> str:
        """A line through points, thinned to what shows at `finest` pixels; a lone one is a dot."""
        shown = thin(points, max(int(self.x(points[-1][0]) - self.x(points[0][0])) // finest, 2))
        if len(shown) == 1:
            return f'<circle class="dot {kind}" cx="{self.x(shown[0][0]):.1f}" cy="{self.y(shown[0][1]):.1f}" r="2"/>'
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in shown)
        return f'<polyline class="{kind}" points="{places}"/>'

    def grid(self, across: Iterable[float], up: Sequence[float], named: Callable[[float], str], title: str) -> str:
        """Lines and labels of both axes; `title` says what the upright one measures."""
        parts = [f'<text class="axis" x="0" y="12">{escape(title)}</text>']
        unit = "M" if up[-1] >= 1_000_000 else "k" if up[-1] >= 10_000 else ""
        for value in up:
            y = self.y(value)
            parts.append(f'<line class="grid" x1="{self.x.start}" x2="{self.x.end}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="end" x="{self.x.start - 8}" y="{y + 4:.1f}">{_number(value, unit)}</text>')
        parts.append(self.base(across, named, self.y.start))
        return "".join(parts)

    def base(self, across: Iterable[float], named: Callable[[float], str], y: float) -> str:
        """The level axis, at height `y`."""
        labels = (f'<text class="middle" x="{self.x(at):.1f}" y="{y + 18:.1f}">{named(at)}</text>' for at in across)
        return f'<line class="base" x1="{self.x.start}" x2="{self.x.end}" y1="{y}" y2="{y}"/>{"".join(labels)}'


def loss_chart(history: History, width: int) -> str:
    """Loss over steps: each step thin, their mean thick, a mark for each checkpoint."""
    told = [(float(step.step), step.loss) for step in history.steps]
    points = [point for point in told if math.isfinite(point[1])]
    if not points:
        return ""
    height = 300 if width == WIDE else 240
    low, high = _room([y for _, y in points])
    last = max(told[-1][0], 2.0)
    plot = Plot(Scale(1, last, LEFT, width - ASIDE), Scale(low, high, height - BOTTOM, TOP + 12))
    stretches = _stretches(told, plot.x)
    at = {step: mean for stretch in stretches for step, mean in _smoothed(stretch)}
    saved = {plot.x(event.step) // MARK: event.step for event in history.events if event.event == "checkpoint"}
    marks = (
        f'<circle class="mark" cx="{plot.x(step):.1f}" cy="{plot.y(at[step]):.1f}" r="3.5">'
        f"<title>checkpoint at step {step:,}</title></circle>"
        for step in saved.values()
        if step in at
    )
    first, end = points[0], points[-1]
    labels = (
        f'<text class="value" x="{plot.x(first[0]):.1f}" y="{plot.y(first[1]) - 8:.1f}">{loss(first[1])}</text>'
        f'<text class="value" x="{plot.x(end[0]) + 9:.1f}" y="{plot.y(end[1]) + 5:.1f}">{loss(end[1])}</text>'
    )
    across = [1.0, *(tick for tick in ticks(1, last, width // 90, whole=True) if tick > last / 30)]
    grid = plot.grid(across, ticks(low, high, 6), lambda value: f"{value:,.0f}", "loss, by step")
    body = grid + "".join(plot.curve(stretch) for stretch in stretches) + "".join(marks) + labels
    summary = f"Loss over {len(told):,} steps, from {loss(told[0][1])} to {loss(told[-1][1])}."
    return _svg("loss", width, height, "Loss", summary, body)


def throughput_chart(history: History, began: float, width: int) -> str:
    """Tokens per second over the run's time, generation by generation, with marks where one ended and why."""
    newest = set(sorted(history.spans)[-MOST_BANDS:])
    rows: dict[int, list[Point]] = {}
    for step in history.taken:
        if step.generation in newest and math.isfinite(step.tokens_per_second):
            rows.setdefault(step.generation, []).append((step.time - began, step.tokens_per_second))
    if not rows:
        return ""
    height = 240 if width == WIDE else 210
    end = _end(history) - began
    top = max(rate for points in rows.values() for _, rate in points) * 1.08 or 1.0
    plot = Plot(Scale(0, end, LEFT, width - RIGHT), Scale(0, top, height - BOTTOM, TOP + 18))
    parts = [plot.grid(time_ticks(end, width // 90), ticks(0, top, 5), stamp, "tokens per second, by time")]
    for number, points in sorted(rows.items()):
        parts.append(_band(history, number, plot, began) + plot.curve(points))
    rate = median(rate for points in rows.values() for _, rate in points)
    told = f"Throughput over {duration(end)}, {rate:,.0f} tokens per second in the median."
    return _svg("throughput", width, height, "Throughput", told, "".join(parts))


def timeline(history: History, began: float, width: int) -> str:
    """A row for each node: the steps of its boot, then the generations that it was a member of."""
    rows, numbers = timeline_holds(history)
    if not rows:
        return ""
    room, step = (172, 30) if width == WIDE else (0, 44)
    bottom = 8 + step * len(rows)
    end = max(_end(history) - began, 1.0)
    plot = Plot(Scale(0, end, room + 2, width - RIGHT), Scale(0, 1, bottom, 8))
    parts = [
        f'<line class="grid" x1="{plot.x(at):.1f}" x2="{plot.x(at):.1f}" y1="4" y2="{bottom}"/>'
        for at in time_ticks(end, width // 90)
    ]
    for index, node in enumerate(rows):
        y = 8 + step * index
        parts.append(f'<text class="node" x="0" y="{y + (14 if room else 10)}">{escape(node)}</text>')
        parts.append(_row(history, node, numbers, plot, began, y if room else y + 16))
    parts.append(plot.base(time_ticks(end, width // 90), stamp, bottom))
    told = f"When {len(rows)} nodes booted and trained, over {duration(end)}."
    return _svg("timeline", width, bottom + BOTTOM, "Nodes over time", told, "".join(parts))


def timeline_holds(history: History) -> tuple[list[str], list[int]]:
    """The nodes that the timeline shows, in order of their boot, and the generations: the newest of both."""
    boots = sorted(history.boots.values(), key=lambda boot: (boot.started, boot.node))[-MOST_ROWS:]
    known = [number for number in sorted(history.spans, reverse=True) if number in history.generations]
    bars = accumulate(min(len(history.generations[number].members), MOST_ROWS) for number in known)
    return [boot.node for boot in boots], [
        number for number, count in zip(known, bars, strict=True) if count <= MOST_BARS
    ]


def _row(history: History, node: str, numbers: Sequence[int], plot: Plot, began: float, y: float) -> str:
    parts = []
    boot = history.boots.get(node)
    at = boot.started - began if boot else 0.0
    for step in boot.steps if boot else ():
        order = BOOT_STEPS.index(step["step"]) if step["step"] in BOOT_STEPS else 0
        kind = "failed" if step["status"] == "failed" else f"boot{order}"
        told = f"{node}: {step['step']} {step['status']}, {duration(step['seconds'])}"
        parts.append(_bar(plot, at, at + step["seconds"], y, kind, told))
        at += step["seconds"]
    for number in numbers:
        span, generation = history.spans[number], history.generations[number]
        if any(member.node == node for member in generation.members):
            told = f"{node}: generation {number}, {duration(span.ended - span.started)}"
            parts.append(_bar(plot, span.started - began, span.ended - began, y, "training", told, str(number)))
    return "".join(parts)


def _bar(plot: Plot, start: float, end: float, y: float, kind: str, told: str, label: str = "") -> str:
    x, width = plot.x(start), max(plot.x(end) - plot.x(start) - 1.0, 1.5)
    name = f'<text class="inside" x="{x + 7:.1f}" y="{y + 14}">{label}</text>' if width > 24 and label else ""
    bar = f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="20"/>'
    return f"<g><title>{escape(told)}</title>{bar}{name}</g>"


def _band(history: History, number: int, plot: Plot, began: float) -> str:
    """The ground of a generation, its name, and a mark where it began if that was for a reason."""
    span, generation = history.spans[number], history.generations.get(number)
    x, end = plot.x(span.started - began), plot.x(span.ended - began)
    top, height = plot.y.end, plot.y.start - plot.y.end
    name = f"generation {number}" if end - x > 90 else str(number) if end - x > 16 else ""
    parts = f'<rect class="band" x="{x:.1f}" y="{top:.1f}" width="{max(end - x, 1):.1f}" height="{height:.1f}"/>'
    parts += f'<text class="axis" x="{x + 4:.1f}" y="{top - 5:.1f}">{name}</text>'
    if number > 1 and generation:
        # Where the one before it ended is when the reason came up; what lies between is what it cost.
        before = history.spans.get(number - 1)
        place = plot.x((before.ended if before else span.started) - began)
        kind = "fault" if fault(generation) else "change"
        shape = f"M{place - 5:.1f},{top:.1f}h10l-5,8z"
        parts += f'<line class="{kind}" x1="{place:.1f}" x2="{place:.1f}" y1="{top}" y2="{plot.y.start}"/>'
        parts += f'<path class="{kind}" d="{shape}"><title>{escape(why(generation))}</title></path>'
    return parts


def _stretches(points: Sequence[Point], x: Scale) -> list[list[Point]]:
    """The points with a finite value, parted where others lie between them and the gap is wide enough to be seen."""
    stretches: list[list[Point]] = []
    broken = True
    for point in points:
        if not math.isfinite(point[1]):
            broken = True
            continue
        if broken and (not stretches or x(point[0]) - x(stretches[-1][-1][0]) >= GAP):
            stretches.append([])
        stretches[-1].append(point)
        broken = False
    return stretches


def _smoothed(points: Sequence[Point]) -> list[Point]:
    window = max(len(points) // SMOOTHING, LEAST_SMOOTHED) if len(points) > FEW else 1
    means = smooth([y for _, y in points], window)
    return [(x, mean) for (x, _), mean in zip(points, means, strict=True)]


def _room(values: Sequence[float]) -> tuple[float, float]:
    """The range of values, with some air, so that nothing lies on the frame."""
    low, high = min(values), max(values)
    air = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - air, high + air


def _end(history: History) -> float:
    """The newest time that anything of the run carries, in seconds since 1970."""
    told = [span.ended for span in history.spans.values()]
    booted = [boot.started + boot.seconds for boot in history.boots.values()]
    return max([*told, *booted, *([history.outcome.ended] if history.outcome else [])])


def _number(value: float, unit: str) -> str:
    """A tick's value; all of an axis are told in one unit, thousands or millions."""
    scaled = value / {"": 1, "k": 1_000, "M": 1_000_000}[unit]
    return f"{round(scaled, 9):,g}{unit if value else ''}"


def _svg(name: str, width: int, height: float, title: str, told: str, body: str) -> str:
    """A picture with a name and a description for those who can't see it."""
    size = "wide" if width == WIDE else "narrow"
    ids = f"{name}-{size}-title {name}-{size}-told"
    head = f'<title id="{name}-{size}-title">{title}</title><desc id="{name}-{size}-told">{escape(told)}</desc>'
    frame = f'viewBox="0 0 {width} {height:g}" role="img" aria-labelledby="{ids}"'
    return f'<svg class="{size}" {frame}>{head}{body}</svg>'
