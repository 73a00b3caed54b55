"""Keys and the nodes' identity. Policies are pure functions, so that tests can hold them to what they grant."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from components import layout
from components.plan import Plan

Document = dict[str, Any]


@dataclass(frozen=True)
class Identity:
    """What the fleet needs to give its nodes their role."""

    role: aws.iam.Role
    profile_arn: pulumi.Output[str]
    ready: list[pulumi.Resource]
    """What must be there before a node can use its role."""


def partition(region: str) -> str:
    """The AWS partition of a region (AWS General Reference, "ARNs")."""
    return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(region.rsplit("-", 2)[0], "aws")


def key_policy(region: str, account: str) -> Document:
    """The data key's policy: the account governs it, and auto scaling may start nodes with encrypted disks.

    The account's statement keeps the key from being locked to everyone (terraform-aws-kms#14). Auto scaling's own role
    needs the key and grants on it, or nodes with encrypted disks end with Client.InternalError (Auto Scaling user
    guide, "Required KMS key policy"). It is named by a condition, not as the principal: a key policy that names a role
    which doesn't exist yet is refused, and the role comes with an account's first group (anthos-samples#405).
    """
    arn = f"arn:{partition(region)}:iam::{account}"
    role = f"{arn}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
    auto_scaling: Document = {
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Resource": "*",
        "Condition": {"StringEquals": {"kms:CallerAccount": account, "aws:PrincipalArn": role}},
    }
    return document(
        _governed_by(f"{arn}:root"),
        {
            "Sid": "AutoScalingUses",
            **auto_scaling,
            "Action": ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
        },
        {
            "Sid": "AutoScalingGrants",
            **auto_scaling,
            "Action": "kms:CreateGrant",
            "Condition": {**auto_scaling["Condition"], "Bool": {"kms:GrantIsForAWSResource": "true"}},
        },
    )


def logs_key_policy(name: str, region: str, account_id: str, trail: str) -> Document:
    """The logs key's policy: the account governs it, and AWS's services write the cluster's own record and alarms.

    Sources: CloudTrail user guide, "Configure AWS KMS key policies for CloudTrail"; CloudWatch Logs user guide,
    "Encrypt log data in CloudWatch Logs using AWS KMS"; AWS re:Post, "How can I configure a CloudWatch alarm to use an
    encrypted SNS topic?", and for its `aws:SourceAccount` aws/modern-data-architecture-accelerator,
    `grantCloudWatchAlarmsTopicAccess`.
    """
    part = partition(region)
    trails = f"arn:{part}:cloudtrail:*:{account_id}:trail/*"
    groups = f"arn:{part}:logs:{region}:{account_id}:log-group:{name}-*"
    return document(
        _governed_by(f"arn:{part}:iam::{account_id}:root"),
        {
            "Sid": "TrailEncrypts",
            "Effect": "Allow",
            "Principal": {"Service": "cloudtrail.amazonaws.com"},
            "Action": "kms:GenerateDataKey*",
            "Resource": "*",
            "Condition": {
                "StringEquals": {"aws:SourceArn": trail},
                "StringLike": {"kms:EncryptionContext:aws:cloudtrail:arn": trails},
            },
        },
        {
            "Sid": "TrailDescribes",
            "Effect": "Allow",
            "Principal": {"Service": "cloudtrail.amazonaws.com"},
            "Action": "kms:DescribeKey",
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:SourceArn": trail}},
        },
        {
            "Sid": "LogGroupsUse",
            "Effect": "Allow",
            "Principal": {"Service": f"logs.{region}.amazonaws.com"},
            "Action": ["kms:Encrypt*", "kms:Decrypt*", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:Describe*"],
            "Resource": "*",
            "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        },
        {
            "Sid": "AlarmsUse",
            "Effect": "Allow",
            "Principal": {"Service": "cloudwatch.amazonaws.com"},
            "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:SourceAccount": account_id}},
        },
    )


def _governed_by(root: str) -> Document:
    """The account governs the key: without this, an error in a policy locks it to everyone (terraform-aws-kms#14)."""
    return {"Sid": "Account", "Effect": "Allow", "Principal": {"AWS": root}, "Action": "kms:*", "Resource": "*"}


def service_trust(service: str, condition: Document | None = None) -> Document:
    """Only the service takes the role, where it can say so for the condition's account and resource only."""
    trust: Document = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return document({**trust, "Condition": condition} if condition else trust)


def node_trust() -> Document:
    """Only instances take the nodes' role."""
    return service_trust("ec2.amazonaws.com")


def node_policy(bucket_arn: str, key_arn: str) -> Document:
    """What a node may do: read bundles, datasets and the fleet's record, and write below `runs/`, with the data key.

    Listing is not limited to prefixes: to a role that may not list the bucket, S3 answers 403 for an object that is
    absent (S3 API reference, GetObject), and a condition on `s3:prefix` holds for no GET. A node must be able to tell
    "not there yet" from "not allowed".
    """
    return document(
        {"Sid": "List", "Effect": "Allow", "Action": "s3:ListBucket", "Resource": bucket_arn},
        {
            "Sid": "Read",
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": [
                f"{bucket_arn}/{layout.FLEET}",
                *(f"{bucket_arn}/{prefix}*" for prefix in (layout.BUNDLES, layout.DATASETS, layout.RUNS)),
            ],
        },
        {
            "Sid": "WriteRuns",
            "Effect": "Allow",
            "Action": ["s3:PutObject", "s3:AbortMultipartUpload"],
            "Resource": f"{bucket_arn}/{layout.RUNS}*",
        },
        {
            "Sid": "RetireCheckpoints",
            "Effect": "Allow",
            "Action": "s3:DeleteObject",
            "Resource": f"{bucket_arn}/{layout.RUNS}*/{layout.CHECKPOINTS}*",
        },
        {
            "Sid": "UseDataKey",
            "Effect": "Allow",
            "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
            "Resource": key_arn,
        },
    )


def declare_key(plan: Plan, child: pulumi.ResourceOptions) -> aws.kms.Key:
    """Declare the customer key that encrypts bucket and disks."""
    policy = account(child).apply(lambda account_id: json.dumps(key_policy(plan.spec.region, account_id)))
    return _key(plan, "data", f"Data of cluster {plan.name}", policy, child)


def declare_logs_key(plan: Plan, trail_arn: pulumi.Output[str], child: pulumi.ResourceOptions) -> aws.kms.Key:
    """Declare the customer key that encrypts the record of what was done, and alarms; no node may use it."""
    policy = pulumi.Output.all(account(child), trail_arn).apply(
        lambda given: json.dumps(logs_key_policy(plan.name, plan.spec.region, *given))
    )
    return _key(plan, "logs", f"Audit record of cluster {plan.name}", policy, child)


def _key(
    plan: Plan, purpose: str, description: str, policy: pulumi.Output[str], child: pulumi.ResourceOptions
) -> aws.kms.Key:
    key = aws.kms.Key(
        f"{plan.name}-{purpose}",
        description=description,
        enable_key_rotation=True,
        deletion_window_in_days=30 if plan.spec.production else 7,
        policy=policy,
        tags=dict(plan.tags),
        opts=kept(plan, child),
    )
    # The provider names it, as `alias/<name>-<7 hex>` (pulumi-aws#1445): a fixed name is taken once in an account.
    aws.kms.Alias(f"{plan.name}-{purpose}", target_key_id=key.key_id, opts=child)
    return key


def declare_identity(
    plan: Plan, bucket_arn: pulumi.Output[str], key_arn: pulumi.Output[str], child: pulumi.ResourceOptions
) -> Identity:
    """Declare the nodes' role and its instance profile."""
    name, tags = plan.name, dict(plan.tags)
    role = aws.iam.Role(
        f"{name}-node",
        description=f"Nodes of cluster {name}",
        assume_role_policy=json.dumps(node_trust()),
        tags=tags,
        opts=child,
    )
    policy = aws.iam.RolePolicy(
        f"{name}-node",
        role=role.id,
        policy=pulumi.Output.all(bucket_arn, key_arn).apply(lambda arns: json.dumps(node_policy(*arns))),
        opts=child,
    )
    profile = aws.iam.InstanceProfile(f"{name}-node", role=role.name, tags=tags, opts=child)
    return Identity(role, profile.arn, [policy])


def kept(plan: Plan, child: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """Options of what holds data: protected, and left in the account when the stack goes, where it is production."""
    keep = plan.spec.production
    return pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(protect=keep, retain_on_delete=keep))


def asking(child: pulumi.ResourceOptions) -> pulumi.InvokeOptions:
    """Options of a look-up, made with the provider of the resources that have the options `child`."""
    return pulumi.InvokeOptions(parent=child.parent, provider=child.provider)


def account(child: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Id of the account that the resources with the options `child` are in."""
    found: pulumi.Output[str] = aws.get_caller_identity_output(opts=asking(child)).account_id
    return found


def document(*statements: Document) -> Document:
    """A policy document of the statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}
