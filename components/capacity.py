"""How a fleet's nodes are bought: what template and group say of it, and which wishes contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from components.clouds import CLOUDS
from components.findings import Finding
from components.spec import Nodes, Spec

CREATE = "create"
"""In place of a reservation's id: the cluster makes its own."""

CLASSES = {
    "on-demand": ("on-demand",),
    "spot": ("spot",),
    "mixed": ("on-demand", "spot"),
    "reserved": ("on-demand",),
    "capacity-block": ("capacity-block",),
}
"""What a type must be sold as, by `nodes.capacity` (EC2 API, `SupportedUsageClasses`)."""

STRATEGIES = {
    "aws": {
        name: name
        for name in (
            "price-capacity-optimized",
            "capacity-optimized",
            "capacity-optimized-prioritized",
            "lowest-price",
        )
    },
    "alicloud": {"priority": "priority", "lowest-price": "lowestPrice"},
}
"""Each cloud's own word for a `nodes.spot_strategy`, the first for none (Auto Scaling API, `SpotAllocationStrategy`;
ESS API, CreateScalingGroup, `SpotAllocationStrategy`)."""

PROTECTED_HOURS = 1
"""Of a spot node on Alibaba Cloud where the stack's file says nothing (ESS API, `SpotDuration`)."""


@dataclass(frozen=True)
class Distribution:
    """A group's mixed instances policy. `types` are in order of preference, `share` is in percent above `base`.

    `strategy` is in the cloud's own words.
    """

    types: tuple[str, ...]
    base: int
    share: int
    strategy: str


@dataclass(frozen=True)
class Capacity:
    """How nodes are bought. Never both a market on the template and a distribution on the group.

    Auto Scaling refuses a template that asks for spot in a group that mixes (kops#7066).
    """

    market: str | None = None
    """The template's market type; None is on-demand, or what the group's distribution says."""
    distribution: Distribution | None = None
    reservation: str | None = None
    """Id of the reservation that nodes are launched into, or `CREATE`."""
    spot_hours: int | None = None
    """Hours in which a spot node isn't taken back; None where there is no spot node, or no such promise."""

    @property
    def interruptible(self) -> bool:
        """The cloud may take nodes back."""
        return self.market == "spot" or (self.distribution is not None and self.distribution.share < 100)

    @property
    def in_one_zone(self) -> bool:
        """A reservation lies in one zone, and so do its nodes."""
        return self.reservation is not None


def choose(spec: Spec) -> Capacity:
    """The capacity that a spec's nodes ask for; what contradicts it in them is `contradictions`' to say."""
    nodes = spec.nodes
    types = (nodes.type, *nodes.alternatives)
    words = STRATEGIES[spec.cloud]
    strategy = words.get(nodes.spot_strategy or "", next(iter(words.values())))
    hours = None
    if spec.cloud == "alicloud":
        hours = PROTECTED_HOURS if nodes.spot_hours is None else nodes.spot_hours
    match nodes.capacity:
        case "spot" if not nodes.alternatives:
            return Capacity(market="spot", spot_hours=hours)
        case "spot":
            return Capacity(distribution=Distribution(types, 0, 0, strategy), spot_hours=hours)
        case "mixed":
            distribution = Distribution(types, nodes.on_demand_base, nodes.on_demand_share, strategy)
            return Capacity(distribution=distribution, spot_hours=hours if nodes.on_demand_share < 100 else None)
        case "reserved":
            return Capacity(reservation=nodes.reservation)
        case "capacity-block":
            return Capacity(market="capacity-block", reservation=nodes.reservation)
        case _:
            return Capacity()


def contradictions(spec: Spec) -> Iterator[Finding]:
    """Wishes that `nodes.capacity` leaves no place for, or that it needs and doesn't have."""
    yield from _reservation(spec)
    yield from _alternatives(spec)
    yield from _shares(spec.nodes)
    yield from _spot(spec)


