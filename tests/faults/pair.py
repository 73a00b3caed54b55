"""Two nodes in good health, whatever a fault before did to them, and what a run must keep through all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.fleet import Fleet
from tests.project import wait_for
from trainer.node.peers import Generation

NAMES = "abcdefghijklmnopqrstuvwxyz"


class Pair:
    """Two nodes that train, in a fleet that goes from fault to fault; what is missing is started for each test."""

    before: Generation
    """The one that trained when a test began."""

    def __init__(self, make: Callable[[], Fleet]) -> None:
        self._make = make
        self._names = itertools.cycle(NAMES)
        self.fleet = self._start()

    def _start(self) -> Fleet:
        self.names: list[str] = []
        made = self._make()
        made.start(*self._fresh(2), desired=2)
        return made

    def _fresh(self, count: int) -> list[str]:
        new = [next(self._names) for _ in range(count)]
        self.names += new
        return new

    def add(self) -> str:
        """Boot one more node; its name."""
        (name,) = self._fresh(1)
        self.fleet.start(name)
        return name

    def anew(self) -> None:
        """Go on with another fleet."""
        self.fleet.close()
        self.fleet = self._start()

    def ready(self, least: int = 2) -> Generation:
        """The generation of two nodes that train, or `least`, or what is there, with a checkpoint behind them."""
        if self.fleet.outcome():
            self.anew()
        self.names = [name for name in self.names if self.fleet.nodes[name].init.poll() is None]
        while len(self.names) < least:
            self.add()
        newest = max(self.fleet.generations(), default=0)
        generation = self.fleet.trains(*self.names, after=newest - 1)  # an older one may have been of the same nodes
        self.fleet.saved(beyond=generation.step)
        return generation


def same_again(steps: list[dict[str, Any]]) -> int:
    """How many steps were done more than once; each must have computed what it had before, on the same data."""
    seen: dict[int, dict[str, Any]] = {}
    again = 0
    for line in steps:
        if before := seen.get(line["step"]):
            assert line["loss"] == pytest.approx(before["loss"], abs=1e-4), (before, line)
            assert line["tokens"] == before["tokens"]
            again += 1
        seen[line["step"]] = line
    assert sorted(seen) == list(range(1, max(seen) + 1)), "a step is missing"
    return again


def members(generation: Generation) -> list[str]:
    """Its nodes, in rank order."""
    return [member.node for member in generation.members]


def goes_on(pair: Pair, steps: int = 20, limit_s: float = 120) -> None:
    """The same generation takes so many more steps."""
    number = pair.before.number
    last = pair.fleet.steps(number)[-1]["step"]
    wait_for("more steps", lambda: pair.fleet.steps(number)[-1]["step"] >= last + steps, limit_s)
    assert max(pair.fleet.generations()) == number
