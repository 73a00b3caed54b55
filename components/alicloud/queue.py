"""Queues of Simple Message Queue (SMQ, once MNS): that of work, and those that count what happened within an hour.

The queue of work counts the runs that no node has seen yet; the runs are in the bucket. Unlike AWS's, it is no count of
all that wait: alarms on it can't know how many nodes there are, so they may only speak where there are none. Nodes take
its messages out as they find them, and say themselves how much waits for each of them (`scaling.py`). One that leaves
puts one back for each run that has no end, so that a fleet that shrinks to nothing is asked for again.

Something else counts by a queue, too: Auto Scaling's alarms know no sum over an hour, but a queue whose messages are
kept for an hour is as long as what happened within it. Such a message says nothing but that.
"""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_alicloud as alicloud

from components import layout
from components.alicloud.security import (
    Document,
    Identity,
    account,
    attach,
    document,
    keys,
    objects,
    use_data_key,
)
from components.plan import Plan

RETENTION_S = 7 * 24 * 3600
"""The longest that SMQ keeps a message (SMQ API, CreateQueue, `MessageRetentionPeriod`); SQS: twice as long."""

COUNTED_S = 3600
"""For how long what is counted counts."""

VISIBILITY_S = 900
"""For how long a message that was handed out is nobody else's; whoever works on it for longer says so again."""

POLLING_S = 30
"""Who asks an empty queue waits for an answer as long as can be, instead of asking again and paying again."""

METRICS, LENGTH = "acs_mns_new", "ActiveMessages"
"""CloudMonitor's namespace of queues, and its metric of what waits in one (CloudMonitor, "Appendix 1: Metrics")."""

PERIOD_S = 300
"""How often CloudMonitor surely knows how long a queue is (its "Message Service monitoring": 5 minutes; "Appendix 1:
Metrics": a multiple of one)."""

QUIET_S = (300, 86_400)
"""How soon at least, and at most, an alarm that stays on speaks again (provider's `cms.Alarm`, `silence_time`)."""


def queue_arn(region: str, account_id: str, name: str) -> str:
    """A queue, as RAM names it where its messages are concerned (SMQ user guide, "Permission policies")."""
    return f"acs:mns:{region}:{account_id}:/queues/{name}/messages"


def url(region: str, account_id: str, name: str) -> str:
    """Where the HTTP API has a queue (SMQ API, "Endpoints")."""
    return f"https://{account_id}.mns.{region}.aliyuncs.com/queues/{name}"


def node_queue_policy(bucket: str, region: str, account_id: str, name: str) -> Document:
    """Nodes read what was submitted, take out what they have seen, and say when they leave it; they submit nothing.

    A message brings nodes, and no work: what runs is in the bucket.
    """
    return document(
        {"Effect": "Allow", "Action": "oss:GetObject", "Resource": objects(bucket, layout.QUEUE)},
        {
            "Effect": "Allow",
            "Action": ["mns:DeleteMessage", "mns:ReceiveMessage", "mns:SendMessage"],
            "Resource": queue_arn(region, account_id, name),
        },
    )


def counting_policy(region: str, account_id: str, name: str) -> Document:
    """Nodes say that something happened, and read nothing of it."""
    return document(
        {"Effect": "Allow", "Action": "mns:SendMessage", "Resource": queue_arn(region, account_id, name)},
    )


def submitting(region: str, account_id: str, bucket: str, key_id: str, name: str) -> tuple[Document, ...]:
    """Statements for those who put runs into the queue, with code and record, and end them.

    What is submitted runs on nodes, and can do what nodes can. That nothing is changed there, RAM can't hold them to:
    OSS has no condition for objects that are there already. The bucket keeps what is written over. Who puts something
    only if it isn't there asks for it first (`trainer/store.py`), which takes leave to read it, code as well.
    """
    return (
        {
            "Effect": "Allow",
            "Action": "oss:GetObject",
            "Resource": [*objects(bucket, layout.QUEUE), *keys(bucket, layout.code("*"))],
        },
        {
            "Effect": "Allow",
            "Action": "oss:PutObject",
            "Resource": [
                *objects(bucket, layout.QUEUE),
                *keys(bucket, layout.code("*"), layout.launch("*", "*"), f"{layout.RUNS}*/{layout.OUTCOME}"),
            ],
        },
        {"Effect": "Allow", "Action": "mns:SendMessage", "Resource": queue_arn(region, account_id, name)},
        use_data_key(key_id),
    )


