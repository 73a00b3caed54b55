"""What `make bench-faults` measures."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the benchmark trains")

from benchmarks import faults
from benchmarks.harms import Fault


class Ended:
    """A fleet whose run is over."""

    def steps(self, _: int) -> list[dict[str, Any]]:
        return []


class Trains(Ended):
    def steps(self, _: int) -> list[dict[str, Any]]:
        return [{"step": faults.JOB["checkpoint"]["every_steps"] // 2}]

    def ends(self) -> Any:
        return SimpleNamespace(ended=time.time())


def test_a_fault_after_one_that_ended_the_run_is_measured_in_the_fleet_that_follows(monkeypatch):
    class Pair:
        fleet = Ended()

        def ready(self, least):
            self.fleet = Trains()
            return SimpleNamespace(number=1)

    monkeypatch.setattr(faults, "_with_workers_in_waiting", lambda pair: None)
    harmed = []
    fault = Fault("any", lambda pair: harmed.append(pair.fleet), None, "", ends=True)
    cost = faults.measured(fault, Pair())
    assert cost.ended
    assert [type(fleet) for fleet in harmed] == [Trains]
