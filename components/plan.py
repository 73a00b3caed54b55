"""What is decided, before anything is declared: pure functions from a spec to a plan, the same for every cloud."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from components.capacity import Capacity, choose
from components.catalog import InstanceType, find
from components.clouds import CLOUDS, Cloud
from components.code import Code, pack
from components.fabric import Nic, layout, plain
from components.findings import Finding, Invalid
from components.spec import CommandJob, Spec

DRAIN_S = 120
"""Seconds that a node which is to go gets first: what a spot node gets, and more than the agent's own grace.

Auto Scaling takes 30 to 7,200 (Auto Scaling API, PutLifecycleHook); no heartbeat extends it here.
"""

HOOK = "drain"
"""Name of the hook, within the group, that a node which is to go waits in until it says that it is done."""

SWITCHED = frozenset({"A100", "A800", "H100", "H200", "B200", "B300"})
"""GPUs that meet over NVSwitch where there are several, and then need NVIDIA's fabric manager (its user guide)."""

REBALANCING = 0.1
"""Share of a group that may run beyond its maximum while spot nodes at risk are replaced (Auto Scaling user guide,
"Capacity Rebalancing")."""


@dataclass(frozen=True)
class Subnet:
    """A private subnet in one zone. `suffix` names it within the cluster."""

    suffix: str
    zone: str
    cidr: str
    reserved: int
    """Addresses that the cloud keeps in it."""

    @property
    def addresses(self) -> int:
        """Addresses that nodes can have."""
        return ipaddress.IPv4Network(self.cidr).num_addresses - self.reserved


@dataclass(frozen=True)
class Fleet:
    """Sizes of the group, in nodes."""

    min: int
    desired: int
    max: int


@dataclass(frozen=True)
class Pool:
    """Nodes that are alike, as their template and group are declared. `one` is what one of them is called."""

    one: str
    cloud: Cloud
    instance: InstanceType
    image: str
    disk_gb: int
    nics: tuple[Nic, ...]
    capacity: Capacity
    fleet: Fleet
    refresh: bool = True
    containers: bool = False
    confidential: str = "none"

    @property
    def fabric_devices(self) -> int:
        """Devices of the cloud's fast network that a node has."""
        return sum(nic.kind.fast for nic in self.nics)

    @property
    def fabric(self) -> str:
        """What these nodes talk over: efa, erdma or tcp."""
        return self.cloud.fabric if self.fabric_devices else "tcp"

    @property
    def fast(self) -> bool:
        """These nodes talk over EFA or eRDMA."""
        return self.fabric_devices > 0

    @property
    def source(self) -> Literal["template", "configuration"]:
        """What their group is declared from: a launch template, or a scaling configuration of ESS.

        Of the two, a configuration alone has private pools, and takes eRDMA interfaces and TDX once it is there (ESS
        API, ModifyScalingConfiguration). A template can be declared whole (pulumi_alicloud 4.0.0).
        """
        needs_configuration = self.fast or self.capacity.reservation or self.confidential == "tdx"
        return "configuration" if self.cloud.fabric == "erdma" and needs_configuration else "template"

    @property
    def refreshable(self) -> bool:
        """Nodes can be replaced by what their group is declared from now.

        ESS refreshes groups of the priority policy alone, which those that mix aren't (ESS API, StartInstanceRefresh).
        """
        return self.cloud.fabric != "erdma" or self.capacity.distribution is None

    @property
    def refreshes(self) -> bool:
        """Nodes are to be replaced by what their group is declared from now, and can be."""
        return self.refresh and self.refreshable


