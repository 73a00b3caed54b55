"""VPC, private vSwitches, the ways out that the stack's file asks for, and the nodes' security group."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud.security import Document, bucket_arns, document, objects
from components.egress import public_subnets
from components.oss import ADDRESSES, SERVICE_NETWORK
from components.plan import Plan, Subnet

NAMES = "100.100.2.136/30"
"""A VPC's name servers, 100.100.2.136 to 100.100.2.138 (PrivateZone API, AddResolverRule, `ForwardIp`)."""

METADATA = "100.100.100.200/32"

LAST = 100
"""The lowest priority of a rule; 1 is the highest (ECS API, AuthorizeSecurityGroupEgress)."""


@dataclass(frozen=True)
class Network:
    """What others need of the network."""

    vpc_id: pulumi.Input[str]
    vswitch_ids: list[pulumi.Input[str]]
    security_group_id: pulumi.Output[str]
    ready: list[pulumi.Resource]
    """What must be there before a node can reach the bucket, its peers and the services that it may call."""
    gateway_ids: list[pulumi.Output[str]]
    """Of NAT gateways."""


@dataclass(frozen=True)
class _Ground:
    """The VPC with its private vSwitches and their route tables, ours or the user's."""

    vpc_id: pulumi.Input[str]
    vswitch_ids: list[pulumi.Input[str]]
    route_table_ids: list[pulumi.Input[str]]
    ready: list[pulumi.Resource]
    gateway_ids: list[pulumi.Output[str]]


def endpoint_policy(bucket: str) -> Document:
    """Through the endpoint, only the cluster's own buckets: else a node could carry data off to anyone's."""
    return document(
        {
            "Effect": "Allow",
            "Principal": ["*"],
            "Action": ["oss:*"],
            "Resource": [*bucket_arns(bucket), *objects(bucket, "")],
        },
    )


def declare(plan: Plan, bucket: pulumi.Output[str], child: pulumi.ResourceOptions) -> Network:
    """Declare the network. Every resource gets the options `child`.

    Nobody is given an IPv6 address: neither VPC nor vSwitches have IPv6, which eRDMA doesn't take either.
    """
    name = plan.name
    brought = plan.spec.network.vpc
    ground = _brought(plan, brought) if brought else _declare_vpc(plan, child)
    gateway = alicloud.vpc.GatewayEndpoint(
        f"{name}-oss",
        vpc_id=ground.vpc_id,
        service_name=f"com.aliyun.{plan.spec.region}.oss",
        gateway_endpoint_name=f"{name}-oss",
        gateway_endpoint_descrption=f"The bucket of cluster {name}",
        route_tables=ground.route_table_ids,
        policy_document=bucket.apply(lambda known: json.dumps(endpoint_policy(known))),
        tags=dict(plan.tags),
        opts=child,
    )
    group, rules = _security_group(plan, ground.vpc_id, child)
    return Network(ground.vpc_id, ground.vswitch_ids, group.id, [*ground.ready, gateway, *rules], ground.gateway_ids)


def _brought(plan: Plan, vpc_id: str) -> _Ground:
    """What the user has already; nothing of it is declared or changed but for the bucket's route."""
    network = plan.spec.network
    return _Ground(vpc_id, [*network.subnets], [*network.route_tables], [], [])


def _declare_vpc(plan: Plan, child: pulumi.ResourceOptions) -> _Ground:
    """Declare the VPC. It has no security group of its own to be emptied, as one on AWS has."""
    vpc = alicloud.vpc.Network(
        f"{plan.name}-vpc",
        vpc_name=plan.name,
        description=f"Cluster {plan.name}",
        cidr_block=plan.spec.network.cidr,
        enable_ipv6=False,
        tags=dict(plan.tags),
        opts=child,
    )
    private = [_vswitch(f"{plan.name}-private-{planned.suffix}", planned, plan, vpc, child) for planned in plan.subnets]
    vswitch_ids: list[pulumi.Input[str]] = [vswitch.id for vswitch in private]
    if plan.spec.network.egress != "nat":
        return _Ground(vpc.id, vswitch_ids, [vpc.route_table_id], [], [])
    tables, gateways, ready = _declare_nat(plan, vpc, private, child)
    return _Ground(vpc.id, vswitch_ids, tables, ready, gateways)