def declare(
    plan: Plan,
    identity: Identity,
    bucket: pulumi.Output[str],
    key_id: pulumi.Output[str],
    child: pulumi.ResourceOptions,
) -> alicloud.message.ServiceQueue | None:
    """Declare the queue, and what nodes may do there, where the spec asks for one.

    With it comes the one for what was handed out too often; both are encrypted with the data key. SMQ encrypts once the
    account has the feature, which a ticket asks for, and its service-linked role AliyunMNSAccessingKMSRole (provider's
    `message.ServiceQueue`). There is no policy that asks for TLS, as queues have none; all of ours speak it.
    """
    if plan.spec.scaling is None or plan.spec.scaling.queue is None:
        return None
    encrypted = {"enable_sse": True, "sse_type": "KMS", "sse_algorithm": "AES-256-GCM", "kms_key_id": key_id}
    dead = _queue(plan, "dead-letters", bucket, RETENTION_S, child, **encrypted)
    made = _queue(
        plan,
        "queue",
        bucket,
        RETENTION_S,
        child,
        **encrypted,
        dlq_policy={
            "enabled": True,
            "dead_letter_target_queue": dead.queue_name,
            "max_receive_count": plan.spec.scaling.queue.attempts,
        },
        visibility_timeout=VISIBILITY_S,
        polling_wait_seconds=POLLING_S,
    )
    policy = pulumi.Output.all(bucket, account(child), made.queue_name).apply(
        lambda known: node_queue_policy(known[0], plan.spec.region, known[1], known[2])
    )
    attach(plan, "queue", identity.name, policy, child)
    return made


def declare_counter(
    plan: Plan, suffix: str, bucket: pulumi.Output[str], child: pulumi.ResourceOptions
) -> alicloud.message.ServiceQueue:
    """Declare a queue that is as long as what happened within the last hour; nobody receives from it."""
    return _queue(plan, suffix, bucket, COUNTED_S, child)


def declare_url(
    plan: Plan, queue: alicloud.message.ServiceQueue, child: pulumi.ResourceOptions, *, private: bool = False
) -> pulumi.Output[str]:
    """A queue's URL; the private one is for nodes, as every VPC reaches it, and nothing else does."""
    region = f"{plan.spec.region}-internal" if private else plan.spec.region
    return pulumi.Output.all(account(child), queue.queue_name).apply(lambda known: url(region, *known))


def declare_alarm(
    plan: Plan,
    name: str,
    queue: alicloud.message.ServiceQueue,
    length: int,
    told: pulumi.Output[str],
    child: pulumi.ResourceOptions,
    *,
    statistic: str = "Maximum",
    rule: alicloud.ess.ScalingRule | None = None,
    quiet_s: int = QUIET_S[1],
) -> alicloud.cms.Alarm:
    """Declare an alarm on a queue that is so long, of which the contact group `told` hears and which executes a rule.

    While it stays on, it speaks again each `quiet_s` (CloudMonitor user guide, "Create an alert rule", "Mute Period").
    That a rule is executed as often as people are told is how targets are described ("push channels"); it is
    unverified on a real account, which must once have let CloudMonitor do so (CloudMonitor user guide, "Write alerts to
    MNS": AliyunCloudMonitorDefaultRole).
    """
    region, targets = plan.spec.region, []
    if rule is not None:
        arn = pulumi.Output.all(account(child), rule.scaling_group_id, rule.id).apply(
            lambda known: f"acs:ess:{region}:{known[0]}:scalingGroupId/{known[1]}:scalingRuleId/{known[2]}"
        )
        targets.append({"target_id": "1", "arn": arn, "level": "Critical"})
    return alicloud.cms.Alarm(
        name,
        project=METRICS,
        metric=LENGTH,
        metric_dimensions=pulumi.Output.all(account(child), queue.queue_name).apply(
            lambda known: json.dumps([{"userId": known[0], "region": region, "queue": known[1]}])
        ),
        period=PERIOD_S,
        escalations_critical={
            "comparison_operator": ">=",
            "statistics": statistic,
            "threshold": str(length),
            "times": 1,
        },
        silence_time=quiet_s,
        contact_groups=[told],
        targets=targets,
        tags=dict(plan.tags),
        opts=child,
    )


def _queue(
    plan: Plan,
    suffix: str,
    bucket: pulumi.Output[str],
    retention_s: int,
    child: pulumi.ResourceOptions,
    **more: Any,
) -> alicloud.message.ServiceQueue:
    """A queue, named by the bucket: an account has a name once, and the provider makes none up."""
    return alicloud.message.ServiceQueue(
        f"{plan.name}-{suffix}",
        queue_name=bucket.apply(lambda name: f"{name}-{suffix}"),
        message_retention_period=retention_s,
        tags=dict(plan.tags),
        opts=child,
        **more,
    )
