"""The record of who did what: a trail into a locked bucket, the network's flows, and the log groups they go to."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.aws.network import Network
from components.aws.security import (
    Document,
    account,
    declare_logs_key,
    document,
    kept,
    partition,
    service_trust,
)
from components.aws.storage import declare_audit_bucket, lock
from components.plan import Plan

LOG_RETENTIONS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
"""Days that a log group can be kept for (CloudWatch Logs API, PutRetentionPolicy)."""


@dataclass(frozen=True)
class Audit:
    """What others need of the record."""

    bucket: aws.s3.Bucket
    key: aws.kms.Key
    trail_arn: pulumi.Output[str]
    trail_log: aws.cloudwatch.LogGroup
    flow_log: aws.cloudwatch.LogGroup
    sessions_log: aws.cloudwatch.LogGroup | None
    """Of operators' sessions on nodes, where there are operators."""
    ready: list[pulumi.Resource]
    """What must be there before there is anything to record."""

    @property
    def log_groups(self) -> list[aws.cloudwatch.LogGroup]:
        """All log groups."""
        return [self.trail_log, self.flow_log, *([self.sessions_log] if self.sessions_log else [])]


def log_retention(days: int) -> int:
    """The fewest days, not below `days`, that a log group can be kept for."""
    return next(possible for possible in LOG_RETENTIONS if possible >= days)


def trail_arn(region: str, account_id: str, name: str) -> str:
    """ARN of a trail, known before there is one: the bucket's policy and the key's have to name it."""
    return f"arn:{partition(region)}:cloudtrail:{region}:{account_id}:trail/{name}"


def trail_events(bucket_arn: str) -> list[aws.cloudtrail.TrailAdvancedEventSelectorArgsDict]:
    """What the trail records: every call that manages something, and those on objects of the cluster's bucket alone.

    Source: CloudTrail user guide, "Logging data events". Each 100,000 calls on objects cost 0.10 USD (AWS CloudTrail
    pricing), those of heartbeats among them; a record with gaps that a writer could choose would be none.
    """
    return [
        {"name": "Management", "field_selectors": [{"field": "eventCategory", "equals": ["Management"]}]},
        {
            "name": "Objects of the cluster's bucket",
            "field_selectors": [
                {"field": "eventCategory", "equals": ["Data"]},
                {"field": "resources.type", "equals": ["AWS::S3::Object"]},
                {"field": "resources.ARN", "starts_withs": [f"{bucket_arn}/"]},
            ],
        },
    ]


def trail_trust() -> Document:
    """CloudTrail takes the role, for any trail: here it knows no `aws:SourceArn` and no `aws:SourceAccount`.

    With either, nothing arrives (prowler#4714; CloudTrail user guide, "Role policy document for CloudTrail to use
    CloudWatch Logs for monitoring").
    """
    return service_trust("cloudtrail.amazonaws.com")


def flow_trust(region: str, account_id: str) -> Document:
    """Flow logs of the account take the role.

    Source: VPC user guide, "IAM role for publishing flow logs to CloudWatch Logs".
    """
    source = f"arn:{partition(region)}:ec2:{region}:{account_id}:vpc-flow-log/*"
    return service_trust(
        "vpc-flow-logs.amazonaws.com",
        {"StringEquals": {"aws:SourceAccount": account_id}, "ArnLike": {"aws:SourceArn": source}},
    )


def writer_policy(group_arn: str) -> Document:
    """What a service needs to write to one log group.

    Sources: VPC user guide, "IAM role for publishing flow logs to CloudWatch Logs"; CloudTrail user guide, "Role policy
    document for CloudTrail to use CloudWatch Logs for monitoring".
    """
    return document(
        {
            "Sid": "Write",
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
            "Resource": [group_arn, f"{group_arn}:*"],
        },
        {"Sid": "Find", "Effect": "Allow", "Action": "logs:DescribeLogGroups", "Resource": "*"},
    )


