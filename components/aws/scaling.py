"""What changes the group's size by itself: policies with their alarms, and schedules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pulumi
import pulumi_aws as aws

from components.aws.security import Document, Identity, document
from components.cost import cost
from components.egress import measured
from components.plan import Plan
from components.scaling import ACTIVE, ASKED_MINUTES, FABRIC, GPU, Step, idle_minutes, namespace, steps
from components.spec import Scaling

WAITING = ("ApproximateNumberOfMessagesVisible",)
MESSAGES = (*WAITING, "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")
"""Of a queue: what waits, is worked on, and is to come (SQS developer guide, "Available CloudWatch metrics")."""

LATE_MINUTES = 3
"""By how much the nodes' metrics may be late: they send one a minute, which CloudWatch shows within two."""

Graph = tuple[str, str, list[list[Any]]]
"""A graph of a dashboard: title, statistic, metrics."""


def metrics_policy(bucket: str) -> Document:
    """Nodes put metrics into their cluster's own namespace; `PutMetricData` knows no narrower resource."""
    return document(
        {
            "Sid": "PutMetrics",
            "Effect": "Allow",
            "Action": "cloudwatch:PutMetricData",
            "Resource": "*",
            "Condition": {"StringEquals": {"cloudwatch:namespace": namespace(bucket)}},
        }
    )


def adjustments(found: tuple[Step, ...]) -> list[aws.autoscaling.PolicyStepAdjustmentArgsDict]:
    """The steps, as a policy's for an alarm at one node short: bounds count from the alarm's threshold."""
    tops = [*(str(step.short - 1) for step in found[1:]), None]
    return [
        {
            "scaling_adjustment": step.nodes,
            "metric_interval_lower_bound": str(step.short - 1),
            **({"metric_interval_upper_bound": top} if top else {}),
        }
        for step, top in zip(found, tops, strict=True)
    ]


def scaling_graphs(plan: Plan, group: str, bucket: str, queue: str | None) -> Iterator[Graph]:
    """Graphs of cost and, as far as they are there, of GPUs, fabric and queue."""
    in_service = ["AWS/AutoScaling", "GroupInServiceInstances", "AutoScalingGroupName", group]
    hidden = [*in_service, {"id": "nodes", "visible": False}]
    line = cost(plan).lines[0]
    if line.per_hour:
        price = line.per_hour.high / line.nodes
        yield (
            "Cost of nodes in service, at most, USD an hour",
            "Average",
            [[{"expression": f"nodes * {price:.4f}", "label": line.purchase, "id": "cost"}], hidden],
        )
    space = namespace(bucket)
    if measured(plan.spec) and plan.instance.gpus:
        yield ("GPUs, % used", "Average", [[space, GPU], [space, "GPUMemoryUtilization"]])
    if measured(plan.spec) and plan.fast:
        yield ("Fabric, bytes a second and node", "Average", [[space, FABRIC]])
    if queue:
        names = ["AWS/SQS", "", "QueueName", queue]
        yield ("Queue, messages", "Maximum", [["AWS/SQS", name, *names[2:]] for name in MESSAGES])
        backlog = {"expression": "IF(nodes > 0, waiting / nodes, waiting)", "label": "backlog a node", "id": "backlog"}
        waiting = ["AWS/SQS", *WAITING, *names[2:], {"id": "waiting", "visible": False}]
        yield ("Messages waiting for each node", "Maximum", [[backlog], waiting, hidden])


def declare(
    plan: Plan,
    group: aws.autoscaling.Group,
    identity: Identity,
    bucket: aws.s3.Bucket,
    queue: aws.sqs.Queue | None,
    child: pulumi.ResourceOptions,
) -> None:
    """Declare what the spec asks for beside the queue, which nodes are told of and is there before them."""
    scaling = plan.spec.scaling
    if measured(plan.spec):
        policy = bucket.bucket.apply(lambda name: json.dumps(metrics_policy(name)))
        aws.iam.RolePolicy(f"{plan.name}-metrics", role=identity.role.id, policy=policy, opts=child)
    if scaling is None:
        return
    space = bucket.bucket.apply(namespace)
    if scaling.gpu_target:
        _follow_gpus(plan, scaling.gpu_target, scaling, group, space, child)
    if scaling.queue and queue:
        _meet_backlog(plan, scaling.queue.backlog, scaling, group, queue, child)
    if minutes := idle_minutes(scaling):
        _rest(plan, minutes, group, space, queue, child)
    _schedule(plan, scaling, group, child)


def _follow_gpus(
    plan: Plan,
    target: int,
    scaling: Scaling,
    group: aws.autoscaling.Group,
    space: pulumi.Output[str],
    child: pulumi.ResourceOptions,
) -> None:
    """Add nodes while the GPUs' average use is above the target.

    It takes none away: with the group's least at zero, which the breaker needs, a run that waits for its data or for
    enough nodes would be scaled in until nothing of it is left.
    """
    aws.autoscaling.Policy(
        f"{plan.name}-gpus",
        autoscaling_group_name=group.name,
        policy_type="TargetTrackingScaling",
        estimated_instance_warmup=scaling.warmup_seconds,
        target_tracking_configuration={
            "target_value": float(target),
            "disable_scale_in": True,
            "customized_metric_specification": {"namespace": space, "metric_name": GPU, "statistic": "Average"},
        },
        opts=child,
    )


