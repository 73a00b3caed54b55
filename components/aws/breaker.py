"""Ends a fleet that can't boot: nodes that fail over and over would be launched, paid for and ended without end.

A node whose boot fails shuts itself down, which ends it; the group then finds it unhealthy and launches the next
(facts: B8, B9; AWS ParallelCluster stops at ten, its "protected mode"). The group's events tell of each. They are
counted by a rule without a target, whose metric an alarm watches over an hour: at `nodes.failed_boots`, a scaling
policy sets the group to zero. There it stays until somebody has set it to another size, which the alarm undoes for as
long as the hour still holds the failures.

That a rule without a target is counted is how the metric is described ("the number of rules that have run and matched
with any event"; EventBridge user guide, "Monitoring Amazon EventBridge"); it is unverified on a real account.

Counted are terminations after a failed check alone. Launches that fail are not: they cost nothing, and waiting for
capacity is no fault. A spot node that is taken back without a replacement fails the check too; its notice is an event
of the account's, without the group's name, so notices are subtracted, whosever they are. What can't be told apart: a
node that failed after hours of training, or that somebody ended in EC2 by hand, counts as a failed boot; notices of
other fleets' spot nodes, in the same account and region and within the same hour, hide as many failed boots.

Where something scales the group by itself, a size of zero doesn't last: a queue asks for nodes each minute, and of two
sizes Auto Scaling takes the larger (its user guide, "Multiple dynamic scaling policies"). There the alarm also starts a
state machine that suspends the group's launches, whoever asks for them; `trainwright retry` resumes them. An alarm
tells EventBridge of a change alone, not that it is still on: the machine suspends them anew each minute until it is
over, so that a fleet which is resumed too early doesn't fail on with nothing to stop it. An automation of Systems
Manager would do as well, but its starter must be allowed to pass a role.
"""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_aws as aws

from components.aws.security import Document, account, document, partition, service_trust
from components.plan import Plan, Pool
from components.scaling import LAUNCH, breaker_name, governed

WINDOW_S = 3600
"""Within which failed boots are counted. An alarm's window slides (CloudWatch user guide, "Evaluation window")."""

CAUSES = ("*EC2 health check*", "*EC2 instance status check*")
"""Of a termination: the node ended itself, or never came up (Auto Scaling user guide, "Health checks")."""


def failures(group: str) -> dict[str, Any]:
    """The pattern of events of a group's nodes that failed (Auto Scaling user guide, "Event reference")."""
    return {
        "source": ["aws.autoscaling"],
        "detail-type": ["EC2 Instance Terminate Successful"],
        "detail": {"AutoScalingGroupName": [group], "Cause": [{"wildcard": cause} for cause in CAUSES]},
    }


INTERRUPTIONS = {
    "source": ["aws.ec2"],
    "detail-type": ["EC2 Spot Instance Interruption Warning"],
    "detail": {"instance-action": ["terminate"]},
}
"""The pattern of notices to spot nodes (EC2 user guide, "Spot Instance interruption notices"), which name no group."""

STOPPED_S = 24 * 3600
"""The longest that one machine keeps launches suspended anew: it has 14 events a minute of the 25,000 that Step
Functions lets it have (its developer guide, "Quotas"). What is suspended then stays so."""

TRIES = {
    "ErrorEquals": ["States.ALL"],
    "IntervalSeconds": 2,
    "BackoffRate": 2,
    "MaxDelaySeconds": 60,
    "MaxAttempts": 20,
}
"""Of a call that fails, over a quarter of an hour: Auto Scaling may be busy with the group (`ResourceContention`)."""


def goes_on(alarm: str) -> dict[str, Any]:
    """The pattern of the event that an alarm, by its ARN, is on (CloudWatch user guide, "Alarm events")."""
    return {
        "source": ["aws.cloudwatch"],
        "detail-type": ["CloudWatch Alarm State Change"],
        "resources": [alarm],
        "detail": {"state": {"value": ["ALARM"]}},
    }


