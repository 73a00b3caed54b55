"""Roles that people take: trainer, operator, auditor. Each is there where the stack's file lists who may take it."""

from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

from components.aws.audit import Audit
from components.aws.grants import (
    SESSION_HOURS,
    Ours,
    Recorded,
    auditor_policy,
    operator_policy,
    people_trust,
    session_document,
    session_node_policy,
    trainer_policy,
)
from components.aws.security import Identity, account, partition
from components.plan import Plan


def declare(
    plan: Plan,
    bucket_arn: pulumi.Output[str],
    key_arn: pulumi.Output[str],
    group: aws.autoscaling.Group,
    identity: Identity,
    audit: Audit | None,
    child: pulumi.ResourceOptions,
    data: Identity | None = None,
    queue: aws.sqs.Queue | None = None,
) -> None:
    """Declare the roles that somebody may take, and what sessions on nodes need."""
    who, region, name = plan.spec.security, plan.spec.region, plan.name
    queue_arn = queue.arn if queue else None
    ours: pulumi.Output[Ours] = pulumi.Output.all(account(child), bucket_arn, key_arn, group.arn, queue_arn).apply(
        lambda ids: Ours(
            region,
            ids[0],
            cluster=name,
            bucket=ids[1],
            data_key=ids[2],
            group=ids[3],
            roles=f"arn:{partition(region)}:iam::{ids[0]}:role/{name}-*",
            queue=ids[4],
        )
    )
    if who.trainers:
        policy = ours.apply(lambda known: json.dumps(trainer_policy(known)))
        _role(plan, "trainer", "puts datasets and reads runs of", who.trainers, policy, child)
    if who.operators:
        sessions = _sessions(plan, identity, data, audit, child)
        policy = pulumi.Output.all(ours, sessions).apply(lambda known: json.dumps(operator_policy(*known)))
        _role(plan, "operator", "sees and scales", who.operators, policy, child)
    if who.auditors:
        policy = pulumi.Output.all(ours, _recorded(audit)).apply(lambda known: json.dumps(auditor_policy(*known)))
        _role(plan, "auditor", "reads the record and the configuration of", who.auditors, policy, child)


def _recorded(audit: Audit | None) -> pulumi.Output[Recorded | None]:
    if audit is None:
        return pulumi.Output.from_input(None)
    groups = pulumi.Output.all(*(group.arn for group in audit.log_groups))
    return pulumi.Output.all(audit.bucket.arn, audit.key.arn, audit.trail_arn, groups).apply(
        lambda arns: Recorded(bucket=arns[0], key=arns[1], trail=arns[2], log_groups=tuple(arns[3]))
    )


def _sessions(
    plan: Plan, identity: Identity, data: Identity | None, audit: Audit | None, child: pulumi.ResourceOptions
) -> pulumi.Output[str]:
    """Declare what sessions are made by, on data nodes too where there are any. Returns the document's ARN."""
    name = f"{plan.name}-sessions"
    log = audit.sessions_log if audit else None
    arn = log.arn if log else pulumi.Output.from_input(None)
    policy = arn.apply(lambda log_group: json.dumps(session_node_policy(log_group)))
    aws.iam.RolePolicy(name, role=identity.role.id, policy=policy, opts=child)
    if data:
        aws.iam.RolePolicy(f"{plan.name}-data-sessions", role=data.role.id, policy=policy, opts=child)
    log_name = log.name if log else pulumi.Output.from_input("")
    made: pulumi.Output[str] = aws.ssm.Document(
        name,
        document_type="Session",
        document_format="JSON",
        content=log_name.apply(lambda log_group: json.dumps(session_document(log_group))),
        tags=dict(plan.tags),
        opts=child,
    ).arn
    return made


def _role(
    plan: Plan,
    purpose: str,
    does: str,
    principals: tuple[str, ...],
    policy: pulumi.Output[str],
    child: pulumi.ResourceOptions,
) -> None:
    name = f"{plan.name}-{purpose}"
    role = aws.iam.Role(
        name,
        description=f"Who {does} cluster {plan.name}",
        assume_role_policy=json.dumps(people_trust(principals)),
        max_session_duration=SESSION_HOURS * 3600,
        tags=dict(plan.tags),
        opts=child,
    )
    aws.iam.RolePolicy(name, role=role.id, policy=policy, opts=child)
