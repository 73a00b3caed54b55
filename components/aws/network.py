"""VPC, private subnets, the ways out that the stack's file asks for, and the nodes' security group."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.aws.security import Document, account, document
from components.egress import QUEUE, endpoints, public_subnets
from components.plan import Plan, Subnet

WRITTEN_TO = ("logs", "monitoring", QUEUE)
"""Services that keep whatever a node writes to them. The others' endpoints have no policy: EC2 and Systems Manager make
requests of their own through them (aws-samples/data-perimeter-policy-examples, `vpc_endpoint_policies`)."""


@dataclass(frozen=True)
class Network:
    """What others need of the network."""

    vpc_id: pulumi.Input[str]
    subnet_ids: list[pulumi.Input[str]]
    security_group_id: pulumi.Output[str]
    ready: list[pulumi.Resource]
    """What must be there before a node can reach the bucket, its peers and the services that it may call."""
    gateway_ids: list[pulumi.Output[str]]
    """Of NAT gateways."""


@dataclass(frozen=True)
class _Ground:
    """The VPC with its private subnets and their route tables, ours or the user's."""

    vpc_id: pulumi.Input[str]
    subnet_ids: list[pulumi.Input[str]]
    route_table_ids: list[pulumi.Input[str]]
    ready: list[pulumi.Resource]
    gateway_ids: list[pulumi.Output[str]]


def endpoint_policy(bucket_arn: str) -> Document:
    """Through the endpoint, only the cluster's own bucket: else a node could carry data off to anyone's."""
    return document(
        {
            "Sid": "OnlyTheClustersBucket",
            "Effect": "Allow",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [bucket_arn, f"{bucket_arn}/*"],
        },
    )


def service_policy(account_id: str) -> Document:
    """Through a service's endpoint, only identities of the account: else data could leave in another's logs."""
    return document(
        {
            "Sid": "OnlyTheAccount",
            "Effect": "Allow",
            "Principal": "*",
            "Action": "*",
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:PrincipalAccount": account_id}},
        },
    )


def declare(plan: Plan, bucket_arn: pulumi.Output[str], child: pulumi.ResourceOptions) -> Network:
    """Declare the network. Every resource gets the options `child`."""
    name, tags = plan.name, dict(plan.tags)
    brought = plan.spec.network.vpc
    ground = _brought(plan, brought) if brought else _declare_vpc(plan, child)
    gateway = aws.ec2.VpcEndpoint(
        f"{name}-s3",
        vpc_id=ground.vpc_id,
        service_name=f"com.amazonaws.{plan.spec.region}.s3",
        vpc_endpoint_type="Gateway",
        route_table_ids=ground.route_table_ids,
        policy=bucket_arn.apply(lambda arn: json.dumps(endpoint_policy(arn))),
        tags={**tags, "Name": f"{name}-s3"},
        opts=child,
    )
    group, rules = _security_group(plan, ground.vpc_id, gateway.prefix_list_id, child)
    ways: list[pulumi.Resource] = []
    if plan.spec.network.egress == "endpoints":
        ways = _endpoints(plan, ground, group, child)
    elif plan.spec.network.egress == "nat":
        ways = [_rule_to_internet(plan, group, child)]
    ready = [*ground.ready, gateway, *rules, *ways]
    return Network(ground.vpc_id, ground.subnet_ids, group.id, ready, ground.gateway_ids)


def _brought(plan: Plan, vpc_id: str) -> _Ground:
    """What the user has already; nothing of it is declared or changed but for the bucket's route."""
    network = plan.spec.network
    return _Ground(vpc_id, [*network.subnets], [*network.route_tables], [], [])


