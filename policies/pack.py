"""Controls as policies of Pulumi's own framework: one a control, and a second where it judges the stack as a whole."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyComplianceFramework,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy import Severity as PackSeverity

from policies.control import Control, Result, judge_alone, judge_in_stack, remedy
from policies.controls import EVERYTHING, declared
from policies.frameworks import FRAMEWORKS
from policies.resources import Resource, Stack
from policies.settings import Settings
from policies.values import UNKNOWN, placed, plain
from policies.verdicts import settled

IN_STACK = "-in-stack"
"""Ends the name of the policy by which a control judges a resource by what else is in its stack."""


class Pack:
    """The controls that the stack's configuration asks for, as policies.

    The engine asks which policies there are before it tells the stack's configuration. So there is one of each control,
    and those that the configuration doesn't want judge nothing. Without configuration all are mandatory.
    """

    def __init__(self, settings: Settings, today: datetime.date) -> None:
        self._today = today
        self._configured: dict[str, list[Policy]] = {}
        self.policies: list[Policy] = []
        for control in declared(EVERYTHING):
            self._configured[control.id] = list(self._policies(control))
            self.policies.extend(self._configured[control.id])
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Judge by these settings from now on. Raises `InvalidSettings`."""
        self._settings = settings
        self._controls = {control.id: control for control in settings.select(declared(settings))}
        for name, control in self._controls.items():
            for policy in self._configured[name]:
                policy.enforcement_level = EnforcementLevel(settings.level_of(control))

    def judging(self, kind: str) -> list[Policy]:
        """The policies that judge a resource of this type by itself."""
        found = (control for control in self._controls.values() if kind in control.checks)
        return [policy for control in found for policy in self._configured[control.id]]

    def _policies(self, control: Control) -> Iterator[Policy]:
        name = control.id.lower()
        framework = next((FRAMEWORKS[name] for name in control.frameworks), None)
        about: dict[str, Any] = {
            "description": f"{control.title}.",
            "severity": PackSeverity(control.severity.name.lower()),
            "framework": framework
            and PolicyComplianceFramework(framework.name, framework.version, framework.title, framework.source),
            # One framework a policy is all that Pulumi has room for.
            "tags": [f"{name}:{clause}" for name, clauses in control.frameworks.items() for clause in clauses],
            "remediation_steps": f"{control.fix}.",
        }
        if control.checks:
            mends = self._mend(control.id) if control.remedies else None
            yield ResourceValidationPolicy(name=name, validate=self._alone(control.id), remediate=mends, **about)
        if control.in_stack:
            yield StackValidationPolicy(name=f"{name}{IN_STACK}", validate=self._in_stack(control.id), **about)

    def _alone(self, name: str) -> Any:
        def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
            control = self._controls.get(name)
            if control is None or args.resource_type not in control.checks:
                args.not_applicable("doesn't judge this")
                return
            resource = _resource(args)
            self._tell(Result(control, resource, judge_alone(control, resource)), report)

        return validate

    def _mend(self, name: str) -> Any:
        def remediate(args: ResourceValidationArgs) -> Any:
            """All properties of the resource, changed so that it passes, or nothing.

            The framework asks for it at its level alone; what an exemption holds for, nobody changes.
            """
            control = self._controls.get(name)
            if control is None:
                return None
            resource = _resource(args)
            if any(found.holds(control, resource, self._today) for found in self._settings.exemptions):
                return None
            props: Any = args.props
            for path, value in remedy(control, resource).items():
                props = placed(props, path, value)
            return None if props is args.props else props

        return remediate

    def _in_stack(self, name: str) -> Any:
        def validate(args: StackValidationArgs, report: ReportViolation) -> None:
            control = self._controls.get(name)
            if control is None:
                args.not_applicable("isn't asked for")
                return
            stack = args.stack if isinstance(args, Read) else whole(args.resources)
            for resource in stack.of(*sorted(control.in_stack)):
                self._tell(Result(control, resource, judge_in_stack(control, resource, stack)), report)

        return validate

    def _tell(self, result: Result, report: ReportViolation) -> None:
        told = settled(result, self._settings, self._today)
        if told.breach:
            report(told.words, result.resource.urn)


class Read(StackValidationArgs):
    """A stack that is read once for all policies."""

    def __init__(self, args: StackValidationArgs) -> None:
        super().__init__(args.resources, {}, args.stack_tags)
        self.stack = whole(args.resources)


def whole(resources: Iterable[PolicyResource]) -> Stack:
    """A stack as Pulumi gives it to policies."""
    return Stack(
        tuple(
            _resource(
                resource,
                {
                    name: frozenset(target.urn for target in targets)
                    for name, targets in resource.property_dependencies.items()
                },
            )
            for resource in resources
        )
    )


def _resource(
    given: ResourceValidationArgs | PolicyResource, links: Mapping[str, frozenset[str]] | None = None
) -> Resource:
    props = plain(given.props)
    return Resource(
        type=given.resource_type,
        name=given.name,
        urn=given.urn,
        props=props,
        links=links or {},
        region=_region(props, given.provider.props if given.provider else None),
        protect=bool(given.opts.protect),
    )


def _region(props: Mapping[str, Any], provider: Any) -> Any:
    """Where a resource lies: by its own property, which AWS's have since version 7, or by its provider's."""
    own = props.get("region")
    if own is UNKNOWN or own:
        return own
    return plain(provider).get("region") if provider is not None else None
