"""What the framework leaves out of its servicer (pulumi_policy 1.21): the stack's configuration, and speed.

It drops the configuration that the engine tells, and reads every property anew for each policy: of a thousand resources
that takes six seconds, and half a second if each is read once, or only by the policies that judge its type.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import grpc
from pulumi.runtime import proto
from pulumi_policy import EnforcementLevel, Policy, StackValidationArgs, StackValidationPolicy
from pulumi_policy import policy as sdk

from policies.pack import Pack, Read
from policies.settings import InvalidSettings, from_config

POLICIES = "_PolicyAnalyzerServicer__policies"
"""The attribute in which the framework keeps them."""


def install(pack: Pack) -> None:
    """Serve the pack by a servicer of our own. Tests hold that the SDK is still made as it takes for granted.

    Where an engine doesn't tell the configuration, settings stay what they were: stricter, never looser.
    """

    class Servicer(sdk._PolicyAnalyzerServicer):
        def ConfigureStack(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802  the protocol's name
            try:
                pack.configure(from_config(dict(request.config)))
            except InvalidSettings as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return super().ConfigureStack(request, context)

        def Analyze(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
            narrowed: Any = _with(self, pack.judging(request.type))
            return super(Servicer, narrowed).Analyze(request, context)  # type: ignore[no-untyped-call]

        def AnalyzeStack(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
            seen: list[StackValidationArgs] = []
            reader = StackValidationPolicy("reader", "Reads the stack, once.", lambda args, _: seen.append(Read(args)))
            alone: Any = _with(self, [reader])
            super(Servicer, alone).AnalyzeStack(request, context)  # type: ignore[no-untyped-call]
            response = proto.AnalyzeResponse()
            for policy in getattr(self, POLICIES):
                level = self._get_enforcement_level(policy)
                if isinstance(policy, StackValidationPolicy) and level is not EnforcementLevel.DISABLED:
                    # What stands beside a resource can't be mended by changing the resource.
                    level = EnforcementLevel.MANDATORY if level is EnforcementLevel.REMEDIATE else level
                    about = (policy.name, policy.description, level, policy.severity)
                    _judge(policy, seen[0], self._create_report_violation(response, *about), response)
            return response

    setattr(sdk, "_PolicyAnalyzerServicer", Servicer)  # noqa: B010  a class, to mypy, is no variable


def _with(servicer: Any, policies: Sequence[Policy]) -> Any:
    """A servicer as it is configured now, with these policies: calls come at once, from many threads."""
    narrowed = copy.copy(servicer)
    setattr(narrowed, POLICIES, list(policies))
    return narrowed


def _judge(policy: StackValidationPolicy, args: StackValidationArgs, report: Any, response: Any) -> None:
    try:
        policy.validate(args, report)
    except sdk._NotApplicableError as why:
        response.not_applicable.append(proto.PolicyNotApplicable(policy_name=policy.name, reason=why.reason or ""))
