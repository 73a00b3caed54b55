"""Runs made up for the tests: their prefix in a folder, as agents and rank 0 would have written it."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cli.history import History
from cli.report import Facts
from trainer import layout
from trainer.node.peers import Card, Ended, Generation, Member
from trainer.store import FileStore

BEGAN = 1_764_500_000.0
BOOT_SECONDS = {"identify": 0.4, "storage": 1.2, "fabric": 0.1, "health": 0.8, "peers": 2.0, "launch": 0.1}
TOKENS_A_STEP = 4096
NODES = ["i-0a41c9d27be350f18", "i-0c7725e1f4ab9d360", "i-0f93be60218dd47c5"]


@dataclass
class Prefix:
    """Writes a run's prefix. Times are seconds since the run's group was created."""

    store: FileStore
    run: str = "local-7f3a"
    nodes: tuple[str, ...] = tuple(NODES)
    began: float = BEGAN
    steps: int = 400
    lines: dict[int, list[str]] = field(default_factory=dict)

    def history(self) -> History:
        history = History(self.store, self.run)
        history.refresh()
        return history

    def boot(self, node: str, at: float, *, upto: str = "launch", failed: str = "", detail: str = "fine") -> None:
        names = list(BOOT_SECONDS)
        steps = [
            {"step": name, "status": "failed" if name == failed else "ok", "seconds": BOOT_SECONDS[name],
             "detail": detail}
            for name in names[: names.index(failed or upto) + 1]
        ]  # fmt: skip
        report = {"node": node, "started": BEGAN + at, "steps": steps}
        self.store.put(layout.boot_report(node), json.dumps(report).encode())

    def card(
        self, node: str, *, state: str = "ready", ended: Ended | None = None, workers: int = 1, progress: int = 0
    ) -> None:
        address = f"127.10.0.{10 + sum(node.encode()) % 200}"
        card = Card(
            node, address, "2025-11-30T10:00:00Z", f"first-{node}", workers, state, ended=ended, progress=progress
        )
        self.store.put(layout.card(node), card.json())
        self.beat(node, 1)

    def beat(self, node: str, count: int) -> None:
        self.store.put(layout.beat(node), f"first-{node} {count}".encode())

    def generation(
        self, number: int, nodes: list[str], why: str = "first", *, graceful: bool = False, workers: int = 1
    ) -> None:
        members = tuple(Member(node, "127.10.0.4", f"first-{node}", workers) for node in nodes)
        record = Generation(number, members, 29500, why, graceful, step=0)
        self.store.put(layout.generation(number), record.json())

    def train(self, generation: int, first: int, last: int, at: float, *, world: int = 2, step_s: float = 0.2) -> float:
        """Tell of steps; returns the time after the last."""
        chance = random.Random(generation)
        told = self.lines.setdefault(generation, [])
        for step in range(first, last + 1):
            at += step_s * chance.uniform(0.9, 1.2)
            loss = 1.9 + 3.7 * math.exp(-step / (self.steps / 5)) + chance.gauss(0, 0.06)
            values = {
                "time": BEGAN + at, "step": step, "steps": self.steps, "loss": loss, "lr": 1e-3, "grad_norm": 1.0,
                "tokens": step * TOKENS_A_STEP, "tokens_per_second": TOKENS_A_STEP / step_s * chance.uniform(0.8, 1.05),
                "step_ms": step_s * 1e3, "data_ms": 0.1, "generation": generation, "world": world,
            }  # fmt: skip
            told.append(json.dumps(values))
        self._write(generation)
        return at

    def diverge(self, generation: int, step: int, at: float) -> None:
        """Tell of one more step, whose loss and norm were no numbers: null, as `trainer/train/metrics.py` writes it."""
        values = {**json.loads(self.lines[generation][-1]), "time": BEGAN + at, "step": step}
        self.lines[generation].append(json.dumps({**values, "loss": None, "grad_norm": None}))
        self._write(generation)

    def event(self, event: str, generation: int, step: int, at: float, **details: Any) -> None:
        values = {"time": BEGAN + at, "event": event, "step": step, "generation": generation, "world": 2, **details}
        self.lines.setdefault(generation, []).append(json.dumps(values))
        self._write(generation)

    def checkpoint(self, generation: int, step: int, at: float) -> None:
        key = layout.checkpoint(step)
        self.store.put(f"{key}manifest.json", b"{}")
        self.event("checkpoint", generation, step, at, key=key, bytes=3_140_000, stall_ms=4.2)

    def end(self, at: float, *, succeeded: bool = True, reason: str = "every worker ended well") -> None:
        content = json.dumps({"succeeded": succeeded, "reason": reason, "ended": BEGAN + at}).encode()
        self.store.put(layout.OUTCOME, content)

    def eventful(self) -> History:
        """Three generations: two nodes, then one after a loss, then two again; steps 151 to 170 were done twice."""
        one, two, three = NODES
        self.boot(one, 1.5)
        self.boot(two, 1.9)
        self.card(one, ended=Ended(3, "done"))
        self.card(two)
        self.generation(1, [one, two])
        self.event("start", 1, 0, 7.4)
        at = 7.6
        for first in (1, 51, 101):
            at = self.train(1, first, first + 49, at)
            self.checkpoint(1, first + 49, at)
        at = self.train(1, 151, 170, at)
        self.generation(2, [one], f"{two}: lost")
        at += 7
        self.event("resume", 2, 150, at)
        at = self.train(2, 151, 220, at + 0.3, world=1, step_s=0.33)
        self.checkpoint(2, 200, at - 6)
        self.boot(three, at - 9)
        self.card(three, ended=Ended(3, "done"))
        self.event("drain", 2, 220, at + 0.1)
        self.checkpoint(2, 220, at + 0.2)
        self.generation(3, [one, three], f"{three}: joined", graceful=True)
        at += 2.6
        self.event("resume", 3, 220, at)
        at = self.train(3, 221, 400, at + 0.2)
        self.checkpoint(3, 400, at + 0.1)
        self.event("done", 3, 400, at + 0.2)
        self.end(at + 1.0)
        return self.history()

    def short(self) -> History:
        """One node, three steps, no checkpoint."""
        self.steps = 3
        self.boot(NODES[0], 1.0)
        self.card(NODES[0], ended=Ended(1, "done"))
        self.generation(1, NODES[:1])
        self.event("start", 1, 0, 6.0)
        at = self.train(1, 1, 3, 6.2, world=1)
        self.event("done", 1, 3, at)
        self.end(at + 1)
        return self.history()

    def barren(self, reason: str) -> History:
        """No step at all: two boots failed."""
        self.boot(NODES[0], 1.0, failed="storage", detail=reason)
        self.boot(NODES[1], 4.0, failed="storage", detail=reason)
        self.end(40, succeeded=False, reason=reason)
        return self.history()

    def _write(self, generation: int) -> None:
        self.store.put(layout.metrics_chunk(generation, 0), "\n".join(self.lines[generation]).encode() + b"\n")


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """What a verb sets to lead clients to its stack's cloud ends with the test."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(FileStore(tmp_path / "run"))


@pytest.fixture
def facts() -> Facts:
    return Facts("local", "local-7f3a", "embedded cloud on this machine", "s3://bucket/runs/local-7f3a/checkpoints",
                 report_path=Path("/home/me/trainwright/.local/report.html"), group_created=BEGAN)  # fmt: skip
