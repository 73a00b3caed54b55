"""Groups of fast interfaces: whether they let their own traffic pass, and drop what no rule lets out."""

from __future__ import annotations

from collections.abc import Iterator

from policies import rules
from policies.checks import failed, passed, undecided
from policies.control import Judgement, Verdict
from policies.resources import Resource, Stack
from policies.rules import Rule
from policies.values import UNKNOWN, Undecided, spread


def of_efa(resource: Resource, stack: Stack) -> Iterator[Judgement]:
    """Groups of EFA interfaces let everything of their own pass, in and out (EC2 user guide, "Get started with EFA").

    A rule to everywhere isn't one: EFA's traffic is no IP (awsome-distributed-ai#546, aws-ofi-nccl#663).
    """
    for place, kind in spread(resource.props, "networkInterfaces.*.interfaceType"):
        if kind is UNKNOWN:
            yield undecided(place)
            continue
        if kind not in {"efa", "efa-only"}:
            continue
        names = resource.at(place.replace("interfaceType", "securityGroups"))
        if names is UNKNOWN:
            yield undecided(place)
            continue
        made_of = resource.links.get("networkInterfaces", frozenset())
        groups = [
            group
            for group in stack.of(rules.GROUP)
            if group.urn in made_of or any(name is not UNKNOWN and name in group.names for name in names or ())
        ]
        if not groups:
            yield undecided(place)
        for direction in (True, False):
            found = [rule for group in groups for rule in rules.of_group(group, stack) if rule.inward is direction]
            yield from _has_self(place, "inward" if direction else "outward", found) if groups else ()


def of_erdma(config: Resource, stack: Stack) -> Iterator[Judgement]:
    """The same of eRDMA, which goes by the rules of its interface (ECS user guide, "ERIs").

    Members of a basic group reach each other unless it is told otherwise, and everything out unless a rule drops it
    (ECS user guide, "Basic security groups and advanced security groups").
    """
    for place, mode in spread(config.props, "networkInterfaces.*.networkInterfaceTrafficMode"):
        if mode is UNKNOWN:
            yield undecided(place)
            continue
        if mode != "HighPerformance":
            continue
        names = config.at(place.replace("networkInterfaceTrafficMode", "securityGroupIds"))
        made_of = config.links.get("networkInterfaces", frozenset())
        groups = [
            group
            for group in stack.of(rules.ALICLOUD_GROUP)
            if group.urn in made_of
            or any(name is not UNKNOWN and name in group.names for name in (() if names is UNKNOWN else names or ()))
        ]
        if not groups:
            yield undecided(place)
        for group in groups:
            found = list(rules.of_group(group, stack))
            basic = group.at("securityGroupType") in (None, "normal")
            inward = basic and group.at("innerAccessPolicy") in (None, "Accept")
            outward = basic and any(verdict.verdict is Verdict.FAIL for verdict in drops_the_rest(group, stack))
            for direction, by_itself in ((True, inward), (False, outward)):
                word = "inward" if direction else "outward"
                if by_itself:
                    yield passed(place, f"its group lets its own pass {word} by itself")
                else:
                    yield from _has_self(place, word, [rule for rule in found if rule.inward is direction])


def _has_self(place: str, direction: str, found: list[Rule]) -> Iterator[Judgement]:
    unsure = False
    for rule in found:
        try:
            if rule.to_itself and rule.protocol in rules.ANY_PROTOCOL:
                yield passed(place, f"its group has an {direction} rule to itself")
                return
        except Undecided:
            unsure = True
    if unsure:
        yield undecided(place)
    else:
        yield failed(place, f"its group has no {direction} rule of every protocol to itself")


def drops_the_rest(group: Resource, stack: Stack) -> Iterator[Judgement]:
    """What no rule lets out is dropped: by itself, a group of ECS lets everything out.

    (ECS user guide, "Use security groups for internal network access control".)
    """
    unsure = False
    for pointer in stack.pointing(group, (rules.ALICLOUD_RULE,), "securityGroupId"):
        try:
            if rules.drops_everything_out(pointer.resource):
                if pointer.sure:
                    yield passed("", f"{pointer.resource.name} drops what no other rule lets out")
                    return
                unsure = True
        except Undecided:
            unsure = True
    yield undecided("") if unsure else failed("", "has no rule that drops what no other lets out to 0.0.0.0/0")
