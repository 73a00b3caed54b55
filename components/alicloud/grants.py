"""What people may do: policies as pure functions, so that tests can judge them."""

from __future__ import annotations

from dataclasses import dataclass

from components import layout
from components.alicloud.queue import submitting
from components.alicloud.security import (
    CLUSTER_TAG,
    Document,
    bucket_arn,
    bucket_arns,
    document,
    key_arn,
    keys,
    objects,
    use_data_key,
)

SESSION_HOURS = 8
"""For how long somebody has a role before taking it again."""


@dataclass(frozen=True)
class Ours:
    """What the roles are about: its names and ids, and where it is."""

    region: str
    account_id: str
    cluster: str
    bucket: str
    data_key: str
    group: str
    """Id of the scaling group."""
    queue: str | None = None
    """Name of the queue of work, where there is one."""
    evidence_key: str | None = None
    """Id of the key that signs evidence, where there is one."""

    def arn(self, service: str, resource: str) -> str:
        """ARN of a resource in the cluster's region and account."""
        return f"acs:{service}:{self.region}:{self.account_id}:{resource}"


@dataclass(frozen=True)
class Recorded:
    """Names of the audit record, and its key's id."""

    bucket: str
    key: str
    logs: tuple[str, ...]
    """Of log stores, as `<project>/<log store>`."""


def people_trust(principals: tuple[str, ...]) -> Document:
    """Only the users and roles listed take the role."""
    return document({"Effect": "Allow", "Principal": {"RAM": list(principals)}, "Action": "sts:AssumeRole"})


def trainer_policy(ours: Ours) -> Document:
    """Put datasets, read runs, and submit and end runs where there is a queue.

    Listing is not limited to prefixes, for the reason that `node_policy` gives.
    """
    submits = submitting(ours.region, ours.account_id, ours.bucket, ours.data_key, ours.queue) if ours.queue else ()
    return document(
        {
            "Effect": "Allow",
            "Action": ["oss:ListObjects", "oss:ListMultipartUploads"],
            "Resource": bucket_arns(ours.bucket),
        },
        {
            "Effect": "Allow",
            "Action": "oss:GetObject",
            "Resource": [*keys(ours.bucket, layout.FLEET), *objects(ours.bucket, layout.DATASETS, layout.RUNS)],
        },
        {
            "Effect": "Allow",
            "Action": ["oss:PutObject", "oss:ListParts", "oss:AbortMultipartUpload"],
            "Resource": objects(ours.bucket, layout.DATASETS),
        },
        {
            # An index makes a dataset count; one is taken away before its shards are replaced.
            "Effect": "Allow",
            "Action": "oss:DeleteObject",
            "Resource": keys(ours.bucket, f"{layout.DATASETS}*/index.json"),
        },
        use_data_key(ours.data_key),
        *submits,
    )


def operator_policy(ours: Ours) -> Document:
    """See and scale the group, open sessions on the cluster's nodes, sign evidence. No data.

    That holds for the role. A session is a shell on a node, which has the node's own role: who may open one can read
    what a node can. One ends by itself once it is closed, or silent for three minutes (ECS API, StartTerminalSession);
    RAM lets somebody end all sessions of an account or none (ECS API, "RAM authorization", EndTerminalSession).

    `ess:ModifyScalingGroup` is what sets a size; RAM can't limit it to that, so that an operator may change the group's
    other settings, too, as which of the account's templates it launches from.
    """
    return document(
        {
            # These are asked for all that an account has.
            "Effect": "Allow",
            "Action": [
                "cms:DescribeMetricLast",
                "cms:DescribeMetricList",
                "cms:DescribeMetricRuleList",
                "ecs:DescribeCloudAssistantStatus",
                "ecs:DescribeInstances",
                "ecs:DescribeInstanceStatus",
                "ecs:DescribeTerminalSessions",
                "ess:DescribeInstanceRefreshes",
                "ess:DescribeScalingActivities",
                "ess:DescribeScalingGroups",
                "ess:DescribeScalingInstances",
            ],
            "Resource": "*",
        },
        {
            # A group that its breaker has stopped launches again by both.
            "Effect": "Allow",
            "Action": ["ess:ModifyScalingGroup", "ess:ResumeProcesses"],
            "Resource": ours.arn("ess", f"scalinggroup/{ours.group}"),
        },
        {
            "Effect": "Allow",
            "Action": "ecs:StartTerminalSession",
            "Resource": ours.arn("ecs", "instance/*"),
            "Condition": {"StringEquals": {f"acs:ResourceTag/{CLUSTER_TAG}": ours.cluster}},
        },
        *_evidence(ours, "kms:AsymmetricSign"),
    )


