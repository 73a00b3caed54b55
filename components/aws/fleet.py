"""The launch template and the auto scaling group that keeps nodes of it."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from components.aws.network import Network
from components.aws.security import Identity
from components.bootstrap import node_config, user_data
from components.bundle import Bundle
from components.findings import Finding, Invalid
from components.plan import Plan

ALL_AT_ONCE: aws.autoscaling.GroupInstanceRefreshArgsDict = {
    "strategy": "Rolling",
    "preferences": {"min_healthy_percentage": 0},
}
"""A gang trains one job: nodes of the old one and of the new one side by side would only wait for each other."""


def find_root_device(image: str, options: pulumi.InvokeOptions) -> str:
    """The name that the image gives its root disk, from the image itself. Raises `Invalid` in the provider's own words.

    A mapping for any other name would add a disk and leave the root one as the image has it, unencrypted. It is looked
    up before anything is declared, so that an image which isn't there leaves no half of a cluster.
    """
    path = image.removeprefix("ssm:")
    try:
        image_id = image if path == image else aws.ssm.get_parameter(name=path, opts=options).insecure_value
        # Images are deprecated after a while, but are launched all the same.
        found = aws.ec2.get_ami(
            filters=[{"name": "image-id", "values": [image_id]}], include_deprecated=True, opts=options
        )
    except Exception as error:  # Pulumi raises no other class for a look-up that failed
        raise Invalid([Finding("nodes.image", f"{image} can't be looked up: {error}")]) from None
    device: str = found.root_device_name
    return device


def declare(
    plan: Plan,
    network: Network,
    identity: Identity,
    bucket: aws.s3.Bucket,
    bundle: Bundle,
    key_arn: pulumi.Output[str],
    root_device: str,
    objects: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> aws.autoscaling.Group:
    """Declare template and group; the group comes after all that a booting node counts on, `objects` among it."""
    template = _template(plan, network, identity, bucket, bundle, key_arn, root_device, child)
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
        # Evening zones out would end healthy nodes, and the whole gang's generation with each.
        suspended_processes=["AZRebalance"],
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
    root_device: str,
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
        },
        block_device_mappings=[
            {
                "device_name": root_device,
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
