"""What controls judge: the resources of a stack, whatever program declared them, and how they point to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from policies.values import UNKNOWN, at

NAMES = ("id", "arn", "bucket", "bucketName", "name", "keyId", "fileSystemId", "queueName", "templateName")
"""Properties by whose value others may point to a resource."""


def named(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with what the cloud named: by it, settings that were made by hand of it point to the resource."""
    given = ((name, outputs.get(name)) for name in NAMES if name not in inputs)
    return {**inputs, **{name: value for name, value in given if isinstance(value, str)}}


@dataclass(frozen=True)
class Resource:
    """One resource: its type token, and its inputs by their names on the wire.

    `links` are the URNs of the resources that a property was made of. `region` is the one it lies in, as far as the
    resource or its provider says so, else `None`.
    """

    type: str
    name: str
    urn: str
    props: Mapping[str, Any]
    links: Mapping[str, frozenset[str]] = field(default_factory=dict)
    region: Any = None
    protect: bool = False

    @property
    def cloud(self) -> str:
        """The package of the provider: `aws`, `alicloud`."""
        return self.type.partition(":")[0]

    def at(self, path: str) -> Any:
        """The value at a dotted path; see `values.at`."""
        return at(self.props, path)

    @cached_property
    def names(self) -> frozenset[str]:
        """Values by which other resources may point to this one."""
        found = (self.props.get(name) for name in NAMES)
        return frozenset(value for value in found if isinstance(value, str) and value)


@dataclass(frozen=True)
class Pointer:
    """A resource that points to another; not `sure` where what it points to isn't known yet."""

    resource: Resource
    sure: bool


@dataclass(frozen=True)
class Stack:
    """All resources of a stack."""

    resources: tuple[Resource, ...]

    @cached_property
    def _by_type(self) -> Mapping[str, tuple[Resource, ...]]:
        found: dict[str, list[Resource]] = {}
        for resource in self.resources:
            found.setdefault(resource.type, []).append(resource)
        return {kind: tuple(resources) for kind, resources in found.items()}

    @cached_property
    def by_urn(self) -> Mapping[str, Resource]:
        """Resources by their URN."""
        return {resource.urn: resource for resource in self.resources}

    def of(self, *types: str) -> Iterator[Resource]:
        """The resources of these types."""
        for kind in types:
            yield from self._by_type.get(kind, ())

    def pointing(self, target: Resource, types: Iterable[str], path: str) -> Iterator[Pointer]:
        """The resources of these types whose property at `path` points to `target`, by what it was made of or says.

        One whose property isn't known and was made of no other resource may point anywhere.
        """
        for other in self.of(*types):
            links, value = other.links.get(path.partition(".")[0], frozenset()), other.at(path)
            if target.urn in links or (isinstance(value, str) and value in target.names):
                yield Pointer(other, sure=True)
            elif value is UNKNOWN and not links:
                yield Pointer(other, sure=False)
