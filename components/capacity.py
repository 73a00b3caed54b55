"""How a fleet's nodes are bought: what template and group say of it, and which wishes contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Distribution:
    """A group's mixed instances policy. `types` are in order of preference, `share` is in percent above `base`."""

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

    @property
    def interruptible(self) -> bool:
        """AWS may take nodes back."""
        return self.market == "spot" or (self.distribution is not None and self.distribution.share < 100)

    @property
    def in_one_zone(self) -> bool:
        """A reservation lies in one zone, and so do its nodes."""
        return self.reservation is not None


def choose(nodes: Nodes) -> Capacity:
    """The capacity that `nodes` ask for; what contradicts it in them is `contradictions`' to say."""
    types = (nodes.type, *nodes.alternatives)
    match nodes.capacity:
        case "spot" if not nodes.alternatives:
            return Capacity(market="spot")
        case "spot":
            return Capacity(distribution=Distribution(types, 0, 0, nodes.spot_strategy))
        case "mixed":
            return Capacity(
                distribution=Distribution(types, nodes.on_demand_base, nodes.on_demand_share, nodes.spot_strategy)
            )
        case "reserved":
            return Capacity(reservation=nodes.reservation)
        case "capacity-block":
            return Capacity(market="capacity-block", reservation=nodes.reservation)
        case _:
            return Capacity()


def contradictions(spec: Spec) -> Iterator[Finding]:
    """Wishes that `nodes.capacity` leaves no place for, or that it needs and doesn't have."""
    nodes = spec.nodes
    yield from _reservation(nodes)
    yield from _alternatives(nodes)
    yield from _shares(nodes)


def _reservation(nodes: Nodes) -> Iterator[Finding]:
    """Capacity blocks and reservations are used only where named (aws-parallelcluster#4061)."""
    path, given = "nodes.reservation", nodes.reservation
    if nodes.capacity == "reserved" and given is None:
        yield Finding(
            path, "is missing, and nodes.capacity is reserved", "Give a reservation's id, cr-…, or write create"
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
            "Set nodes.capacity to reserved or capacity-block, or take the reservation away",
        )


def _alternatives(nodes: Nodes) -> Iterator[Finding]:
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
    if "spot_strategy" in nodes.model_fields_set and choose(nodes).distribution is None:
        yield Finding(
            "nodes.spot_strategy",
            f"has nothing to choose from, as nodes.capacity is {nodes.capacity} with one type",
            "Name nodes.alternatives or take it away",
        )
