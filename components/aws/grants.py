"""What people, and Session Manager on a node, may do: policies as pure functions, so that tests can judge them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from components import layout
from components.aws.queue import submitting
from components.aws.security import Document, document, partition

SESSION_HOURS = 8
"""For how long somebody has a role before taking it again."""


@dataclass(frozen=True)
class Ours:
    """What the roles are about: its ARNs, and where it is."""

    region: str
    account_id: str
    cluster: str
    bucket: str
    data_key: str
    group: str
    roles: str
    """Pattern of the cluster's own roles."""
    queue: str | None = None
    """The queue of work, where there is one."""

    def arn(self, service: str, resource: str) -> str:
        """ARN of a resource in the cluster's region and account."""
        return f"arn:{partition(self.region)}:{service}:{self.region}:{self.account_id}:{resource}"


@dataclass(frozen=True)
class Recorded:
    """ARNs of the audit record."""

    bucket: str
    key: str
    trail: str
    log_groups: tuple[str, ...]


def people_trust(principals: tuple[str, ...]) -> Document:
    """Only the users and roles listed take the role."""
    return document({"Effect": "Allow", "Principal": {"AWS": list(principals)}, "Action": "sts:AssumeRole"})


def trainer_policy(ours: Ours) -> Document:
    """Put datasets, read runs, and submit and end runs where there is a queue. The key serves through these alone.

    Listing is not limited to prefixes, for the reason that `node_policy` gives.
    """
    return document(
        {
            "Sid": "List",
            "Effect": "Allow",
            "Action": ["s3:ListBucket", "s3:ListBucketMultipartUploads"],
            "Resource": ours.bucket,
        },
        {
            "Sid": "Read",
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": [
                f"{ours.bucket}/{layout.FLEET}",
                *(f"{ours.bucket}/{prefix}*" for prefix in (layout.DATASETS, layout.RUNS)),
            ],
        },
        {
            "Sid": "PutDatasets",
            "Effect": "Allow",
            "Action": ["s3:PutObject", "s3:ListMultipartUploadParts", "s3:AbortMultipartUpload"],
            "Resource": f"{ours.bucket}/{layout.DATASETS}*",
        },
        {
            # An index makes a dataset count; one is taken away before its shards are replaced.
            "Sid": "ReplaceDatasets",
            "Effect": "Allow",
            "Action": "s3:DeleteObject",
            "Resource": f"{ours.bucket}/{layout.DATASETS}*/index.json",
        },
        {
            "Sid": "UseDataKeyThroughTheBucket",
            "Effect": "Allow",
            "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
            "Resource": ours.data_key,
            "Condition": {"StringEquals": {"kms:ViaService": f"s3.{ours.region}.amazonaws.com"}},
        },
        *(submitting(ours.region, ours.bucket, ours.data_key, ours.queue) if ours.queue else ()),
    )


def operator_policy(ours: Ours, session_document: str) -> Document:
    """See and scale the group; open sessions on the cluster's nodes by the one document; end one's own. No data.

    That holds for the role. A session is a shell on a node, which has the node's own role: who may open one can read
    what a node can, and leaves a record of it. Sources: Systems Manager user guide, "Additional sample IAM policies for
    Session Manager" (by tags; ending one's own session, by its tag) and "Start a session with a document by specifying
    the session documents in IAM policies".
    """
    return document(
        {
            # AWS takes no narrower resource for any of these.
            "Sid": "See",
            "Effect": "Allow",
            "Action": [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeAutoScalingInstances",
                "autoscaling:DescribeInstanceRefreshes",
                "autoscaling:DescribeScalingActivities",
                "cloudwatch:DescribeAlarms",
                "cloudwatch:GetDashboard",
                "cloudwatch:GetMetricData",
                "cloudwatch:ListMetrics",
                "ec2:DescribeInstances",
                "ec2:DescribeInstanceStatus",
                "ssm:DescribeInstanceInformation",
                "ssm:DescribeSessions",
                "ssm:GetConnectionStatus",
            ],
            "Resource": "*",
        },
        {
            # A group that its breaker has stopped launches again by both.
            "Sid": "Scale",
            "Effect": "Allow",
            "Action": ["autoscaling:SetDesiredCapacity", "autoscaling:ResumeProcesses"],
            "Resource": ours.group,
        },
        {
            "Sid": "OpenSessionsOnNodes",
            "Effect": "Allow",
            "Action": "ssm:StartSession",
            "Resource": ours.arn("ec2", "instance/*"),
            "Condition": {
                "StringEquals": {"ssm:resourceTag/trainwright:cluster": ours.cluster},
                "BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"},
            },
        },
        {
            "Sid": "OpenSessionsByTheDocument",
            "Effect": "Allow",
            "Action": "ssm:StartSession",
            "Resource": session_document,
            "Condition": {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}},
        },
        {
            "Sid": "ConnectToSessions",
            "Effect": "Allow",
            "Action": "ssmmessages:OpenDataChannel",
            "Resource": ours.arn("ssm", "session/*"),
        },
        {
            "Sid": "EndTheirOwnSessions",
            "Effect": "Allow",
            "Action": ["ssm:TerminateSession", "ssm:ResumeSession"],
            "Resource": ours.arn("ssm", "session/*"),
            "Condition": {"StringEquals": {"ssm:resourceTag/aws:ssmmessages:session-id": "${aws:userid}"}},
        },
    )


