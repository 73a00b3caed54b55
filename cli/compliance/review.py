"""A stack held against the controls: what each says of each resource, what is exempt, and what follows for CI."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from cli.words import Tone, counted
from policies.control import Control, Verdict, judge
from policies.controls import declared
from policies.frameworks import FRAMEWORKS, Framework
from policies.resources import Stack
from policies.settings import Exemption, Level, Settings
from policies.verdicts import Settled, settled


class Outcome(StrEnum):
    """What came of a control, the gravest first."""

    BROKEN = "broken"
    ERROR = "failed itself"
    EXEMPT = "exempt"
    UNKNOWN = "unknown"
    KEPT = "kept"
    NOT_APPLICABLE = "not applicable"


TONES: dict[Outcome, Tone] = {
    Outcome.BROKEN: "bad",
    Outcome.ERROR: "bad",
    Outcome.EXEMPT: "busy",
    Outcome.UNKNOWN: "busy",
    Outcome.KEPT: "good",
    Outcome.NOT_APPLICABLE: "quiet",
}

BINDING: frozenset[Level] = frozenset({"mandatory", "remediate"})
"""Levels at which a breach fails the review. What a remediation would mend isn't mended in one."""


@dataclass(frozen=True)
class Subject:
    """What is judged: its name, the file that a finding points to, and how its resources were had."""

    name: str
    file: str
    how: str


@dataclass(frozen=True)
class Judged:
    """A control, what it says of each resource, and what a breach of it does."""

    control: Control
    level: Level
    settled: tuple[Settled, ...]

    @cached_property
    def outcome(self) -> Outcome:
        """The gravest of what it says."""
        found = [outcome(one) for one in self.settled]
        return next((grave for grave in Outcome if grave in found), Outcome.NOT_APPLICABLE)

    @property
    def breaks(self) -> bool:
        """Whether it fails the review."""
        return self.level in BINDING and any(one.breach for one in self.settled)

    def of(self, *wanted: Outcome) -> list[Settled]:
        """What it says of the resources with these outcomes."""
        return [one for one in self.settled if outcome(one) in wanted]


def outcome(one: Settled) -> Outcome:
    """What came of a control for one resource."""
    match one.result.verdict:
        case Verdict.FAIL:
            return Outcome.EXEMPT if one.exemption else Outcome.BROKEN
        case Verdict.ERROR:
            return Outcome.ERROR
        case Verdict.UNKNOWN:
            return Outcome.UNKNOWN
        case Verdict.PASS:
            return Outcome.KEPT
        case _:
            return Outcome.NOT_APPLICABLE


@dataclass(frozen=True)
class Review:
    """All of it, as of a day. `idle` are the controls that would judge, had the settings what they judge by."""

    subject: Subject
    settings: Settings
    today: datetime.date
    resources: int
    judged: tuple[Judged, ...]
    idle: tuple[Control, ...]

    @cached_property
    def outcomes(self) -> Counter[Outcome]:
        """Controls by what came of them."""
        return Counter(one.outcome for one in self.judged)

    @property
    def failed(self) -> bool:
        """A control that is mandatory is broken, or has failed itself."""
        return any(one.breaks for one in self.judged)

    @property
    def topics(self) -> dict[str, list[Judged]]:
        """Controls by topic, and both in the order of gravity."""
        order = list(Outcome)
        ranked = sorted(self.judged, key=lambda one: (order.index(one.outcome), -one.control.severity))
        topics: dict[str, list[Judged]] = {}
        for one in ranked:
            topics.setdefault(one.control.topic, []).append(one)
        return topics

    @property
    def frameworks(self) -> tuple[Framework, ...]:
        """Those asked for, or all."""
        return tuple(found for name, found in FRAMEWORKS.items() if name in (self.settings.frameworks or FRAMEWORKS))

    @property
    def headline(self) -> str:
        """What came of it, in a line."""
        broken = self.outcomes[Outcome.BROKEN] + self.outcomes[Outcome.ERROR]
        applied = len(self.judged) - self.outcomes[Outcome.NOT_APPLICABLE]
        if self.failed:
            return f"{self.subject.name} breaks {counted(broken, 'control')}"
        if broken:
            return f"{self.subject.name} breaks {counted(broken, 'advisory control')}, and none that is mandatory"
        return f"{self.subject.name} breaks none of {counted(applied, 'control')}"

    @property
    def summary(self) -> str:
        """How many controls came out how."""
        return " · ".join(f"{self.outcomes[one]} {one}" for one in Outcome if self.outcomes[one])

    @property
    def not_asked(self) -> str:
        """What isn't judged, as the settings don't say by what; empty where all is."""
        ids = ", ".join(control.id for control in self.idle)
        return f"Not judged, since policies:regions names no region: {ids}" if ids else ""

    @property
    def exemptions(self) -> Iterator[tuple[Exemption, str, Tone]]:
        """Each exemption with what became of it, and what that is like."""
        everything = [one for judged in self.judged for one in judged.settled]
        controls = {judged.control.id for judged in self.judged}
        for exemption in self.settings.exemptions:
            covers = sum(one.exemption is exemption for one in everything)
            breaks = sum(one.expired is exemption for one in everything)
            if exemption.control not in controls:
                yield exemption, "its control isn't asked for", "quiet"
            elif breaks:
                yield exemption, f"expired; it no longer covers {counted(breaks, 'resource')}", "bad"
            elif covers:
                yield exemption, f"in force for {counted(covers, 'resource')}", "busy"
            else:
                over = "expired, and " if self.today > exemption.expires else ""
                yield exemption, f"{over}not needed: nothing of that name breaks it", "quiet"


def review(stack: Stack, settings: Settings, subject: Subject, today: datetime.date) -> Review:
    """Hold a stack against the controls that the settings ask for. Raises `InvalidSettings`.

    In the order of names: an engine tells of resources as it comes to them.
    """
    stack = Stack(tuple(sorted(stack.resources, key=lambda resource: resource.urn)))
    known = declared(settings)
    controls = settings.select(known)
    found: dict[str, list[Settled]] = {control.id: [] for control in controls}
    for result in judge(controls, stack):
        found[result.control.id].append(settled(result, settings, today))
    judged = tuple(Judged(control, settings.level_of(control), tuple(found[control.id])) for control in controls)
    topics = settings.topics or {control.topic for control in known}
    idle = tuple(control for control in known if not control.types and control.topic in topics)
    return Review(subject, settings, today, len(stack.resources), judged, idle)
