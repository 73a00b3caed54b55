"""The ESS group that keeps nodes, with what it is bought and refreshed by; `launch.py` has what it launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud import drain, launch, rollout
from components.alicloud.network import Network
from components.alicloud.security import Identity
from components.bootstrap import data_config, node_config, user_data
from components.bundle import Bundle
from components.findings import Finding, Invalid
from components.plan import Plan, Pool
from components.scaling import governed

FAMILY = "family:"
"""How an image is written that is the newest of its family."""

STOP_S = 90
"""Seconds that a node may take to shut down, once drained: as long as systemd gives a service. Without a limit, one
that hangs fails the whole activity, and stays (ESS API, CreateScalingGroup, `StopInstanceTimeout`)."""


def find_image(image: str, options: pulumi.InvokeOptions, key: str = "nodes.image") -> str:
    """The id of the image, or of the newest of its family. Raises `Invalid`, in the provider's words where it has any.

    It is looked up before anything is declared, so that an image which isn't there leaves no half of a cluster. Nodes
    are launched by ids alone, so that a newer image of a family comes with the next `pulumi up`. `key` is what names
    the image in the stack's file.
    """
    family = image.removeprefix(FAMILY)
    wanted: dict[str, Any] = {"image_id": image} if family == image else {"image_family": family, "most_recent": True}
    try:
        found = alicloud.ecs.get_images(**wanted, opts=options).images
    except Exception as error:  # Pulumi raises no other class for a look-up that failed
        raise Invalid([Finding(key, f"{image} can't be looked up: {error}")]) from None
    if not found:
        raise Invalid([Finding(key, f"{image} can't be looked up: the region has no such image", "Choose another")])
    image_id: str = found[0].image_id
    return image_id


def declare(
    plan: Plan,
    network: Network,
    identity: Identity,
    bucket: pulumi.Output[str],
    bundle: Bundle,
    key_id: pulumi.Output[str],
    image: str,
    objects: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
    warm: pulumi.Input[str] = "",
    queue: pulumi.Input[str] = "",
    namespace: pulumi.Input[str] = "",
    failed: pulumi.Input[str] = "",
) -> alicloud.ess.ScalingGroup:
    """Declare the group and what it launches; nodes come after all that one counts on, `objects` among it.

    `warm` is what nodes mount the warm tier from, `queue` the URL of the queue, `namespace` the id of the group that
    their metrics are put in, `failed` the URL of the queue that is told of failed boots; each where there is one.
    """
    script = _script(
        bucket,
        [warm, queue],
        {"namespace": namespace, "failed": failed},
        lambda name, *more: node_config(plan, name, bundle.key, bundle.sha256, *more),
    )
    group = _fleet(plan, plan.pool, script, network, identity, key_id, image, objects, child)
    drain.declare(plan, identity, group, child)
    return group


def declare_data(
    plan: Plan,
    data: Pool,
    network: Network,
    identity: Identity,
    bucket: pulumi.Output[str],
    bundle: Bundle,
    key_id: pulumi.Output[str],
    image: str,
    objects: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
    failed: pulumi.Input[str] = "",
) -> alicloud.ess.ScalingGroup:
    """Declare the group of the data nodes, as hardened as those that train and as closed to the world."""
    script = _script(bucket, [], {"failed": failed}, lambda name: data_config(plan, name, bundle.key, bundle.sha256))
    return _fleet(plan, data, script, network, identity, key_id, image, objects, child)


def _script(
    bucket: pulumi.Output[str],
    more: list[pulumi.Input[str]],
    told: dict[str, pulumi.Input[str]],
    config: Callable[..., dict[str, object]],
) -> pulumi.Output[str]:
    """User-data for nodes that are told `config` of the bucket's name and of `more`, and what of `told` there is.

    Always base64: the provider sends as it is whatever happens to decode, and encodes the rest (facts: B14).
    """

    def script(known: list[Any]) -> str:
        names, others = known
        return user_data({**config(*names), **{key: value for key, value in others.items() if value}})

    return pulumi.Output.secret(pulumi.Output.all(pulumi.Output.all(bucket, *more), told).apply(script))


def _fleet(
    plan: Plan,
    pool: Pool,
    script: pulumi.Output[str],
    network: Network,
    identity: Identity,
    key_id: pulumi.Output[str],
    image: str,
    objects: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> alicloud.ess.ScalingGroup:
    """A pool's group and what it launches: of a template it starts nodes at once, else once its configuration is whole.

    A template's version is a number, never Latest, which would hide changes from the group.
    """
    first = [*objects, *identity.ready, *network.ready]
    boot = launch.Boot(
        image=image,
        script=script,
        role=identity.name,
        security_group_id=network.security_group_id,
        key_id=key_id,
    )
    if pool.source == "template":
        template = launch.declare_template(plan, pool, boot, child)
        version = template.latest_version_number.apply(str)
        source = {"launch_template_id": template.id, "launch_template_version": version}
        group = _group(plan, pool, network, source, first, child)
        booted = pulumi.Output.concat(template.id, ":", version)
    else:
        group = _group(plan, pool, network, {}, first, child)
        configuration = launch.declare_configuration(plan, pool, boot, group, child)
        booted = rollout.complete(plan, pool, group, configuration, boot.security_group_id, first, child)
    rollout.renew(plan, pool, group, booted, child)
    return group


def _group(
    plan: Plan,
    pool: Pool,
    network: Network,
    template: dict[str, Any],
    first: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> alicloud.ess.ScalingGroup:
    """The group that keeps a pool's nodes, launched from `template` where that isn't empty.

    A node that powers itself off isn't Running any more, so that the health check takes it out and releases it (ESS
    user guide, "Lifecycle of instances in a scaling group"). The same replaces a spot node, once it was taken: only a
    group that goes by cost alone replaces one before (`ess.ScalingGroup`, `spot_instance_remedy`).
    """
    return alicloud.ess.ScalingGroup(
        f"{plan.name}-{pool.one}s",
        # The least that trains is the agents' to keep (`fleet.json`); a breaker and scaling must reach zero.
        min_size=0,
        desired_capacity=pool.fleet.desired,
        max_size=pool.fleet.max,
        vswitch_ids=network.vswitch_ids,
        **template,
        **_policy(pool, bool(template)),
        health_check_type="ECS",
        # The oldest node leads a run: of those launched from the same, the newest goes first.
        removal_policies=["OldestScalingConfiguration", "NewestInstance"],
        scaling_policy="release",
        stop_instance_timeout=STOP_S,
        # Alarms add no nodes while the last ones boot (ESS user guide, "Cooldown time").
        default_cooldown=plan.spec.scaling.warmup_seconds if plan.spec.scaling and pool == plan.pool else None,
        group_deletion_protection=plan.spec.production,
        tags=dict(plan.tags),
        opts=pulumi.ResourceOptions.merge(
            child,
            pulumi.ResourceOptions(
                depends_on=first,
                # An update must not undo what a policy or a schedule has set.
                ignore_changes=["desired_capacity"] if pool == plan.pool and governed(plan.spec) else None,
                # A group that would go over to a template would lose its last configuration, and itself with that.
                replace_on_changes=["launch_template_id"],
            ),
        ),
    )


def _policy(pool: Pool, from_template: bool) -> dict[str, Any]:
    """Which nodes are bought, where there is a choice (ESS user guide, "Scaling policies").

    A configuration has the types itself. ESS would make all nodes on demand that nothing is said of.
    """
    mixed = pool.capacity.distribution
    if mixed is None:
        return {"multi_az_policy": "PRIORITY"}
    types = {"launch_template_overrides": [{"instance_type": name} for name in mixed.types]} if from_template else {}
    return {
        "multi_az_policy": "COMPOSABLE",
        "allocation_strategy": mixed.strategy,
        "spot_allocation_strategy": mixed.strategy,
        "capacity_options_on_demand_base_capacity": mixed.base,
        "capacity_options_on_demand_percentage_above_base_capacity": mixed.share,
        **types,
    }
