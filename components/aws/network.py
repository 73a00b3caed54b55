"""VPC, private subnets, the bucket's gateway endpoint and the nodes' security group. There is no internet gateway."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.aws.security import Document, document
from components.plan import Plan


@dataclass(frozen=True)
class Network:
    """What the fleet needs of the network."""

    subnet_ids: list[pulumi.Output[str]]
    security_group_id: pulumi.Output[str]
    ready: list[pulumi.Resource]
    """What must be there before a node can reach the bucket and its peers."""


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


def declare(plan: Plan, bucket_arn: pulumi.Output[str], child: pulumi.ResourceOptions) -> Network:
    """Declare the network. Every resource gets the options `child`."""
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
    routes = aws.ec2.RouteTable(f"{name}-private", vpc_id=vpc.id, tags={**tags, "Name": f"{name}-private"}, opts=child)
    subnets, ready = [], list[pulumi.Resource]()
    for planned in plan.subnets:
        subnet = aws.ec2.Subnet(
            f"{name}-private-{planned.suffix}",
            vpc_id=vpc.id,
            availability_zone=planned.zone,
            cidr_block=planned.cidr,
            map_public_ip_on_launch=False,
            tags={**tags, "Name": f"{name}-private-{planned.suffix}"},
            opts=child,
        )
        ready.append(
            aws.ec2.RouteTableAssociation(
                f"{name}-private-{planned.suffix}", subnet_id=subnet.id, route_table_id=routes.id, opts=child
            )
        )
        subnets.append(subnet)
    endpoint = aws.ec2.VpcEndpoint(
        f"{name}-s3",
        vpc_id=vpc.id,
        service_name=f"com.amazonaws.{plan.spec.region}.s3",
        vpc_endpoint_type="Gateway",
        route_table_ids=[routes.id],
        policy=bucket_arn.apply(lambda arn: json.dumps(endpoint_policy(arn))),
        tags={**tags, "Name": f"{name}-s3"},
        opts=child,
    )
    group, rules = _security_group(plan, vpc.id, endpoint.prefix_list_id, child)
    return Network([subnet.id for subnet in subnets], group.id, [*ready, endpoint, *rules])


def _security_group(
    plan: Plan, vpc_id: pulumi.Output[str], s3: pulumi.Output[str], child: pulumi.ResourceOptions
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
