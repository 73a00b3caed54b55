"""What people are told of: what the group can't do, nodes that are paid for and do nothing, and who changes the record.

Events become alarms by way of a queue that is as long as what happened within an hour (`queue.py`): CloudMonitor's own
alarms see no log, and those of SLS, which do, keep those whom they tell in another region than the cluster's.

Three things differ from AWS. There is no alarm on a node's status checks: Auto Scaling has them, and no metric of a
group tells of them. There is no dashboard: the provider can't declare one of CloudMonitor's, whose console shows the
same metrics by application group. And there is no budget: the provider has none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud import queue as queues
from components.alicloud.contacts import Contacts
from components.alicloud.security import account, unique
from components.plan import Plan

TROUBLES = ("AUTOSCALING:SCALE_OUT_ERROR", "AUTOSCALING:SCALE_IN_ERROR", "AUTOSCALING:SCHEDULE_TASK_EXPIRING")
"""Events of a group that people are told of (ESS API, CreateNotificationConfiguration): nodes that don't come or don't
go, and a schedule that is about to end."""

IDLE_MINUTES = 30
"""For how long nodes' CPUs may do nothing."""

BUS = "default"
"""The bus of Alibaba Cloud's own events; it is there once EventBridge is activated in the account."""


@dataclass(frozen=True)
class Watch:
    """Calls that people are told of, as ActionTrail names them; a rule takes five names (EventBridge, "Limits")."""

    name: str
    service: str
    calls: tuple[str, ...]


WATCHES = (
    Watch("trail-changed", "Actiontrail", ("CreateTrail", "UpdateTrail", "DeleteTrail", "StartLogging", "StopLogging")),
    Watch("key-disabled", "Kms", ("DisableKey", "ScheduleKeyDeletion")),
)
"""As on AWS: somebody changed or stopped a trail, or disabled a key or scheduled its deletion."""


def pattern(watch: Watch) -> dict[str, Any]:
    """The pattern of events that a watch is about (EventBridge user guide, "ActionTrail events")."""
    return {
        "source": ["acs.actiontrail"],
        "type": ["actiontrail:ActionTrail:ApiCall", "actiontrail:ActionTrail:ConsoleOperation"],
        "data": {"serviceName": [watch.service], "eventName": list(watch.calls)},
    }


def custom_project(account_id: str) -> str:
    """CloudMonitor's namespace of an account's own metrics (CloudMonitor SDK guide, "Custom monitoring")."""
    return f"acs_customMetric_{account_id}"


def custom_dimensions(group_id: str, bucket: str) -> str:
    """Where in it a cluster's metrics are (the same: `key=value` of each dimension, joined by `&`)."""
    return json.dumps([{"groupId": group_id, "dimension": f"cluster={bucket}"}])


def declare(
    plan: Plan,
    group: alicloud.ess.ScalingGroup,
    bucket: pulumi.Output[str],
    metrics: alicloud.cms.MonitorGroup | None,
    contacts: Contacts,
    child: pulumi.ResourceOptions,
) -> None:
    """Declare the alarms of an audited cluster, of which the people among the contacts are told."""
    _troubles(plan, group, bucket, contacts, child)
    for watch in WATCHES:
        _watch(plan, watch, bucket, contacts, child)
    if metrics is not None:
        _idle(plan, bucket, metrics, contacts, child)


def _troubles(
    plan: Plan,
    group: alicloud.ess.ScalingGroup,
    bucket: pulumi.Output[str],
    contacts: Contacts,
    child: pulumi.ResourceOptions,
) -> None:
    counter = queues.declare_counter(plan, "troubles", bucket, child)
    name, region = f"{plan.name}-troubles", plan.spec.region
    alicloud.ess.Notification(
        name,
        scaling_group_id=group.id,
        notification_arn=pulumi.Output.all(account(child), counter.queue_name).apply(
            lambda known: f"acs:ess:{region}:{known[0]}:queue/{known[1]}"
        ),
        notification_types=list(TROUBLES),
        opts=child,
    )
    queues.declare_alarm(plan, name, counter, 1, contacts.people, child)


def _watch(
    plan: Plan, watch: Watch, bucket: pulumi.Output[str], contacts: Contacts, child: pulumi.ResourceOptions
) -> None:
    """Nothing of an event is put into the queue but that there was one: who did what, the record says."""
    counter = queues.declare_counter(plan, watch.name, bucket, child)
    name, region = f"{plan.name}-{watch.name}", plan.spec.region
    alicloud.eventbridge.Rule(
        name,
        event_bus_name=BUS,
        rule_name=unique(name, child),
        description=f"{watch.name} (account of cluster {plan.name})",
        filter_pattern=json.dumps(pattern(watch)),
        targets=[
            {
                "target_id": "count",
                "type": "acs.mns.queue",
                "endpoint": pulumi.Output.all(account(child), counter.queue_name).apply(
                    lambda known: f"acs:mns:{region}:{known[0]}:queues/{known[1]}"
                ),
                "push_retry_strategy": "EXPONENTIAL_DECAY_RETRY",
                "param_lists": [
                    {"resource_key": "queue", "form": "CONSTANT", "value": counter.queue_name},
                    {"resource_key": "Body", "form": "CONSTANT", "value": watch.name},
                ],
            }
        ],
        opts=child,
    )
    queues.declare_alarm(plan, name, counter, 1, contacts.people, child)


def _idle(
    plan: Plan,
    bucket: pulumi.Output[str],
    metrics: alicloud.cms.MonitorGroup,
    contacts: Contacts,
    child: pulumi.ResourceOptions,
) -> None:
    """Nodes that are paid for and do nothing, by what they say themselves. No nodes, no alarm."""
    alicloud.cms.Alarm(
        f"{plan.name}-idle",
        project=account(child).apply(custom_project),
        metric="CPUUtilization",
        metric_dimensions=pulumi.Output.all(metrics.id, bucket).apply(lambda known: custom_dimensions(*known)),
        period=queues.PERIOD_S,
        escalations_warn={
            "comparison_operator": "<",
            "statistics": "Average",
            "threshold": "1",
            "times": 60 * IDLE_MINUTES // queues.PERIOD_S,
        },
        contact_groups=[contacts.people],
        tags=dict(plan.tags),
        opts=child,
    )
