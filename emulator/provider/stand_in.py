"""What a stand-in answers to each question of the engine, in plain properties; the wire is server.py's.

A preview never touches the cloud: what is given passes through, what only the cloud sets is unknown, unless it is to
be foreseen (foreseen.py). Real changes are made in stacks named `local…` alone, so that a forgotten PATH can't make a
production stack believe in this cloud.
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator import places
from emulator.provider import diff, foreseen, invokes, kinds, naming, schema
from emulator.provider.aws.api import Api, ApiError
from emulator.provider.wire import UNKNOWN, Props

LOCAL = "local"
_REGION_VARIABLES = {"aws": ("AWS_REGION", "AWS_DEFAULT_REGION"), "alicloud": ("ALICLOUD_REGION",)}
_EMPTY: tuple[Any, ...] = ("", [], {}, None)


class Refused(Exception):
    """A question that the stand-in doesn't answer; one sentence that says why and what to do."""


@dataclass(frozen=True)
class Difference:
    """What an update would change: each path and its change, the properties that force a replacement, its order."""

    changes: Mapping[str, diff.Change] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()
    delete_first: bool = False


class StandIn:
    """The stand-in for one package's provider. `endpoint` finds the embedded cloud's address: None if none runs."""

    def __init__(self, package: str, endpoint: Callable[[], str | None]):
        self.package = package
        self._endpoint = endpoint
        self._region: str | None = None
        self._apis: dict[tuple[str | None, str], Api] = {}
        self._lock = threading.Lock()

    def check_config(self, config: Props) -> tuple[Props, list[schema.Failure]]:
        """The provider's configuration, with the region from the environment where it isn't given."""
        known = schema.provider_inputs(self.package)
        extra = {"version", "pluginDownloadURL", "parameterization"}
        failures = list(schema.unknown_names(known, {k: v for k, v in config.items() if k not in extra}))
        if config.get("defaultTags"):
            failures.append(schema.Failure("defaultTags", "the stand-in has no default tags; set tags on resources"))
        variables = _REGION_VARIABLES[self.package]
        region = config.get("region") or next(filter(None, map(os.environ.get, variables)), None)
        if not region:
            reason = f"no region: run `pulumi config set {self.package}:region REGION` or set {variables[0]}"
            failures.append(schema.Failure("region", reason))
        return {**config, "region": region}, failures

    def configure(self, config: Mapping[str, Any]) -> None:
        """Takes the checked configuration."""
        self._region = config.get("region")

    def check(self, urn: str, old: Props, new: Props, seed: bytes) -> tuple[Props, list[schema.Failure]]:
        """The inputs with their auto-name, and what the SDK's signatures refuse of them. Raises UnknownType."""
        type_ = schema.resource_type(_token(urn))
        failures = schema.check(type_, new)
        if failures:
            return new, failures
        try:
            return naming.auto_named(type_, urn, old, new, seed), []
        except (naming.NameTooLong, naming.Nameless) as error:
            return new, [schema.Failure(naming.naming_property(type_) or "", str(error))]

    def diff(self, urn: str, old: Props, new: Props) -> Difference:
        """What differs between old and new inputs, and what of it the real provider answers with a replacement."""
        type_, kind = schema.resource_type(_token(urn)), kinds.find(_token(urn))
        key = naming.naming_property(type_)
        found = {path: change for path, change in diff.changes(old, new) if not path.startswith("__")}
        forcing = kind.replace_on if kind else {key if self.package == "aws" else "bucket"}
        replaces = tuple(sorted({diff.top(path) for path in found} & {"region", *forcing}))
        named = key is not None and new.get(key) is not None and not naming.is_auto_name(urn, new[key])
        clashes = named and key is not None and old.get(key) == new[key]
        first = bool(replaces) and (clashes or (kind is not None and kind.replace_first))
        return Difference(found, replaces, first)

    def create(self, urn: str, new: Props, *, preview: bool) -> tuple[str, Props]:
        """Makes the resource: its id and state. Raises Refused and ApiError."""
        type_, kind = schema.resource_type(_token(urn)), kinds.find(_token(urn))
        own = self._common(type_, new)
        if preview and foreseen.wanted():
            id_, state = foreseen.foreseen(type_, urn, new, self._place(new))
            return id_, {**state, **own}
        if preview:
            return "", {**dict.fromkeys(type_.computed, UNKNOWN), **new, **own}
        self._own(urn)
        full = naming.prefixed(type_, new)
        if kind is None:
            id_, made = naming.made_up(type_, urn, full, self._place(new))
            return id_, {**made, **full, **own}
        api = self.api(new)
        id_ = kind.create(api, full)
        try:
            kind.apply(api, id_, {}, full)
            return id_, {**kind.read(api, id_, full), **full, **own}
        except ApiError:
            with contextlib.suppress(ApiError):
                kind.delete(api, id_, full)
            raise

    def read(self, urn: str, id_: str, inputs: Props, state: Props) -> tuple[str, Props, Props]:
        """The resource as it is now: id (empty: gone), inputs, state. Raises Refused and ApiError."""
        type_, kind = schema.resource_type(_token(urn)), kinds.find(_token(urn))
        looked_up = not inputs
        if looked_up and not (_is_local(urn) and self._endpoint()):
            _, made = naming.made_up(type_, urn, state, self._place(state), id_)
            return id_, {}, {**made, **self._common(type_, state), **state}
        self._own(urn)
        if kind is None:
            return id_, inputs, state
        try:
            found = kind.read(self.api(state), id_, state)
        except KeyError as error:
            raise Refused(f"{_token(urn)} can't be looked up by its id alone: {error} is missing") from error
        except ApiError as error:
            if error.gone:
                return "", {}, {}
            raise
        fresh = {
            name: value
            for name, value in found.items()
            if (not diff.same(state[name], value) if name in state else value not in _EMPTY)
        }
        now = {**state, **fresh, **({"region": self._place(state)} if "region" in type_.state else {})}
        names = (now.keys() & type_.inputs.keys()) if looked_up else inputs.keys()
        return id_, {name: now.get(name, inputs.get(name)) for name in sorted(names)}, now

    def update(self, urn: str, id_: str, state: Props, old: Props, new: Props, *, preview: bool) -> Props:
        """Changes the resource from old to new inputs; its state. Raises Refused and ApiError."""
        type_, kind = schema.resource_type(_token(urn)), kinds.find(_token(urn))
        kept = {name: value for name, value in state.items() if name not in old}
        own = self._common(type_, new)
        if preview:
            moving = kind.moving(old, new) if kind else ()
            return {**kept, **dict.fromkeys(moving, UNKNOWN), **new, **own}
        self._own(urn)
        if kind is None:
            return {**kept, **new, **own}
        key = naming.naming_property(type_)
        name = {key: state[key]} if key and key in state else {}
        api = self.api(new)
        kind.apply(api, id_, {**name, **old}, {**name, **new})
        return {**kept, **kind.read(api, id_, {**kept, **new}), **new, **own}

    def delete(self, urn: str, id_: str, state: Props) -> None:
        """Removes the resource; one that is gone already is fine. Raises Refused and ApiError."""
        self._own(urn)
        if kind := kinds.find(_token(urn)):
            try:
                kind.delete(self.api(state), id_, state)
            except ApiError as error:
                if not error.gone:
                    raise

    def invoke(self, token: str, args: Props) -> Props:
        """The answer of a function. Raises UnknownFunction, Refused and ApiError."""
        return invokes.call(token, args, self.api(args), running=self._endpoint() is not None)

    def api(self, props: Mapping[str, Any]) -> Api:
        """The API of the region that the properties name, else of the provider's. Raises Refused without any."""
        place = self._place(props)
        region = places.REGION if self.package == "alicloud" else place
        where = self._endpoint(), place
        with self._lock:
            return self._apis.setdefault(where, Api(where[0], region, place))

    def _common(self, type_: schema.ResourceType, new: Props) -> Props:
        """State that follows from the inputs: the region, and all tags."""
        own = {"region": self._place(new)} if "region" in type_.state else {}
        return {**own, "tagsAll": new.get("tags") or {}} if "tagsAll" in type_.state else own

    def _own(self, urn: str) -> None:
        if not _is_local(urn):
            raise Refused(
                f"the embedded cloud's stand-in changes only stacks named {LOCAL}…, not {naming.urn_stack(urn)}; to "
                "deploy to the real cloud, use a shell without `trainwright env`, where the real provider is found"
            )
        if self._endpoint() is None:
            raise Refused('the embedded cloud is not running: run `eval "$(trainwright env)"` (or `make up`)')

    def _place(self, props: Mapping[str, Any]) -> str:
        region = props.get("region") or self._region
        if not region:
            raise Refused(f"no region: run `pulumi config set {self.package}:region REGION`")
        return str(region)


def decoded(config: Mapping[str, Any]) -> Props:
    """A provider's configuration, whose nested values travel as JSON texts."""
    return {
        name: json.loads(value) if isinstance(value, str) and value.startswith(("{", "[")) else value
        for name, value in config.items()
    }


def _token(urn: str) -> str:
    """The resource's type: the last of the types that the URN chains."""
    return urn.split("::")[2].rpartition("$")[2]


def _is_local(urn: str) -> bool:
    return naming.urn_stack(urn).startswith(LOCAL)
