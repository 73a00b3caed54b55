"""Policy documents of AWS and Alibaba Cloud, read by what they say and not by how they are written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from policies.values import UNKNOWN, Undecided

EVERYONE = "*"


@dataclass(frozen=True)
class Statement:
    """A statement, each of its parts as a list; keys of conditions in lower case, as both clouds compare them."""

    sid: str
    allow: bool
    principals: tuple[str, ...]
    """`AWS:arn…`, `Service:name`, `*` for everyone; empty where the document is of an identity."""
    not_principals: bool
    actions: tuple[str, ...]
    not_actions: bool
    resources: tuple[str, ...]
    not_resources: bool
    conditions: Mapping[tuple[str, str], tuple[str, ...]]
    """By operator (`Bool`) and key (`aws:securetransport`)."""

    @property
    def of_everyone(self) -> bool:
        """Whoever calls is meant."""
        return any(name == EVERYONE or name.partition(":")[2] == EVERYONE for name in self.principals)

    def names_action(self, action: str) -> bool:
        """An action (`s3:GetObject`) is among its actions, by wildcards too."""
        named = any(fnmatchcase(action.lower(), pattern.lower()) for pattern in self.actions)
        return named != self.not_actions

    def names_resource(self, resource: str) -> bool:
        """A resource is among its resources, by wildcards too."""
        return any(fnmatchcase(resource, pattern) for pattern in self.resources) != self.not_resources

    def condition(self, operator: str, key: str) -> tuple[str, ...]:
        """The values of a condition, empty where it has none; `…IfExists` is asked for by its own name."""
        return self.conditions.get((operator, key.lower()), ())


def statements(document: Any) -> tuple[Statement, ...]:
    """The statements of a document: JSON text, or what it holds. Raises `Undecided` where it isn't known yet.

    Raises `ValueError` where it is no policy document.
    """
    if document is UNKNOWN:
        raise Undecided
    if isinstance(document, str):
        document = json.loads(document)
    if not isinstance(document, Mapping):
        raise ValueError("is no policy document")  # noqa: TRY004  one error for whatever isn't one
    return tuple(_statement(entry) for entry in _listed(document.get("Statement")))


def _statement(entry: Mapping[str, Any]) -> Statement:
    conditions = {
        (operator, key.lower()): tuple(_text(value) for value in _listed(values))
        for operator, keys in (entry.get("Condition") or {}).items()
        for key, values in keys.items()
    }
    return Statement(
        sid=str(entry.get("Sid", "")),
        allow=entry.get("Effect") == "Allow",
        principals=tuple(_principals(entry.get("Principal", entry.get("NotPrincipal")))),
        not_principals="NotPrincipal" in entry,
        actions=tuple(_listed(entry.get("Action", entry.get("NotAction")))),
        not_actions="NotAction" in entry,
        resources=tuple(_listed(entry.get("Resource", entry.get("NotResource")))),
        not_resources="NotResource" in entry,
        conditions=conditions,
    )


def _principals(given: Any) -> Iterator[str]:
    if isinstance(given, Mapping):
        for kind, names in given.items():
            yield from (f"{kind}:{name}" for name in _listed(names))
    else:
        yield from _listed(given)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
