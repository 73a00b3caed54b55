"""A control: one requirement, with what judges it on each type of resource. Judging never fails as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from policies.resources import Resource, Stack
from policies.values import Undecided


class Verdict(StrEnum):
    """What a control says of a resource, the gravest last."""

    NOT_APPLICABLE = "not applicable"
    PASS = "pass"  # noqa: S105  no password
    UNKNOWN = "unknown"
    ERROR = "error"
    FAIL = "fail"

    @property
    def gravity(self) -> int:
        """Orders verdicts."""
        return list(Verdict).index(self)


class Severity(IntEnum):
    """How much harm a breach of a control does."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4


@dataclass(frozen=True)
class Judgement:
    """A verdict on one place of a resource, and why."""

    verdict: Verdict
    path: str
    reason: str


Check = Callable[[Resource], Iterable[Judgement]]
"""Judges a resource by itself. No judgement: the control doesn't apply to it."""

Edits = Mapping[tuple[str, ...], Any]
"""Values of properties, by their paths."""

Remedy = Callable[[Resource], Edits]
"""What to set of a resource so that a control passes: nothing else, and nothing where it passes or isn't known."""

StackCheck = Callable[[Resource, Stack], Iterable[Judgement]]
"""Judges a resource by what else is in its stack, such as the settings that providers make resources of their own."""


@dataclass(frozen=True)
class Control:
    """A requirement. `checks` and `in_stack` are by type token; a type may be in both.

    `frameworks` maps a framework's name (`frameworks.py`) to the clauses that authors of tools map it to.
    """

    id: str
    title: str
    topic: str
    severity: Severity
    fix: str
    frameworks: Mapping[str, tuple[str, ...]]
    checks: Mapping[str, Check] = field(default_factory=dict)
    in_stack: Mapping[str, StackCheck] = field(default_factory=dict)
    remedies: Mapping[str, Remedy] = field(default_factory=dict)
    """Of `checks` that a change of the resource itself can mend, where that is safe; for the level `remediate`."""

    @property
    def types(self) -> frozenset[str]:
        """Type tokens that it judges."""
        return frozenset(self.checks) | frozenset(self.in_stack)

    @property
    def clouds(self) -> frozenset[str]:
        """Clouds that it judges."""
        return frozenset(kind.partition(":")[0] for kind in self.types)


@dataclass(frozen=True)
class Result:
    """What a control says of a resource: the gravest of its judgements, with all of them as evidence."""

    control: Control
    resource: Resource
    judgements: tuple[Judgement, ...]

    @property
    def verdict(self) -> Verdict:
        """The gravest."""
        found = (judgement.verdict for judgement in self.judgements)
        return max(found, key=lambda verdict: verdict.gravity, default=Verdict.NOT_APPLICABLE)

    @property
    def gravest(self) -> tuple[Judgement, ...]:
        """The judgements that make the verdict, and errors of the control itself, which no breach hides."""
        told = {self.verdict, Verdict.ERROR}
        return tuple(judgement for judgement in self.judgements if judgement.verdict in told)


def remedy(control: Control, resource: Resource) -> Edits:
    """What to set of a resource so that a control passes.

    Nothing where there is no remedy, or where it fails itself, which `judge_alone` tells.
    """
    edits, _ = _remedied(control, resource)
    return edits


def judge_alone(control: Control, resource: Resource) -> tuple[Judgement, ...]:
    """What a control's checks say of a resource by itself. An error in its remedy is told like one in a check."""
    check = control.checks.get(resource.type)
    _, errors = _remedied(control, resource)
    return (*_guarded(lambda: check(resource)), *errors) if check else errors


def judge_in_stack(control: Control, resource: Resource, stack: Stack) -> tuple[Judgement, ...]:
    """What a control's checks say of a resource by what else is in its stack."""
    check = control.in_stack.get(resource.type)
    return tuple(_guarded(lambda: check(resource, stack))) if check else ()


def judge(controls: Iterable[Control], stack: Stack) -> Iterator[Result]:
    """What each control says of each resource of a type that it judges."""
    for control in controls:
        for resource in stack.of(*sorted(control.types)):
            alone = judge_alone(control, resource)
            yield Result(control, resource, alone + judge_in_stack(control, resource, stack))


def _guarded(check: Callable[[], Iterable[Judgement]]) -> Iterator[Judgement]:
    """A check's judgements. An error in it is its own, and hides neither what it said before nor other controls."""
    try:
        yield from check()
    except Undecided:
        yield Judgement(Verdict.UNKNOWN, "", "depends on a value that isn't known yet")
    except Exception as error:
        yield _failed("control", error)


def _remedied(control: Control, resource: Resource) -> tuple[Edits, tuple[Judgement, ...]]:
    """What a control's remedy sets of a resource, and the error in it."""
    mend = control.remedies.get(resource.type)
    try:
        return dict(mend(resource)) if mend else {}, ()
    except Undecided:
        return {}, ()
    except Exception as error:
        return {}, (_failed("remedy", error),)


def _failed(what: str, error: Exception) -> Judgement:
    return Judgement(Verdict.ERROR, "", f"the {what} itself failed: {type(error).__name__}: {error}")
