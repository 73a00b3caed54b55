"""The page of a review: what a security reviewer gets. One file that needs nothing else, for screens and paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from cli import markup
from cli.compliance import words
from cli.compliance.review import TONES, Judged, Outcome, Review, outcome
from cli.compliance.table import asked
from cli.words import counted
from cli.words import plain as one_line
from policies.frameworks import DISCLAIMER, Framework
from policies.verdicts import Settled

MOST_KINDS = 200
"""Of what is said of a control's resources."""

MOST_NAMES = 100
"""Of resources of which the same is said."""

STYLE = """
h3 { font-size: 16px; margin: 0; } h3 a { color: inherit; text-decoration: none; }
.control { border-top: 1px solid var(--rule); padding: 14px 0 16px; break-inside: avoid-page; }
.control > p { margin: 2px 0 0; font-size: 15px; overflow-wrap: anywhere; }
.control table { margin-top: 8px; font-size: 14px; table-layout: fixed; }
.control :is(th, td) { border: 0; padding: 3px 20px 3px 0; overflow-wrap: anywhere; }
.control .id { white-space: normal; } .control table.compact { width: 100%; }
.control th:first-child { width: 34%; } .control th:nth-child(2) { width: 104px; }
.control small { display: block; color: var(--soft); font-size: 13px; }
td a { color: inherit; text-decoration-color: var(--rule); } .nowrap { white-space: nowrap; }
@media screen and (max-width: 700px) {
  .control table, .control :is(thead, tbody, tr, td) { display: block; width: 100%; } .control thead { display: none; }
  .control td { padding: 0 0 2px; } .control tr { padding-bottom: 10px; } }
"""


def page(review: Review) -> str:
    """The page. All that comes from a program or a stack's file is escaped."""
    sections = (
        _header(review),
        markup.figures(_figures(review)),
        _exemptions(review),
        _frameworks(review),
        _overview(review),
        *_details(review),
        f"<footer>A review of {escape(one_line(review.subject.name))}, written by Trainwright on {review.today}. "
        f"{escape(DISCLAIMER)}</footer>",
    )
    return markup.document(f"Compliance: {review.subject.name}", sections, STYLE)


def _header(review: Review) -> str:
    tone = "bad" if review.failed else "good"
    judged = f"{counted(review.resources, 'resource')} {review.subject.how}; held against {asked(review)}."
    not_asked = f"<p>{escape(review.not_asked)}.</p>" if review.not_asked else ""
    return (
        f'<header><p>Compliance review of <span class="id">{escape(one_line(review.subject.file))}</span>, '
        f'<span class="nowrap">{review.today}</span></p><h1 class="{tone}">{escape(one_line(review.headline))}</h1>'
        f"<p>{escape(judged)}</p>{not_asked}</header>"
    )


def _figures(review: Review) -> Iterator[tuple[str, str, str]]:
    broken = sum(one.outcome in (Outcome.BROKEN, Outcome.ERROR) for one in review.judged)
    by = {one.result.resource.urn for judged in review.judged for one in judged.settled if one.breach}
    yield "Broken", str(broken), f"by {counted(len(by), 'resource')}" if broken else ""
    yield "Exempt", str(review.outcomes[Outcome.EXEMPT]), ""
    yield "Unknown", str(review.outcomes[Outcome.UNKNOWN]), ""
    yield "Kept", str(review.outcomes[Outcome.KEPT]), ""


def _frameworks(review: Review) -> str:
    rows = [_framework(review, framework) for framework in review.frameworks]
    headings = ("Framework", "Version", ">Clauses", ">Controls", ">Broken")
    sources = "; ".join(sorted({framework.source for framework in review.frameworks}))
    below = f'<p class="note">Mapped after {escape(sources)}. {escape(DISCLAIMER)}</p>'
    caption = "Controls that judged something, by what they are mapped to."
    return markup.table("Frameworks", caption, headings, rows, below)


def _framework(review: Review, framework: Framework) -> list[str]:
    mapped = [
        judged
        for judged in review.judged
        if judged.control.frameworks.get(framework.name) and judged.outcome is not Outcome.NOT_APPLICABLE
    ]
    broken = sum(judged.outcome in (Outcome.BROKEN, Outcome.ERROR) for judged in mapped)
    clauses = {clause for judged in mapped for clause in judged.control.frameworks[framework.name]}
    tone = "bad" if broken else "good"
    return [
        escape(framework.title),
        escape(framework.version),
        str(len(clauses)),
        str(len(mapped)),
        f'<span class="{tone}">{broken}</span>',
    ]


