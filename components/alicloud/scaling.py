"""What changes the group's size by itself: rules with their alarms, and schedules.

Auto Scaling's own alarms (event-triggered tasks) see the group's metrics and those that its owner puts, and compare one
metric with one number: no sum, no quotient, no other service (ESS API, CreateAlarm). Hence nodes divide what waits by
their number themselves; CloudMonitor's alarms, which see queues and execute rules, start a fleet from zero, where no
node says anything; and what adds nodes to those that are there adds a percentage of them, in steps.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pulumi
import pulumi_alicloud as alicloud

from components import crontab
from components.alicloud import queue as queues
from components.alicloud.contacts import Contacts
from components.alicloud.security import Document, Identity, attach, document
from components.egress import measured
from components.plan import Plan
from components.scaling import ACTIVE, ASKED_MINUTES, GPU, MOST_STEPS, idle_minutes, steps
from components.spec import Scaling

WAITING = "WaitingPerNode"
"""Metric of the runs that wait for each node that the group is to have, those on their way among them; one puts it."""

MOST_PERCENT = 10_000
"""Of a group that one rule adds at most (ESS API, CreateScalingRule, `AdjustmentValue`)."""

RENEWED_MONTHS = 11
"""After which a schedule ends, counted from the month of the newest update: ESS takes a year at most (its API,
CreateScheduledTask, `RecurrenceEndTime`)."""

FIRST_DAYS = 90
"""Within which a schedule must first come (the same, `LaunchTime`)."""


@dataclass(frozen=True)
class Growth:
    """From so much above its target on, up to the next, a metric asks for so many percent more nodes."""

    above: float
    percent: int


def growth(target: float, most: float) -> tuple[Growth, ...]:
    """Steps that bring a metric which nodes share among them back to `target`, however far up to `most` it is.

    At the target times two, twice the nodes are needed. Each step adds what the largest value in it needs, so that one
    is enough, and no more than a factor of `(most / target) ** (1 / 20)` beside. From one node, 100 can be added at
    once.
    """
    ratio = max(most / target, 1.0)
    bounds = [ratio ** (index / MOST_STEPS) for index in range(MOST_STEPS + 1)]
    found: dict[int, Growth] = {}
    for lower, upper in itertools.pairwise(bounds):
        percent = min(MOST_PERCENT, max(1, math.ceil(100 * (upper - 1))))
        # The provider sends three decimals; rounded up, a bound would leave what is just above it short.
        found.setdefault(percent, Growth(math.floor(1000 * target * (lower - 1)) / 1000, percent))
    return tuple(found.values())


def adjustments(found: tuple[Growth, ...]) -> list[dict[str, Any]]:
    """The steps, as a rule's: bounds count from the alarm's threshold."""
    tops = [*(f"{step.above:.3f}" for step in found[1:]), None]
    return [
        {
            "metric_interval_lower_bound": f"{step.above:.3f}",
            **({"metric_interval_upper_bound": top} if top else {}),
            "scaling_adjustment": step.percent,
        }
        for step, top in zip(found, tops, strict=True)
    ]


def rungs(most: int, least: int, backlog: int) -> tuple[tuple[int, int], ...]:
    """For a fleet at zero: from so many messages on, so many nodes are added to those of the rungs below.

    All rungs that a queue is long enough for speak at once, and together they add what `components.scaling.steps` says.
    One that is reached later adds its own alone.
    """
    found, there = [], 0
    for step in steps(most, least):
        if step.nodes > there:
            found.append((step.short * backlog, step.nodes - there))
            there = step.nodes
    return tuple(found)


def metrics_policy() -> Document:
    """Nodes put metrics, and see of how many nodes the group is to be, by which one divides what waits.

    RAM knows no narrower resource for metrics, so that nodes could put those of other groups, too. What ends a run is
    the largest value that nodes put, and others' nodes go on putting theirs.
    """
    return document(
        {"Effect": "Allow", "Action": "cms:PutCustomMetric", "Resource": "*"},
        {
            "Effect": "Allow",
            # A node finds its group by its own instance, as its template is older than the group.
            "Action": ["ess:DescribeScalingGroups", "ess:DescribeScalingInstances"],
            "Resource": "acs:ess:*:*:scalinggroup/*",
        },
    )


def ends(now: datetime) -> str:
    """When a schedule ends that is declared now: the same for all updates of one month."""
    years, month = divmod(now.month - 1 + RENEWED_MONTHS, 12)
    return f"{now.year + years}-{month + 1:02}-01T00:00Z"


def declare_group(
    plan: Plan, bucket: pulumi.Output[str], child: pulumi.ResourceOptions
) -> alicloud.cms.MonitorGroup | None:
    """Declare the application group that nodes' metrics are of, where they send any: they are told its id."""
    if not measured(plan.spec):
        return None
    return alicloud.cms.MonitorGroup(
        f"{plan.name}-metrics",
        monitor_group_name=bucket.apply(lambda name: f"{name}-metrics"),
        tags=dict(plan.tags),
        opts=child,
    )