def _vswitch(
    name: str, planned: Subnet, plan: Plan, vpc: alicloud.vpc.Network, child: pulumi.ResourceOptions
) -> alicloud.vpc.Switch:
    """A vSwitch, in the VPC's own routes until told otherwise. None gives out public addresses: instances ask."""
    return alicloud.vpc.Switch(
        name,
        vswitch_name=name,
        vpc_id=vpc.id,
        zone_id=planned.zone,
        cidr_block=planned.cidr,
        tags=dict(plan.tags),
        opts=child,
    )


def _declare_nat(
    plan: Plan, vpc: alicloud.vpc.Network, private: list[alicloud.vpc.Switch], child: pulumi.ResourceOptions
) -> tuple[list[pulumi.Input[str]], list[pulumi.Output[str]], list[pulumi.Resource]]:
    """A NAT gateway in each zone, in a vSwitch of its own, so that none falls with another.

    Returns the private vSwitches' route tables, the gateways' ids, and what must be there before nodes can use them: an
    address, an SNAT entry and a route for each (provider's `vpc.SnatEntry`). An address may carry 200 Mbit/s, the most
    where traffic is paid for (provider's `ecs.EipAddress`, `bandwidth`).
    """
    name, tags = plan.name, dict(plan.tags)
    planned = public_subnets(plan)
    assert isinstance(planned, tuple), "checked in review"
    tables: list[pulumi.Input[str]] = []
    gateways, ready = [], list[pulumi.Resource]()
    for zone, nodes in zip(planned, private, strict=True):
        own = f"{name}-nat-{zone.suffix}"
        gateway = alicloud.vpc.NatGateway(
            own,
            nat_gateway_name=own,
            vpc_id=vpc.id,
            vswitch_id=_vswitch(f"{name}-public-{zone.suffix}", zone, plan, vpc, child).id,
            nat_type="Enhanced",
            network_type="internet",
            payment_type="PayAsYouGo",
            internet_charge_type="PayByLcu",
            tags=tags,
            opts=child,
        )
        address = alicloud.ecs.EipAddress(
            own,
            address_name=own,
            payment_type="PayAsYouGo",
            internet_charge_type="PayByTraffic",
            bandwidth="200",
            tags=tags,
            opts=child,
        )
        bound = alicloud.ecs.EipAssociation(
            own, allocation_id=address.id, instance_id=gateway.id, instance_type="Nat", opts=child
        )
        translated = alicloud.vpc.SnatEntry(
            own,
            snat_entry_name=own,
            snat_table_id=gateway.snat_table_ids,
            source_vswitch_id=nodes.id,
            snat_ip=address.ip_address,
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[bound])),
        )
        out = f"{name}-private-{zone.suffix}"
        table = alicloud.vpc.RouteTable(out, route_table_name=out, vpc_id=vpc.id, tags=tags, opts=child)
        route = alicloud.vpc.RouteEntry(
            out,
            route_table_id=table.id,
            destination_cidrblock="0.0.0.0/0",
            nexthop_type="NatGateway",
            nexthop_id=gateway.id,
            opts=child,
        )
        routed = alicloud.vpc.RouteTableAttachment(out, route_table_id=table.id, vswitch_id=nodes.id, opts=child)
        tables.append(table.id)
        gateways.append(gateway.id)
        ready += [translated, route, routed]
    return tables, gateways, ready