def _overview(review: Review) -> str:
    rows = [
        [
            _state(judged.outcome),
            f'<a class="id" href="#{escape(judged.control.id)}">{escape(judged.control.id)}</a>'
            if judged.settled
            else f'<span class="id">{escape(judged.control.id)}</span>',
            escape(judged.control.title),
            f'<span class="nowrap">{escape(topic)}</span>',
            _weight(judged),
            str(len(judged.settled) or ""),
        ]
        for topic, controls in _ordered(review)
        for judged in controls
    ]
    headings = ("Verdict", "Control", "=Title", "Topic", "Severity", ">Resources")
    caption = f"{asked(review)}, by topic; what judged something leads to its evidence."
    return markup.table("Controls", escape(caption), headings, rows)


def _ordered(review: Review) -> list[tuple[str, list[Judged]]]:
    order = list(Outcome)
    return sorted(review.topics.items(), key=lambda item: order.index(item[1][0].outcome))


def _details(review: Review) -> Iterator[str]:
    for topic, controls in _ordered(review):
        told = [judged for judged in controls if judged.settled]
        if told:
            yield f"<section><h2>Evidence: {escape(topic)}</h2>{''.join(_control(judged) for judged in told)}</section>"


def _control(judged: Judged) -> str:
    control = judged.control
    clauses = words.clauses(judged) or "not mapped to a clause"
    fix = ""
    if judged.outcome in (Outcome.BROKEN, Outcome.ERROR, Outcome.EXEMPT):
        fix = f"<p>To mend it: {_coded(control.fix)}.</p>"
    ranked = words.alike(sorted(judged.settled, key=lambda one: -one.result.verdict.gravity))
    rows = [_row(ones) for ones in ranked[:MOST_KINDS]]
    left = sum(map(len, ranked[MOST_KINDS:]))
    more = f'<p class="note">And {counted(left, "resource")} more.</p>' if left > 0 else ""
    return (
        f'<article class="control" id="{escape(control.id)}"><h3>{_state(judged.outcome)} '
        f'<span class="id">{escape(control.id)}</span> {escape(control.title)}</h3>'
        f'<p class="quiet">{_weight(judged)} · {escape(clauses)}</p>{fix}'
        f"{markup.cells(('Resource', 'Verdict', 'Evidence'), rows)}{more}</article>"
    )


def _row(ones: list[Settled]) -> list[str]:
    """Resources of one type of which the same is said, each by its name: a reviewer asks which."""
    one = ones[0]
    told = [*words.places(one)[: words.MOST_PLACES], *filter(None, [words.expired(one), words.exempt(one), one.remedy])]
    left = len(words.places(one)) - words.MOST_PLACES
    if left > 0:
        told.append(f"and {counted(left, 'place')} more")
    found = [f'<span class="id">{escape(one_line(each.result.resource.name))}</span>' for each in ones[:MOST_NAMES]]
    more = f" and {len(ones) - MOST_NAMES:,} more" if len(ones) > MOST_NAMES else ""
    return [
        f"{', '.join(found)}{more}<small>{escape(one.result.resource.type)}</small>",
        _state(outcome(one)),
        "<br>".join(escape(one_line(line)) for line in told),
    ]


def _exemptions(review: Review) -> str:
    rows = [
        [
            f'<span class="id">{escape(exemption.control)}</span>',
            f'<span class="id">{escape(one_line(exemption.resource))}</span>',
            escape(one_line(exemption.owner)),
            escape(one_line(exemption.reason)),
            f'<span class="nowrap">{exemption.expires}</span>',
            f'<span class="{tone}">{escape(state)}</span>',
        ]
        for exemption, state, tone in review.exemptions
    ]
    headings = ("Control", "Resource", "Owner", "=Reason", "Last day", "=State")
    return markup.table("Exemptions", "Somebody answers for each, until its last day.", headings, rows)


def _weight(judged: Judged) -> str:
    """How grave a breach is, and what it does where that isn't to refuse."""
    severity = judged.control.severity.name.lower()
    return severity if judged.level == "mandatory" else f"{severity}, {judged.level}"


def _coded(text: str) -> str:
    """Text with the names of properties, that stand between backticks, as such."""
    return re.sub(r"`([^`]+)`", r'<span class="id">\1</span>', escape(text))


def _state(found: Outcome) -> str:
    return f'<span class="state {TONES[found]}">{found}</span>'
