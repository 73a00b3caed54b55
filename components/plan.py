"""What is decided, before anything is declared: pure functions from a spec to a plan, the same for every cloud."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.catalog import InstanceType, find
from components.findings import Finding, Invalid
from components.spec import Spec

SMALLEST_SUBNET = 28
"""AWS takes subnets from /16 to /28 (VPC user guide, "Subnet sizing"); Alibaba Cloud from /16 to /29."""

RESERVED_ADDRESSES = 5
"""Addresses that AWS keeps in each subnet (VPC user guide, "Subnet sizing"); Alibaba Cloud keeps four."""


@dataclass(frozen=True)
class Subnet:
    """A private subnet in one zone. `suffix` names it within the cluster."""

    suffix: str
    zone: str
    cidr: str

    @property
    def addresses(self) -> int:
        """Addresses that nodes can have."""
        return ipaddress.IPv4Network(self.cidr).num_addresses - RESERVED_ADDRESSES


@dataclass(frozen=True)
class Fleet:
    """Sizes of the group, in nodes."""

    min: int
    desired: int
    max: int


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
    workers: int
    subnets: tuple[Subnet, ...]
    fleet: Fleet
    run: Run
    tags: Mapping[str, str]


def decide(name: str, spec: Spec) -> Plan:
    """The plan of a cluster. Raises `Invalid` with everything that keeps it from being planned."""
    instance = find(spec.cloud, spec.nodes.type, spec.region, "nodes.type")
    subnets = split(spec.network.cidr, spec.network.zones)
    if isinstance(instance, Finding) or isinstance(subnets, Finding):
        raise Invalid([finding for finding in (instance, subnets) if isinstance(finding, Finding)])
    job = spec.job.model_dump(mode="json")
    return Plan(
        name=name,
        spec=spec,
        instance=instance,
        workers=max(1, instance.gpus),
        subnets=subnets,
        fleet=Fleet(spec.nodes.min, spec.nodes.desired, spec.nodes.max or spec.nodes.desired),
        run=Run(run_id(job), job),
        tags={**spec.tags, "trainwright:cluster": name},
    )


def split(cidr: str, zones: tuple[str, ...]) -> tuple[Subnet, ...] | Finding:
    """One subnet a zone, of equal size, the largest that leave a block of the network free for what comes later."""
    network = ipaddress.IPv4Network(cidr)
    bits = len(zones).bit_length()
    prefix = network.prefixlen + bits
    if network.prefixlen < 16 or prefix > SMALLEST_SUBNET:
        return Finding(
            "network.cidr",
            f"{cidr} can't hold {len(zones)} subnet{'s' * (len(zones) > 1)}: a network is /16 to "
            f"/{SMALLEST_SUBNET - bits} here, as a subnet is /{SMALLEST_SUBNET} at the smallest",
            f"Use {ipaddress.IPv4Interface(f'{network.network_address}/16').network}, for example",
        )
    blocks = network.subnets(prefixlen_diff=bits)
    return tuple(Subnet(zone[-1], zone, str(block)) for zone, block in zip(zones, blocks, strict=False))


def run_id(job: Mapping[str, Any]) -> str:
    """A run's id: the job's name and eight hex digits of its content."""
    content = json.dumps(job, sort_keys=True, separators=(",", ":")).encode()
    return f"{job['name']}-{hashlib.sha256(content).hexdigest()[:8]}"
