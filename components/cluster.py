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

        from components.aws import alarms, audit, fleet, network, roles, security, storage  # noqa: PLC0415

        provider = self.get_provider("aws:index:Provider") or aws.Provider(
            f"{plan.name}-aws", region=plan.spec.region, opts=pulumi.ResourceOptions(parent=self)
        )
        child = pulumi.ResourceOptions(parent=self, provider=provider)
        try:
            nodes = plan.spec.nodes
            root_device = fleet.find_root_device(
                nodes.image, security.asking(child), nodes.confidential, plan.instance.boot_modes
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
        first = [*objects, *(record.ready if record else [])]
        group = fleet.declare(plan, reachable, identity, bucket, bundle, key.arn, root_device, first, child)
        if record:
            alarms.declare(plan, record, reachable, group, bucket, child)
        roles.declare(plan, bucket.arn, key.arn, group, identity, record, child)
        self.bucket, self.group, self.key_arn = bucket.bucket, group.name, key.arn
