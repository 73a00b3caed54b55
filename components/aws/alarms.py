"""Who is told of what: alarms on metrics that AWS has by itself, a budget, and a dashboard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from components.aws.audit import Audit
from components.aws.fleet import METRICS
from components.aws.network import Network
from components.aws.scaling import Graph, scaling_graphs
from components.aws.security import Document, account, document
from components.plan import Plan

Metric = list[Any]
"""A metric of a dashboard: namespace, name, dimensions, options."""


@dataclass(frozen=True)
class Watch:
    """An event in the trail's log that somebody is told of, by CloudWatch Logs' filter syntax."""

    name: str
    what: str
    pattern: str


def _any_of(*events: str) -> str:
    return " || ".join(f"($.eventName = {event})" for event in events)


WATCHES = (
    Watch(
        "trail-changed",
        "Somebody changed or stopped a trail",
        f"{{ {_any_of('CreateTrail', 'UpdateTrail', 'DeleteTrail', 'StartLogging', 'StopLogging')} }}",
    ),
    Watch(
        "key-disabled",
        "Somebody disabled a key or scheduled its deletion",
        f"{{ ($.eventSource = kms.amazonaws.com) && ({_any_of('DisableKey', 'ScheduleKeyDeletion')}) }}",
    ),
)
"""Patterns of CIS AWS Foundations 4.5 and 4.7 (Security Hub user guide, controls CloudWatch.5 and CloudWatch.7)."""

IN_SERVICE = {"desired": "GroupDesiredCapacity", "running": "GroupInServiceInstances"}
"""Metrics of the group whose difference is the nodes that are missing."""

MISSING_MINUTES = 30
"""For how long nodes may be missing: longer than a boot takes, and than a replacement for a spot node."""

BUDGET_ALARMS = (("ACTUAL", 80), ("FORECASTED", 100), ("ACTUAL", 100))
"""Kinds of cost, and the percentage of the budget at which somebody is told."""


def topic_policy(topic_arn: str, account_id: str) -> Document:
    """Only alarms of the account are published, and only over TLS.

    Sources: SNS developer guide, "Example cases for Amazon SNS access control" and "SNS security best practices".
    """
    return document(
        {
            "Sid": "OnlyTls",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sns:Publish",
            "Resource": topic_arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
        {
            "Sid": "AlarmsPublish",
            "Effect": "Allow",
            "Principal": {"Service": "cloudwatch.amazonaws.com"},
            "Action": "sns:Publish",
            "Resource": topic_arn,
            "Condition": {"StringEquals": {"aws:SourceAccount": account_id}},
        },
    )


def dashboard(region: str, group: str, bucket: str, gateways: list[str], more: Iterable[Graph] = ()) -> dict[str, Any]:
    """The dashboard's body (CloudWatch API, "Dashboard Body Structure and Syntax"): nodes, network, bucket."""
    nodes = {"AutoScalingGroupName": group}
    graphs: list[tuple[str, str, list[Metric]]] = [
        (
            "Nodes: desired, in service, pending, terminating",
            "Average",
            [_metric("AWS/AutoScaling", metric, nodes) for metric in METRICS],
        ),
        ("CPU of nodes, %", "Average", [_metric("AWS/EC2", "CPUUtilization", nodes)]),
        ("Failed status checks", "Maximum", [_metric("AWS/EC2", "StatusCheckFailed", nodes)]),
        (
            "Network of nodes, bytes",
            "Sum",
            [_metric("AWS/EC2", "NetworkIn", nodes), _metric("AWS/EC2", "NetworkOut", nodes)],
        ),
        (
            "Bucket, bytes",
            "Average",
            [
                _metric("AWS/S3", "BucketSizeBytes", {"BucketName": bucket, "StorageType": "StandardStorage"}),
            ],
        ),
    ]
    if gateways:
        out = [_metric("AWS/NATGateway", "BytesOutToDestination", {"NatGatewayId": gateway}) for gateway in gateways]
        graphs.append(("To the internet, bytes", "Sum", out))
    graphs.extend(more)
    return {
        "widgets": [
            {
                "type": "metric",
                "x": 12 * (index % 2),
                "y": 6 * (index // 2),
                "width": 12,
                "height": 6,
                "properties": {
                    "title": title,
                    "region": region,
                    "view": "timeSeries",
                    "stat": statistic,
                    # S3 says once a day how large a bucket is.
                    "period": 86400 if metrics[0][0] == "AWS/S3" else 60,
                    "metrics": metrics,
                },
            }
            for index, (title, statistic, metrics) in enumerate(graphs)
        ]
    }


def _metric(namespace: str, name: str, dimensions: dict[str, str]) -> Metric:
    return [namespace, name, *(text for pair in dimensions.items() for text in pair)]


def declare(
    plan: Plan,
    audit: Audit,
    network: Network,
    group: aws.autoscaling.Group,
    bucket: aws.s3.Bucket,
    queue: aws.sqs.Queue | None,
    child: pulumi.ResourceOptions,
) -> aws.sns.Topic:
    """Declare topic, alarms, budget and dashboard. Returns the topic."""
    topic = _topic(plan, audit, child)
    _node_alarms(plan, group, topic, child)
    for watch in WATCHES:
        _watch(plan, watch, audit, topic, child)
    if plan.spec.audit.budget_usd:
        _budget(plan, plan.spec.audit.budget_usd, child)
    queue_name = queue.name if queue else None
    body = pulumi.Output.all(group.name, bucket.bucket, pulumi.Output.all(*network.gateway_ids), queue_name).apply(
        lambda given: _dashboard(plan, *given)
    )
    # Named like the group: a name of a dashboard that is there already would overwrite it.
    aws.cloudwatch.Dashboard(plan.name, dashboard_name=group.name, dashboard_body=body, opts=child)
    return topic


def _dashboard(plan: Plan, group: str, bucket: str, gateways: list[str], queue: str | None) -> str:
    graphs = scaling_graphs(plan, group, bucket, queue)
    return json.dumps(dashboard(plan.spec.region, group, bucket, gateways, graphs))


def _topic(plan: Plan, audit: Audit, child: pulumi.ResourceOptions) -> aws.sns.Topic:
    name = f"{plan.name}-alarms"
    topic = aws.sns.Topic(name, kms_master_key_id=audit.key.id, tags=dict(plan.tags), opts=child)
    policy = pulumi.Output.all(topic.arn, account(child)).apply(lambda given: json.dumps(topic_policy(*given)))
    aws.sns.TopicPolicy(name, arn=topic.arn, policy=policy, opts=child)
    for email in plan.spec.audit.emails:
        suffix = hashlib.sha256(email.encode()).hexdigest()[:7]
        aws.sns.TopicSubscription(f"{name}-{suffix}", topic=topic.arn, protocol="email", endpoint=email, opts=child)
    return topic


def _node_alarms(plan: Plan, group: aws.autoscaling.Group, topic: aws.sns.Topic, child: pulumi.ResourceOptions) -> None:
    """A node that fails its checks, nodes that don't come, and nodes that are paid for and do nothing.

    No nodes, no alarm.
    """
    nodes = {"namespace": "AWS/EC2", "dimensions": {"AutoScalingGroupName": group.name}, "tags": dict(plan.tags)}
    told = {"alarm_actions": [topic.arn], "treat_missing_data": "notBreaching", "opts": child}
    aws.cloudwatch.MetricAlarm(
        f"{plan.name}-unhealthy",
        alarm_description=f"A node of cluster {plan.name} fails its status checks",
        metric_name="StatusCheckFailed",
        statistic="Maximum",
        period=60,
        evaluation_periods=2,
        comparison_operator="GreaterThanOrEqualToThreshold",
        threshold=1,
        **nodes,
        **told,
    )
    aws.cloudwatch.MetricAlarm(
        f"{plan.name}-missing",
        alarm_description=f"Cluster {plan.name} has had fewer nodes than it is to have for {MISSING_MINUTES} minutes: "
        "the group's activities and `trainwright status` show why",
        metric_queries=[
            *(_asked(query, metric, group) for query, metric in IN_SERVICE.items()),
            {"id": "missing", "expression": " - ".join(IN_SERVICE), "label": "Nodes missing", "return_data": True},
        ],
        evaluation_periods=MISSING_MINUTES,
        comparison_operator="GreaterThanThreshold",
        threshold=0,
        tags=dict(plan.tags),
        **told,
    )
    aws.cloudwatch.MetricAlarm(
        f"{plan.name}-idle",
        alarm_description=f"Nodes of cluster {plan.name} are paid for and have been idle for half an hour",
        metric_name="CPUUtilization",
        statistic="Average",
        period=300,
        evaluation_periods=6,
        comparison_operator="LessThanThreshold",
        threshold=1,
        **nodes,
        **told,
    )


def _asked(query: str, metric: str, group: aws.autoscaling.Group) -> aws.cloudwatch.MetricAlarmMetricQueryArgsDict:
    return {
        "id": query,
        "metric": {
            "namespace": "AWS/AutoScaling",
            "metric_name": metric,
            "dimensions": {"AutoScalingGroupName": group.name},
            "period": 60,
            "stat": "Minimum",
        },
        "return_data": False,
    }


def _watch(plan: Plan, watch: Watch, audit: Audit, topic: aws.sns.Topic, child: pulumi.ResourceOptions) -> None:
    name, namespace = f"{plan.name}-{watch.name}", "Trainwright"
    aws.cloudwatch.LogMetricFilter(
        name,
        log_group_name=audit.trail_log.name,
        pattern=watch.pattern,
        metric_transformation={"name": name, "namespace": namespace, "value": "1"},
        opts=child,
    )
    aws.cloudwatch.MetricAlarm(
        name,
        alarm_description=f"{watch.what} (account of cluster {plan.name})",
        namespace=namespace,
        metric_name=name,
        statistic="Sum",
        period=300,
        evaluation_periods=1,
        comparison_operator="GreaterThanOrEqualToThreshold",
        threshold=1,
        treat_missing_data="notBreaching",
        alarm_actions=[topic.arn],
        tags=dict(plan.tags),
        opts=child,
    )


def _budget(plan: Plan, limit_usd: float, child: pulumi.ResourceOptions) -> None:
    """Declare the budget: of the account's cost, not the cluster's.

    One by tag counts nothing, and is silent, until the tag is activated in the organisation's management account
    (Billing user guide, "Activating user-defined cost allocation tags").
    """
    aws.budgets.Budget(
        plan.name,
        budget_type="COST",
        time_unit="MONTHLY",
        limit_amount=str(limit_usd),
        limit_unit="USD",
        notifications=[
            {
                "notification_type": kind,
                "comparison_operator": "GREATER_THAN",
                "threshold": percentage,
                "threshold_type": "PERCENTAGE",
                "subscriber_email_addresses": list(plan.spec.audit.emails),
            }
            for kind, percentage in BUDGET_ALARMS
        ],
        tags=dict(plan.tags),
        opts=child,
    )
