"""The page of a run, `report.html`: one file that needs nothing else, with charts, for screens and paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

from cli import markup
from cli.charts import NARROW, WIDE, loss_chart, throughput_chart, timeline, timeline_holds
from cli.figures import Figures, figures
from cli.history import History
from cli.moments import why
from cli.nodes import BOOT_STEPS, NOT_ALL, nodes
from cli.report import Facts
from cli.words import counted, duration, loss, plain, size, stamp

MOST_LINES = 100
"""In any table."""

MOST_MEMBERS = 8
"""Of one generation, by name."""

LONG_VERDICT = 60
"""Characters from which on a verdict is a sentence, not a headline."""


def html(history: History, facts: Facts, *, now: float) -> str:
    """The page as of `now` (seconds since 1970), well below 500 kB however long the run."""
    found = figures(history, now, facts.group_created)
    began = next((at for at in (history.began(facts.group_created), history.first_trained) if at is not None), now)
    sections = (
        _header(found, facts),
        markup.figures(_key_figures(found)),
        _charts(history, began),
        _generations(history, began),
        _nodes(history),
        _checkpoints(history, facts, began),
        _job(facts.job),
        f"<footer>The report of one training run, written by Trainwright on {_date(now)}. Times count from "
        f"{_date(began)}.</footer>",
    )
    title = f"{found.verdict}: {facts.run}"
    return markup.document(title, sections)


def _header(found: Figures, facts: Facts) -> str:
    long = " long" if len(found.verdict) > LONG_VERDICT else ""
    subject = f"Stack {escape(facts.stack)}, {escape(plain(facts.where))}"
    return (
        f'<header><p>Training run <span class="id">{escape(facts.run)}</span></p>'
        f'<h1 class="{found.tone}{long}">{escape(found.verdict)}</h1><p>{subject}</p></header>'
    )


def _key_figures(found: Figures) -> Iterator[tuple[str, str, str]]:
    if found.first_loss is not None and found.last_loss is not None:
        fall = "" if found.fall is None else f", {'down' if found.fall >= 0 else 'up'} {abs(found.fall):.0f} %"
        yield "Loss", loss(found.last_loss), f"from {loss(found.first_loss)}{fall}"
    again = f"{counted(found.repeated, 'step')} done again" if found.repeated else ""
    if found.safe and not found.step:
        yield "Safe step", f"{found.safe:,}", "as the program told"
    yield "Steps", f"{found.step:,}", ", ".join(filter(None, [f"of {found.steps:,}" if found.steps else "", again]))
    if found.tokens_per_second is not None:
        yield "Tokens per second", f"{found.tokens_per_second:,.0f}", "median over steps"
        yield "Tokens", f"{found.tokens:,}", ""
    generations = f"in {counted(found.generations, 'generation')}" if found.generations else ""
    yield "Nodes", f"{len(found.nodes):,}", generations
    if found.world:
        yield "World size", f"{found.world:,}", "workers in the newest generation"
    if found.boot_s is not None:
        yield "Boot", duration(found.boot_s), f"{found.boot_from} to first step"
    if found.wall_s is not None:
        yield "Wall time", duration(found.wall_s), ""


SIGNS = {
    "each": ('<line class="each" x1="0" x2="14" y1="6" y2="6"/>', "each step"),
    "raw": ('<line class="raw" x1="0" x2="14" y1="6" y2="6"/>', "each step"),
    "mean": ('<line class="mean" x1="0" x2="14" y1="6" y2="6"/>', "smoothed"),
    "mark": ('<circle class="mark" cx="7" cy="6" r="3.5"/>', "checkpoint"),
    "band": ('<rect class="band" width="14" height="12"/>', "a generation trains"),
    "fault": ('<path class="fault" d="M2,2h10l-5,8z"/>', "a fault ended it"),
    "change": ('<path class="change" d="M2,2h10l-5,8z"/>', "nodes came or left"),
    **{f"boot{at}": (f'<rect class="boot{at}" width="14" height="12"/>', step) for at, step in enumerate(BOOT_STEPS)},
    "failed": ('<rect class="failed" width="14" height="12"/>', "failed"),
    "training": ('<rect class="training" width="14" height="12"/>', "training, by generation"),
}
"""What a legend says of each kind of thing that a chart may hold."""


def _charts(history: History, began: float) -> str:
    rows, numbers = timeline_holds(history)
    left_out = {"earlier node": len(history.boots) - len(rows), "earlier generation": len(history.spans) - len(numbers)}
    told = " and ".join(counted(count, noun) for noun, count in left_out.items() if count)
    note = f'<p class="note">Not shown: {told}.</p>' if told else ""
    return (
        _charted("Loss", loss_chart(history, WIDE), loss_chart(history, NARROW))
        + _charted("Throughput", throughput_chart(history, began, WIDE), throughput_chart(history, began, NARROW))
        + _charted("Nodes over time", timeline(history, began, WIDE), timeline(history, began, NARROW), note)
    )


def _charted(title: str, wide: str, narrow: str, note: str = "") -> str:
    held = [sign for kind, sign in SIGNS.items() if f'class="{kind}"' in wide]
    items = (f'<li><svg viewBox="0 0 14 12" aria-hidden="true">{sign}</svg>{name}</li>' for sign, name in held)
    legend = f'<ul class="legend">{"".join(items)}</ul>' if held else ""
    return f"<section><h2>{title}</h2><figure>{wide}{narrow}{legend}{note}</figure></section>" if wide else ""


def _generations(history: History, began: float) -> str:
    spans = history.spans
    rows = []
    for number, generation in sorted(history.generations.items(), reverse=True)[:MOST_LINES]:
        span = spans.get(number)
        ids = (f'<span class="id">{escape(member.node)}</span>' for member in generation.members[:MOST_MEMBERS])
        more = len(generation.members) - MOST_MEMBERS
        rows.append([
            str(number),
            escape(why(generation)),
            " ".join(ids) + (f" and {more:,} more" if more > 0 else ""),
            str(generation.world),
            stamp(span.started - began) if span else "",
            duration(span.ended - span.started) if span else "",
            f"{span.first:,} to {span.last:,}" if span and span.first is not None else "none",
        ])  # fmt: skip
    headings = ("Number", "=Why", "Nodes", ">World", ">Started", ">Length", ">Steps")
    caption = "One for each change of members, newest first."
    return markup.table("Generations", caption, headings, rows)


def _nodes(history: History) -> str:
    taken = {step["step"] for boot in history.boots.values() for step in boot.steps}
    steps = [step for step in BOOT_STEPS if step in taken or step not in NOT_ALL]
    rows = []
    for node in nodes(history)[:MOST_LINES]:
        boot = history.boots.get(node.node)
        took = {step["step"]: f"{step['seconds']:.1f}" for step in boot.steps} if boot else {}
        rows.append([
            f'<span class="id">{escape(node.node)}</span>',
            escape(node.address),
            f'<span class="state {node.tone}">{escape(node.state)}</span>',
            *(took.get(step, "") for step in steps),
            "" if node.boot_s is None else f"{node.boot_s:.1f}",
        ])  # fmt: skip
    headings = ("Node", "Address", "State", *(f">{step}" for step in steps), ">boot")
    failures = [
        f'<p class="note bad"><span class="id">{escape(boot.node)}</span>: {escape(plain(boot.failure))}</p>'
        for boot in list(history.boots.values())[:MOST_LINES]
        if boot.failure
    ]
    return markup.table("Nodes", "Steps of the boot, in seconds.", headings, rows, "".join(failures))


def _checkpoints(history: History, facts: Facts, began: float) -> str:
    saved = {event.step: event for event in history.events if event.event == "checkpoint"}
    rows = []
    for step in history.checkpoints[: -MOST_LINES - 1 : -1]:
        event = saved.get(step)
        details = event.details if event else {}
        rows.append([
            f"{step:,}",
            stamp(event.time - began) if event else "",
            size(details["bytes"]) if "bytes" in details else "",
            f"{details['stall_ms']:,.1f} ms" if "stall_ms" in details else "",
        ])  # fmt: skip
    where = f'<p class="note"><span class="id">{escape(plain(facts.checkpoints_url))}</span></p>'
    if not rows:
        return f'<section><h2>Checkpoints</h2><p class="note">None in the store.</p>{where}</section>'
    caption = f"{len(history.checkpoints):,} kept of {max(len(saved), len(rows)):,} saved, newest first."
    return markup.table("Checkpoints", caption, ("Step", ">Saved", ">Size", ">Training paused for"), rows, where)


def _job(job: Mapping[str, Any]) -> str:
    pairs = "".join(
        f"<dt>{escape(plain(name.replace('_', ' ')))}</dt><dd>{escape(plain(value))}</dd>" for name, value in _flat(job)
    )
    return f'<section><h2>Job</h2><dl class="pairs">{pairs}</dl></section>' if pairs else ""


def _flat(job: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in job.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name} ")
        else:
            yield f"{above}{name}", str(value)


def _date(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
