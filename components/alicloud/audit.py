"""The record of who did what: a trail into a locked bucket, the network's flows, and the logstores they go to.

All of it that stays when a stack of production goes is named beside the audit bucket, whose own name is never given
twice: else the stack's next record would meet the names of the last.

Three things differ from AWS. Reads and writes of the bucket's objects are in the locked bucket as OSS's access logs, by
the hour: ActionTrail delivers such events to a project of its own alone, without a key or an end of ours (ActionTrail
API, `PutDataEventSelector`; `RegionSlsProjectArn`). What operators type in a session is nowhere: Cloud Assistant
delivers it by a setting of the whole account, which the provider doesn't have; that a session was opened is in the
trail. And the trail's files are signed by nobody (`actiontrail.Trail` has no validation): their lock has to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud.network import Network
from components.alicloud.security import (
    Document,
    account,
    attach,
    beside,
    bucket_arn,
    declare_logs_key,
    document,
    kept,
    key_arn,
    service_trust,
)
from components.alicloud.storage import declare_audit_bucket
from components.plan import Plan

FOREVER = 3650
"""Days from which on a logstore keeps what it has for good (provider's `log.Store`, `retention_period`)."""

ACCESS = "access/"
"""Where the buckets' access logs lie in the audit bucket, each file with the name of its bucket (OSS user guide, "Log
shipping"); the trail's own files lie below `AliyunLogs/`."""

SPLIT_AT = ", '\";=()[]{}?@&<>/:\n\t\r"
"""What parts words in the index; SLS's own in its console."""

LONGEST_TRAIL = 36
"""Characters of a trail's name (ActionTrail API, `CreateTrail`)."""


@dataclass(frozen=True)
class Record:
    """What others need of the record."""

    bucket: alicloud.oss.Bucket
    key: alicloud.kms.Key
    trail: alicloud.actiontrail.Trail
    project: alicloud.log.Project
    """What the logstores below are in."""
    trail_log: alicloud.log.Store
    flow_log: alicloud.log.Store
    ready: list[pulumi.Resource]
    """What must be there before there is anything to record."""

    @property
    def log_stores(self) -> list[alicloud.log.Store]:
        """All logstores."""
        return [self.trail_log, self.flow_log]


def log_retention(days: int) -> int:
    """Days that a logstore is told to keep: as asked, or for good where that is more than it can count."""
    return min(days, FOREVER)


def trail_name(name: str) -> str:
    """A unique name as one of a trail: where it is too long, what precedes its digits is cut, and never these."""
    return f"{name[:-8][: LONGEST_TRAIL - 8].rstrip('-')}{name[-8:]}"


def trail_logstore(name: str) -> str:
    """The logstore that ActionTrail takes for a trail, and makes where there is none (API, `CreateTrail`)."""
    return f"actiontrail_{name}"


def project_arn(region: str, account_id: str, project: str) -> str:
    """ARN of an SLS project (ActionTrail API, `CreateTrail`, `SlsProjectArn`)."""
    return f"acs:log:{region}:{account_id}:project/{project}"


def log_service_policy(key_id: str) -> Document:
    """What SLS needs of the logs key, and of no other (SLS developer guide, "Encrypt data", where it is of all)."""
    return document(
        {
            "Effect": "Allow",
            "Action": ["kms:DescribeKey", "kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey"],
            "Resource": key_arn(key_id),
        }
    )


def access_log_policy(bucket: str, key_id: str) -> Document:
    """What OSS needs to put access logs into the audit bucket, and nowhere else in it, with the logs key.

    Without the key's part, logs into an encrypted bucket don't arrive, and nothing says so.
    """
    return document(
        {"Effect": "Allow", "Action": "oss:PutObject", "Resource": f"{bucket_arn(bucket)}/{ACCESS}*"},
        {"Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": key_arn(key_id)},
    )


def declare(
    plan: Plan,
    bucket: pulumi.Output[str],
    claims: pulumi.Output[str],
    network: Network,
    child: pulumi.ResourceOptions,
) -> Record:
    """Declare the record of what is done with the buckets of these names, in the account and on the network."""
    key = declare_logs_key(plan, child)
    audited, locked = declare_audit_bucket(plan, key.id, child)
    project, log_role = _project(plan, audited, key, child)
    called = beside(f"{plan.name}-audit", audited.bucket).apply(trail_name)
    trail_log = _logstore(plan, "trail", called.apply(trail_logstore), project, key, log_role, child)
    flow_log = _logstore(plan, "flow", "flow", project, key, log_role, child)
    trail = _trail(plan, called, audited, project, [*locked, trail_log], child)
    flows = _flows(plan, network, flow_log, child)
    accesses = _accesses(plan, {"access": bucket, "claims-access": claims}, audited, key, locked, child)
    return Record(audited, key, trail, project, trail_log, flow_log, [trail, *flows, *accesses])


def _project(
    plan: Plan, audited: alicloud.oss.Bucket, key: alicloud.kms.Key, child: pulumi.ResourceOptions
) -> tuple[alicloud.log.Project, tuple[alicloud.ram.Role, list[pulumi.Resource]]]:
    """Declare the project of the logstores, and the role by which SLS uses the logs key."""
    name = f"{plan.name}-logs"
    project = alicloud.log.Project(
        name,
        project_name=beside(name, audited.bucket),  # it is in all of SLS
        description=f"Audit record of cluster {plan.name}",
        tags=dict(plan.tags),
        opts=kept(plan, child),
    )
    policy = key.id.apply(log_service_policy)
    return project, _service_role(plan, "logs", "log.aliyuncs.com", "SLS", audited, policy, child)


def _logstore(
    plan: Plan,
    suffix: str,
    called: pulumi.Input[str],
    project: alicloud.log.Project,
    key: alicloud.kms.Key,
    log_role: tuple[alicloud.ram.Role, list[pulumi.Resource]],
    child: pulumi.ResourceOptions,
) -> alicloud.log.Store:
    """Declare a logstore: encrypted from its first line, as its key can't be changed later, and searchable."""
    role, attached = log_role
    options = kept(plan, child)
    store = alicloud.log.Store(
        f"{plan.name}-{suffix}",
        project_name=project.project_name,
        logstore_name=called,
        retention_period=log_retention(plan.spec.audit.retention_days),
        shard_count=2,
        auto_split=True,
        max_split_shard_count=64,
        append_meta=True,
        encrypt_conf={
            "enable": True,
            "encrypt_type": "default",
            "user_cmk_info": {"cmk_key_id": key.id, "arn": role.arn, "region_id": plan.spec.region},
        },
        opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=attached)),
    )
    if suffix != "trail":  # whose index ActionTrail makes, as its role may (AliyunServiceRolePolicyForActionTrail)
        alicloud.log.StoreIndex(
            f"{plan.name}-{suffix}",
            project=project.project_name,
            logstore=store.logstore_name,
            full_text={"case_sensitive": False, "token": SPLIT_AT},
            opts=options,
        )
    return store


