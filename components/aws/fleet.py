"""The launch template and the auto scaling group that keeps nodes of it, with what both are bought and placed by."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from components.aws.network import Network
from components.aws.security import Identity
from components.bootstrap import node_config, user_data
from components.bundle import Bundle
from components.capacity import CREATE, Distribution
from components.fabric import Nic
from components.findings import Finding, Invalid
from components.node_checks import UEFI
from components.plan import Plan

ALL_AT_ONCE: aws.autoscaling.GroupInstanceRefreshArgsDict = {
    "strategy": "Rolling",
    "preferences": {"min_healthy_percentage": 0},
}
"""A gang trains one job: nodes of the old one and of the new one side by side would only wait for each other."""


def find_root_device(
    image: str, options: pulumi.InvokeOptions, confidential: str = "none", boot_modes: tuple[str, ...] = ()
) -> str:
    """The name that the image gives its root disk, from the image itself. Raises `Invalid` in the provider's own words.

    Raises it also for an image that can't be guarded as `confidential` says, on types with these boot modes.

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
    if lacking := unguarded(found.boot_mode, found.tpm_support, confidential, boot_modes):
        raise Invalid([Finding("nodes.image", f"{image} {lacking}, which {confidential} needs", "Choose another")])
    device: str = found.root_device_name
    return device


