"""What is refused or warned of the network: where it lies, one that is brought, its room, and its ways out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from components.catalog import instance_types
from components.clouds import CLOUDS
from components.egress import endpoints, needs, public_subnets
from components.findings import Finding, Severity, nearest
from components.oss import SERVICE_NETWORK
from components.plan import Plan
from components.spec import Spec

VPC_OF_YOURS = {
    "aws": (
        "S3 gateway endpoint is in their route tables",
        {
            "bucket": "its DNS support is on",
            "endpoints": "its DNS support and its DNS hostnames are on",
            "nat": "its DNS support is on, and the route tables lead to a NAT gateway",
        },
    ),
    "alicloud": (
        "gateway endpoint of OSS is in it",
        {
            "bucket": f"no route of yours leads into {SERVICE_NETWORK}",
            "endpoints": f"no route of yours leads into {SERVICE_NETWORK}",
            "nat": f"no route of yours leads into {SERVICE_NETWORK}, and the route tables lead to a NAT gateway",
        },
    ),
}
"""What to see to in a VPC that is brought, by cloud: what may not be there yet, and what each way out needs."""


def zones(spec: Spec) -> Iterator[Finding]:
    """The region is one that the cloud has, and zones lie in it, each once."""
    known = {region for kind in instance_types(spec.cloud).values() for region in kind.regions}
    known |= CLOUDS[spec.cloud].regions
    if spec.region not in known:
        yield Finding(
            "region", f"{CLOUDS[spec.cloud].title} has no region '{spec.region}'", nearest(spec.region, known)
        )
        return
    for index, zone in enumerate(spec.network.zones):
        path = f"network.zones.{index}"
        if not re.fullmatch(rf"{re.escape(spec.region)}{CLOUDS[spec.cloud].zone}", zone):
            yield Finding(path, f"{zone} is not a zone of {spec.region}", f"A zone is written {spec.region}a")
        elif zone in spec.network.zones[:index]:
            yield Finding(path, f"{zone} is listed twice", "List each zone once")


def brought(spec: Spec) -> Iterator[Finding]:
    """A VPC of the user's own comes whole, and instead of one of ours."""
    network = spec.network
    given = {"subnets": network.subnets, "route_tables": network.route_tables}
    if network.vpc is None:
        for key in (key for key, ids in given.items() if ids):
            yield Finding(f"network.{key}", "says nothing without network.vpc", "Name their VPC, or take it away")
        return
    if "cidr" in network.model_fields_set:
        yield Finding("network.cidr", f"{network.vpc} has its own network already", "Take it away, or network.vpc")
    if len(network.subnets) != len(network.zones):
        yield Finding(
            "network.subnets",
            f"{len(network.subnets)} subnets don't go with {len(network.zones)} zones",
            "Name one for each zone, in the zones' order",
        )
    if not network.route_tables:
        yield Finding(
            "network.route_tables", "without them nodes don't reach the bucket", "Name the route tables of the subnets"
        )
    for key, ids in given.items():
        if len(set(ids)) < len(ids):
            yield Finding(f"network.{key}", "lists one twice", "List each once")
    endpoint, way_out = VPC_OF_YOURS[spec.cloud]
    yield Finding(
        "network.vpc",
        f"what {network.vpc} is like can't be seen from here",
        "Make sure that its subnets lie in network.zones, in that order, have room for nodes.max nodes, give out no "
        f"public addresses and are the cluster's alone, that no {endpoint}, and that {way_out[network.egress]}",
        Severity.WARNING,
    )


def way_out(spec: Spec) -> Iterator[Finding]:
    """What the spec asks of services has a way out; else a node waits for an answer that can't come (facts: B8)."""
    if spec.network.egress == "bucket":
        for need in needs(spec):
            yield Finding(
                "network.egress",
                f"nodes reach the bucket alone, but {need.path} needs {need.what} ({', '.join(need.services)})",
                "Set it to endpoints or nat",
            )


def room(plan: Plan) -> Iterator[Finding]:
    """Each zone's subnet holds the whole fleet, since a zone may be the only one that has capacity."""
    needed = plan.most_addresses
    extra = plan.most_nodes - plan.fleet.max
    replaced = f" and {extra} that replace spot nodes at risk" if extra else ""
    beside = _beside(plan)
    for subnet in () if plan.spec.network.vpc else plan.subnets:
        if subnet.addresses < needed:
            yield Finding(
                "network.cidr",
                f"{plan.spec.network.cidr} leaves {subnet.addresses} addresses in {subnet.zone}, "
                f"too few for {plan.fleet.max} nodes{replaced}{beside}",
                "Take a larger network, such as 10.0.0.0/16, or lower nodes.max",
            )


def room_for_ways_out(plan: Plan) -> Iterator[Finding]:
    """Interface endpoints take an address each in every subnet (PrivateLink guide); NAT gateways, a subnet a zone."""
    network, needed, beside = plan.spec.network, plan.most_addresses, _beside(plan)
    if network.vpc:
        return
    if network.egress == "nat" and isinstance(public := public_subnets(plan), Finding):
        yield public
    ways = len(endpoints(plan.spec))
    for subnet in plan.subnets if network.egress == "endpoints" else ():
        if needed <= subnet.addresses < needed + ways:
            yield Finding(
                "network.cidr",
                f"{network.cidr} leaves {subnet.addresses} addresses in {subnet.zone}, too few for {plan.most_nodes} "
                f"nodes{beside} and {ways} endpoints",
                "Take a larger network, such as 10.0.0.0/16, or lower nodes.max",
            )


def _beside(plan: Plan) -> str:
    return f" beside {plan.data.fleet.max} data nodes" if plan.data else ""
