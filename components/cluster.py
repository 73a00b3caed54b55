"""The one public component: a training cluster, on the cloud that its spec names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from components.bundle import build, default_folder
from components.checks import judge, review
from components.cost import cost
from components.findings import Invalid
from components.plan import Plan
from components.spec import Spec


class InvalidArgs(pulumi.RunError, ValueError):
    """Arguments that make no cluster. `RunError` is what Pulumi prints as clean lines, without a traceback."""

    def __init__(self, name: str, invalid: Invalid) -> None:
        self.findings = invalid.findings
        count = len(invalid.findings)
        lines = "\n".join(f"  {finding}" for finding in invalid.findings)
        super().__init__(f"cluster '{name}' has {count} problem{'s' * (count != 1)}; nothing was declared:\n{lines}")


class TrainingCluster(pulumi.ComponentResource):
    """A cluster of nodes that train one run, with its network, key, identity, bucket and fleet.

    `args` is a `Spec`, or a mapping of the same form as a stack's file. Raises `InvalidArgs` with every problem before
    anything is declared.
    """

    bucket: pulumi.Output[str]
    """Name of the bucket that holds bundle, datasets and runs."""
    group: pulumi.Output[str]
    """Name of the group that keeps the nodes."""
    key_arn: pulumi.Output[str]
    """ARN of the key that encrypts bucket and disks."""
    queue_url: pulumi.Output[str] | None
    """URL of the queue whose backlog adds nodes, where the spec asks for one."""
    data_group: pulumi.Output[str] | None
    """Name of the group that keeps the data nodes, where the spec asks for any."""
    audit_bucket: pulumi.Output[str] | None
    """Name of the locked bucket of the audit record, where there is one."""
    evidence_key_arn: pulumi.Output[str] | None
    """ARN of the key that signs certificates of erasure, where there is an audit record."""
    run: str
    """Id of the run that the nodes train."""
    cost: dict[str, Any]
    """What the nodes cost, by the hour and the month, and what is not counted; see `components/cost.py`."""

    def __init__(self, name: str, args: Spec | Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        plan = self._decide(name, args)
        super().__init__("trainwright:index:TrainingCluster", name, {}, opts)
        self.run = plan.run.id
        self.cost = cost(plan).outputs()
        self._declare_aws(plan)
        self.register_outputs(self.outputs())

    def outputs(self) -> dict[str, Any]:
        """What the stack exports, and what the `trainwright` command reads."""
        return {
            "bucket": self.bucket,
            "group": self.group,
            "keyArn": self.key_arn,
            **({"queueUrl": self.queue_url} if self.queue_url is not None else {}),
            **({"dataGroup": self.data_group} if self.data_group is not None else {}),
            **({"auditBucket": self.audit_bucket} if self.audit_bucket is not None else {}),
            **({"evidenceKeyArn": self.evidence_key_arn} if self.evidence_key_arn is not None else {}),
            "run": self.run,
            "cost": self.cost,
        }

    @staticmethod
    def _decide(name: str, args: Spec | Mapping[str, Any]) -> Plan:
        try:
            plan, warnings = review(name, args) if isinstance(args, Spec) else judge(name, args)
        except Invalid as invalid:
            raise InvalidArgs(name, invalid) from None
        for warning in warnings:
            pulumi.log.warn(str(warning))
        return plan

    def _declare_aws(self, plan: Plan) -> None:
        import pulumi_aws as aws  # noqa: PLC0415  a cluster on another cloud never loads it

        from components.aws import (  # noqa: PLC0415
            alarms,
            audit,
            breaker,
            fleet,
            lustre,
            network,
            queue,
            roles,
            scaling,
            security,
            storage,
        )

        provider = self.get_provider("aws:index:Provider") or aws.Provider(
            f"{plan.name}-aws", region=plan.spec.region, opts=pulumi.ResourceOptions(parent=self)
        )
        child = pulumi.ResourceOptions(parent=self, provider=provider)
        try:
            nodes = plan.spec.nodes
            root_device = fleet.find_root_device(
                nodes.image, security.asking(child), nodes.confidential, plan.instance.boot_modes
            )
            data = plan.data
            data_device = (
                fleet.find_root_device(data.image, security.asking(child), key="data_nodes.image") if data else ""
            )
        except Invalid as invalid:
            raise InvalidArgs(plan.name, invalid) from None
        bundle = build(default_folder())
        key = security.declare_key(plan, child)
        stored = storage.declare_bucket(plan, key.arn, child)
        bucket = stored.bucket
        identity = security.declare_identity(plan, bucket.arn, key.arn, child)
        reachable = network.declare(plan, bucket.arn, child)
        objects = storage.declare_objects(plan, stored, bundle, child)
        record = audit.declare(plan, bucket.arn, reachable, child) if plan.spec.audit.enabled else None
        wanted = plan.spec.storage.lustre
        warm = lustre.declare(plan, wanted, reachable, stored, key.arn, child) if wanted else None
        first = [*objects, *(record.ready if record else []), *(warm.ready if warm else [])]
        source = warm.source if warm else ""
        work = queue.declare(plan, identity, bucket.arn, key.arn, child)
        url = work.id if work else ""  # which it is, and known first
        group = fleet.declare(
            plan, reachable, identity, bucket, bundle, key.arn, root_device, first, child, source, url
        )
        scaling.declare(plan, group, identity, bucket, work, child)
        topic = alarms.declare(plan, record, reachable, group, bucket, work, child) if record else None
        breaker.declare(plan, plan.pool, group, topic.arn if topic else None, child)
        data_identity = None
        serving = None
        if data:
            data_identity = security.declare_data_identity(plan, data, bucket.arn, key.arn, child)
            serving = fleet.declare_data(
                plan, data, reachable, data_identity, bucket, bundle, key.arn, data_device, first, child
            )
            breaker.declare(plan, data, serving, topic.arn if topic else None, child)
        roles.declare(plan, bucket.arn, key.arn, group, identity, record, child, data_identity, work)
        self.bucket, self.group, self.key_arn = bucket.bucket, group.name, key.arn
        self.queue_url = work.url if work else None
        self.data_group = serving.name if serving else None
        self.audit_bucket = record.bucket.bucket if record else None
        self.evidence_key_arn = security.declare_evidence_key(plan, child).arn if record else None