def _reservation(spec: Spec) -> Iterator[Finding]:
    """Capacity blocks and reservations are used only where named (aws-parallelcluster#4061)."""
    nodes = spec.nodes
    path, given = "nodes.reservation", nodes.reservation
    if nodes.capacity == "capacity-block" and spec.cloud != "aws":
        yield Finding(
            "nodes.capacity",
            f"{CLOUDS[spec.cloud].title} sells no capacity blocks",
            "Set it to reserved, with nodes.reservation: create or the id of a reservation in target mode",
        )
    elif nodes.capacity == "reserved" and given is None:
        example = {"aws": "cr-…", "alicloud": "crp-… or eap-…"}[spec.cloud]
        yield Finding(
            path, "is missing, and nodes.capacity is reserved", f"Give a reservation's id, {example}, or write create"
        )
    elif nodes.capacity == "capacity-block" and given in {None, CREATE}:
        reason = "is missing" if given is None else "can't be create"
        yield Finding(
            path,
            f"{reason}, and nodes.capacity is capacity-block",
            "Buy the block first, then give the id of its reservation, cr-…",
        )
    elif nodes.capacity not in {"reserved", "capacity-block"} and given is not None:
        yield Finding(
            path,
            f"is used by no node, as nodes.capacity is {nodes.capacity}",
            f"Set nodes.capacity to reserved{' or capacity-block' if spec.cloud == 'aws' else ''}, "
            "or take the reservation away",
        )


def _alternatives(spec: Spec) -> Iterator[Finding]:
    nodes, cloud = spec.nodes, CLOUDS[spec.cloud]
    if nodes.alternatives and nodes.capacity not in {"spot", "mixed"}:
        yield Finding(
            "nodes.alternatives",
            f"are launched by no fleet whose nodes.capacity is {nodes.capacity}",
            "Set nodes.capacity to mixed (all of it on demand with nodes.on_demand_share: 100) or spot, "
            "or take them away",
        )
    for index, name in enumerate(nodes.alternatives):
        if name in {nodes.type, *nodes.alternatives[:index]}:
            yield Finding(f"nodes.alternatives.{index}", f"{name} is named twice", "Name each type once")
    if len(nodes.alternatives) >= cloud.most_types:
        yield Finding(
            "nodes.alternatives",
            f"{len(nodes.alternatives)} and nodes.type are more than the {cloud.most_types} types that a group takes",
            f"Name {cloud.most_types - 1} at most",
        )


def _shares(nodes: Nodes) -> Iterator[Finding]:
    if nodes.capacity != "mixed":
        for key in ("on_demand_base", "on_demand_share"):
            if getattr(nodes, key):
                yield Finding(
                    f"nodes.{key}",
                    f"says nothing, as nodes.capacity is {nodes.capacity}",
                    "Set nodes.capacity to mixed or take it away",
                )
    most = nodes.max or nodes.desired
    if nodes.capacity == "mixed" and nodes.on_demand_base > most:
        yield Finding(
            "nodes.on_demand_base",
            f"{nodes.on_demand_base} is more than the {most} nodes that the fleet may have",
            f"Lower it to {most}, or set nodes.capacity to on-demand",
        )


def _spot(spec: Spec) -> Iterator[Finding]:
    """What is said of spot nodes has one to be said of, in words that the cloud knows."""
    nodes, capacity, words = spec.nodes, choose(spec), STRATEGIES[spec.cloud]
    if nodes.spot_strategy and nodes.spot_strategy not in words:
        yield Finding(
            "nodes.spot_strategy",
            f"{CLOUDS[spec.cloud].title} has no {nodes.spot_strategy}",
            f"Choose {' or '.join(words)}",
        )
    elif nodes.spot_strategy and capacity.distribution is None:
        yield Finding(
            "nodes.spot_strategy",
            f"has nothing to choose from, as nodes.capacity is {nodes.capacity} with one type",
            "Name nodes.alternatives or take it away",
        )
    if nodes.spot_hours is None:
        return
    if spec.cloud == "aws":
        yield Finding("nodes.spot_hours", "AWS promises no hour in which a spot node isn't taken back", "Take it away")
    elif not capacity.interruptible:
        yield Finding("nodes.spot_hours", f"is of no node, as nodes.capacity is {nodes.capacity}", "Take it away")
