"""The one public component: a training cluster, on the cloud that its spec names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

import pulumi

from components.checks import judge, review
from components.cost import cost
from components.findings import Invalid
from components.outputs import Declared
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

    # Each is described in `components/outputs.py`.
    bucket: pulumi.Output[str]
    group: pulumi.Output[str]
    key_arn: pulumi.Output[str]
    queue_url: pulumi.Output[str] | None
    data_group: pulumi.Output[str] | None
    audit_bucket: pulumi.Output[str] | None
    evidence_key_arn: pulumi.Output[str] | None
    run: str
    """Id of the run that the nodes train."""
    cost: dict[str, Any]
    """What the nodes cost, by the hour and the month, and what is not counted; see `components/cost.py`."""

    def __init__(self, name: str, args: Spec | Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        plan = self._decide(name, args)
        super().__init__("trainwright:index:TrainingCluster", name, {}, opts)
        self.run = plan.run.id
        self.cost = cost(plan).outputs()
        for output, value in vars(self._declare(plan)).items():
            setattr(self, output, value)
        self.register_outputs(self.outputs())

    def outputs(self) -> dict[str, Any]:
        """What the stack exports, and what the `trainwright` command reads."""
        declared = {field.name: getattr(self, field.name) for field in fields(Declared)}
        return {
            **{_camel(name): output for name, output in declared.items() if output is not None},
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

    def _declare(self, plan: Plan) -> Declared:
        """Have the cloud's own module declare it; a cluster on another cloud never loads its provider's SDK."""
        module = import_module(f"components.{plan.spec.cloud}.cluster")
        try:
            declared: Declared = module.declare(plan, self)
        except Invalid as invalid:
            raise InvalidArgs(plan.name, invalid) from None
        return declared


def _camel(name: str) -> str:
    """A name as Pulumi's outputs are named."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
