"""How a review says things, whatever the form."""

from __future__ import annotations

from collections.abc import Iterable

from cli.compliance.review import Judged
from cli.words import plain
from policies.control import Judgement
from policies.verdicts import Settled

MOST_PLACES = 6
"""Of one resource that are told."""

MOST_NAMES = 4
"""Of resources of which the same is said."""


def alike(told: Iterable[Settled]) -> list[list[Settled]]:
    """The results, those together of which the same is said: of one type, and for the same reasons."""
    groups: dict[tuple[object, ...], list[Settled]] = {}
    for one in told:
        key = (one.result.resource.type, one.result.verdict, one.exemption, one.expired, one.remedy, *places(one))
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def names(ones: list[Settled]) -> str:
    """The names of their resources, of which there may be many."""
    found = [plain(one.result.resource.name) for one in ones]
    left = len(found) - MOST_NAMES
    return ", ".join(found[:MOST_NAMES]) + (f" and {left:,} more" if left > 0 else "")


def places(one: Settled) -> list[str]:
    """Where and why, a line each: the judgements that make the verdict."""
    return [place(judgement) for judgement in one.result.gravest]


def place(judgement: Judgement) -> str:
    """Where and why."""
    return f"{judgement.path}: {judgement.reason}" if judgement.path else judgement.reason


def clauses(judged: Judged) -> str:
    """The clauses of each framework that authors of tools map it to."""
    return " · ".join(f"{name} {', '.join(found)}" for name, found in judged.control.frameworks.items() if found)


def expired(one: Settled) -> str:
    """That an exemption no longer holds; empty where none has expired."""
    if one.expired is None:
        return ""
    return f"its exemption by {one.expired.owner} ended on {one.expired.expires}"


def exempt(one: Settled) -> str:
    """By whom, why and how long it is exempt; empty where it isn't."""
    if one.exemption is None:
        return ""
    return f"exempt until {one.exemption.expires}: {one.exemption.reason} ({one.exemption.owner})"
