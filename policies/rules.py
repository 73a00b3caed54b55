"""Rules of security groups, read from every form in which the providers write them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from policies.resources import Resource, Stack
from policies.values import UNKNOWN, Undecided

GROUP = "aws:ec2/securityGroup:SecurityGroup"
DEFAULT_GROUP = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
ALICLOUD_GROUP = "alicloud:ecs/securityGroup:SecurityGroup"
ALICLOUD_RULE = "alicloud:ecs/securityGroupRule:SecurityGroupRule"
MOUNTS = "alicloud:nas/accessRule:AccessRule"
"""Who may mount a file system of NAS: a rule of its port, too."""
TYPES = (GROUP, DEFAULT_GROUP, RULE, INGRESS, EGRESS, ALICLOUD_RULE)
"""Types that hold rules."""

NFS = 2049
ALL = (0, 65535)
ANY_PROTOCOL = frozenset({"-1", "all"})
PORTLESS = frozenset({"icmp", "icmpv6", "icmp6", "gre", "ah", "esp", "1", "58"})
"""Protocols that have no ports."""


@dataclass(frozen=True)
class Rule:
    """What may pass. `ports` from and to; `networks` and `groups` are the other ends; any part may be `UNKNOWN`."""

    place: str
    inward: bool
    protocol: Any
    ports: Any
    networks: Any
    groups: Any
    to_itself: Any
    described: bool

    @property
    def of_the_internet(self) -> bool:
        """One of its other ends is everywhere, or half of it. Raises `Undecided`."""
        if self.networks is UNKNOWN:
            raise Undecided
        known = [network for network in self.networks if network is not UNKNOWN]
        if any(_vast(network) for network in known):
            return True
        if len(known) < len(self.networks):
            raise Undecided
        return False

    def lets(self, port: int) -> bool:
        """A port of TCP is among its own. Raises `Undecided`."""
        if self.protocol is UNKNOWN or self.ports is UNKNOWN:
            raise Undecided
        if self.protocol in ANY_PROTOCOL:
            return True
        return self.protocol in {"tcp", "6"} and self.ports[0] <= port <= self.ports[1]

    @property
    def lets_everything(self) -> bool:
        """Every protocol, or every port of one that has ports. Raises `Undecided`."""
        if self.protocol is UNKNOWN or self.ports is UNKNOWN:
            raise Undecided
        whole = self.ports[0] <= 1 and self.ports[1] >= ALL[1]
        return self.protocol in ANY_PROTOCOL or (self.protocol not in PORTLESS and whole)


def _vast(network: str) -> bool:
    """Everywhere, or a half of it, by which `0.0.0.0/0` is often avoided."""
    try:
        return ipaddress.ip_network(network, strict=False).prefixlen <= 1
    except ValueError:
        return False


def rules(resource: Resource) -> Iterator[Rule]:
    """The rules that a resource of one of `TYPES` holds."""
    if resource.type in {GROUP, DEFAULT_GROUP}:
        for direction in ("ingress", "egress"):
            entries = resource.at(direction)
            if entries is UNKNOWN:
                yield Rule(direction, direction == "ingress", *(UNKNOWN,) * 5, described=True)
                continue
            for index, entry in enumerate(entries or ()):
                yield _inline(f"{direction}.{index}", direction == "ingress", entry)
    elif resource.type == RULE:
        kind = resource.at("type")
        if kind is UNKNOWN:
            raise Undecided
        props = {**resource.props, "securityGroups": _some(resource.at("sourceSecurityGroupId"))}
        yield _inline("", kind == "ingress", props)
    elif resource.type in {INGRESS, EGRESS}:
        yield _modern(resource)
    elif resource.type == MOUNTS:
        networks = [found for path in ("sourceCidrIp", "ipv6SourceCidrIp") if (found := resource.at(path)) is not None]
        yield Rule("", True, "tcp", (NFS, NFS), networks, [], False, described=False)
    elif resource.type == ALICLOUD_RULE and resource.at("policy") in (None, "accept"):
        yield _alicloud(resource)


def _inline(place: str, inward: bool, entry: Any) -> Rule:
    if entry is UNKNOWN:
        return Rule(place, inward, *(UNKNOWN,) * 5, described=True)
    return Rule(
        place,
        inward,
        _protocol(entry.get("protocol")),
        _ports(entry.get("fromPort"), entry.get("toPort")),
        _joined(entry.get("cidrBlocks"), entry.get("ipv6CidrBlocks")),
        _joined(entry.get("securityGroups")),
        entry.get("self"),
        bool_of(entry.get("description")),
    )


def _modern(resource: Resource) -> Rule:
    at, group = resource.at, resource.at("referencedSecurityGroupId")
    own = resource.links.get("securityGroupId", frozenset()) & resource.links.get(
        "referencedSecurityGroupId", frozenset()
    )
    same = group is not UNKNOWN and group is not None and group == at("securityGroupId")
    return Rule(
        "",
        resource.type == INGRESS,
        _protocol(at("ipProtocol")),
        _ports(at("fromPort"), at("toPort")),
        [network for network in (at("cidrIpv4"), at("cidrIpv6")) if network is not None],
        _some(group),
        bool(own) or same,
        bool_of(at("description")),
    )


def _alicloud(resource: Resource) -> Rule:
    at, kind = resource.at, resource.at("type")
    if kind is UNKNOWN:
        raise Undecided
    ports = at("portRange")
    if isinstance(ports, str):
        first, _, last = ports.partition("/")
        ports = ALL if ports == "-1/-1" else (int(first), int(last or first))
    own = resource.links.get("securityGroupId", frozenset()) & resource.links.get("sourceSecurityGroupId", frozenset())
    group = at("sourceSecurityGroupId")
    same = group is not UNKNOWN and group is not None and group == at("securityGroupId")
    return Rule(
        "",
        kind == "ingress",
        _protocol(at("ipProtocol")),
        ALL if ports is None else ports,
        [network for network in (at("cidrIp"), at("ipv6CidrIp")) if network is not None],
        _some(group),
        bool(own) or same,
        bool_of(at("description")),
    )


def drops_everything_out(resource: Resource) -> bool:
    """A rule of ECS drops all that would leave to anywhere over IPv4. Raises `Undecided`."""
    if resource.at("policy") is UNKNOWN:
        raise Undecided
    if resource.at("policy") != "drop":
        return False
    rule = replace(_alicloud(resource), networks=_some(resource.at("cidrIp")))
    return not rule.inward and rule.lets_everything and rule.of_the_internet


def of_group(group: Resource, stack: Stack) -> Iterator[Rule]:
    """The rules of a group: those written in it, and those that are resources of their own and point to it."""
    yield from rules(group)
    for pointer in stack.pointing(group, (RULE, INGRESS, EGRESS, ALICLOUD_RULE), "securityGroupId"):
        if pointer.sure:
            yield from rules(pointer.resource)


def bool_of(value: Any) -> bool:
    """Whether something stands there; what isn't known does."""
    return value is UNKNOWN or bool(value)


def _protocol(value: Any) -> Any:
    return value if value is UNKNOWN else str(value).lower()


def _ports(first: Any, last: Any) -> Any:
    if first is UNKNOWN or last is UNKNOWN:
        return UNKNOWN
    if first is None and last is None:
        return ALL
    return (int(first or 0), int(last if last is not None else first))


def _some(value: Any) -> list[Any]:
    return [] if value is None else [value]


def _joined(*lists: Any) -> Any:
    if any(found is UNKNOWN for found in lists):
        return UNKNOWN
    return [entry for found in lists for entry in found or ()]