def declare(
    plan: Plan,
    group: alicloud.ess.ScalingGroup,
    identity: Identity,
    bucket: pulumi.Output[str],
    metrics: alicloud.cms.MonitorGroup | None,
    queue: alicloud.message.ServiceQueue | None,
    contacts: Contacts,
    child: pulumi.ResourceOptions,
) -> None:
    """Declare what the spec asks for beside the queue, which nodes are told of and is there before them."""
    scaling = plan.spec.scaling
    if metrics is None:
        return
    attach(plan, "metrics", identity.name, pulumi.Output.from_input(metrics_policy()), child)
    if scaling is None:
        return
    seen: dict[str, Any] = {
        "scaling_group_id": group.id,
        "metric_type": "custom",
        "cloud_monitor_group_id": metrics.id.apply(int),
        "dimensions": {"cluster": bucket},
        "period": 60,
        "opts": child,
    }
    if scaling.gpu_target:
        what = f"GPUs of cluster {plan.name} are used above {scaling.gpu_target} %: nodes are added"
        _grow(plan, scaling, "gpus", what, GPU, "Average", scaling.gpu_target, 100, seen)
    if scaling.queue and queue:
        backlog = scaling.queue.backlog
        what = f"More than {backlog} runs wait for each node of cluster {plan.name}: nodes are added"
        _grow(plan, scaling, "backlog", what, WAITING, "Maximum", backlog, backlog * plan.fleet.max, seen)
        _wake(plan, backlog, group, queue, contacts, child)
    if minutes := idle_minutes(scaling):
        _rest(plan, minutes, group, seen, child)
    _schedule(plan, scaling, group, datetime.now(UTC), child)


def zero(name: str, group: alicloud.ess.ScalingGroup, child: pulumi.ResourceOptions) -> alicloud.ess.ScalingRule:
    """Declare the rule that sets a group to zero, after which others may scale it at once."""
    return alicloud.ess.ScalingRule(
        name, scaling_group_id=group.id, adjustment_type="TotalCapacity", adjustment_value=0, cooldown=0, opts=child
    )


def _grow(
    plan: Plan,
    scaling: Scaling,
    suffix: str,
    what: str,
    metric: str,
    statistic: str,
    target: int,
    most: int,
    seen: dict[str, Any],
) -> None:
    """Add nodes, all at once, while a metric is above its target for `ASKED_MINUTES`.

    It takes none away: with the group's least at zero, which the breaker needs, a run that waits for its data or for
    enough nodes would be scaled in until nothing of it is left. Rules that track a target by themselves do so for ESS's
    own metrics, or for those of a paid repository (ESS API, CreateScalingRule, `MetricType`). Of a percentage, the
    nearest number of nodes is added. While nodes boot and join, the group's cooldown, which is as long, has alarms add
    none (Auto Scaling user guide, "Cooldown time"); rules by steps have none of their own.
    """
    name = f"{plan.name}-{suffix}"
    rule = alicloud.ess.ScalingRule(
        name,
        scaling_group_id=seen["scaling_group_id"],
        scaling_rule_type="StepScalingRule",
        adjustment_type="PercentChangeInCapacity",
        min_adjustment_magnitude=1,
        estimated_instance_warmup=scaling.warmup_seconds,
        step_adjustments=adjustments(growth(target, most)),
        opts=seen["opts"],
    )
    alicloud.ess.Alarm(
        name,
        description=what,
        metric_name=metric,
        statistics=statistic,
        comparison_operator=">",
        threshold=str(target),
        evaluation_count=ASKED_MINUTES,
        alarm_actions=[rule.ari],
        **seen,
    )