@dataclass(frozen=True)
class Run:
    """The training job. `id` changes with the job and with nothing else: a scaled or repaired cluster goes on."""

    id: str
    job: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """A cluster, decided."""

    name: str
    spec: Spec
    instance: InstanceType
    alternatives: tuple[InstanceType, ...]
    nics: tuple[Nic, ...]
    capacity: Capacity
    workers: int
    subnets: tuple[Subnet, ...]
    fleet: Fleet
    run: Run
    tags: Mapping[str, str]
    data: Pool | None = None
    """Data nodes, where there are any."""
    code: Code | None = None
    """The user's own code, where the job has some."""

    @property
    def types(self) -> tuple[tuple[str, InstanceType], ...]:
        """Every type that a node may be of, by its path in the stack's file."""
        others = ((f"nodes.alternatives.{index}", kind) for index, kind in enumerate(self.alternatives))
        return ("nodes.type", self.instance), *others

    @property
    def pool(self) -> Pool:
        """The nodes that train."""
        nodes = self.spec.nodes
        return Pool(
            "node",
            self.cloud,
            self.instance,
            nodes.image,
            nodes.disk_gb,
            self.nics,
            self.capacity,
            self.fleet,
            nodes.refresh,
            nodes.containers,
            nodes.confidential,
        )

    @property
    def cloud(self) -> Cloud:
        """The cloud that the cluster is on."""
        return CLOUDS[self.spec.cloud]

    @property
    def fast(self) -> bool:
        """Nodes talk over EFA or eRDMA."""
        return self.pool.fast

    @property
    def checks_tokens(self) -> bool:
        """Nodes that train see at boot that their metadata takes tokens alone, or fail.

        That is where it isn't declared with their group, but added to it (`Pool.source`).
        """
        return self.pool.source == "configuration"

    @property
    def placed(self) -> bool:
        """Nodes share a cluster placement group: with EFA, where all types may, and never in a capacity block.

        A block places its nodes itself, and EC2 refuses a group beside it (aws-parallelcluster#6311). With eRDMA
        none is asked for, as it works anywhere in a zone.
        """
        together = all(kind.cluster_placement for _, kind in self.types)
        return self.pool.fabric == "efa" and together and self.capacity.market != "capacity-block"

    @property
    def drain_s(self) -> int:
        """Seconds a node is given before it is ended; none where it holds little and nobody takes it back."""
        return DRAIN_S if self.fast or self.instance.accelerators or self.capacity.interruptible else 0

    @property
    def hook(self) -> str:
        """The hook that a node itself ends once it is done; none where it can't reach Auto Scaling to say so."""
        return HOOK if self.drain_s and self.spec.network.egress != "bucket" else ""

    @property
    def switched(self) -> bool:
        """Any node's GPUs are joined by NVSwitch, of whichever type it is.

        On Alibaba Cloud that is said of bare metal alone: no document says who runs the switches of a virtual node.
        """
        return all(
            kind.gpus > 1 and kind.accelerator in SWITCHED and (self.spec.cloud == "aws" or kind.bare_metal)
            for _, kind in self.types
        )

    @property
    def most_nodes(self) -> int:
        """Nodes that may run at one time: on AWS more than the group's, while spot nodes are replaced ahead."""
        ahead = self.capacity.interruptible and self.spec.cloud == "aws"
        extra = math.ceil(self.fleet.max * REBALANCING) if ahead else 0
        return self.fleet.max + extra

    @property
    def most_addresses(self) -> int:
        """Addresses that nodes of every kind may take at one time."""
        return self.most_nodes * sum(nic.addresses for nic in self.nics) + (self.data.fleet.max if self.data else 0)