def _meet_backlog(
    plan: Plan,
    backlog: int,
    scaling: Scaling,
    group: aws.autoscaling.Group,
    queue: aws.sqs.Queue,
    child: pulumi.ResourceOptions,
) -> None:
    """Add, at once, all nodes that the backlog asks for beyond those in service.

    `waiting / nodes > backlog` is watched as `waiting / backlog - nodes > 0`, the nodes that are short: the same, but
    it divides by no zero and says by itself how many to add. They are added by number. A percentage of no node is none,
    and an exact size, taken from a backlog that shrinks as work is handed out, would end nodes that are at it. A queue
    that holds nothing, or a minute that lacks what waits, decides nothing. Nodes on their way count as there (Auto
    Scaling user guide, "Set the default instance warmup"), so that the alarm's next minutes add no more.

    A minute that lacks the nodes' number has that of the minute before, and where there is none the most that there may
    be: what is missing counts as zero in a sum, as some have found (compiler-explorer/infra#1661), and zero nodes would
    have a whole fleet added to one that is there. The number before, as the newest minute often is late: an alarm that
    finds it filled with the most, again and again, would ask for nothing (CloudWatch user guide, "Using metric math",
    on `FILL`).

    It knows nothing of the breaker: an alarm can't ask for another's state, and a composite one can't scale (CloudWatch
    user guide). A backlog that is left in the queue goes on asking, which is why the breaker suspends launches.
    """
    name = f"{plan.name}-backlog"
    policy = aws.autoscaling.Policy(
        name,
        autoscaling_group_name=group.name,
        policy_type="StepScaling",
        adjustment_type="ChangeInCapacity",
        metric_aggregation_type="Maximum",
        estimated_instance_warmup=scaling.warmup_seconds,
        step_adjustments=adjustments(steps(plan.fleet.max, plan.fleet.min)),
        opts=child,
    )
    in_service = {"AutoScalingGroupName": group.name}
    aws.cloudwatch.MetricAlarm(
        name,
        alarm_description=f"More than {backlog} messages wait for each node of cluster {plan.name}: nodes are added",
        metric_queries=[
            _asked("waiting", "AWS/SQS", WAITING[0], "Maximum", {"QueueName": queue.name}),
            _asked("nodes", "AWS/AutoScaling", "GroupInServiceInstances", "Maximum", in_service),
            {"id": "known", "expression": "FILL(nodes, REPEAT)", "label": "Nodes", "return_data": False},
            _answer(f"waiting / {backlog} - FILL(known, {plan.fleet.max})", "Nodes short"),
        ],
        evaluation_periods=ASKED_MINUTES,
        comparison_operator="GreaterThanOrEqualToThreshold",
        threshold=1,
        treat_missing_data="notBreaching",
        alarm_actions=[policy.arn],
        tags=dict(plan.tags),
        opts=child,
    )


def _rest(
    plan: Plan,
    minutes: int,
    group: aws.autoscaling.Group,
    space: pulumi.Output[str],
    queue: aws.sqs.Queue | None,
    child: pulumi.ResourceOptions,
) -> None:
    """Set the group to zero once nodes have said, minute for minute, that their run has ended, and nothing is queued.

    That nodes are silent says nothing: a fault of metrics must not end a run. So a minute without their word counts as
    one with a run, whatever a sum makes of what is missing: nothing, as documented, or zero (see `_meet_backlog`). A
    queue's silence says that it is empty, as SQS counts only what there is.

    The newest minutes come late and are filled so too. The alarm looks a few further back than it needs, as is advised
    (CloudWatch user guide, "Using metric math", on `FILL`): else it would never be on.
    """
    name = f"{plan.name}-idle-to-zero"
    policy = aws.autoscaling.Policy(
        name,
        autoscaling_group_name=group.name,
        policy_type="StepScaling",
        adjustment_type="ExactCapacity",
        step_adjustments=[{"scaling_adjustment": 0, "metric_interval_upper_bound": "0"}],
        opts=child,
    )
    queries = [_asked("active", space, ACTIVE, "Maximum", {})]
    expression = "FILL(active, 1)"
    for query, metric in zip(("waiting", "handed", "coming"), MESSAGES if queue else (), strict=False):
        assert queue is not None
        queries.append(_asked(query, "AWS/SQS", metric, "Maximum", {"QueueName": queue.name}))
        expression += f" + FILL({query}, 0)"
    aws.cloudwatch.MetricAlarm(
        name,
        alarm_description=f"Cluster {plan.name} has had no run{' and no message' * bool(queue)} for {minutes} minutes: "
        "its group is set to zero",
        metric_queries=[*queries, _answer(expression, "Runs and messages")],
        evaluation_periods=minutes + LATE_MINUTES,
        datapoints_to_alarm=minutes,
        comparison_operator="LessThanOrEqualToThreshold",
        threshold=0,
        treat_missing_data="notBreaching",
        alarm_actions=[policy.arn],
        tags=dict(plan.tags),
        opts=child,
    )


def _schedule(plan: Plan, scaling: Scaling, group: aws.autoscaling.Group, child: pulumi.ResourceOptions) -> None:
    for index, schedule in enumerate(scaling.schedules):
        name = f"{plan.name}-schedule-{index}"
        aws.autoscaling.Schedule(
            name,
            scheduled_action_name=name,
            autoscaling_group_name=group.name,
            recurrence=schedule.cron,
            time_zone=schedule.time_zone,
            desired_capacity=schedule.nodes,
            min_size=-1,  # neither of these changes
            max_size=-1,
            opts=child,
        )


def _asked(
    query: str, space: pulumi.Input[str], metric: str, statistic: str, dimensions: dict[str, pulumi.Input[str]]
) -> aws.cloudwatch.MetricAlarmMetricQueryArgsDict:
    of = {"dimensions": dimensions} if dimensions else {}
    asked = {"namespace": space, "metric_name": metric, "period": 60, "stat": statistic, **of}
    return {"id": query, "metric": asked, "return_data": False}


def _answer(expression: str, label: str) -> aws.cloudwatch.MetricAlarmMetricQueryArgsDict:
    return {"id": "answer", "expression": expression, "label": label, "return_data": True}
