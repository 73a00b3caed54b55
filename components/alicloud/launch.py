"""What nodes are launched from: a launch template of ECS or a scaling configuration of ESS, as `Pool.source` says.

A template is declared whole. A configuration has eRDMA interfaces, private pools and TDX; what of that can't be
declared, `rollout.py` adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud import rollout
from components.alicloud.security import unique
from components.capacity import CREATE
from components.plan import Plan, Pool

DISK = {"category": "cloud_essd", "performance_level": "PL1"}
"""An ESSD, the one category that all types of today take; PL1 begins at 20 GiB (ECS user guide, "ESSDs")."""


@dataclass(frozen=True, kw_only=True)
class Boot:
    """What a pool's nodes boot with, beside what the plan says of them."""

    image: str
    script: pulumi.Output[str]
    """Their user-data, in base64."""
    role: pulumi.Output[str]
    security_group_id: pulumi.Input[str]
    key_id: pulumi.Output[str]
    """The key that their disks are encrypted with."""


def declare_template(
    plan: Plan, pool: Pool, boot: Boot, child: pulumi.ResourceOptions
) -> alicloud.ecs.EcsLaunchTemplate:
    """Declare a pool's launch template; its tags go to instances, disks and interfaces."""
    name, hours = f"{plan.name}-{pool.one}", pool.capacity.spot_hours
    return alicloud.ecs.EcsLaunchTemplate(
        name,
        launch_template_name=unique(name, child),
        image_id=boot.image,
        instance_type=pool.instance.name,
        instance_name=name,
        ram_role_name=boot.role,
        user_data=boot.script,
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=2 if pool.containers else 1,
        system_disk={
            **DISK,
            "size": pool.disk_gb,
            "encrypted": True,
            "kms_key_id": boot.key_id,
            "delete_with_instance": True,
        },
        security_group_id=boot.security_group_id,
        internet_max_bandwidth_out=0,
        spot_strategy=_market(pool),
        spot_duration=None if hours is None else str(hours),
        tags=dict(plan.tags),
        template_tags=dict(plan.tags),
        opts=child,
    )


def declare_configuration(
    plan: Plan, pool: Pool, boot: Boot, group: alicloud.ess.ScalingGroup, child: pulumi.ResourceOptions
) -> alicloud.ess.ScalingConfiguration:
    """Declare a pool's scaling configuration, as far as it can be: neither active nor whole yet (`rollout.py`).

    It is replaced and never edited, so that its id tells whether a node was launched from it. What it shows once it is
    whole is no change of it. ESS deletes none that nodes were launched from, so that it stays until a rollout finds it
    unused, or goes with its group (ESS API, DeleteScalingConfiguration).
    """
    name, mixed = f"{plan.name}-{pool.one}", pool.capacity.distribution
    types: dict[str, Any] = {"instance_types": list(mixed.types)} if mixed else {"instance_type": pool.instance.name}
    return alicloud.ess.ScalingConfiguration(
        name,
        scaling_group_id=group.id,
        image_id=boot.image,
        **types,
        instance_name=name,
        instance_description=rollout.described(pool, boot.security_group_id),
        role_name=boot.role,
        user_data=boot.script,
        http_endpoint="enabled",
        system_disk_category=DISK["category"],
        system_disk_performance_level=DISK["performance_level"],
        system_disk_size=pool.disk_gb,
        system_disk_encrypted=True,
        system_disk_kms_key_id=boot.key_id,
        security_group_id=boot.security_group_id,
        internet_max_bandwidth_out=0,
        **_private_pool(plan, pool, child),
        spot_strategy=_market(pool),
        spot_duration=pool.capacity.spot_hours,
        tags=dict(plan.tags),
        opts=pulumi.ResourceOptions.merge(
            child,
            pulumi.ResourceOptions(
                replace_on_changes=["*"],
                ignore_changes=["security_group_id", "network_interfaces"],
                retain_on_delete=True,
            ),
        ),
    )


def _market(pool: Pool) -> str:
    """Spot nodes pay the price of the hour; which of a group that mixes are spot, the group says."""
    return "SpotAsPriceGo" if pool.capacity.interruptible else "NoSpot"


def _private_pool(plan: Plan, pool: Pool, child: pulumi.ResourceOptions) -> dict[str, Any]:
    """The private pool that nodes are launched into, and no other; its reservation is declared where there is none yet.

    That matches the fleet in type, zone and largest size, and takes only nodes that name it.
    """
    reservation: pulumi.Input[str] | None = pool.capacity.reservation
    if reservation is None:
        return {}
    if reservation == CREATE:
        reservation = alicloud.ecs.CapacityReservation(
            f"{plan.name}-nodes",
            instance_type=pool.instance.name,
            instance_amount=pool.fleet.max,
            zone_ids=[plan.subnets[0].zone],
            platform="linux",
            match_criteria="Target",
            end_time_type="Unlimited",
            tags=dict(plan.tags),
            opts=child,
        ).id
    return {
        "resource_pool_options_strategy": "PrivatePoolOnly",
        "resource_pool_options_private_pool_ids": [reservation],
    }
