"""The cluster's bucket: encrypted with the data key, versioned, reachable over TLS only, never public."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.aws.security import Document, document, kept
from components.bundle import Bundle
from components.plan import Plan

FLEET_KEY = "fleet.json"
"""Sizes of the fleet, which nodes read: an object of its own, so that scaling leaves user-data alone."""


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


def declare_bucket(plan: Plan, key_arn: pulumi.Output[str], child: pulumi.ResourceOptions) -> Storage:
    """Declare the bucket and all that governs it."""
    name = f"{plan.name}-data"
    bucket = aws.s3.Bucket(name, force_destroy=not plan.spec.production, tags=dict(plan.tags), opts=kept(plan, child))
    closed = aws.s3.BucketPublicAccessBlock(
        name,
        bucket=bucket.id,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=child,
    )
    aws.s3.BucketOwnershipControls(name, bucket=bucket.id, rule={"object_ownership": "BucketOwnerEnforced"}, opts=child)
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
        opts=child,
    )
    versioning = aws.s3.BucketVersioning(
        name, bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=child
    )
    policy = aws.s3.BucketPolicy(
        name, bucket=bucket.id, policy=bucket.arn.apply(lambda arn: json.dumps(bucket_policy(arn))), opts=child
    )
    aws.s3.BucketLifecycleConfiguration(
        name,
        bucket=bucket.id,
        rules=[
            {
                "id": "forget-what-was-replaced",
                "status": "Enabled",
                "filter": {},
                "noncurrent_version_expiration": {"noncurrent_days": plan.spec.storage.noncurrent_days},
                "abort_incomplete_multipart_upload": {"days_after_initiation": 1},
            },
            {
                # Each node rewrites a beat of some twenty bytes every second.
                "id": "forget-heartbeats",
                "status": "Enabled",
                "filter": {"and": {"prefix": "runs/", "object_size_less_than": 64}},
                "noncurrent_version_expiration": {"noncurrent_days": 1},
            },
        ],
        opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[versioning])),
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
            f"{plan.name}-fleet", bucket=bucket.id, key=FLEET_KEY, content=json.dumps(fleet), opts=child
        ),
    ]