def _declare_vpc(plan: Plan, child: pulumi.ResourceOptions) -> _Ground:
    name, tags = plan.name, dict(plan.tags)
    vpc = aws.ec2.Vpc(
        f"{name}-vpc",
        cidr_block=plan.spec.network.cidr,
        enable_dns_support=True,
        enable_dns_hostnames=True,
        tags={**tags, "Name": name},
        opts=child,
    )
    # AWS opens a VPC's default group to itself and to the world; nothing of ours uses it.
    aws.ec2.DefaultSecurityGroup(f"{name}-default", vpc_id=vpc.id, tags=tags, opts=child)
    if plan.spec.network.egress == "nat":
        tables, gateways, ready = _declare_nat(plan, vpc, child)
    else:
        routes = _route_table(f"{name}-private", vpc, tags, child)
        tables, gateways, ready = [routes] * len(plan.subnets), [], []
    subnets = []
    for planned, table in zip(plan.subnets, tables, strict=True):
        subnet, association = _subnet(f"{name}-private-{planned.suffix}", planned, vpc, table, tags, child)
        subnets.append(subnet.id)
        ready.append(association)
    distinct = tables if gateways else tables[:1]
    return _Ground(vpc.id, [*subnets], [table.id for table in distinct], ready, gateways)


def _declare_nat(
    plan: Plan, vpc: aws.ec2.Vpc, child: pulumi.ResourceOptions
) -> tuple[list[aws.ec2.RouteTable], list[pulumi.Output[str]], list[pulumi.Resource]]:
    """A NAT gateway in each zone, so that none pays for traffic between zones or falls with another.

    Returns the private subnets' route tables, the gateways' ids, and what must be there before nodes can use them. The
    internet gateway has to be there before address and NAT gateway (VPC user guide, "NAT gateway basics").
    """
    name, tags = plan.name, dict(plan.tags)
    planned = public_subnets(plan)
    assert isinstance(planned, tuple), "checked in review"
    internet = aws.ec2.InternetGateway(f"{name}-internet", vpc_id=vpc.id, tags={**tags, "Name": name}, opts=child)
    public = _route_table(f"{name}-public", vpc, tags, child)
    outward = aws.ec2.Route(
        f"{name}-public",
        route_table_id=public.id,
        destination_cidr_block="0.0.0.0/0",
        gateway_id=internet.id,
        opts=child,
    )
    tables, gateways, ready = [], [], list[pulumi.Resource]()
    after = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[internet, outward]))
    for zone in planned:
        subnet, association = _subnet(f"{name}-public-{zone.suffix}", zone, vpc, public, tags, child)
        own = {**tags, "Name": f"{name}-nat-{zone.suffix}"}
        address = aws.ec2.Eip(f"{name}-nat-{zone.suffix}", domain="vpc", tags=own, opts=after)
        gateway = aws.ec2.NatGateway(
            f"{name}-nat-{zone.suffix}",
            subnet_id=subnet.id,
            allocation_id=address.id,
            tags=own,
            opts=pulumi.ResourceOptions.merge(after, pulumi.ResourceOptions(depends_on=[association])),
        )
        table = _route_table(f"{name}-private-{zone.suffix}", vpc, tags, child)
        ready.append(
            aws.ec2.Route(
                f"{name}-private-{zone.suffix}",
                route_table_id=table.id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=gateway.id,
                opts=child,
            )
        )
        tables.append(table)
        gateways.append(gateway.id)
    return tables, gateways, ready


def _route_table(
    name: str, vpc: aws.ec2.Vpc, tags: dict[str, str], child: pulumi.ResourceOptions
) -> aws.ec2.RouteTable:
    return aws.ec2.RouteTable(name, vpc_id=vpc.id, tags={**tags, "Name": name}, opts=child)


def _subnet(
    name: str,
    planned: Subnet,
    vpc: aws.ec2.Vpc,
    table: aws.ec2.RouteTable,
    tags: dict[str, str],
    child: pulumi.ResourceOptions,
) -> tuple[aws.ec2.Subnet, aws.ec2.RouteTableAssociation]:
    """A subnet in its routes. No subnet gives out public addresses: a NAT gateway brings its own."""
    subnet = aws.ec2.Subnet(
        name,
        vpc_id=vpc.id,
        availability_zone=planned.zone,
        cidr_block=planned.cidr,
        map_public_ip_on_launch=False,
        tags={**tags, "Name": name},
        opts=child,
    )
    return subnet, aws.ec2.RouteTableAssociation(name, subnet_id=subnet.id, route_table_id=table.id, opts=child)


