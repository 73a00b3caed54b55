"""The launch template and the auto scaling group that keeps nodes of it, with what both are bought and placed by."""

from __future__ import annotations

from collections.abc import Callable

import pulumi
import pulumi_aws as aws

from components.aws import drain
from components.aws.network import Network
from components.aws.security import Identity
from components.bootstrap import data_config, node_config, user_data
from components.bundle import Bundle
from components.capacity import CREATE, Capacity, Distribution
from components.fabric import Nic
from components.findings import Finding, Invalid
from components.node_checks import UEFI
from components.plan import Plan, Pool
from components.scaling import governed

ALL_AT_ONCE: aws.autoscaling.GroupInstanceRefreshArgsDict = {
    "strategy": "Rolling",
    "preferences": {"min_healthy_percentage": 0, "max_healthy_percentage": 100, "skip_matching": True},
}
"""A gang trains one job: nodes of the old one and of the new one side by side would only wait for each other.

With 0 percent, all are ended before any comes (Auto Scaling API, `RefreshPreferences`), and with 100, never more than
desired run: a reservation has room for no more. Nodes that boot with the new template already are left alone. There is
no rollback: the API refuses one where the image is a parameter, and it would undo a change that the stack's file keeps.
"""

METRICS = (
    "GroupDesiredCapacity",
    "GroupInServiceInstances",
    "GroupPendingInstances",
    "GroupTerminatingInstances",
)
"""What the group says of itself, each minute and at no charge (Auto Scaling user guide, "CloudWatch metrics")."""


def find_root_device(
    image: str,
    options: pulumi.InvokeOptions,
    confidential: str = "none",
    boot_modes: tuple[str, ...] = (),
    key: str = "nodes.image",
) -> str:
    """The name that the image gives its root disk, from the image itself. Raises `Invalid` in the provider's own words.

    Raises it also for an image that can't be guarded as `confidential` says, on types with these boot modes. `key` is
    what names the image in the stack's file.

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
        raise Invalid([Finding(key, f"{image} can't be looked up: {error}")]) from None
    if lacking := unguarded(found.boot_mode, found.tpm_support, confidential, boot_modes):
        raise Invalid([Finding(key, f"{image} {lacking}, which {confidential} needs", "Choose another")])
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
    warm: pulumi.Input[str] = "",
    queue: pulumi.Input[str] = "",
) -> aws.autoscaling.Group:
    """Declare template and group; the group comes after all that a booting node counts on, `objects` among it.

    `warm` is what nodes mount the warm tier from, and `queue` the URL of the queue, where there is one.
    """
    placement = _placement(plan, child)
    reservation = _reservation(plan, placement, child)
    script = _script(bucket, warm, queue, lambda name, *more: node_config(plan, name, bundle.key, bundle.sha256, *more))
    template = _template(plan, plan.pool, script, network, identity, key_arn, root_device, reservation, child)
    group = _group(plan, plan.pool, template, network, identity, placement, objects, child)
    drain.declare(plan, identity, group, child)
    return group


def declare_data(
    plan: Plan,
    data: Pool,
    network: Network,
    identity: Identity,
    bucket: aws.s3.Bucket,
    bundle: Bundle,
    key_arn: pulumi.Output[str],
    root_device: str,
    objects: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> aws.autoscaling.Group:
    """Declare template and group of the data nodes, as hardened as those that train and as closed to the world."""
    script = _script(bucket, "", "", lambda name, *_: data_config(plan, name, bundle.key, bundle.sha256))
    template = _template(plan, data, script, network, identity, key_arn, root_device, None, child)
    return _group(plan, data, template, network, identity, None, objects, child)


def _group(
    plan: Plan,
    pool: Pool,
    template: aws.ec2.LaunchTemplate,
    network: Network,
    identity: Identity,
    placement: aws.ec2.PlacementGroup | None,
    objects: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> aws.autoscaling.Group:
    """The group that keeps a pool's nodes."""
    # A number, never $Latest, which hides changes from the group and starts no refresh (pulumi-aws#1577).
    version = template.latest_version.apply(str)
    mixed = pool.capacity.distribution
    return aws.autoscaling.Group(
        f"{plan.name}-{pool.one}s",
        # The least that trains is the agents' to keep (`fleet.json`); a breaker and scaling must reach zero.
        min_size=0,
        desired_capacity=pool.fleet.desired,
        max_size=pool.fleet.max,
        vpc_zone_identifiers=network.subnet_ids,
        launch_template=None if mixed else {"id": template.id, "version": version},
        mixed_instances_policy=_policy(mixed, template.id, version) if mixed else None,
        placement_group=placement.id if placement else None,
        capacity_rebalance=pool.capacity.interruptible or None,
        instance_refresh=ALL_AT_ONCE if pool.refresh else None,
        health_check_type="EC2",
        enabled_metrics=METRICS,
        # Evening zones out would end healthy nodes, and the whole gang's generation with each.
        suspended_processes=["AZRebalance"],
        # Capacity for GPUs can take hours; the deployment doesn't wait for it, `trainwright status` tells.
        wait_for_capacity_timeout="0",
        tags=[
            {"key": key, "value": value, "propagate_at_launch": True}
            for key, value in {**plan.tags, "Name": f"{plan.name}-{pool.one}"}.items()
        ],
        opts=pulumi.ResourceOptions.merge(
            child,
            pulumi.ResourceOptions(
                depends_on=[*objects, *identity.ready, *network.ready],
                # An update must not undo what a policy or a schedule has set.
                # Its size, and the breaker's stop to launches, which only `trainwright retry` takes back.
                ignore_changes=["desired_capacity", "suspended_processes"]
                if pool == plan.pool and governed(plan.spec)
                else None,
            ),
        ),
    )


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


