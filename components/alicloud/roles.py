"""Roles that people take: trainer, operator, auditor. Each is there where the stack's file lists who may take it."""

from __future__ import annotations

import json

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud.audit import Record
from components.alicloud.grants import (
    SESSION_HOURS,
    Ours,
    Recorded,
    auditor_policy,
    operator_policy,
    people_trust,
    trainer_policy,
)
from components.alicloud.security import Document, account, attach, unique
from components.plan import Plan


def declare(
    plan: Plan,
    bucket: pulumi.Output[str],
    key_id: pulumi.Output[str],
    group: alicloud.ess.ScalingGroup,
    audit: Record | None,
    child: pulumi.ResourceOptions,
    queue: alicloud.message.ServiceQueue | None = None,
    evidence_key: alicloud.kms.Key | None = None,
) -> None:
    """Declare the roles that somebody may take. Sessions on nodes need nothing more: Cloud Assistant has no role."""
    who, region, name = plan.spec.security, plan.spec.region, plan.name
    queue_name = queue.queue_name if queue else None
    evidence = evidence_key.id if evidence_key else None
    ours: pulumi.Output[Ours] = pulumi.Output.all(account(child), bucket, key_id, group.id, queue_name, evidence).apply(
        lambda ids: Ours(
            region,
            ids[0],
            cluster=name,
            bucket=ids[1],
            data_key=ids[2],
            group=ids[3],
            queue=ids[4],
            evidence_key=ids[5],
        )
    )
    if who.trainers:
        _role(plan, "trainer", "puts datasets and reads runs of", who.trainers, ours.apply(trainer_policy), child)
    if who.operators:
        _role(plan, "operator", "sees and scales", who.operators, ours.apply(operator_policy), child)
    if who.auditors:
        policy = pulumi.Output.all(ours, _recorded(audit)).apply(lambda known: auditor_policy(*known))
        _role(plan, "auditor", "reads the record and the configuration of", who.auditors, policy, child)


def _recorded(audit: Record | None) -> pulumi.Output[Recorded | None]:
    if audit is None:
        return pulumi.Output.from_input(None)
    logs = pulumi.Output.all(*(pulumi.Output.concat(s.project_name, "/", s.logstore_name) for s in audit.log_stores))
    return pulumi.Output.all(audit.bucket.bucket, audit.key.id, logs).apply(
        lambda known: Recorded(bucket=known[0], key=known[1], logs=tuple(known[2]))
    )


def _role(
    plan: Plan,
    purpose: str,
    does: str,
    principals: tuple[str, ...],
    policy: pulumi.Output[Document],
    child: pulumi.ResourceOptions,
) -> None:
    name = f"{plan.name}-{purpose}"
    role = alicloud.ram.Role(
        name,
        role_name=unique(name, child),
        description=f"Who {does} cluster {plan.name}",
        assume_role_policy_document=json.dumps(people_trust(principals)),
        max_session_duration=SESSION_HOURS * 3600,
        tags=dict(plan.tags),
        force=True,
        opts=child,
    )
    attach(plan, purpose, role.role_name, policy, child)