def decide(name: str, spec: Spec) -> Plan:
    """The plan of a cluster. Raises `Invalid` with everything that keeps it from being planned."""
    nodes = spec.nodes
    instance = _find(spec, nodes.type, "nodes.type")
    others = [_find(spec, kind, f"nodes.alternatives.{index}") for index, kind in enumerate(nodes.alternatives)]
    nics = plain(spec.cloud) if isinstance(instance, Finding) else interfaces(spec, instance, "nodes.type")
    subnets = split(spec.network.cidr, spec.network.zones, CLOUDS[spec.cloud])
    data = _data(spec)
    code = pack(spec.job.code) if isinstance(spec.job, CommandJob) and spec.job.code else None
    alternatives = tuple(found for found in others if not isinstance(found, Finding))
    if (
        isinstance(instance, Finding)
        or isinstance(nics, Finding)
        or isinstance(subnets, Finding)
        or isinstance(data, Finding)
        or isinstance(code, Finding)
        or len(alternatives) < len(others)
    ):
        found = (instance, *others, nics, subnets, data, code)
        raise Invalid([finding for finding in found if isinstance(finding, Finding)])
    job = spec.job.model_dump(mode="json") | ({"code": code.sha256} if code else {})
    return Plan(
        name=name,
        spec=spec,
        instance=instance,
        alternatives=alternatives,
        nics=nics,
        capacity=choose(spec),
        workers=max(1, instance.gpus),
        subnets=subnets,
        fleet=Fleet(nodes.min, nodes.desired, nodes.max or nodes.desired),
        run=Run(run_id(job), job),
        tags={**spec.tags, "trainwright:cluster": name},
        data=data,
        code=code,
    )


def _data(spec: Spec) -> Pool | Finding | None:
    """Data nodes: plain interface, on demand, and of their own size whatever the fleet's."""
    wanted = spec.data_nodes
    if wanted is None:
        return None
    found = _find(spec, wanted.type, "data_nodes.type")
    if isinstance(found, Finding):
        return found
    fleet = Fleet(wanted.count, wanted.count, wanted.count)
    cloud = CLOUDS[spec.cloud]
    image, nics = wanted.image or spec.nodes.image, plain(spec.cloud)
    return Pool("data-node", cloud, found, image, wanted.disk_gb, nics, Capacity(), fleet)


def _find(spec: Spec, name: str, path: str) -> InstanceType | Finding:
    return find(spec.cloud, name, spec.region, path, spec.catalog.overrides)


def interfaces(spec: Spec, instance: InstanceType, path: str) -> tuple[Nic, ...] | Finding:
    """The network interfaces of a node of this type, with EFA or eRDMA unless the spec wants none."""
    nodes = spec.nodes
    return plain(spec.cloud) if nodes.fabric == "tcp" else layout(instance, nodes.nic_layout, path, spec.cloud)


def split(cidr: str, zones: tuple[str, ...], cloud: Cloud) -> tuple[Subnet, ...] | Finding:
    """One subnet a zone, of equal size, the largest that leave a block of the network free for what comes later."""
    network = ipaddress.IPv4Network(cidr)
    bits = len(zones).bit_length()
    prefix = network.prefixlen + bits
    if network.prefixlen < 16 or prefix > cloud.smallest_subnet:
        return Finding(
            "network.cidr",
            f"{cidr} can't hold {len(zones)} subnet{'s' * (len(zones) > 1)}: a network is /16 to "
            f"/{cloud.smallest_subnet - bits} here, as a subnet is /{cloud.smallest_subnet} at the smallest",
            f"Use {ipaddress.IPv4Interface(f'{network.network_address}/16').network}, for example",
        )
    blocks = network.subnets(prefixlen_diff=bits)
    return tuple(
        Subnet(zone[-1], zone, str(block), cloud.reserved_addresses) for zone, block in zip(zones, blocks, strict=False)
    )


YOUNGER = {"deterministic": False}
"""Keys of a job that were added later, and their defaults."""


def run_id(job: Mapping[str, Any]) -> str:
    """A run's id: the job's name and eight hex digits of its content, but for how long it may take.

    A key that is younger than runs which go on counts where it isn't at its default: they would else start anew.
    """
    told = {key: value for key, value in job.items() if key != "hours" and YOUNGER.get(key, ...) != value}
    content = json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
    return f"{job['name']}-{hashlib.sha256(content).hexdigest()[:8]}"