def auditor_policy(ours: Ours, recorded: Recorded | None) -> Document:
    """Read trail, logs and configuration, check evidence; change nothing, and see no data."""
    buckets = [*bucket_arns(ours.bucket), *([bucket_arn(recorded.bucket)] if recorded else [])]
    ids = [ours.data_key, *([recorded.key] if recorded else []), *([ours.evidence_key] if ours.evidence_key else [])]
    return document(
        {
            # These are asked for all that an account has.
            "Effect": "Allow",
            "Action": [
                "actiontrail:DescribeTrails",
                "actiontrail:GetTrailStatus",
                "actiontrail:LookupEvents",
                "cms:DescribeMetricRuleList",
                "ecs:DescribeDisks",
                "ecs:DescribeInstances",
                "ecs:DescribeLaunchTemplateVersions",
                "ecs:DescribeSecurityGroupAttribute",
                "ecs:DescribeSecurityGroups",
                "ess:DescribeScalingConfigurations",
                "ess:DescribeScalingGroups",
                "vpc:DescribeFlowLogs",
                "vpc:DescribeRouteTableList",
                "vpc:DescribeVSwitches",
                "vpc:DescribeVpcs",
                "vpc:GetVpcGatewayEndpointAttribute",
                "vpc:ListVpcGatewayEndpoints",
            ],
            "Resource": "*",
        },
        {
            "Effect": "Allow",
            "Action": [
                "oss:GetBucketAcl",
                "oss:GetBucketEncryption",
                "oss:GetBucketHttpsConfig",
                "oss:GetBucketInfo",
                "oss:GetBucketLifecycle",
                "oss:GetBucketOverwriteConfig",
                "oss:GetBucketPolicy",
                "oss:GetBucketPublicAccessBlock",
                "oss:GetBucketVersioning",
                "oss:GetBucketWorm",
            ],
            "Resource": buckets,
        },
        {"Effect": "Allow", "Action": ["kms:DescribeKey", "kms:GetKeyPolicy"], "Resource": [key_arn(i) for i in ids]},
        {
            "Effect": "Allow",
            "Action": [
                "ram:GetPolicy",
                "ram:GetPolicyVersion",
                "ram:GetRole",
                "ram:ListPoliciesForRole",
                "ram:ListPolicyVersions",
            ],
            "Resource": [f"acs:ram:*:{ours.account_id}:{kind}/{ours.cluster}-*" for kind in ("policy", "role")],
        },
        *_evidence(ours, "kms:AsymmetricVerify"),
        *(_reading(ours, recorded) if recorded else ()),
    )


def _evidence(ours: Ours, action: str) -> tuple[Document, ...]:
    """The action on the evidence key, and what it takes: a signature names the key's version (KMS API)."""
    if ours.evidence_key is None:
        return ()
    actions = [action, "kms:GetPublicKey", "kms:DescribeKey", "kms:ListKeyVersions"]
    return ({"Effect": "Allow", "Action": actions, "Resource": key_arn(ours.evidence_key)},)


def _reading(ours: Ours, recorded: Recorded) -> tuple[Document, ...]:
    stores = [name.partition("/") for name in recorded.logs]
    return (
        {
            "Effect": "Allow",
            "Action": ["log:GetLogStore", "log:GetLogStoreHistogram", "log:GetLogStoreLogs"],
            "Resource": [ours.arn("log", f"project/{project}/logstore/{store}") for project, _, store in stores],
        },
        {
            "Effect": "Allow",
            "Action": ["oss:GetObject", "oss:GetObjectVersion", "oss:ListObjects", "oss:ListObjectVersions"],
            "Resource": [bucket_arn(recorded.bucket), f"{bucket_arn(recorded.bucket)}/*"],
        },
        {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": key_arn(recorded.key)},
    )