def stop_machine(region: str, group: str, alarm: str) -> dict[str, Any]:
    """Suspends a group's launches, and does so anew each minute until the alarm of this name is over.

    Nodes that fail go on being ended, but none replaces them, and neither alarms nor schedules add any (Auto Scaling
    user guide, "How suspended processes affect other processes"). Calls: Step Functions developer guide, "AWS SDK
    service integrations".
    """

    def call(api: str, parameters: dict[str, Any], following: str) -> dict[str, Any]:
        resource = f"arn:{partition(region)}:states:::aws-sdk:{api}"
        return {"Type": "Task", "Resource": resource, "Parameters": parameters, "Retry": [TRIES], "Next": following}

    suspend = {"AutoScalingGroupName": group, "ScalingProcesses": [LAUNCH]}
    return {
        "StartAt": "Stop",
        "TimeoutSeconds": STOPPED_S,
        "States": {
            "Stop": call("autoscaling:suspendProcesses", suspend, "Wait"),
            "Wait": {"Type": "Wait", "Seconds": 60, "Next": "Ask"},
            "Ask": call("cloudwatch:describeAlarms", {"AlarmNames": [alarm]}, "Judge"),
            "Judge": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.MetricAlarms[0].StateValue", "StringEquals": "ALARM", "Next": "Stop"}],
                "Default": "Over",
            },
            "Over": {"Type": "Succeed"},
        },
    }


def stop_policy(group: str, alarm: str) -> Document:
    """What the machine may do: suspend this group's processes and see this alarm, both by their ARNs.

    IAM knows no single process. To see alarms of metrics, a narrower scope than all is enough (CloudWatch API,
    `DescribeAlarms`).
    """
    return document(
        {"Sid": "Stop", "Effect": "Allow", "Action": "autoscaling:SuspendProcesses", "Resource": group},
        {"Sid": "Ask", "Effect": "Allow", "Action": "cloudwatch:DescribeAlarms", "Resource": alarm},
    )


def stop_trust(region: str, account_id: str) -> Document:
    """State machines of the account take the machine's role.

    Source: Step Functions developer guide, "Creating an IAM role for your state machine", with its pattern of all.
    """
    machines = f"arn:{partition(region)}:states:{region}:{account_id}:stateMachine:*"
    return service_trust(
        "states.amazonaws.com",
        {"StringEquals": {"aws:SourceAccount": account_id}, "ArnLike": {"aws:SourceArn": machines}},
    )


def start_policy(machine: str) -> Document:
    """What EventBridge may do: start this machine (its user guide, "IAM roles for sending events to targets")."""
    return document({"Sid": "Start", "Effect": "Allow", "Action": "states:StartExecution", "Resource": machine})


def start_trust(rule: str, account_id: str) -> Document:
    """This rule alone takes the role (EventBridge user guide, "Cross-service confused deputy prevention")."""
    return service_trust(
        "events.amazonaws.com", {"StringEquals": {"aws:SourceAccount": account_id, "aws:SourceArn": rule}}
    )


