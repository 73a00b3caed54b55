"""What nodes need to reach beyond themselves and the bucket, and where the ways out lie: pure functions."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, replace

from components import oss
from components.clouds import CLOUDS
from components.findings import Finding, Severity
from components.plan import Plan, Subnet
from components.spec import Spec

SESSION_MANAGER = ("ssm", "ssmmessages", "ec2messages")
"""Systems Manager user guide, "Improve the security of EC2 instances by using VPC endpoints for Systems Manager"."""

ENDPOINTS = ("ec2", "autoscaling", "kms", "sts", *SESSION_MANAGER, "logs", "monitoring")
"""AWS's services that a private node may call (facts: B8), as their endpoints are named; S3 has its gateway."""

QUEUE = "sqs"
"""The one that nodes of a cluster with a queue call too."""


@dataclass(frozen=True)
class Services:
    """What nodes call, as a cloud names it."""

    sessions: tuple[str, ...]
    record: tuple[str, ...]
    """Where a node writes what is typed in a session; where it is empty, the cloud's own side of the session does."""
    metrics: tuple[str, ...]
    queue: tuple[str, ...]


SERVICES = {
    "aws": Services(SESSION_MANAGER, ("logs",), ("monitoring",), (QUEUE,)),
    "alicloud": Services(("Cloud Assistant",), (), ("CloudMonitor",), ("SMQ",)),
}


@dataclass(frozen=True)
class Need:
    """What a key of the stack's file asks of a service that lies beyond the VPC."""

    path: str
    what: str
    services: tuple[str, ...]


def needs(spec: Spec) -> Iterator[Need]:
    """What the spec asks of services that a node calls itself."""
    named, metrics = SERVICES[spec.cloud], CLOUDS[spec.cloud].metrics
    if spec.security.operators:
        yield Need("security.operators", "Session Manager", named.sessions)
        if spec.audit.enabled and named.record:
            yield Need("audit.enabled", "the record of operators' sessions", named.record)
    if spec.scaling:
        yield Need("scaling", f"a way for nodes' metrics to {metrics}", named.metrics)
        if spec.scaling.queue:
            yield Need("scaling.queue", "a way for the count of what waits", named.queue)


def measured(spec: Spec) -> bool:
    """Whether nodes send metrics to CloudWatch: where something goes by them, and, if they can, for a dashboard."""
    return spec.scaling is not None or (spec.audit.enabled and spec.network.egress != "bucket")


def endpoints(spec: Spec) -> tuple[str, ...]:
    """The services that have an endpoint of the VPC's own where nodes' way out is by those.

    On Alibaba Cloud none has: every VPC reaches all of them in `oss.SERVICE_NETWORK`, and of PrivateLink's endpoints,
    those of OSS and PAI alone take a policy, which is what one would be for (PrivateLink user guide, "Endpoint
    policies").
    """
    if spec.cloud == "alicloud":
        return ()
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


def ways_of_alibaba(spec: Spec) -> Iterator[Finding]:
    """What of a closed network Alibaba Cloud can't do in a region, with a way out, or with a session."""
    if spec.cloud != "alicloud":
        return
    network, title = spec.network, CLOUDS[spec.cloud].title
    if spec.region not in oss.ADDRESSES and spec.region in CLOUDS[spec.cloud].regions:
        yield Finding(
            "region",
            f"OSS has no gateway endpoint in {spec.region}, so that nodes would reach anyone's buckets there",
            f"Use a region that has: {', '.join(sorted(oss.ADDRESSES))}",
        )
    if ipaddress.IPv4Network(network.cidr).overlaps(ipaddress.IPv4Network(oss.SERVICE_NETWORK)):
        reason = f"{network.cidr} lies where {title}'s services are, in {oss.SERVICE_NETWORK}"
        yield Finding("network.cidr", reason, "Use 10.0.0.0/16, for example")
    beyond = {
        "endpoints": "services take requests of any account at the addresses that nodes reach",
        "nat": "nodes reach the public addresses of OSS too, and any bucket by those",
    }
    if network.egress in beyond:
        yield Finding(
            "network.egress",
            f"on {title} {beyond[network.egress]}: with credentials of somebody else's, data can leave",
            "Keep bucket where nothing may leave",
            Severity.WARNING,
        )
    if spec.security.operators and spec.audit.enabled:
        yield Finding(
            "security.operators",
            f"the record says who opened a session, not what was typed: {title} sets that for an account as a whole",
            "Turn on delivery of Session Manager's records in the ECS console",
            Severity.WARNING,
        )
