"""What controls are made of: checks of a value, of each value in a list, of resources that point to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from policies.control import Check, Judgement, StackCheck, Verdict
from policies.documents import Statement, statements
from policies.resources import Resource, Stack
from policies.values import UNKNOWN, Undecided, at, spread

LONGEST_SHOWN = 60
"""Characters of a wrong value that a reason repeats."""


def passed(path: str, reason: str) -> Judgement:
    """Well."""
    return Judgement(Verdict.PASS, path, reason)


def failed(path: str, reason: str) -> Judgement:
    """Not well."""
    return Judgement(Verdict.FAIL, path, reason)


def undecided(path: str) -> Judgement:
    """Not known yet."""
    return Judgement(Verdict.UNKNOWN, path, "isn't known yet")


def shown(value: Any) -> str:
    """A value as a reason names it."""
    if value is None:
        return "not set"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def where(path: str, test: Callable[[Any], bool], wanted: str, *, absent: Verdict = Verdict.FAIL) -> Check:
    """Each value at `path` (`*` for each entry of a list) passes `test`; `wanted` says in words what that is.

    `absent` is the verdict on a value that isn't set, by what the cloud does then; `NOT_APPLICABLE` says nothing of it.
    """

    def check(resource: Resource) -> Iterator[Judgement]:
        for place, value in spread(resource.props, path):
            if value is None and absent is not Verdict.FAIL:
                if absent is not Verdict.NOT_APPLICABLE:
                    yield Judgement(absent, place, f"not set, which is {wanted}")
                continue
            yield _tested(place, value, lambda found: found is not None and test(found), wanted)

    return check


def _tested(place: str, value: Any, test: Callable[[Any], bool], wanted: str) -> Judgement:
    if value is UNKNOWN:
        return undecided(place)
    try:
        good = test(value)
    except Undecided:
        return undecided(place)
    return passed(place, shown(value)) if good else failed(place, f"{shown(value)}, but must be {wanted}")


def true(path: str, *, absent: Verdict = Verdict.FAIL) -> Check:
    """Each value at `path` is true; providers write some as text."""
    return where(path, lambda value: value is True or value == "true", "true", absent=absent)


def never(path: str) -> Check:
    """No value at `path` is true; not set, it is not."""
    return where(path, lambda value: value is False or value == "false", "false", absent=Verdict.PASS)


def equal(path: str, *values: Any, absent: Verdict = Verdict.FAIL) -> Check:
    """Each value at `path` is one of these."""
    return where(path, lambda value: value in values, " or ".join(shown(value) for value in values), absent=absent)


def present(path: str, what: str) -> Check:
    """Something stands at each `path`. What isn't known yet is there: another resource will have made it.

    Unless that which it stands in isn't known itself.
    """

    def check(resource: Resource) -> Iterator[Judgement]:
        for place, value in spread(resource.props, path):
            if value is UNKNOWN:
                within = at(resource.props, place.rpartition(".")[0])
                whole = place.count(".") == path.count(".") and within is not UNKNOWN
                yield passed(place, "made by another resource") if whole else undecided(place)
            elif value is None or value in ("", [], {}):
                yield failed(place, f"not set, but must be {what}")
            else:
                yield passed(place, shown(value))

    return check


def both(*checks: Check) -> Check:
    """All of these."""

    def check(resource: Resource) -> Iterator[Judgement]:
        for one in checks:
            yield from one(resource)

    return check


def governed(types: Iterable[str], path: str, what: str, check: Check | None = None) -> StackCheck:
    """A resource of one of these types points here by its property `path`, and is as `check` says.

    For settings that providers make resources of their own; `what` names them. One good one is enough.
    """
    kinds = tuple(types)

    def judged(resource: Resource, stack: Stack) -> Iterator[Judgement]:
        pointers = list(stack.pointing(resource, kinds, path))
        found: list[Judgement] = []
        for pointer in pointers:
            if not pointer.sure:
                found.append(undecided(f"{pointer.resource.name}.{path}"))
                continue
            judgements = list(check(pointer.resource)) if check else [passed(path, "is there")]
            found.extend(
                Judgement(judgement.verdict, f"{pointer.resource.name}.{judgement.path}", judgement.reason)
                for judgement in judgements
            )
        if not found:
            yield failed("", f"has no {what}")
        yield from found

    return judged


def documented(
    types: Iterable[str], path: str, test: Callable[[Resource, Iterable[Statement]], bool], good: str, bad: str
) -> StackCheck:
    """A policy document says it: the one written in the resource, or one of these types that points to it by `path`."""
    kinds = tuple(types)

    def check(resource: Resource, stack: Stack) -> Iterator[Judgement]:
        documents = [("policy", resource.at("policy"))] if resource.at("policy") is not None else []
        pointers = list(stack.pointing(resource, kinds, path))
        documents += [(f"{each.resource.name}.policy", each.resource.at("policy")) for each in pointers if each.sure]
        unsure = [each.resource.name for each in pointers if not each.sure]
        for place, document in documents:
            try:
                if test(resource, statements(document)):
                    yield passed(place, good)
                    return
            except Undecided:
                unsure.append(place)
        if unsure:
            yield from (undecided(place) for place in unsure)
        else:
            yield failed(documents[0][0] if documents else "", bad)

    return check


def inline_or(path: str, inline: Check, own: StackCheck) -> StackCheck:
    """What is written in the bucket at `path`, or else in resources of its own."""

    def check(resource: Resource, stack: Stack) -> Iterator[Judgement]:
        written = resource.at(path)
        if written is UNKNOWN:
            yield undecided(path)
        elif written is not None:
            yield from inline(resource)
        else:
            yield from own(resource, stack)

    return check
