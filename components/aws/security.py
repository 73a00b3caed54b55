"""Keys and the nodes' identity. Policies are pure functions, so that tests can hold them to what they grant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from components import layout
from components.plan import Plan, Pool

Document = dict[str, Any]

SUFFIX = "?" * 7
"""What the provider adds to a name, as a pattern of IAM's."""


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


def key_policy(region: str, account: str, *more: Document) -> Document:
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
        *more,
    )


def lustre_uses(region: str, account: str, cluster: str) -> Document:
    """What FSx needs of the data key for the cluster's bucket, which encrypts with it and has a bucket key.

    A role for each file system, named by a condition for the reason that `key_policy` gives. Source: FSx for Lustre
    user guide, "Working with server-side encrypted Amazon S3 buckets"; with a bucket key, the context is the bucket's
    ARN. The bucket's name ends in what the provider adds to it. The file system's own encryption goes by grants that
    its maker gives (same guide, "Encrypting data at rest").
    """
    part = partition(region)
    service = "s3.data-source.lustre.fsx.amazonaws.com"
    roles = f"arn:{part}:iam::{account}:role/aws-service-role/{service}/AWSServiceRoleForFSxS3Access_*"
    return {
        "Sid": "LustreUsesThroughTheBucket",
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
        "Resource": "*",
        "Condition": {
            "StringEquals": {"kms:CallerAccount": account, "kms:ViaService": f"s3.{region}.amazonaws.com"},
            "StringLike": {
                "aws:PrincipalArn": roles,
                "kms:EncryptionContext:aws:s3:arn": f"arn:{part}:s3:::{cluster}-data-*",
            },
        },
    }


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