def declare(plan: Plan, bucket_arn: pulumi.Output[str], network: Network, child: pulumi.ResourceOptions) -> Audit:
    """Declare the record of what is done with the bucket of this ARN, in the account and on the network."""
    bucket = declare_audit_bucket(plan, child)
    # Named like its bucket, so that its ARN is known exactly and two stacks of one name don't collide.
    arn = pulumi.Output.all(account(child), bucket.bucket).apply(lambda ids: trail_arn(plan.spec.region, *ids))
    key = declare_logs_key(plan, arn, child)
    locked = lock(plan, bucket, key.arn, arn, child)
    trail_log, flow_log = (_log_group(plan, purpose, key, child) for purpose in ("trail", "flow"))
    sessions_log = _log_group(plan, "sessions", key, child) if plan.spec.security.operators else None
    trail = _trail(plan, bucket, bucket_arn, key, trail_log, locked, child)
    flows = _flows(plan, network, flow_log, child)
    return Audit(bucket, key, arn, trail_log, flow_log, sessions_log, [trail, *flows])


def _log_group(plan: Plan, purpose: str, key: aws.kms.Key, child: pulumi.ResourceOptions) -> aws.cloudwatch.LogGroup:
    return aws.cloudwatch.LogGroup(
        f"{plan.name}-{purpose}",
        kms_key_id=key.arn,
        retention_in_days=log_retention(plan.spec.audit.retention_days),
        tags=dict(plan.tags),
        opts=kept(plan, child),
    )


def _trail(
    plan: Plan,
    bucket: aws.s3.Bucket,
    recorded_arn: pulumi.Output[str],
    key: aws.kms.Key,
    group: aws.cloudwatch.LogGroup,
    first: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> aws.cloudtrail.Trail:
    """Declare the trail; its role is kept for as long as it is itself."""
    options = kept(plan, child)
    trust = pulumi.Output.from_input(json.dumps(trail_trust()))
    role, policy = _writer(plan, "trail", "CloudTrail", trust, group, options)
    return aws.cloudtrail.Trail(
        f"{plan.name}-audit",
        name=bucket.bucket,
        s3_bucket_name=bucket.bucket,
        kms_key_id=key.arn,
        is_multi_region_trail=True,
        include_global_service_events=True,
        enable_log_file_validation=True,
        enable_logging=True,
        advanced_event_selectors=recorded_arn.apply(trail_events),
        cloud_watch_logs_group_arn=group.arn.apply(lambda group_arn: f"{group_arn}:*"),
        cloud_watch_logs_role_arn=role.arn,
        tags=dict(plan.tags),
        opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[*first, policy])),
    )


def _flows(
    plan: Plan, network: Network, group: aws.cloudwatch.LogGroup, child: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declare flow logs: of the whole VPC where it is ours, else of the cluster's subnets."""
    trust = account(child).apply(lambda account_id: json.dumps(flow_trust(plan.spec.region, account_id)))
    role, policy = _writer(plan, "flow", "VPC flow logs", trust, group, child)
    where: dict[str, dict[str, pulumi.Input[str]]] = {"flow": {"vpc_id": network.vpc_id}}
    if plan.spec.network.vpc:
        subnets = zip(plan.subnets, network.subnet_ids, strict=True)
        where = {f"flow-{planned.suffix}": {"subnet_id": subnet_id} for planned, subnet_id in subnets}
    return [
        aws.ec2.FlowLog(
            f"{plan.name}-{suffix}",
            **place,
            traffic_type="ALL",
            max_aggregation_interval=60,
            log_destination_type="cloud-watch-logs",
            log_destination=group.arn,
            iam_role_arn=role.arn,
            tags={**plan.tags, "Name": f"{plan.name}-{suffix}"},
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[policy])),
        )
        for suffix, place in where.items()
    ]


def _writer(
    plan: Plan,
    purpose: str,
    service: str,
    trust: pulumi.Output[str],
    group: aws.cloudwatch.LogGroup,
    options: pulumi.ResourceOptions,
) -> tuple[aws.iam.Role, aws.iam.RolePolicy]:
    """Declare the role by which a service writes to a log group."""
    name = f"{plan.name}-{purpose}"
    role = aws.iam.Role(
        name,
        description=f"{service} of cluster {plan.name}",
        assume_role_policy=trust,
        tags=dict(plan.tags),
        opts=options,
    )
    policy = aws.iam.RolePolicy(
        name, role=role.id, policy=group.arn.apply(lambda arn: json.dumps(writer_policy(arn))), opts=options
    )
    return role, policy