def _endpoints(
    plan: Plan, ground: _Ground, nodes: aws.ec2.SecurityGroup, child: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """An endpoint for each service, in each subnet, under the service's own name, for nodes alone, over HTTPS alone."""
    name, tags = plan.name, dict(plan.tags)
    group = aws.ec2.SecurityGroup(
        f"{name}-endpoints",
        vpc_id=ground.vpc_id,
        description=f"Endpoints of cluster {name}",
        tags={**tags, "Name": f"{name}-endpoints"},
        opts=child,
    )
    both = {"ip_protocol": "tcp", "from_port": 443, "to_port": 443, "tags": tags, "opts": child}
    ready: list[pulumi.Resource] = [
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-endpoints-from-nodes",
            security_group_id=group.id,
            referenced_security_group_id=nodes.id,
            description="HTTPS from nodes",
            **both,
        ),
        aws.vpc.SecurityGroupEgressRule(
            f"{name}-to-endpoints",
            security_group_id=nodes.id,
            referenced_security_group_id=group.id,
            description="HTTPS to AWS services through their endpoints",
            **both,
        ),
    ]
    policy = account(child).apply(lambda account_id: json.dumps(service_policy(account_id)))
    for service in endpoints(plan.spec):
        ready.append(
            aws.ec2.VpcEndpoint(
                f"{name}-{service}",
                vpc_id=ground.vpc_id,
                service_name=f"com.amazonaws.{plan.spec.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=ground.subnet_ids,
                security_group_ids=[group.id],
                policy=policy if service in WRITTEN_TO else None,
                tags={**tags, "Name": f"{name}-{service}"},
                opts=child,
            )
        )
    return ready


def _rule_to_internet(
    plan: Plan, nodes: aws.ec2.SecurityGroup, child: pulumi.ResourceOptions
) -> aws.vpc.SecurityGroupEgressRule:
    return aws.vpc.SecurityGroupEgressRule(
        f"{plan.name}-to-internet",
        security_group_id=nodes.id,
        cidr_ipv4="0.0.0.0/0",
        ip_protocol="tcp",
        from_port=443,
        to_port=443,
        description="HTTPS through the NAT gateway",
        tags=dict(plan.tags),
        opts=child,
    )


def _security_group(
    plan: Plan, vpc_id: pulumi.Input[str], s3: pulumi.Output[str], child: pulumi.ResourceOptions
) -> tuple[aws.ec2.SecurityGroup, list[pulumi.Resource]]:
    """Nodes reach each other and the bucket, and nothing reaches them.

    EFA needs both self-rules, by group and for every protocol; a rule for 0.0.0.0/0 doesn't cover its traffic
    (aws-ofi-nccl#663, awsome-distributed-ai#546).
    """
    name, tags = plan.name, dict(plan.tags)
    group = aws.ec2.SecurityGroup(
        f"{name}-nodes",
        vpc_id=vpc_id,
        description=f"Nodes of cluster {name}",
        tags={**tags, "Name": f"{name}-nodes"},
        opts=child,
    )
    rules: list[pulumi.Resource] = [
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-from-nodes",
            security_group_id=group.id,
            referenced_security_group_id=group.id,
            ip_protocol="-1",
            description="Everything from nodes of the cluster",
            tags=tags,
            opts=child,
        ),
        aws.vpc.SecurityGroupEgressRule(
            f"{name}-to-nodes",
            security_group_id=group.id,
            referenced_security_group_id=group.id,
            ip_protocol="-1",
            description="Everything to nodes of the cluster",
            tags=tags,
            opts=child,
        ),
        aws.vpc.SecurityGroupEgressRule(
            f"{name}-to-bucket",
            security_group_id=group.id,
            prefix_list_id=s3,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            description="HTTPS to the bucket through the gateway endpoint",
            tags=tags,
            opts=child,
        ),
    ]
    return group, rules
