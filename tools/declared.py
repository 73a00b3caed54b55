"""What a cluster declares, without an engine: its component runs under the SDK's mocks. For `make docs`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from types import MappingProxyType
from typing import Any

import pulumi
from pulumi.runtime import mocks, rpc

from components.cluster import TrainingCluster
from emulator.provider.stand_in import StandIn
from emulator.provider.wire import ASSET, SIGNATURE


@dataclass(frozen=True)
class Resource:
    """A resource as it is registered: its type's token, its name in the program, its inputs by their wire names."""

    type: str
    name: str
    inputs: Mapping[str, Any]


@dataclass
class Declared:
    """All that one program registers, in order, and the names of its outputs."""

    resources: list[Resource] = field(default_factory=list)
    outputs: tuple[str, ...] = ()


Make = Callable[[str, str, Mapping[str, Any]], tuple[str, dict[str, Any]]]
"""Makes a resource of the cloud from its type's token, its name and its inputs: its id and its state."""


Found = Mapping[str, Mapping[str, Any]]
"""What look-ups find beyond what is made up for them, by their tokens."""


class _Recorder(mocks.Mocks):
    """Answers as a preview of a cloud with nothing in it does, unless resources are made: then as they are."""

    def __init__(self, cloud: str, region: str, make: Make | None, found: Found) -> None:
        self.declared = Declared()
        self._make = make
        self._found = found
        self._of = f"{cloud}:"
        self._stand_in = StandIn(cloud, lambda: None)
        self._stand_in.configure({"region": region})

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        inputs = _plain(args.inputs)
        self.declared.resources.append(Resource(args.typ, args.name, inputs))
        if self._make is None:
            return "", {}
        return self._make(args.typ, args.name, inputs) if args.typ.startswith(self._of) else (args.name, inputs)

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]]]:
        return {**self._stand_in.invoke(args.token, args.args), **self._found.get(args.token, {})}, []


def declare(
    name: str, values: Mapping[str, Any], make: Make | None = None, found: Found = MappingProxyType({})
) -> Declared:
    """What a cluster of these values declares; each resource of the cloud is made in turn, if `make` is given.

    Raises `InvalidArgs`, and what `make` raises.
    """
    recorder = _Recorder(str(values.get("cloud", "aws")), str(values["region"]), make, found)

    def program() -> None:
        recorder.declared.outputs = tuple(TrainingCluster(name, values).outputs())

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    collects = gc.isenabled()
    gc.disable()  # a collection goes through both SDKs, a second's work, and finds nothing while a program runs
    try:
        mocks.set_mocks(recorder, project="trainwright", stack=name, preview=make is None)
        with redirect_stderr(StringIO()):  # findings, which Pulumi's log prints where no engine listens
            pulumi.runtime.test(program)()  # type: ignore[no-untyped-call]
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        if collects:
            gc.enable()
    return recorder.declared


def _plain(value: Any) -> Any:
    """The value as a provider gets it: no wrapping of secrets, whole numbers as such, files as the wire has them."""
    match value:
        case {rpc._special_sig_key: rpc._special_secret_sig}:
            return _plain(value["value"])
        case pulumi.FileAsset():
            return {SIGNATURE: ASSET, "path": value.path}
        case Mapping():
            return {key: _plain(one) for key, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case float() if value.is_integer():
            return int(value)
    return value
