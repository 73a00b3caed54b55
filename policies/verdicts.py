"""What follows from a result: a breach, one that is exempt, or neither, in words that a user can act on."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from policies.checks import shown
from policies.control import Result, Verdict, remedy
from policies.settings import Exemption, Settings


@dataclass(frozen=True)
class Settled:
    """A result with its consequence. `breach`: to be reported, and refused where the level says so."""

    result: Result
    breach: bool
    exemption: Exemption | None
    expired: Exemption | None

    @property
    def remedy(self) -> str:
        """What level `remediate` would set, in words; empty where it would set nothing."""
        if self.result.verdict is not Verdict.FAIL or self.exemption:
            return ""
        edits = remedy(self.result.control, self.result.resource)
        told = ", ".join(f"{'.'.join(path)} to {shown(value)}" for path, value in edits.items())
        return f"level `remediate` sets {told}" if told else ""

    @property
    def words(self) -> str:
        """Where, what and why, with the fix."""
        control = self.result.control
        places = "; ".join(
            f"{judgement.path}: {judgement.reason}" if judgement.path else judgement.reason
            for judgement in self.result.gravest
        )
        expired = f" Its exemption by {self.expired.owner} ended on {self.expired.expires}." if self.expired else ""
        mended = f" Or: {self.remedy}." if self.remedy else ""
        name = self.result.resource.name
        return f"{control.id} {self.result.verdict}: {name}: {places}. {control.fix}.{mended}{expired}"


def settled(result: Result, settings: Settings, today: datetime.date) -> Settled:
    """What follows from a result today. A control that failed itself is a breach: it has judged nothing."""
    bad = result.verdict in {Verdict.FAIL, Verdict.ERROR}
    named = [found for found in settings.exemptions if found.names(result.control, result.resource)]
    holds = next((found for found in named if found.holds(result.control, result.resource, today)), None)
    expired = None if holds else next(iter(named), None)
    exemption = holds if result.verdict is Verdict.FAIL else None
    return Settled(result, bad and exemption is None, exemption, expired if bad else None)
