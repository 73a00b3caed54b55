"""Nodes drain before they go: a hook holds each that the group ends, until it says that it is done or time is up.

Scaling in, a refresh, the breaker: whatever ends a node this way, its agent learns it from ESS, as instance metadata
says nothing of it. It has all ranks save, and then completes the hook by the token of its own action (ESS user guide,
"Lifecycle hooks"). Where nodes can't reach ESS, the hook's time ends it.
"""

from __future__ import annotations

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud.security import Document, Identity, attach, document
from components.plan import HOOK, Plan


def drain_policy(group_id: str) -> Document:
    """What a node needs beside, so that it can find its own action and say when it is done: in its own group alone.

    It asks ESS which group it is in, as what it is launched from is older than its group. Each action's resource is the
    group (ESS API, "RAM authorization").
    """
    return document(
        {
            "Effect": "Allow",
            "Action": [
                "ess:CompleteLifecycleAction",
                "ess:DescribeLifecycleActions",
                "ess:DescribeLifecycleHooks",
                "ess:DescribeScalingActivities",
            ],
            "Resource": f"acs:ess:*:*:scalinggroup/{group_id}",
        },
        # Of instances, not of a group: it is the group that a node asks for.
        {"Effect": "Allow", "Action": "ess:DescribeScalingInstances", "Resource": "acs:ess:*:*:scalinggroup/*"},
    )


def declare(plan: Plan, identity: Identity, group: alicloud.ess.ScalingGroup, child: pulumi.ResourceOptions) -> None:
    """Declare the group's hook, where nodes get time at all, and what lets them complete it."""
    if not plan.drain_s:
        return
    alicloud.ess.LifecycleHook(
        f"{plan.name}-drain",
        name=HOOK,
        scaling_group_id=group.id,
        lifecycle_transition="SCALE_IN",
        heartbeat_timeout=plan.drain_s,
        # A node that never answers is ended all the same, when its time is over.
        default_result="CONTINUE",
        opts=child,
    )
    if plan.hook:
        attach(plan, "drain", identity.name, group.id.apply(drain_policy), child)
