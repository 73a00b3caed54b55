"""What nodes need to reach beyond themselves and the bucket, and where the ways out lie: pure functions."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, replace

from components.findings import Finding
from components.plan import Plan, Subnet
from components.spec import Spec

SESSION_MANAGER = ("ssm", "ssmmessages", "ec2messages")
"""Systems Manager user guide, "Improve the security of EC2 instances by using VPC endpoints for Systems Manager"."""

ENDPOINTS = ("ec2", "autoscaling", "kms", "sts", *SESSION_MANAGER, "logs", "monitoring")
"""AWS's services that a private node may call (facts: B8), as their endpoints are named; S3 has its gateway."""

QUEUE = "sqs"
"""The one that nodes of a cluster with a queue call too."""


@dataclass(frozen=True)
class Need:
    """What a key of the stack's file asks of a service that lies beyond the VPC."""

    path: str
    what: str
    services: tuple[str, ...]


def needs(spec: Spec) -> Iterator[Need]:
    """What the spec asks of services that a node calls itself."""
    if spec.security.operators:
        yield Need("security.operators", "Session Manager", SESSION_MANAGER)
        if spec.audit.enabled:
            yield Need("audit.enabled", "the record of operators' sessions", ("logs",))
    if spec.scaling:
        yield Need("scaling", "a way for nodes' metrics to CloudWatch", ("monitoring",))
        if spec.scaling.queue:
            yield Need("scaling.queue", "a way for the count of what waits", (QUEUE,))


def measured(spec: Spec) -> bool:
    """Whether nodes send metrics to CloudWatch: where something goes by them, and, if they can, for a dashboard."""
    return spec.scaling is not None or (spec.audit.enabled and spec.network.egress != "bucket")


def endpoints(spec: Spec) -> tuple[str, ...]:
    """The services that have an endpoint where nodes' way out is by those."""
    return (*ENDPOINTS, QUEUE) if spec.scaling and spec.scaling.queue else ENDPOINTS


def public_subnets(plan: Plan) -> tuple[Subnet, ...] | Finding:
    """For NAT gateways: the smallest subnet in each zone, from the end of the network, which nodes' subnets leave free.

    A gateway takes one address (VPC user guide, "NAT gateway basics").
    """
    network, smallest = ipaddress.IPv4Network(plan.spec.network.cidr), plan.cloud.smallest_subnet
    size = 2 ** (32 - smallest)
    starts = (int(network.broadcast_address) + 1 - size * (index + 1) for index in range(len(plan.subnets)))
    blocks = [ipaddress.IPv4Network((start, smallest)) for start in starts]
    if any(block.overlaps(ipaddress.IPv4Network(subnet.cidr)) for block in blocks for subnet in plan.subnets):
        return Finding(
            "network.cidr",
            f"{network} leaves no room beside nodes' subnets for those of {len(blocks)} NAT gateways",
            "Take a larger network, such as 10.0.0.0/16",
        )
    return tuple(replace(subnet, cidr=str(block)) for subnet, block in zip(plan.subnets, blocks, strict=True))