def _trail(
    plan: Plan,
    called: pulumi.Output[str],
    bucket: alicloud.oss.Bucket,
    project: alicloud.log.Project,
    first: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> alicloud.actiontrail.Trail:
    """Declare the trail: of all regions, of what is read and of what is written.

    ActionTrail writes by a role that only it takes, with leave for buckets and keys, and makes it where an account has
    none yet (ActionTrail user guide, "Manage the service-linked role").
    """
    delivered = pulumi.Output.all(account(child), project.project_name).apply(
        lambda known: project_arn(plan.spec.region, *known)
    )
    return alicloud.actiontrail.Trail(
        f"{plan.name}-audit",
        trail_name=called,
        trail_region="All",
        event_rw="All",
        is_organization_trail=False,
        status="Enable",
        oss_bucket_name=bucket.bucket,
        sls_project_arn=delivered,
        opts=pulumi.ResourceOptions.merge(kept(plan, child), pulumi.ResourceOptions(depends_on=first)),
    )


def _flows(
    plan: Plan, network: Network, store: alicloud.log.Store, child: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declare flow logs: of the whole VPC where it is ours, else of the cluster's vSwitches."""
    where: dict[str, tuple[str, pulumi.Input[str]]] = {"flow": ("VPC", network.vpc_id)}
    if plan.spec.network.vpc:
        vswitches = zip(plan.subnets, network.vswitch_ids, strict=True)
        where = {f"flow-{planned.suffix}": ("VSwitch", vswitch_id) for planned, vswitch_id in vswitches}
    return [
        alicloud.vpc.FlowLog(
            f"{plan.name}-{suffix}",
            flow_log_name=f"{plan.name}-{suffix}",
            resource_type=kind,
            resource_id=resource_id,
            traffic_type="All",
            traffic_paths=["all"],
            aggregation_interval="1",
            project_name=store.project_name,
            log_store_name=store.logstore_name,
            status="Active",
            tags=dict(plan.tags),
            opts=child,
        )
        for suffix, (kind, resource_id) in where.items()
    ]


def _accesses(
    plan: Plan,
    buckets: Mapping[str, pulumi.Output[str]],
    audited: alicloud.oss.Bucket,
    key: alicloud.kms.Key,
    locked: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Declare the buckets' access logs, by what each is called, and the role by which OSS writes them.

    OSS writes a file an hour, within two days at most, and doesn't promise that each has all of its hour (OSS user
    guide, "Log shipping"). That guide prints no trust policy; the service is OSS's own, as for its replication.
    """
    policy = pulumi.Output.all(audited.bucket, key.id).apply(lambda known: access_log_policy(*known))
    role, attached = _service_role(plan, "access", "oss.aliyuncs.com", "OSS", audited, policy, child)
    return [
        alicloud.oss.BucketLogging(
            f"{plan.name}-{suffix}",
            bucket=bucket,
            target_bucket=audited.bucket,
            target_prefix=ACCESS,
            logging_role=role.role_name,
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[*locked, *attached])),
        )
        for suffix, bucket in buckets.items()
    ]


def _service_role(
    plan: Plan,
    suffix: str,
    service: str,
    title: str,
    audited: alicloud.oss.Bucket,
    policy: pulumi.Output[Document],
    child: pulumi.ResourceOptions,
) -> tuple[alicloud.ram.Role, list[pulumi.Resource]]:
    """Declare a role that a service alone takes, and what must be there before it can use it.

    The role is kept with the record that is made by it.
    """
    name, options = f"{plan.name}-{suffix}", kept(plan, child)
    called = beside(name, audited.bucket)
    role = alicloud.ram.Role(
        name,
        role_name=called,
        description=f"{title} of cluster {plan.name}",
        assume_role_policy_document=json.dumps(service_trust(service)),
        tags=dict(plan.tags),
        force=True,
        opts=options,
    )
    return role, attach(plan, suffix, role.role_name, policy, options, called)
