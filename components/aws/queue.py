"""The queue of work: what counts the runs that wait, and who may do what there. The runs are in the bucket."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_aws as aws

from components import layout
from components.aws.security import Document, Identity, document
from components.plan import Plan

RETENTION_S = 14 * 24 * 3600
"""The longest that SQS keeps a message (SQS API, `MessageRetentionPeriod`)."""

VISIBILITY_S = 900
"""For how long a message that was handed out is nobody else's; whoever works on it for longer says so again."""

KEY_REUSE_S = 3600
"""For how long SQS uses one data key, so that not each message is a paid call to KMS."""


def queue_policy(arn: str) -> Document:
    """Nothing without TLS (SQS developer guide, "Amazon SQS security best practices"); who may what, IAM says."""
    return document(
        {
            "Sid": "OnlyTls",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
    )


def node_queue_policy(bucket_arn: str, queue_arn: str) -> Document:
    """Nodes read what was submitted and keep the queue's count of what waits; they submit nothing."""
    return document(
        {
            "Sid": "ReadQueue",
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": f"{bucket_arn}/{layout.QUEUE}*",
        },
        {
            "Sid": "KeepCount",
            "Effect": "Allow",
            "Action": ["sqs:DeleteMessage", "sqs:ReceiveMessage", "sqs:SendMessage"],
            "Resource": queue_arn,
        },
    )


def submitting(region: str, bucket_arn: str, key_arn: str, queue_arn: str) -> tuple[Document, ...]:
    """Statements for those who put runs into the queue, with code and record, and end them; they change nothing there.

    What is submitted runs on nodes, and can do what nodes can.
    """
    return (
        {
            "Sid": "SeeQueue",
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": f"{bucket_arn}/{layout.QUEUE}*",
        },
        {
            "Sid": "SubmitAndEndRuns",
            "Effect": "Allow",
            "Action": "s3:PutObject",
            "Resource": [
                f"{bucket_arn}/{layout.QUEUE}*",
                f"{bucket_arn}/{layout.code('*')}",
                f"{bucket_arn}/{layout.launch('*', '*')}",
                f"{bucket_arn}/{layout.RUNS}*/{layout.OUTCOME}",
            ],
            # S3 user guide, "Enforce conditional writes on Amazon S3 buckets": only what is not there yet.
            "Condition": {"Null": {"s3:if-none-match": "false"}},
        },
        {"Sid": "Signal", "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": queue_arn},
        {
            "Sid": "UseDataKeyThroughTheQueue",
            "Effect": "Allow",
            "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
            "Resource": key_arn,
            "Condition": {"StringEquals": {"kms:ViaService": f"sqs.{region}.amazonaws.com"}},
        },
    )


def declare(
    plan: Plan,
    identity: Identity,
    bucket_arn: pulumi.Output[str],
    key_arn: pulumi.Output[str],
    child: pulumi.ResourceOptions,
) -> aws.sqs.Queue | None:
    """Declare the queue, and what nodes may do there, where the spec asks for one.

    With it comes the one for what failed too often; both are encrypted with the data key and closed but over TLS.
    """
    if plan.spec.scaling is None or plan.spec.scaling.queue is None:
        return None
    attempts = plan.spec.scaling.queue.attempts

    def queue(suffix: str, **more: Any) -> aws.sqs.Queue:
        made = aws.sqs.Queue(
            f"{plan.name}-{suffix}",
            kms_master_key_id=key_arn,
            kms_data_key_reuse_period_seconds=KEY_REUSE_S,
            message_retention_seconds=RETENTION_S,
            tags=dict(plan.tags),
            opts=child,
            **more,
        )
        policy = made.arn.apply(lambda arn: json.dumps(queue_policy(arn)))
        aws.sqs.QueuePolicy(f"{plan.name}-{suffix}", queue_url=made.id, policy=policy, opts=child)
        return made

    dead = queue("dead-letters")
    redrive = dead.arn.apply(lambda arn: json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": attempts}))
    made = queue(
        "queue",
        redrive_policy=redrive,
        visibility_timeout_seconds=VISIBILITY_S,
        # Who asks an empty queue waits for an answer as long as can be, instead of asking again and paying again.
        receive_wait_time_seconds=20,
    )
    policy = pulumi.Output.all(bucket_arn, made.arn).apply(lambda arns: json.dumps(node_queue_policy(*arns)))
    aws.iam.RolePolicy(f"{plan.name}-queue", role=identity.role.id, policy=policy, opts=child)
    return made