def evidence_key_policy(region: str, account_id: str, cluster: str) -> Document:
    """The evidence key's policy: the account governs it, the cluster's operators sign, its auditors check.

    The roles are named by a condition, as in `key_policy`: either is there only where the stack's file lists who takes
    it, and the provider adds seven hex digits to its name. A pattern of seven leaves out the roles of a cluster that
    is named `<cluster>-operator`.
    """
    part = partition(region)

    def people(sid: str, role: str, *actions: str) -> Document:
        return {
            "Sid": sid,
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": [*actions, "kms:GetPublicKey", "kms:DescribeKey"],
            "Resource": "*",
            "Condition": {
                "StringEquals": {"kms:CallerAccount": account_id},
                "ArnLike": {"aws:PrincipalArn": f"arn:{part}:iam::{account_id}:role/{cluster}-{role}-{SUFFIX}"},
            },
        }

    return document(
        _governed_by(f"arn:{part}:iam::{account_id}:root"),
        people("OperatorsSign", "operator", "kms:Sign"),
        people("AuditorsCheck", "auditor", "kms:Verify"),
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
    """What a node may do: read bundles, datasets and records of the fleet, and write below `runs/`, with the data key.

    Listing is not limited to prefixes: to a role that may not list the bucket, S3 answers 403 for an object that is
    absent (S3 API reference, GetObject), and a condition on `s3:prefix` holds for no GET. A node must be able to tell
    "not there yet" from "not allowed".
    """
    return document(
        {
            "Sid": "List",
            "Effect": "Allow",
            "Action": ["s3:ListBucket", "s3:ListBucketMultipartUploads"],
            "Resource": bucket_arn,
        },
        {
            "Sid": "Read",
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": [
                f"{bucket_arn}/{layout.FLEET}",
                *(
                    f"{bucket_arn}/{prefix}*"
                    for prefix in (layout.BUNDLES, layout.DATASETS, layout.RUNS, layout.DATA_NODES)
                ),
            ],
        },
        {
            "Sid": "WriteRuns",
            "Effect": "Allow",
            "Action": ["s3:PutObject", "s3:ListMultipartUploadParts", "s3:AbortMultipartUpload"],
            "Resource": f"{bucket_arn}/{layout.RUNS}*",
        },
        {
            # S3 user guide, "Enforce conditional writes on Amazon S3 buckets": only what is not there yet.
            "Sid": "OnlyAddToTheAuditRecord",
            "Effect": "Deny",
            "Action": "s3:PutObject",
            "Resource": f"{bucket_arn}/{layout.RUNS}*/{layout.AUDIT}*",
            "Condition": {"Null": {"s3:if-none-match": "true"}},
        },
        {
            "Sid": "SayNothingOfWhoDeclared",
            "Effect": "Deny",
            "Action": "s3:PutObject",
            "Resource": [f"{bucket_arn}/{layout.RUNS}*/{layout.AUDIT}{page}-*" for page in ("launch", "retry")],
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


def data_node_policy(bucket_arn: str, key_arn: str) -> Document:
    """What a data node may do: read bundles and datasets, write what it says of itself, with the data key.

    It has no part in runs and may not read them. It takes its own record away when it leaves.
    """
    return document(
        {"Sid": "List", "Effect": "Allow", "Action": "s3:ListBucket", "Resource": bucket_arn},
        {
            "Sid": "Read",
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": [f"{bucket_arn}/{prefix}*" for prefix in (layout.BUNDLES, layout.DATASETS)],
        },
        {"Sid": "Say", "Effect": "Allow", "Action": "s3:PutObject", "Resource": f"{bucket_arn}/{layout.DATA}*"},
        {
            "Sid": "Leave",
            "Effect": "Allow",
            "Action": "s3:DeleteObject",
            "Resource": f"{bucket_arn}/{layout.DATA_NODES}*",
        },
        {
            "Sid": "UseDataKey",
            "Effect": "Allow",
            "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
            "Resource": key_arn,
        },
    )


def declare_key(plan: Plan, child: pulumi.ResourceOptions) -> aws.kms.Key:
    """Declare the customer key that encrypts bucket, disks and file system."""
    region, warm = plan.spec.region, plan.spec.storage.warm

    def document_for(account_id: str) -> str:
        more = [lustre_uses(region, account_id, plan.name)] if warm else []
        return json.dumps(key_policy(region, account_id, *more))

    policy = account(child).apply(document_for)
    return _key(plan, "data", f"Data of cluster {plan.name}", policy, child)


def declare_logs_key(plan: Plan, trail_arn: pulumi.Output[str], child: pulumi.ResourceOptions) -> aws.kms.Key:
    """Declare the customer key that encrypts the record of what was done, and alarms; no node may use it."""
    policy = pulumi.Output.all(account(child), trail_arn).apply(
        lambda given: json.dumps(logs_key_policy(plan.name, plan.spec.region, *given))
    )
    return _key(plan, "logs", f"Audit record of cluster {plan.name}", policy, child)


def declare_evidence_key(plan: Plan, child: pulumi.ResourceOptions) -> aws.kms.Key:
    """Declare the key that signs certificates of erasure; its private half never leaves KMS, and it encrypts nothing.

    It does not rotate, as no asymmetric key does (KMS developer guide, "Rotate AWS KMS keys").
    """
    policy = account(child).apply(
        lambda account_id: json.dumps(evidence_key_policy(plan.spec.region, account_id, plan.name))
    )
    return _key(plan, "evidence", f"Signs evidence of cluster {plan.name}", policy, child, signs=True)


def _key(
    plan: Plan,
    purpose: str,
    description: str,
    policy: pulumi.Output[str],
    child: pulumi.ResourceOptions,
    *,
    signs: bool = False,
) -> aws.kms.Key:
    kind: dict[str, Any] = (
        {"customer_master_key_spec": "ECC_NIST_P256", "key_usage": "SIGN_VERIFY"}
        if signs
        else {"enable_key_rotation": True}
    )
    key = aws.kms.Key(
        f"{plan.name}-{purpose}",
        description=description,
        **kind,
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
    return _identity(plan, plan.pool, node_policy, bucket_arn, key_arn, child)


def declare_data_identity(
    plan: Plan, data: Pool, bucket_arn: pulumi.Output[str], key_arn: pulumi.Output[str], child: pulumi.ResourceOptions
) -> Identity:
    """Declare the data nodes' role and its instance profile."""
    return _identity(plan, data, data_node_policy, bucket_arn, key_arn, child)


def _identity(
    plan: Plan,
    pool: Pool,
    policy_of: Callable[[str, str], Document],
    bucket_arn: pulumi.Output[str],
    key_arn: pulumi.Output[str],
    child: pulumi.ResourceOptions,
) -> Identity:
    name, tags = f"{plan.name}-{pool.one}", dict(plan.tags)
    role = aws.iam.Role(
        name,
        description=f"{pool.one.replace('-', ' ').capitalize()}s of cluster {plan.name}",
        assume_role_policy=json.dumps(node_trust()),
        tags=tags,
        opts=child,
    )
    policy = aws.iam.RolePolicy(
        name,
        role=role.id,
        policy=pulumi.Output.all(bucket_arn, key_arn).apply(lambda arns: json.dumps(policy_of(*arns))),
        opts=child,
    )
    profile = aws.iam.InstanceProfile(name, role=role.name, tags=tags, opts=child)
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


def caller(child: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """ARN of the user or the role's session that declares the resources with the options `child`."""
    found: pulumi.Output[str] = aws.get_caller_identity_output(opts=asking(child)).arn
    return found


def document(*statements: Document) -> Document:
    """A policy document of the statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}