def _wake(
    plan: Plan,
    backlog: int,
    group: alicloud.ess.ScalingGroup,
    queue: alicloud.message.ServiceQueue,
    contacts: Contacts,
    child: pulumi.ResourceOptions,
) -> None:
    """Start a fleet at zero with all nodes that the queue asks for.

    Nodes are added by number. An exact size, of an alarm that can't know of other nodes, would end some that are at
    work. It is the shortest that the queue was in five minutes, the least that CloudMonitor knows of it, so that what a
    few messages at once would do is over by then; with nodes there, they have taken it out. An alarm that stays on,
    for lack of capacity, adds its own again after a day.
    """
    for length, nodes in rungs(plan.fleet.max, plan.fleet.min, backlog):
        name = f"{plan.name}-wake-{length}"
        rule = alicloud.ess.ScalingRule(
            name,
            scaling_group_id=group.id,
            adjustment_type="QuantityChangeInCapacity",
            adjustment_value=nodes,
            cooldown=0,
            opts=child,
        )
        queues.declare_alarm(plan, name, queue, length, contacts.nobody, child, statistic="Minimum", rule=rule)


def _rest(
    plan: Plan, minutes: int, group: alicloud.ess.ScalingGroup, seen: dict[str, Any], child: pulumi.ResourceOptions
) -> None:
    """Set the group to zero once nodes have said, minute for minute, that their run has ended.

    Where there is a queue, they say so only when no run waits in the bucket, and each looks there every ten seconds.
    That nodes are silent says nothing: an alarm without data is neither on nor off (ESS API, DescribeAlarms,
    `INSUFFICIENT_DATA`).
    """
    name = f"{plan.name}-idle-to-zero"
    rule = zero(name, group, child)
    alicloud.ess.Alarm(
        name,
        description=f"Cluster {plan.name} has had no run for {minutes} minutes: its group is set to zero",
        metric_name=ACTIVE,
        statistics="Maximum",
        comparison_operator="<=",
        threshold="0",
        evaluation_count=minutes,
        alarm_actions=[rule.ari],
        **seen,
    )


def _schedule(
    plan: Plan, scaling: Scaling, group: alicloud.ess.ScalingGroup, now: datetime, child: pulumi.ResourceOptions
) -> None:
    """Sizes by the clock: in UTC, until a time that each update moves on.

    The time of a first one is fixed, as it is, when the task is made: it lies in the past at each later update.
    """
    opts = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(ignore_changes=["launchTime"]))
    for index, schedule in enumerate(scaling.schedules):
        for part, cron in enumerate(crontab.in_utc(schedule.cron, schedule.time_zone, now)):
            first = crontab.first(cron, now, FIRST_DAYS)
            alicloud.ess.ScheduledTask(
                f"{plan.name}-schedule-{index}{f'-{part}' if part else ''}",
                description=f"{schedule.nodes} nodes of cluster {plan.name}, by the stack's file",
                scaling_group_id=group.id,
                desired_capacity=schedule.nodes,
                recurrence_type="Cron",
                recurrence_value=cron,
                recurrence_end_time=ends(now),
                launch_time=f"{first:%Y-%m-%dT%H:%MZ}" if first else None,
                opts=opts,
            )
