"""The cluster's bucket: encrypted with the data key, versioned, reachable over TLS only, never public."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components import layout, record
from components.aws.security import Document, account, caller, document, kept
from components.bundle import Bundle, default_folder
from components.plan import Plan
from components.spec import Cold
from components.tiers import transitions

HEARTBEAT_BYTES = 64
"""What is smaller below `runs/` is a heartbeat."""

CHECKPOINT_BYTES = 1 << 20
"""What is larger below `runs/`, and was deleted, is a part of a retired checkpoint."""

CLASSES = {
    "infrequent": "STANDARD_IA",
    "instant-archive": "GLACIER_IR",
    "archive": "GLACIER",
    "deep-archive": "DEEP_ARCHIVE",
}

ONLY_LARGE = "all_storage_classes_128K"
"""Nothing below 128 KiB moves, whatever its class, as S3 has it by itself too: what agents agree through, fleet and
manifests stay readable, and small objects would cost more in Glacier (S3 API, `TransitionDefaultMinimumObjectSize`)."""


@dataclass(frozen=True)
class Storage:
    """The bucket, and what must be there before anything is put into it."""

    bucket: aws.s3.Bucket
    ready: list[pulumi.Resource]


def bucket_policy(arn: str, tls: str = "1.2") -> Document:
    """Nothing without TLS, on the bucket and on all that is in it, nor with a version of TLS below `tls`.

    AWS itself takes nothing below 1.2, so that no statement has to say so (AWS Storage Blog, "Enforcing encryption in
    transit with TLS1.2 or higher with Amazon S3"). From requests that AWS's services make themselves, such as
    CloudTrail's, 1.3 can't be asked: they are exempt by `aws:PrincipalIsAWSService` (IAM user guide, "AWS global
    condition context keys").
    """
    everything: Document = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": [arn, f"{arn}/*"]}
    only_tls = {"Sid": "OnlyTls", **everything, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    least = {
        "Sid": "OnlyNewTls",
        **everything,
        "Condition": {
            "NumericLessThan": {"s3:TlsVersion": tls},
            "BoolIfExists": {"aws:PrincipalIsAWSService": "false"},
        },
    }
    return document(only_tls, *([] if tls == "1.2" else [least]))


def audit_bucket_policy(arn: str, tls: str, account_id: str, trail: str) -> Document:
    """The audit bucket's: as any bucket's here, and the one trail writes its record of the account and reads the ACL.

    Source: CloudTrail user guide, "Amazon S3 bucket policy for CloudTrail".
    """
    service: Document = {"Effect": "Allow", "Principal": {"Service": "cloudtrail.amazonaws.com"}}
    return document(
        *bucket_policy(arn, tls)["Statement"],
        {
            "Sid": "TrailAsks",
            **service,
            "Action": "s3:GetBucketAcl",
            "Resource": arn,
            "Condition": {"StringEquals": {"aws:SourceArn": trail}},
        },
        {
            "Sid": "TrailWrites",
            **service,
            "Action": "s3:PutObject",
            "Resource": f"{arn}/AWSLogs/{account_id}/*",
            "Condition": {
                "StringEquals": {"s3:x-amz-acl": "bucket-owner-full-control", "aws:SourceArn": trail},
            },
        },
    )


def lifecycle(
    noncurrent_days: int, cold: tuple[Cold, ...] = ()
) -> list[aws.s3.BucketLifecycleConfigurationRuleArgsDict]:
    """What of the bucket goes by itself: versions that were replaced or deleted, never one that is current.

    What is current only moves to colder classes, as `cold` says.

    Rules overlap, and the shorter time holds (S3 user guide, "How Amazon S3 handles conflicts in lifecycle
    configurations"). What is not about versions stands in the rule without sizes: S3 refuses
    `ExpiredObjectDeleteMarker` beside a size (aws-cli#8239).
    """
    soon: aws.s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgsDict = {"noncurrent_days": 1}
    return [
        {
            "id": "forget-what-was-replaced",
            "status": "Enabled",
            "filter": {},
            "noncurrent_version_expiration": {"noncurrent_days": noncurrent_days},
            "expiration": {"expired_object_delete_marker": True},
            "abort_incomplete_multipart_upload": {"days_after_initiation": 1},
        },
        {
            # Each node rewrites a beat of some twenty bytes every second.
            "id": "forget-heartbeats",
            "status": "Enabled",
            "filter": {"and": {"prefix": layout.RUNS, "object_size_less_than": HEARTBEAT_BYTES}},
            "noncurrent_version_expiration": soon,
        },
        {
            # The trainer deletes all but the newest few; kept for days, they would cost more than those that count.
            "id": "forget-retired-checkpoints",
            "status": "Enabled",
            "filter": {"and": {"prefix": layout.RUNS, "object_size_greater_than": CHECKPOINT_BYTES}},
            "noncurrent_version_expiration": soon,
        },
        *(
            {
                "id": f"cool-{prefix}",
                "status": "Enabled",
                "filter": {"prefix": prefix},
                "transitions": [{"days": rule.after_days, "storage_class": CLASSES[rule.class_]} for rule in rules],
            }
            for prefix, rules in transitions(cold).items()
        ),
    ]


def data_nodes_lifecycle() -> list[aws.s3.BucketLifecycleConfigurationRuleArgsDict]:
    """Records of data nodes go a day after they were last written: those that are there rewrite theirs."""
    return [
        {
            "id": "forget-data-nodes-that-are-gone",
            "status": "Enabled",
            "filter": {"prefix": layout.DATA_NODES},
            "expiration": {"days": 1},
            "noncurrent_version_expiration": {"noncurrent_days": 1},
        }
    ]


def audit_lifecycle(retention_days: int) -> list[aws.s3.BucketLifecycleConfigurationRuleArgsDict]:
    """The record goes after its days; a version that was deleted before goes as soon as its lock ends."""
    return [
        {
            "id": "forget-what-is-old",
            "status": "Enabled",
            "filter": {},
            "expiration": {"days": retention_days},
            "noncurrent_version_expiration": {"noncurrent_days": 1},
            "abort_incomplete_multipart_upload": {"days_after_initiation": 1},
        }
    ]


def declare_bucket(plan: Plan, key_arn: pulumi.Output[str], child: pulumi.ResourceOptions) -> Storage:
    """Declare the bucket and all that governs it, which stays as long as the bucket does."""
    name, options = f"{plan.name}-data", kept(plan, child)
    bucket = aws.s3.Bucket(name, force_destroy=not plan.spec.production, tags=dict(plan.tags), opts=options)
    tls = plan.spec.security.tls
    policy = bucket.arn.apply(lambda arn: json.dumps(bucket_policy(arn, tls)))
    # One data key for many objects: without it each heartbeat is a paid call to KMS.
    rules = lifecycle(plan.spec.storage.noncurrent_days, plan.spec.storage.cold)
    if plan.data:
        rules += data_nodes_lifecycle()
    ready = _govern(name, bucket, key_arn, policy, rules, True, options)
    return Storage(bucket, ready)


def declare_audit_bucket(plan: Plan, child: pulumi.ResourceOptions) -> aws.s3.Bucket:
    """Declare the bucket of the audit record, whose objects can be locked; `lock` closes it."""
    return aws.s3.Bucket(
        f"{plan.name}-audit",
        object_lock_enabled=True,
        force_destroy=not plan.spec.production,
        tags=dict(plan.tags),
        opts=kept(plan, child),
    )


def lock(
    plan: Plan,
    bucket: aws.s3.Bucket,
    key_arn: pulumi.Output[str],
    trail_arn: pulumi.Output[str],
    child: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Declare all that governs the audit bucket. Returns what must be there before anything is written to it.

    Each version that is written is locked by itself for the days asked (S3 user guide, "Locking objects with Object
    Lock"). Bucket keys are off: with one, CloudTrail would have to be let decrypt (CloudTrail user guide, "Configure
    AWS KMS key policies for CloudTrail").
    """
    name, options, spec = f"{plan.name}-audit", kept(plan, child), plan.spec
    policy = pulumi.Output.all(bucket.arn, account(child), trail_arn).apply(
        lambda given: json.dumps(audit_bucket_policy(given[0], spec.security.tls, given[1], given[2]))
    )
    ready = _govern(name, bucket, key_arn, policy, audit_lifecycle(spec.audit.retention_days), False, options)
    retention = aws.s3.BucketObjectLockConfiguration(
        name,
        bucket=bucket.id,
        rule={"default_retention": {"mode": spec.audit.lock.upper(), "days": spec.audit.lock_days}},
        opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=ready)),
    )
    return [*ready, retention]


def _govern(
    name: str,
    bucket: aws.s3.Bucket,
    key_arn: pulumi.Output[str],
    policy: pulumi.Output[str],
    rules: list[aws.s3.BucketLifecycleConfigurationRuleArgsDict],
    bucket_key: bool,
    options: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Close the bucket to the public, encrypt it, keep its versions, and let its policy and rules govern it."""
    closed = aws.s3.BucketPublicAccessBlock(
        name,
        bucket=bucket.id,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=options,
    )
    aws.s3.BucketOwnershipControls(
        name, bucket=bucket.id, rule={"object_ownership": "BucketOwnerEnforced"}, opts=options
    )
    encryption = aws.s3.BucketServerSideEncryptionConfiguration(
        name,
        bucket=bucket.id,
        rules=[
            {
                "apply_server_side_encryption_by_default": {"sse_algorithm": "aws:kms", "kms_master_key_id": key_arn},
                "bucket_key_enabled": bucket_key,
            }
        ],
        opts=options,
    )
    versioning = aws.s3.BucketVersioning(
        name, bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=options
    )
    governed = aws.s3.BucketPolicy(name, bucket=bucket.id, policy=policy, opts=options)
    aws.s3.BucketLifecycleConfiguration(
        name,
        bucket=bucket.id,
        rules=rules,
        transition_default_minimum_object_size=ONLY_LARGE if any("transitions" in rule for rule in rules) else None,
        opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[versioning])),
    )
    return [closed, encryption, versioning, governed]


def declare_objects(
    plan: Plan, storage: Storage, bundle: Bundle, child: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declare what nodes find in the bucket at boot: the bundle, the user's own code, and the fleet's sizes.

    The first page of the run's audit record comes with them, and the run itself where there is a queue. That is written
    once: nodes are not replaced at the same moment, if at all, and must not disagree on which run comes first.
    """
    fleet = {"min": plan.fleet.min, "desired": plan.fleet.desired, "max": plan.fleet.max}
    bucket = storage.bucket
    child = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=storage.ready))
    code = plan.code
    own = (
        [
            aws.s3.BucketObjectv2(
                f"{plan.name}-code",
                bucket=bucket.id,
                key=code.key,
                source=pulumi.FileAsset(str(code.write(default_folder()))),
                # Named by its hash; a run that waits in the queue may need it once the file names another folder.
                opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(retain_on_delete=True)),
            )
        ]
        if code
        else []
    )
    once = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(ignore_changes=["content"]))
    turn = {"run": plan.run.id, "job": dict(plan.run.job), "number": 0, "by": "", "submitted": 0.0}
    first = (
        [
            aws.s3.BucketObjectv2(
                f"{plan.name}-own", bucket=bucket.id, key=layout.OWN, content=json.dumps(turn), opts=once
            )
        ]
        if plan.spec.scaling and plan.spec.scaling.queue
        else []
    )
    launched = record.launch(plan, bundle)
    # Its name has the content's hash: what was declared before stays in the bucket, with who declared it then.
    declared = aws.s3.BucketObjectv2(
        f"{plan.name}-launch-{record.digest(launched)[:7]}",
        bucket=bucket.id,
        key=record.key(launched),
        content=caller(child).apply(lambda who: json.dumps({"by": who, **launched}, indent=1)),
        opts=pulumi.ResourceOptions.merge(once, pulumi.ResourceOptions(retain_on_delete=True)),
    )
    return [
        *own,
        *first,
        declared,
        aws.s3.BucketObjectv2(
            f"{plan.name}-bundle",
            bucket=bucket.id,
            key=bundle.key,
            source=pulumi.FileAsset(str(bundle.path)),
            opts=child,
        ),
        aws.s3.BucketObjectv2(
            f"{plan.name}-fleet", bucket=bucket.id, key=layout.FLEET, content=json.dumps(fleet), opts=child
        ),
    ]