def _security_group(
    plan: Plan, vpc_id: pulumi.Input[str], child: pulumi.ResourceOptions
) -> tuple[alicloud.ecs.SecurityGroup, list[pulumi.Resource]]:
    """Nodes reach each other, the bucket and what `egress` says, and nothing reaches them.

    A basic group, as a rule of an advanced one can't name a group (ECS user guide, "Basic and advanced security
    groups"). A basic one lets in only its own members until a rule says more, but lets everything out, so that a last
    rule drops what no other allows. eRDMA goes by the rules of its network interface (ECS user guide, "ERI").

    Replies to what came in or went out pass (same guide, "Security group rules"). Beyond the bucket, a node needs
    names, its metadata and the time, which a rule may stop here, unlike on AWS.
    """
    group = alicloud.ecs.SecurityGroup(
        f"{plan.name}-nodes",
        security_group_name=f"{plan.name}-nodes",
        security_group_type="normal",
        inner_access_policy="Accept",
        vpc_id=vpc_id,
        description=f"Nodes of cluster {plan.name}",
        tags=dict(plan.tags),
        opts=child,
    )

    def out(suffix: str, description: str, where: str, protocol: str, port: int) -> alicloud.ecs.SecurityGroupRule:
        return way_out(plan, suffix, description, group.id, where, protocol, port, child)

    rules: list[pulumi.Resource] = [
        _rule(plan, "from-nodes", "Everything from nodes of the cluster", group.id, "ingress", child, group.id),
        _rule(plan, "to-nodes", "Everything to nodes of the cluster", group.id, "egress", child, group.id),
        *(
            out(f"to-bucket-{index}", "HTTPS to the bucket through the gateway endpoint", where, "tcp", 443)
            for index, where in enumerate(ADDRESSES[plan.spec.region])
        ),
        out("to-names", "Names", NAMES, "udp", 53),
        out("to-names-tcp", "Names that need more than a packet", NAMES, "tcp", 53),
        out("to-metadata", "What a node is told of itself", METADATA, "tcp", 80),
        out("to-clock", "The time, which each request is signed with", SERVICE_NETWORK, "udp", 123),
        _rule(plan, "to-nowhere", "Nothing else", group.id, "egress", child, cidr_ip="0.0.0.0/0"),
        _rule(plan, "to-nowhere-ipv6", "Nothing over IPv6", group.id, "egress", child, ipv6_cidr_ip="::/0"),
    ]
    if plan.spec.network.egress == "endpoints":
        rules.append(out("to-services", "HTTPS to Alibaba Cloud's services", SERVICE_NETWORK, "tcp", 443))
    elif plan.spec.network.egress == "nat":
        rules.append(out("to-internet", "HTTPS through the NAT gateway", "0.0.0.0/0", "tcp", 443))
    return group, rules


def way_out(
    plan: Plan,
    suffix: str,
    description: str,
    group_id: pulumi.Input[str],
    where: pulumi.Input[str],
    protocol: str,
    port: int,
    child: pulumi.ResourceOptions,
) -> alicloud.ecs.SecurityGroupRule:
    """Declare that nodes of the group reach a port at an IPv4 network: without a rule, they reach nothing."""
    return alicloud.ecs.SecurityGroupRule(
        f"{plan.name}-{suffix}",
        security_group_id=group_id,
        type="egress",
        policy="accept",
        priority=1,
        nic_type="intranet",  # what a VPC's rules are, whatever their addresses
        ip_protocol=protocol,
        port_range=f"{port}/{port}",
        cidr_ip=where,
        description=description,
        opts=child,
    )


def _rule(
    plan: Plan,
    suffix: str,
    description: str,
    group_id: pulumi.Input[str],
    direction: str,
    child: pulumi.ResourceOptions,
    other_group_id: pulumi.Input[str] | None = None,
    **network: str,
) -> alicloud.ecs.SecurityGroupRule:
    """Everything to or from a group, let through before all else; or to or from a network, dropped if none has it."""
    return alicloud.ecs.SecurityGroupRule(
        f"{plan.name}-{suffix}",
        security_group_id=group_id,
        type=direction,
        policy="drop" if network else "accept",
        priority=LAST if network else 1,
        nic_type="intranet",
        ip_protocol="all",
        port_range="-1/-1",
        source_security_group_id=other_group_id,
        description=description,
        opts=child,
        **network,
    )
