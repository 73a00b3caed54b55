"""The resources of a stack as a policy pack sees them in the engine, written to a file; nothing is judged there.

A pack of its own, so that no variable or option can make the real one keep silent.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE

from policies.pack import whole
from policies.resources import Resource, Stack, named
from policies.values import UNKNOWN, plain

FIELDS = ("type", "name", "urn", "props", "links", "region", "protect")


def serve(file: Path) -> None:
    """Be a pack that records into `file`; never returns (`PolicyPack`)."""
    PolicyPack(name="trainwright-record", policies=policies(file), enforcement_level=EnforcementLevel.ADVISORY)


def policies(file: Path) -> list[Policy]:
    """What records. A resource's inputs come one by one, before what it points to and its id are known.

    With the stack as a whole come outputs, in which a preview doesn't know what the cloud fills in where the program
    says nothing: of them, only names are taken, as from an exported state.
    """
    inputs: dict[str, Any] = {}

    def see(args: ResourceValidationArgs, report: ReportViolation) -> None:  # noqa: ARG001  the framework's signature
        inputs[args.urn] = plain(args.props)

    def record(args: StackValidationArgs, report: ReportViolation) -> None:  # noqa: ARG001
        resources = [
            replace(resource, props=named(inputs[resource.urn], resource.props))
            for resource in whole(args.resources).resources
            # What the program only looks up is somebody else's; the stack and its providers are no resources.
            if resource.urn in inputs and not resource.type.startswith("pulumi:")
        ]
        file.write_text(text(Stack(tuple(resources))), encoding="utf-8")

    return [
        ResourceValidationPolicy("see", "Takes a resource's inputs.", see),
        StackValidationPolicy("record", "Records the stack's resources.", record),
    ]


def text(stack: Stack) -> str:
    """A stack as JSON, what isn't known as the engine's own sentinel."""
    return json.dumps([{name: getattr(resource, name) for name in FIELDS} for resource in stack.resources], default=_j)


def read(written: str) -> Stack:
    """The stack that `text` wrote."""
    entries = json.loads(written)
    return Stack(tuple(Resource(**{**entry, **_own(entry)}) for entry in entries))


def _own(entry: dict[str, Any]) -> dict[str, Any]:
    links = {name: frozenset(urns) for name, urns in entry["links"].items()}
    return {"props": plain(entry["props"]), "region": plain(entry["region"]), "links": links}


def _j(value: Any) -> Any:
    if value is UNKNOWN:
        return UNKNOWN_STRING_VALUE
    return sorted(value) if isinstance(value, frozenset) else str(value)
