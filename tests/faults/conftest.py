"""Fleets to harm: real agents and real workers of a small job, over an S3 on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from benchmarks.fleet import Fleet, fleet
from emulator import processes, server
from tests.project import wait_for

LEAN = """
import sys, types

class Compiler(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Compiler(name)

    def __call__(self, function=None, *given, **more):
        return function

sys.modules["torch._dynamo"] = Compiler("torch._dynamo")
"""
"""What spares each worker torch's compiler, nearly half of what its start takes: DDP and optimizers load all of it to
ask whether it is in use, and to be left out of what it compiles. These runs compile nothing."""


@pytest.fixture(scope="session")
def endpoint() -> str:
    """The server's address."""
    return server.serve()


@pytest.fixture(scope="session")
def make_fleet(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Fleet]]:
    """Fleets that end with the session, if not before."""
    made: list[Any] = []

    def make(patches: Mapping[str, str] = MappingProxyType({}), **values: Any) -> Fleet:
        lean = {**patches, "train": LEAN + patches.get("train", "")}
        context = fleet(tmp_path_factory.mktemp("fleet"), endpoint, patches=lean, **values)
        made.append(context)
        return context.__enter__()

    yield make
    for context in made:
        context.__exit__(None, None, None)


@pytest.fixture
def wait_gone() -> Callable[[list[int]], None]:
    """Waits until none of these processes is left."""

    def wait(pids: list[int]) -> None:
        wait_for(f"the end of {pids}", lambda: not any(processes.started(pid) for pid in pids), 15, poll_s=0.05)

    return wait
