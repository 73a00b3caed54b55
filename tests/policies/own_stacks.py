"""Our own stacks as policies see them, and ways to break one."""

import copy
import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pulumi.runtime import rpc

from policies.control import judge
from policies.controls import declared
from policies.resources import Resource, Stack
from policies.rollout import CONFIGURATION
from policies.settings import Settings, parse
from policies.values import UNKNOWN
from policies.verdicts import settled
from tests.components.conftest import Mocked, Records

STACKS = {
    path.stem.removeprefix("Pulumi."): path for path in Path(__file__).parents[2].glob("stacks/Pulumi.prod-*.yaml")
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "singapore-by-template": ("prod-ap-singapore", {"nodes.fabric": "tcp"}),
    "singapore-locked": ("prod-ap-singapore", {"audit.lock": "compliance"}),
    "singapore-by-nat": ("prod-ap-singapore", {"network.egress": "nat", "scaling": None}),
    "us-west-locked": ("prod-us-west", {"audit.lock": "compliance"}),
    "us-west-by-nat": ("prod-us-west", {"network.egress": "nat", "scaling": None}),
}
"""The same with another choice, by dotted paths: what else our components declare. None takes a key away."""

TODAY = datetime.date(2026, 12, 1)
"""A day on which our exemptions hold."""

_stacks: dict[tuple[str, bool], Stack] = {}


@cache
def _config(name: str) -> dict[str, Any]:
    base, changes = VARIANTS.get(name, (name, {}))
    config: dict[str, Any] = yaml.safe_load(STACKS[base].read_text())["config"]
    for path, value in changes.items():
        section, _, key = f"trainwright:{path}".partition(".")
        if key:
            config[section] = {**config[section], key: value}
        elif value is None:
            config.pop(section)
        else:
            config[section] = value
    return config


def config_of(name: str, namespace: str) -> dict[str, Any]:
    return {key.partition(":")[2]: value for key, value in _config(name).items() if key.startswith(f"{namespace}:")}


def settings_of(name: str) -> Settings:
    return parse(config_of(name, "policies"))


def cloud_of(name: str) -> str:
    cloud: str = config_of(name, "trainwright").get("cloud", "aws")
    return cloud


def declared_by(name: str, mocked: Mocked, *, preview: bool = False) -> Stack:
    """What a stack of ours declares: once for all tests, none of which changes it."""
    if (name, preview) not in _stacks:
        values = config_of(name, "trainwright")
        records = mocked.cluster(values, name="c1", preview=preview)
        _stacks[name, preview] = seen(records, values["region"], made=not preview)
    return _stacks[name, preview]


def seen(records: Records, region: str, *, made: bool = True) -> Stack:
    """What policies see of what was registered; of what executions name by its id, also that, once it is `made`."""
    return Stack(
        tuple(
            Resource(
                record.type,
                record.name,
                record.urn,
                {
                    **_known(record.inputs),
                    **({"id": f"{record.name}-id"} if made and record.type == CONFIGURATION else {}),
                },
                record.made_of,
                record.inputs.get("region") or region,
                record.protect,
            )
            for record in records.children()
        )
    )


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_known(item) for item in value]
    return UNKNOWN if value == rpc.UNKNOWN else value


def broken(stack: Stack, settings: Settings) -> dict[str, str]:
    """What breaks a control and isn't exempt, by the control's id."""
    return {
        result.control.id: f"{result.resource.name}: {[(found.path, found.reason) for found in result.gravest]}"
        for result in judge(declared(settings), stack)
        if settled(result, settings, TODAY).breach
    }


Change = Callable[[Resource], Resource | None]
"""What becomes of a resource; None where it goes."""

Mutation = tuple[str, tuple[str, str], Change]
"""The control that must catch it, the type and the name of the resource that is changed, and how."""

INTERNET = "0.0.0.0/0"


def gone(_resource: Resource) -> None:
    """Take the resource away."""


def changed(**fields: Any) -> Change:
    """Change what isn't a property: where a resource lies, whether it is protected."""
    return lambda resource: replace(resource, **fields)


def altered(change: Callable[[dict[str, Any]], object]) -> Change:
    """Change its properties, which `change` gets a copy of."""

    def alter(resource: Resource) -> Resource:
        props = copy.deepcopy(dict(resource.props))
        change(props)
        return replace(resource, props=props)

    return alter


def put(path: str, value: Any) -> Change:
    """Set what stands at a dotted path; None takes it away."""

    def change(props: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        place: Any = props
        for parent in parents:
            place = place[int(parent)] if isinstance(place, list) else place.setdefault(parent, {})
        if isinstance(place, list):
            place[int(last)] = value
        elif value is None:
            place.pop(last, None)
        else:
            place[last] = value

    return altered(change)


def statement(path: str, which: str | int, **parts: Any) -> Change:
    """Change a statement, by its `Sid` or its place, of the policy document at a path; without parts, take it away."""

    def change(props: dict[str, Any]) -> None:
        document = json.loads(props[path])
        entries = list(document["Statement"])
        (index,) = (index for index, entry in enumerate(entries) if which in (index, entry.get("Sid")))
        entries[index : index + 1] = [{**entries[index], **parts}] if parts else []
        props[path] = json.dumps({**document, "Statement": entries})

    return altered(change)


def add(path: str, **parts: Any) -> Change:
    """Add a statement to the policy document at a path."""

    def change(props: dict[str, Any]) -> None:
        document = json.loads(props[path])
        props[path] = json.dumps({**document, "Statement": [*document["Statement"], parts]})

    return altered(change)