def auditor_policy(ours: Ours, recorded: Recorded | None) -> Document:
    """Read trail, logs and configuration; change nothing, and see no data."""
    buckets = [ours.bucket, *([recorded.bucket] if recorded else [])]
    keys = [ours.data_key, *([recorded.key] if recorded else [])]
    configuration: list[Document] = [
        {
            # AWS takes no narrower resource for any of these.
            "Sid": "ReadConfiguration",
            "Effect": "Allow",
            "Action": [
                "autoscaling:DescribeAutoScalingGroups",
                "budgets:ViewBudget",
                "cloudtrail:DescribeTrails",
                "cloudtrail:LookupEvents",
                "cloudwatch:DescribeAlarms",
                "ec2:DescribeFlowLogs",
                "ec2:DescribeInstances",
                "ec2:DescribeLaunchTemplateVersions",
                "ec2:DescribeRouteTables",
                "ec2:DescribeSecurityGroupRules",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVolumes",
                "ec2:DescribeVpcEndpoints",
                "ec2:DescribeVpcs",
                "logs:DescribeLogGroups",
            ],
            "Resource": "*",
        },
        {
            "Sid": "ReadBucketSettings",
            "Effect": "Allow",
            "Action": [
                "s3:GetBucketAcl",
                "s3:GetBucketObjectLockConfiguration",
                "s3:GetBucketOwnershipControls",
                "s3:GetBucketPolicy",
                "s3:GetBucketPublicAccessBlock",
                "s3:GetBucketVersioning",
                "s3:GetEncryptionConfiguration",
                "s3:GetLifecycleConfiguration",
            ],
            "Resource": buckets,
        },
        {
            "Sid": "ReadKeySettings",
            "Effect": "Allow",
            "Action": ["kms:DescribeKey", "kms:GetKeyPolicy", "kms:GetKeyRotationStatus"],
            "Resource": keys,
        },
        {
            "Sid": "ReadRoles",
            "Effect": "Allow",
            "Action": ["iam:GetRole", "iam:GetRolePolicy", "iam:ListRolePolicies", "iam:ListAttachedRolePolicies"],
            "Resource": ours.roles,
        },
    ]
    return document(*configuration, *(_reading(ours, recorded) if recorded else ()))


def _reading(ours: Ours, recorded: Recorded) -> tuple[Document, ...]:
    return (
        {
            "Sid": "ReadTrail",
            "Effect": "Allow",
            "Action": ["cloudtrail:GetEventSelectors", "cloudtrail:GetTrail", "cloudtrail:GetTrailStatus"],
            "Resource": recorded.trail,
        },
        {
            "Sid": "ReadLogs",
            "Effect": "Allow",
            "Action": [
                "logs:DescribeLogStreams",
                "logs:FilterLogEvents",
                "logs:GetLogEvents",
                "logs:StartQuery",
            ],
            "Resource": [pattern for arn in recorded.log_groups for pattern in (arn, f"{arn}:*")],
        },
        # Results belong to a query's id, which only who started the query knows.
        {"Sid": "ReadQueries", "Effect": "Allow", "Action": "logs:GetQueryResults", "Resource": "*"},
        {
            "Sid": "ReadRecord",
            "Effect": "Allow",
            "Action": [
                "s3:GetObject",
                "s3:GetObjectRetention",
                "s3:GetObjectVersion",
                "s3:ListBucket",
                "s3:ListBucketVersions",
            ],
            "Resource": [recorded.bucket, f"{recorded.bucket}/*"],
        },
        {
            "Sid": "DecryptRecord",
            "Effect": "Allow",
            "Action": "kms:Decrypt",
            "Resource": recorded.key,
            "Condition": {"StringEquals": {"kms:ViaService": f"s3.{ours.region}.amazonaws.com"}},
        },
    )


def session_node_policy(log_group: str | None) -> Document:
    """What Session Manager needs of a node's role, and, where sessions are recorded, writing to their log group.

    Source: Systems Manager user guide, "Create a custom IAM role for Session Manager".
    """
    connect: Document = {
        "Sid": "Connect",
        "Effect": "Allow",
        "Action": [
            "ssm:UpdateInstanceInformation",
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
        ],
        "Resource": "*",
    }
    if log_group is None:
        return document(connect)
    return document(
        connect,
        {
            "Sid": "Record",
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
            "Resource": [log_group, f"{log_group}:*"],
        },
        {"Sid": "FindLogGroup", "Effect": "Allow", "Action": "logs:DescribeLogGroups", "Resource": "*"},
    )


def session_document(log_group: str) -> dict[str, Any]:
    """How sessions are made: recorded as they go, in `log_group` where one is named; idle ones end.

    Source: Systems Manager user guide, "Session document schema".
    """
    return {
        "schemaVersion": "1.0",
        "description": "A shell on a node of the cluster",
        "sessionType": "Standard_Stream",
        "inputs": {
            "s3BucketName": "",
            "s3KeyPrefix": "",
            "s3EncryptionEnabled": True,
            "cloudWatchLogGroupName": log_group,
            "cloudWatchEncryptionEnabled": True,
            "cloudWatchStreamingEnabled": True,
            "idleSessionTimeout": "20",
            "maxSessionDuration": str(SESSION_HOURS * 60),
            "kmsKeyId": "",
            "runAsEnabled": False,
            "runAsDefaultUser": "",
        },
    }
