"""Nodes drain before they go: a hook holds each that the group ends, until it says that it is done or time is up.

Scaling in, a refresh, a replacement for a spot node at risk, the breaker: whatever ends a node this way, its agent
finds it in the instance's metadata, has all ranks save, and then completes the hook (Auto Scaling user guide, "Retrieve
the target lifecycle state through instance metadata"). Where nodes can't reach Auto Scaling, the hook's time ends it.
"""

from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

from components.aws.security import Document, Identity, document
from components.plan import HOOK, Plan


def drain_policy(group: str) -> Document:
    """What a node needs beside, so that it can say when it is done: its own group alone, by its ARN.

    It asks Auto Scaling for the group's name, as a node's template is older than its group.
    """
    return document(
        {"Sid": "SayDone", "Effect": "Allow", "Action": "autoscaling:CompleteLifecycleAction", "Resource": group},
        {
            # AWS takes no narrower resource for it.
            "Sid": "FindGroup",
            "Effect": "Allow",
            "Action": "autoscaling:DescribeAutoScalingInstances",
            "Resource": "*",
        },
    )


def declare(plan: Plan, identity: Identity, group: aws.autoscaling.Group, child: pulumi.ResourceOptions) -> None:
    """Declare the group's hook, where nodes get time at all, and what lets them complete it."""
    if not plan.drain_s:
        return
    aws.autoscaling.LifecycleHook(
        f"{plan.name}-drain",
        name=HOOK,
        autoscaling_group_name=group.name,
        lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
        heartbeat_timeout=plan.drain_s,
        # A node that never answers is ended all the same, when its time is over.
        default_result="CONTINUE",
        opts=child,
    )
    if plan.hook:
        aws.iam.RolePolicy(
            f"{plan.name}-drain",
            role=identity.role.id,
            policy=group.arn.apply(lambda arn: json.dumps(drain_policy(arn))),
            opts=child,
        )
