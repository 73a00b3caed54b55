"""The cluster's bucket: encrypted with the data key, versioned, reachable over TLS only, never public."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components import layout
from components.aws.security import Document, document, kept
from components.bundle import Bundle
from components.plan import Plan

HEARTBEAT_BYTES = 64
"""What is smaller below `runs/` is a heartbeat."""

CHECKPOINT_BYTES = 1 << 20
"""What is larger below `runs/`, and was deleted, is a part of a retired checkpoint."""


@dataclass(frozen=True)
class Storage:
    """The bucket, and what must be there before anything is put into it."""

    bucket: aws.s3.Bucket
    ready: list[pulumi.Resource]


def bucket_policy(arn: str) -> Document:
    """Nothing without TLS, on the bucket and on all that is in it."""
    return document(
        {
            "Sid": "OnlyTls",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [arn, f"{arn}/*"],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    )


def lifecycle(noncurrent_days: int) -> list[aws.s3.BucketLifecycleConfigurationRuleArgsDict]:
    """What of the bucket goes by itself: versions that were replaced or deleted, never one that is current.

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
    ]


def declare_bucket(plan: Plan, key_arn: pulumi.Output[str], child: pulumi.ResourceOptions) -> Storage:
    """Declare the bucket and all that governs it, which stays as long as the bucket does."""
    name, options = f"{plan.name}-data", kept(plan, child)
    bucket = aws.s3.Bucket(name, force_destroy=not plan.spec.production, tags=dict(plan.tags), opts=options)
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
                # One data key for many objects: without it each heartbeat is a paid call to KMS.
                "bucket_key_enabled": True,
            }
        ],
        opts=options,
    )
    versioning = aws.s3.BucketVersioning(
        name, bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=options
    )
    policy = aws.s3.BucketPolicy(
        name, bucket=bucket.id, policy=bucket.arn.apply(lambda arn: json.dumps(bucket_policy(arn))), opts=options
    )
    aws.s3.BucketLifecycleConfiguration(
        name,
        bucket=bucket.id,
        rules=lifecycle(plan.spec.storage.noncurrent_days),
        opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[versioning])),
    )
    return Storage(bucket, [closed, encryption, versioning, policy])


def declare_objects(
    plan: Plan, storage: Storage, bundle: Bundle, child: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declare what nodes find in the bucket at boot: the bundle and the fleet's sizes."""
    fleet = {"min": plan.fleet.min, "desired": plan.fleet.desired, "max": plan.fleet.max}
    bucket = storage.bucket
    child = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=storage.ready))
    return [
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
