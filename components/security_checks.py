"""What is refused or warned of keys, of those who may take roles, and of the audit record."""

from __future__ import annotations

from collections.abc import Iterator

from components.alibaba_checks import audited_otherwise
from components.clouds import CLOUDS
from components.findings import Finding, Severity
from components.spec import Spec

LONGEST_TRUST = 1900
"""Characters of ARNs in a role's trust policy: of IAM's 2,048, what the rest of the policy leaves. RAM states no limit
of its own ("Limitations"); the same holds there."""


def keys(spec: Spec) -> Iterator[Finding]:
    """Keys have somewhere to lie: on Alibaba Cloud a KMS instance (KMS user guide, "Understanding KMS keys")."""
    path, given = "security.kms_instance", spec.security.kms_instance
    if spec.cloud == "alicloud" and given is None:
        yield Finding(
            path,
            "is missing: keys that rotate and have a policy of their own lie in a KMS instance, which is bought",
            "Name one of the software kind in your region, kst-…; ECS must once have been authorized to use its keys",
        )
    elif spec.cloud != "alicloud" and given is not None:
        yield Finding(path, f"says nothing on {CLOUDS[spec.cloud].title}", "Take it away")


def trusted(spec: Spec) -> Iterator[Finding]:
    """Those who may take a role fit into its trust policy (IAM and AWS STS quotas: 2,048 characters)."""
    for role in ("trainers", "operators", "auditors"):
        length = sum(len(principal) + len('"",') for principal in getattr(spec.security, role))
        if length > LONGEST_TRUST:
            yield Finding(
                f"security.{role}",
                f"{len(getattr(spec.security, role))} ARNs are {length} characters, of at most {LONGEST_TRUST}",
                "Name a role that they all may take, or fewer",
            )


def audited(spec: Spec) -> Iterator[Finding]:
    """Production is audited; a record isn't locked for longer than it is kept; alarms reach somebody."""
    audit = spec.audit
    if not audit.enabled:
        if spec.production:
            yield Finding(
                "audit.enabled",
                "production is true, but nothing would record who did what",
                "Set it to true, with audit.retention_days and audit.emails as your rules ask, or production to false",
            )
        elif idle := sorted(audit.model_fields_set - {"enabled"}):
            yield Finding(
                f"audit.{idle[0]}", "does nothing while audit.enabled is false", "Set that too", Severity.WARNING
            )
        return
    if audit.lock_days > audit.retention_days:
        yield Finding(
            "audit.lock_days",
            f"the record is locked for {audit.lock_days} days but kept for {audit.retention_days}",
            f"Lower it to {audit.retention_days}, or raise audit.retention_days",
        )
    if audit.lock == "compliance":
        yield Finding(
            "audit.lock",
            f"nobody, {CLOUDS[spec.cloud].title} included, can delete the record or shorten its lock for "
            f"{audit.lock_days} days",
            "Choose governance unless a rule asks for compliance",
            Severity.WARNING,
        )
    if spec.cloud == "alicloud":
        yield from audited_otherwise(spec)
    if not audit.emails:
        error = Severity.ERROR if audit.budget_usd else Severity.WARNING
        yield Finding("audit.emails", "alarms would be heard by nobody", "Name who is to be told", error)
