"""The launch template and the auto scaling group that keeps nodes of it."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from components.aws.network import Network
from components.aws.security import Identity
from components.bootstrap import node_config, user_data
from components.bundle import Bundle
from components.plan import Plan

ALL_AT_ONCE: aws.autoscaling.GroupInstanceRefreshArgsDict = {
    "strategy": "Rolling",
    "preferences": {"min_healthy_percentage": 0},
}
"""A gang trains one job: nodes of the old one and of the new one side by side would only wait for each other."""


def declare(
    plan: Plan,
    network: Network,
    identity: Identity,
    bucket: aws.s3.Bucket,
    bundle: Bundle,
    key_arn: pulumi.Output[str],
    objects: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> aws.autoscaling.Group:
    """Declare template and group; the group comes after all that a booting node counts on, `objects` among it."""
    template = _template(plan, network, identity, bucket, bundle, key_arn, child)
    nodes = plan.spec.nodes
    return aws.autoscaling.Group(
        f"{plan.name}-nodes",
        min_size=plan.fleet.min,
        desired_capacity=plan.fleet.desired,
        max_size=plan.fleet.max,
        vpc_zone_identifiers=network.subnet_ids,
        # A number, never $Latest, which hides changes from the group and starts no refresh (pulumi-aws#1577).
        launch_template={"id": template.id, "version": template.latest_version.apply(str)},
        instance_refresh=ALL_AT_ONCE if nodes.refresh else None,
        health_check_type="EC2",
        # Capacity for GPUs can take hours; the deployment doesn't wait for it, `trainwright status` tells.
        wait_for_capacity_timeout="0",
        tags=[
            {"key": key, "value": value, "propagate_at_launch": True}
            for key, value in {**plan.tags, "Name": f"{plan.name}-node"}.items()
        ],
        opts=pulumi.ResourceOptions.merge(
            child, pulumi.ResourceOptions(depends_on=[*objects, *identity.ready, *network.ready])
        ),
    )


def _template(
    plan: Plan,
    network: Network,
    identity: Identity,
    bucket: aws.s3.Bucket,
    bundle: Bundle,
    key_arn: pulumi.Output[str],
    child: pulumi.ResourceOptions,
) -> aws.ec2.LaunchTemplate:
    nodes, tags = plan.spec.nodes, {**plan.tags, "Name": f"{plan.name}-node"}
    script = bucket.bucket.apply(
        lambda bucket_name: user_data(node_config(plan, bucket_name, bundle.key, bundle.sha256))
    )
    return aws.ec2.LaunchTemplate(
        f"{plan.name}-node",
        image_id=nodes.image.replace("ssm:", "resolve:ssm:", 1),
        instance_type=plan.instance.name,
        iam_instance_profile={"arn": identity.profile_arn},
        user_data=pulumi.Output.secret(script),
        metadata_options={
            "http_endpoint": "enabled",
            "http_tokens": "required",
            "http_put_response_hop_limit": 2 if nodes.containers else 1,
            "instance_metadata_tags": "enabled",
        },
        block_device_mappings=[
            {
                "device_name": nodes.root_device,
                "ebs": {
                    "volume_type": "gp3",
                    "volume_size": nodes.disk_gb,
                    "encrypted": "true",
                    "kms_key_id": key_arn,
                    "delete_on_termination": "true",
                },
            }
        ],
        network_interfaces=[
            {
                "device_index": 0,
                "associate_public_ip_address": "false",
                "delete_on_termination": "true",
                "security_groups": [network.security_group_id],
            }
        ],
        # A node whose boot fails shuts itself down; it must go, not stay and be paid for.
        instance_initiated_shutdown_behavior="terminate",
        monitoring={"enabled": True},
        tag_specifications=[
            {"resource_type": kind, "tags": tags} for kind in ("instance", "volume", "network-interface")
        ],
        tags=dict(plan.tags),
        opts=child,
    )
