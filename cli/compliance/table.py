"""A review for a terminal: what is broken first, topic by topic, then what is exempt, and a line that sums it up."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.compliance import words
from cli.compliance.review import TONES, Judged, Outcome, Review
from cli.status import TONES as STYLES
from cli.words import counted, plain
from policies.frameworks import DISCLAIMER
from policies.verdicts import Settled

WIDEST = 100
MOST_KINDS = 12
"""Of what is said of a control's resources."""

SIGNS = {
    Outcome.BROKEN: "✗",
    Outcome.ERROR: "!",
    Outcome.EXEMPT: "~",
    Outcome.UNKNOWN: "?",
    Outcome.KEPT: "✓",
    Outcome.NOT_APPLICABLE: "-",
}
TOLD = (Outcome.BROKEN, Outcome.ERROR, Outcome.EXEMPT, Outcome.UNKNOWN)
"""Outcomes of which each resource is told; of the others, only the controls."""


def plain_text(review: Review) -> str:
    """The review as text without colours, for a file."""
    written = io.StringIO()
    Console(file=written, width=WIDEST, no_color=True, highlight=False).print(shown(review, WIDEST))
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"


def shown(review: Review, width: int) -> Constrain:
    """The review, for a console."""
    judged = f"{counted(review.resources, 'resource')} {review.subject.how}; held against {asked(review)}"
    parts: list[RenderableType] = [
        Text(review.headline, style="bold red" if review.failed else "bold green"),
        Padding(Text(plain(judged), style="dim"), (0, 0, 0, 2)),
    ]
    for topic, controls in sorted(review.topics.items(), key=lambda item: list(Outcome).index(item[1][0].outcome)):
        parts += [Text(), Text(topic, style="bold"), *_topic(controls)]
    if review.settings.exemptions:
        parts += [Text(), Text("exemptions", style="bold"), _exemptions(review)]
    parts += [Text(), Text.assemble((review.summary, "bold"))]
    parts += [Text(line, style="dim") for line in (review.not_asked, DISCLAIMER) if line]
    return Constrain(Group(*parts), min(width, WIDEST))


def asked(review: Review) -> str:
    """Which controls were asked for."""
    settings = review.settings
    chosen = [
        *settings.frameworks,
        *settings.topics,
        *settings.clouds,
        *([f"{settings.severity} or graver"] if settings.severity != "low" else []),
    ]
    narrowed = f" ({', '.join(chosen)})" if chosen else ""
    return f"{counted(len(review.judged), 'control')}{narrowed}"


def _topic(controls: list[Judged]) -> Iterator[RenderableType]:
    for judged in controls:
        if judged.outcome in TOLD:
            yield _control(judged)
    for outcome in (Outcome.KEPT, Outcome.NOT_APPLICABLE):
        ids = [judged.control.id for judged in controls if judged.outcome is outcome]
        if ids:
            style = STYLES[TONES[outcome]]
            yield _indented(Text.assemble((f"{SIGNS[outcome]} {outcome} ", style), (", ".join(ids), "dim")))


def _control(judged: Judged) -> RenderableType:
    control, outcome = judged.control, judged.outcome
    level = "" if judged.level == "mandatory" else f", {judged.level}"
    head = Text.assemble(
        (f"{SIGNS[outcome]} {control.id} {outcome}", f"bold {STYLES[TONES[outcome]]}"),
        f"  {control.title}",
        (f"  {control.severity.name.lower()}{level}", "dim"),
    )
    lines: list[RenderableType] = [_indented(head)]
    alike = words.alike(judged.of(*TOLD))
    lines += [_indented(_resources(ones), 4) for ones in alike[:MOST_KINDS]]
    if left := sum(map(len, alike[MOST_KINDS:])):
        lines.append(_indented(Text(f"and {counted(left, 'resource')} more", style="dim"), 4))
    if outcome in (Outcome.BROKEN, Outcome.ERROR):
        lines.append(_indented(Text.assemble(("fix: ", "bold"), f"{control.fix}."), 4))
        if mapped := words.clauses(judged):
            lines.append(_indented(Text(mapped, style="dim"), 4))
    return Group(*lines)


def _resources(ones: list[Settled]) -> RenderableType:
    """Resources of one type of which the same is said."""
    one = ones[0]
    lines = [Text.assemble(words.names(ones), (f"  {one.result.resource.type}", "dim"))]
    found = words.places(one)
    lines += [Text(plain(line)) for line in found[: words.MOST_PLACES]]
    if len(found) > words.MOST_PLACES:
        lines.append(Text(f"and {counted(len(found) - words.MOST_PLACES, 'place')} more", style="dim"))
    lines += [Text(plain(line), style="yellow") for line in (words.expired(one), words.exempt(one), one.remedy) if line]
    return Group(lines[0], *(_indented(line) for line in lines[1:]))


def _exemptions(review: Review) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    for exemption, state, tone in review.exemptions:
        why = f"{exemption.reason} ({exemption.owner}), until {exemption.expires}"
        table.add_row(
            Text(f"{exemption.control} {plain(exemption.resource)}"), Text(plain(why)), Text(state, style=STYLES[tone])
        )
    return _indented(table)


def _indented(what: RenderableType, by: int = 2) -> Padding:
    return Padding(what, (0, 0, 0, by))