def declare(
    plan: Plan,
    pool: Pool,
    group: aws.autoscaling.Group,
    topic_arn: pulumi.Output[str] | None,
    child: pulumi.ResourceOptions,
) -> None:
    """Declare the breaker of a pool's group; `topic_arn` is told of it too, where there is one."""
    name, most = breaker_name(plan.name, pool.one), plan.spec.nodes.failed_boots
    stops = pool == plan.pool and governed(plan.spec)
    pattern = group.name.apply(lambda group_name: json.dumps(failures(group_name)))
    queries = [_counted("failed", _rule(plan, name, f"Nodes of {plan.name} that failed", pattern, child))]
    expression = "FILL(failed, 0)"
    if pool.capacity.interruptible:
        what, pattern = "Spot nodes taken back", pulumi.Output.from_input(json.dumps(INTERRUPTIONS))
        queries.append(_counted("notices", _rule(plan, f"{plan.name}-{pool.one}-notices", what, pattern, child)))
        expression += " - FILL(notices, 0)"
    policy = aws.autoscaling.Policy(
        name,
        autoscaling_group_name=group.name,
        policy_type="StepScaling",
        adjustment_type="ExactCapacity",
        step_adjustments=[{"scaling_adjustment": 0, "metric_interval_lower_bound": "0"}],
        opts=child,
    )
    done, then = "its group is set to zero", "set the group's size again, by `pulumi up --refresh`"
    if stops:
        done, then = f"{done}, and launches none", "have it launch again, by `trainwright retry`"
    alarm = aws.cloudwatch.MetricAlarm(
        name,
        alarm_description=f"{most} nodes of cluster {plan.name} failed within an hour: {done}. "
        f"`trainwright status` shows why. Once that is mended, wait until the alarm is over, then {then}",
        metric_queries=[
            *queries,
            {"id": "boots", "expression": expression, "label": "Failed boots", "return_data": True},
        ],
        evaluation_periods=1,
        comparison_operator="GreaterThanOrEqualToThreshold",
        threshold=most,
        treat_missing_data="notBreaching",
        alarm_actions=[policy.arn, *([topic_arn] if topic_arn is not None else [])],
        tags=dict(plan.tags),
        opts=child,
    )
    if stops:
        _stop(plan, group, alarm, child)


def _stop(
    plan: Plan, group: aws.autoscaling.Group, alarm: aws.cloudwatch.MetricAlarm, child: pulumi.ResourceOptions
) -> None:
    """Declare what suspends the group's launches once the alarm is on."""
    region, name, starter, tags = plan.spec.region, f"{plan.name}-stop", f"{plan.name}-stop-start", dict(plan.tags)
    stopping = aws.iam.Role(
        name,
        description=f"Suspends launches of cluster {plan.name}",
        assume_role_policy=account(child).apply(lambda account_id: json.dumps(stop_trust(region, account_id))),
        tags=tags,
        opts=child,
    )
    policy = pulumi.Output.all(group.arn, alarm.arn).apply(lambda arns: json.dumps(stop_policy(*arns)))
    allowed = aws.iam.RolePolicy(name, role=stopping.id, policy=policy, opts=child)
    definition = pulumi.Output.all(group.name, alarm.name).apply(lambda names: json.dumps(stop_machine(region, *names)))
    machine = aws.sfn.StateMachine(
        name,
        definition=definition,
        role_arn=stopping.arn,
        tags=tags,
        opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[allowed])),
    )
    pattern = alarm.arn.apply(lambda arn: json.dumps(goes_on(arn)))
    rule = _rule(plan, starter, f"Too many nodes of {plan.name} failed", pattern, child)
    starting = aws.iam.Role(
        starter,
        description=f"Has launches of cluster {plan.name} suspended",
        assume_role_policy=pulumi.Output.all(rule.arn, account(child)).apply(
            lambda known: json.dumps(start_trust(*known))
        ),
        tags=tags,
        opts=child,
    )
    may_start = machine.arn.apply(lambda arn: json.dumps(start_policy(arn)))
    aws.iam.RolePolicy(starter, role=starting.id, policy=may_start, opts=child)
    aws.cloudwatch.EventTarget(starter, rule=rule.name, arn=machine.arn, role_arn=starting.arn, opts=child)


def _rule(
    plan: Plan, name: str, what: str, pattern: pulumi.Output[str], child: pulumi.ResourceOptions
) -> aws.cloudwatch.EventRule:
    """A rule. Its events are counted, whether it has a target or not."""
    return aws.cloudwatch.EventRule(name, description=what, event_pattern=pattern, tags=dict(plan.tags), opts=child)


def _counted(query: str, rule: aws.cloudwatch.EventRule) -> aws.cloudwatch.MetricAlarmMetricQueryArgsDict:
    """A rule's events within the window (EventBridge user guide, "Monitoring Amazon EventBridge": the default bus)."""
    return {
        "id": query,
        "metric": {
            "namespace": "AWS/Events",
            "metric_name": "TriggeredRules",
            "dimensions": {"RuleName": rule.name},
            "period": WINDOW_S,
            "stat": "Sum",
        },
        "return_data": False,
    }