def unguarded(boot_mode: str, tpm: str, confidential: str, boot_modes: tuple[str, ...]) -> str:
    """What keeps an image from being guarded as `confidential` says, or nothing.

    A type boots an image that states no mode by UEFI only where it knows no other (EC2 user guide, "Instance launch
    behavior with Amazon EC2 boot modes"); NitroTPM is a property of the image, `v2.0` (EC2 API, `TpmSupport`).
    """
    if confidential not in UEFI:
        return ""
    by_uefi = boot_mode in {"uefi", "uefi-preferred"} or (not boot_mode and boot_modes == ("uefi",))
    if not by_uefi:
        return "doesn't boot by UEFI"
    return "wasn't registered with NitroTPM" if confidential == "nitro-tpm" and tpm != "v2.0" else ""


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
    placement = _placement(plan, child)
    reservation = _reservation(plan, placement, child)
    template = _template(plan, network, identity, bucket, bundle, key_arn, root_device, reservation, child)
    nodes = plan.spec.nodes
    # A number, never $Latest, which hides changes from the group and starts no refresh (pulumi-aws#1577).
    version = template.latest_version.apply(str)
    mixed = plan.capacity.distribution
    group = aws.autoscaling.Group(
        f"{plan.name}-nodes",
        min_size=plan.fleet.min,
        desired_capacity=plan.fleet.desired,
        max_size=plan.fleet.max,
        vpc_zone_identifiers=network.subnet_ids,
        launch_template=None if mixed else {"id": template.id, "version": version},
        mixed_instances_policy=_policy(mixed, template.id, version) if mixed else None,
        placement_group=placement.id if placement else None,
        capacity_rebalance=plan.capacity.interruptible or None,
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
    if plan.drain_s:
        aws.autoscaling.LifecycleHook(
            f"{plan.name}-drain",
            autoscaling_group_name=group.name,
            lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
            heartbeat_timeout=plan.drain_s,
            # A node that never answers is ended all the same, when its time is over.
            default_result="CONTINUE",
            opts=child,
        )
    return group


def _placement(plan: Plan, child: pulumi.ResourceOptions) -> aws.ec2.PlacementGroup | None:
    """The cluster placement group; the group of nodes names it, and so goes before it."""
    if not plan.placed:
        return None
    return aws.ec2.PlacementGroup(f"{plan.name}-fabric", strategy="cluster", tags=dict(plan.tags), opts=child)


def _reservation(
    plan: Plan, placement: aws.ec2.PlacementGroup | None, child: pulumi.ResourceOptions
) -> pulumi.Input[str] | None:
    """Id of the reservation that nodes are launched into, declared here where there is none yet.

    It matches the fleet in type, zone and largest size, and takes only nodes that name it. It is made within the
    placement group (EC2 user guide, "Placement group rules and limitations": reserve capacity explicitly in it).
    """
    if plan.capacity.reservation != CREATE:
        return plan.capacity.reservation
    made = aws.ec2.CapacityReservation(
        f"{plan.name}-nodes",
        instance_type=plan.instance.name,
        instance_platform="Linux/UNIX",
        availability_zone=plan.subnets[0].zone,
        instance_count=plan.fleet.max,
        instance_match_criteria="targeted",
        end_date_type="unlimited",
        placement_group_arn=placement.arn if placement else None,
        tags={**plan.tags, "Name": f"{plan.name}-nodes"},
        opts=child,
    )
    made_id: pulumi.Output[str] = made.id
    return made_id


def _policy(
    mixed: Distribution, template_id: pulumi.Output[str], version: pulumi.Output[str]
) -> aws.autoscaling.GroupMixedInstancesPolicyArgsDict:
    return {
        "launch_template": {
            "launch_template_specification": {"launch_template_id": template_id, "version": version},
            "overrides": [{"instance_type": name} for name in mixed.types],
        },
        "instances_distribution": {
            "on_demand_allocation_strategy": "prioritized",
            "on_demand_base_capacity": mixed.base,
            "on_demand_percentage_above_base_capacity": mixed.share,
            "spot_allocation_strategy": mixed.strategy,
        },
    }


def _market(plan: Plan) -> aws.ec2.LaunchTemplateInstanceMarketOptionsArgsDict | None:
    """The template's market. A spot node ends when it is taken back, and its request with it.

    Placement groups take none that stops (EC2 user guide, "Placement group rules and limitations"), and a persistent
    request would need that (EC2 API, `SpotInstanceType`).
    """
    market = plan.capacity.market
    if market is None:
        return None
    if market == "spot":
        spot: aws.ec2.LaunchTemplateInstanceMarketOptionsSpotOptionsArgsDict = {
            "spot_instance_type": "one-time",
            "instance_interruption_behavior": "terminate",
        }
        return {"market_type": market, "spot_options": spot}
    return {"market_type": market}


def _interface(plan: Plan, nic: Nic, network: Network) -> aws.ec2.LaunchTemplateNetworkInterfaceArgsDict:
    """A network interface, with its security group: EC2 takes none beside interfaces (terraform-provider-aws#4570).

    The first says that it wants no public address. Others can't have one, and EFA-only ones have none at all.
    """
    interface: aws.ec2.LaunchTemplateNetworkInterfaceArgsDict = {
        "device_index": nic.device,
        "delete_on_termination": "true",
        "security_groups": [network.security_group_id],
    }
    if plan.efa:
        interface |= {"network_card_index": nic.card, "interface_type": nic.kind.value}
    if (nic.card, nic.device) == (0, 0):
        interface |= {"associate_public_ip_address": "false"}
    return interface


def _template(
    plan: Plan,
    network: Network,
    identity: Identity,
    bucket: aws.s3.Bucket,
    bundle: Bundle,
    key_arn: pulumi.Output[str],
    root_device: str,
    reservation: pulumi.Input[str] | None,
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
        network_interfaces=[_interface(plan, nic, network) for nic in plan.nics],
        instance_market_options=_market(plan),
        capacity_reservation_specification=(
            {"capacity_reservation_target": {"capacity_reservation_id": reservation}} if reservation else None
        ),
        enclave_options={"enabled": True} if nodes.confidential == "nitro-enclaves" else None,
        cpu_options={"amd_sev_snp": "enabled"} if nodes.confidential == "sev-snp" else None,
        # A node whose boot fails shuts itself down; it must go, not stay and be paid for.
        instance_initiated_shutdown_behavior="terminate",
        monitoring={"enabled": True},
        tag_specifications=[
            {"resource_type": kind, "tags": tags} for kind in ("instance", "volume", "network-interface")
        ],
        tags=dict(plan.tags),
        opts=child,
    )
