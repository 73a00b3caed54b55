"""An exported state of any Pulumi program (`pulumi stack export`), as a stack that controls judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from policies.resources import Resource, Stack, named
from policies.values import UNKNOWN, plain

SIGNATURE = "4dabf18193072939515e22adb298388d"
"""Key by which values in a state say that they are special (pulumi, sdk/go/common/resource/properties.go)."""

SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105  marks secrets, and is none

PROVIDER = "pulumi:providers:"


class NoState(ValueError):
    """The text is no exported state; the message says why."""


def read(text: str) -> Stack:
    """The stack in an exported state. A secret's value isn't in it, and counts as not known. Raises `NoState`."""
    try:
        exported = json.loads(text)
        entries = exported["deployment"].get("resources") or []
        providers = {entry["urn"]: entry.get("inputs") or {} for entry in entries if _is_provider(entry)}
        # What the program only looks up is somebody else's.
        own = (entry for entry in entries if not _is_provider(entry) and not entry.get("external"))
        resources = [_resource(entry, providers) for entry in own]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoState(f"is no state as `pulumi stack export` writes it ({type(error).__name__}: {error})") from None
    return Stack(tuple(resource for resource in resources if not resource.type.startswith("pulumi:")))


def _is_provider(entry: Mapping[str, Any]) -> bool:
    return str(entry["type"]).startswith(PROVIDER)


def _resource(entry: Mapping[str, Any], providers: Mapping[str, Mapping[str, Any]]) -> Resource:
    outputs = entry.get("outputs") or {}
    props = named(_revealed(entry.get("inputs") or {}), outputs)
    if entry.get("id"):
        props.setdefault("id", entry["id"])
    provider = providers.get(str(entry.get("provider", "")).rpartition("::")[0], {})
    links = entry.get("propertyDependencies") or {}
    return Resource(
        type=entry["type"],
        name=str(entry["urn"]).rpartition("::")[2],
        urn=entry["urn"],
        props=props,
        links={name: frozenset(urns or ()) for name, urns in links.items()},
        region=props.get("region") or outputs.get("region") or provider.get("region"),
        protect=bool(entry.get("protect")),
    )


def _revealed(value: Any) -> Any:
    """A value without the wrapping of secrets; one that is encrypted isn't known."""
    if isinstance(value, Mapping):
        if value.get(SIGNATURE) == SECRET:
            return _revealed(json.loads(value["plaintext"])) if "plaintext" in value else UNKNOWN
        return {key: _revealed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_revealed(item) for item in value]
    return plain(value)