def _market(capacity: Capacity) -> aws.ec2.LaunchTemplateInstanceMarketOptionsArgsDict | None:
    """The template's market. A spot node ends when it is taken back, and its request with it.

    Placement groups take none that stops (EC2 user guide, "Placement group rules and limitations"), and a persistent
    request would need that (EC2 API, `SpotInstanceType`).
    """
    market = capacity.market
    if market is None:
        return None
    if market == "spot":
        spot: aws.ec2.LaunchTemplateInstanceMarketOptionsSpotOptionsArgsDict = {
            "spot_instance_type": "one-time",
            "instance_interruption_behavior": "terminate",
        }
        return {"market_type": market, "spot_options": spot}
    return {"market_type": market}


def _interface(pool: Pool, nic: Nic, network: Network) -> aws.ec2.LaunchTemplateNetworkInterfaceArgsDict:
    """A network interface, with its security group: EC2 takes none beside interfaces (terraform-provider-aws#4570).

    The first says that it wants no public address. Others can't have one, and EFA-only ones have none at all.
    """
    interface: aws.ec2.LaunchTemplateNetworkInterfaceArgsDict = {
        "device_index": nic.device,
        "delete_on_termination": "true",
        "security_groups": [network.security_group_id],
    }
    if pool.fast:
        interface |= {"network_card_index": nic.card, "interface_type": nic.kind.value}
    if (nic.card, nic.device) == (0, 0):
        interface |= {"associate_public_ip_address": "false"}
    return interface


def _script(
    bucket: aws.s3.Bucket,
    warm: pulumi.Input[str],
    queue: pulumi.Input[str],
    config: Callable[[str, str, str], dict[str, object]],
) -> pulumi.Output[str]:
    """User-data for nodes that are told `config` of the bucket's name, of the warm tier's and of the queue's URL."""
    script = pulumi.Output.all(bucket.bucket, warm, queue).apply(lambda names: user_data(config(*names)))
    return pulumi.Output.secret(script)


def _template(
    plan: Plan,
    pool: Pool,
    script: pulumi.Output[str],
    network: Network,
    identity: Identity,
    key_arn: pulumi.Output[str],
    root_device: str,
    reservation: pulumi.Input[str] | None,
    child: pulumi.ResourceOptions,
) -> aws.ec2.LaunchTemplate:
    """What a pool's nodes are launched from, with `script` as their user-data."""
    tags = {**plan.tags, "Name": f"{plan.name}-{pool.one}"}
    return aws.ec2.LaunchTemplate(
        f"{plan.name}-{pool.one}",
        image_id=pool.image.replace("ssm:", "resolve:ssm:", 1),
        instance_type=pool.instance.name,
        iam_instance_profile={"arn": identity.profile_arn},
        user_data=script,
        metadata_options={
            "http_endpoint": "enabled",
            "http_tokens": "required",
            "http_put_response_hop_limit": 2 if pool.containers else 1,
        },
        block_device_mappings=[
            {
                "device_name": root_device,
                "ebs": {
                    "volume_type": "gp3",
                    "volume_size": pool.disk_gb,
                    "encrypted": "true",
                    "kms_key_id": key_arn,
                    "delete_on_termination": "true",
                },
            }
        ],
        network_interfaces=[_interface(pool, nic, network) for nic in pool.nics],
        instance_market_options=_market(pool.capacity),
        capacity_reservation_specification=(
            {"capacity_reservation_target": {"capacity_reservation_id": reservation}} if reservation else None
        ),
        enclave_options={"enabled": True} if pool.confidential == "nitro-enclaves" else None,
        cpu_options={"amd_sev_snp": "enabled"} if pool.confidential == "sev-snp" else None,
        # A node whose boot fails shuts itself down; it must go, not stay and be paid for.
        instance_initiated_shutdown_behavior="terminate",
        monitoring={"enabled": True},
        tag_specifications=[
            {"resource_type": kind, "tags": tags} for kind in ("instance", "volume", "network-interface")
        ],
        tags=dict(plan.tags),
        opts=child,
    )
