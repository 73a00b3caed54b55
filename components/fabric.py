"""The network interfaces of a node, by its type: a pure function, so that each type's layout can be looked at.

Two layouts, both with one address a node, as EFA-only interfaces have none (EC2 API, `InterfaceType`).
`guide` is the EC2 User Guide's ("Maximize network bandwidth on Amazon EC2 instances with multiple network cards"):
card 0 device 0 is ENA, as an EFA-only interface can't be the primary one; where card 0 has EFA, its device 1 is
EFA-only; each further card's device 0 is EFA-only. Its section on P5 and P5e shows the same, with an ENA interface more
on some cards for who needs more than 100 Gbit/s of TCP, which training over EFA doesn't.
`ip-saving` is what dstack and pulumi-eks launch (dstack#2271, pulumi-eks `nodejs/eks/nodes/instances.ts`), and what
the guide said before: card 0 device 0 is EFA with ENA, each further card's device 1 is EFA-only. It has one interface
less.

Cards are counted by `MaximumEfaInterfaces`, not by `MaximumNetworkCards` (eksctl#8685). p6-b300's card 0 has no EFA, so
both layouts are one there: ENA on card 0, EFA-only on device 0 of cards 1 to 16 (aws-parallelcluster#7143).

On Alibaba Cloud there is one layout. An ERI is an elastic network interface in another traffic mode, with an address of
its own, and the primary one may be one (ECS user guide, "ERIs"; ESS API, `NetworkInterfaceTrafficMode`): as many as the
type takes, the first of them primary. No group can say which card one lies on; ECS places them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from components.catalog import InstanceType
from components.findings import Finding

Style = Literal["guide", "ip-saving"]


class Kind(StrEnum):
    """What an interface is, in the words of its cloud: of EC2 the first three, of ECS the others."""

    ENA = "interface"
    EFA = "efa"
    EFA_ONLY = "efa-only"
    ENI = "Standard"
    ERI = "HighPerformance"

    @property
    def fast(self) -> bool:
        """It is one of the cloud's fast network."""
        return self not in {Kind.ENA, Kind.ENI}


@dataclass(frozen=True)
class Nic:
    """A network interface: the card it is on, its index there, and what it is. Of ECS, `card` counts interfaces."""

    card: int
    device: int
    kind: Kind

    @property
    def primary(self) -> bool:
        """It is the one that the node has from its launch on; each node has one such."""
        return (self.card, self.device) == (0, 0)

    @property
    def addresses(self) -> int:
        """Private addresses that it takes from its subnet."""
        return 0 if self.kind is Kind.EFA_ONLY else 1


PLAIN = (Nic(0, 0, Kind.ENA),)
"""A node without EFA: one plain interface."""

MOST_ERI = 2
"""eRDMA interfaces that a node can be launched with: one primary, one secondary (ECS API, RunInstances,
`NetworkInterface.N`)."""

STANDARD = (Nic(0, 0, Kind.ENI),)
"""A node without eRDMA: the same."""


def plain(cloud: str) -> tuple[Nic, ...]:
    """The one interface of a node that talks over TCP."""
    return {"aws": PLAIN, "alicloud": STANDARD}[cloud]


def layout(
    instance: InstanceType, style: Style, path: str = "nodes.type", cloud: str = "aws"
) -> tuple[Nic, ...] | Finding:
    """The interfaces of a node that uses all its fast network, or why they aren't known; `path` is of that finding."""
    if not instance.fabric_interfaces:
        return plain(cloud)
    if cloud == "alicloud":
        return _erdma(instance, path)
    cards = range(instance.fabric_first_card, instance.fabric_first_card + instance.fabric_interfaces)
    shared = cards.start == 0
    if cards.stop > instance.network_cards or instance.interfaces_per_card < 1 + (shared and style == "guide"):
        return Finding(
            path,
            f"it isn't known how the {len(cards)} EFA interfaces of {instance.name} lie on its "
            f"{instance.network_cards} network cards of {instance.interfaces_per_card} interfaces",
            "Correct its facts in catalog.overrides, or set nodes.fabric to tcp",
        )
    if shared and style == "ip-saving":
        # A card that takes a single interface takes it as device 0 (aws-parallelcluster, `queues_stack.py`).
        device = min(1, instance.interfaces_per_card - 1)
        return Nic(0, 0, Kind.EFA), *(Nic(card, device, Kind.EFA_ONLY) for card in cards[1:])
    return *PLAIN, *(Nic(card, 0 if card else 1, Kind.EFA_ONLY) for card in cards)


def _erdma(instance: InstanceType, path: str) -> tuple[Nic, ...] | Finding:
    """Every ERI that the type takes; none beyond what it has interfaces for (ECS user guide, "ERIs")."""
    if instance.fabric_interfaces > instance.max_interfaces:
        return Finding(
            path,
            f"{instance.name} can't have {instance.fabric_interfaces} eRDMA interfaces, as it takes "
            f"{instance.max_interfaces} interfaces of any kind",
            "Correct its facts in catalog.overrides, or set nodes.fabric to tcp",
        )
    if instance.fabric_interfaces > MOST_ERI:
        return Finding(
            path,
            f"{instance.name} takes {instance.fabric_interfaces} eRDMA interfaces, but ECS launches a node with "
            f"{MOST_ERI} alone",
            f"Set fabric_interfaces to {MOST_ERI} in catalog.overrides, or nodes.fabric to tcp",
        )
    return tuple(Nic(index, 0, Kind.ERI) for index in range(instance.fabric_interfaces))
