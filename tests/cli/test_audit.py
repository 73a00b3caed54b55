"""The audit record tells a run's story from what was written as it went, also where it broke off."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli import audit
from cli.retry import pardon
from trainer import layout
from trainer.node.peers import Card
from trainer.store import FileStore
from trainer.train.checkpoint import Manifest, discard, publish, write

HOUR = 3600.0
BEGAN = 1_764_500_000.0

LAUNCH = {
    "by": "arn:aws:iam::123456789012:user/ada",
    "region": "us-west-2",
    "spec_sha256": "5" * 64,
    "bundle_sha256": "b" * 64,
    "code_sha256": None,
    "nodes": {"types": ["p5.48xlarge"], "capacity": "mixed", "image": "ami-0"},
    "usd_per_node_hour": {"p5.48xlarge": {"on-demand": [50.0, 50.0], "spot": [20.0, 30.0]}},
}


class Story:
    """Writes a run's prefix as deployer, nodes and trainer would; `at` in hours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FileStore(folder / "run")

    def put(self, key: str, values: Any, at: float) -> None:
        self.store.put(key, json.dumps(values).encode())
        self.touch(key, at)

    def touch(self, key: str, at: float) -> None:
        os.utime(self.store.root / key, (BEGAN + at * HOUR,) * 2)

    def node(self, name: str, since: float, until: float, kind: str = "p5.48xlarge") -> None:
        launched = f"2025-11-30T{10 + int(since):02d}:53:20+00:00"
        self.put(layout.audit_node(name), {"node": name, "type": kind, "zone": "z", "launched": launched}, since)
        self.put(layout.beat(name), 1, until)

    def generation(self, number: int, at: float, *names: str) -> None:
        members = [{"node": name, "address": "10.0.0.4", "incarnation": "1", "workers": 8} for name in names]
        told = {"number": number, "members": members, "port": 1, "why": "first", "graceful": False, "step": 0}
        self.put(layout.generation(number), told, at)

    def save(self, step: int) -> None:
        told: dict[str, Any] = {"position": 1, "samples": 9, "vocabulary": 257, "world": 8, "generation": 1}
        manifest = Manifest(step=step, torch="2", job={"name": "a"}, **told)
        publish(write(self.folder / "scratch", manifest, {"model.pt": lambda file: file.write(b"x")}), self.store)

    def read(self) -> audit.Audit:
        return audit.read(self.store, "r-1")

    def told(self) -> str:
        console = Console(file=io.StringIO(), width=300)
        audit.show(self.read(), console)
        return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def story(tmp_path: Path) -> Story:
    made = Story(tmp_path)
    made.put(f"{layout.LAUNCHES}0a1b2c.json", LAUNCH, 0)
    made.node("i-1", 0, 4)
    made.node("i-2", 0, 2)
    made.generation(1, 0.5, "i-1", "i-2")
    return made


def test_a_run_that_broke_off_has_a_true_record_so_far(story: Story) -> None:
    """Nothing is written at the end that could be missing: a node's last sign of life is its last beat."""
    story.save(50)
    told = story.told()
    assert "declared by arn:aws:iam::123456789012:user/ada: p5.48xlarge, mixed, image ami-0, in us-west-2" in told
    assert "spec 555555555555, bundle bbbbbbbbbbbb" in told
    assert "generation 1: 2 nodes, 16 workers, from step 0 (first)" in told
    assert "checkpoint 50: 1 B of 8 workers, SHA-256 " in told
    assert "at least 6.00 node hours, USD 120.00-300.00" in told
    assert "it has not ended" in told


def test_a_checkpoint_that_was_retired_has_its_hashes_still(story: Story) -> None:
    story.save(50)
    page = story.read().checkpoints[0]
    manifest = story.store.get(layout.checkpoint(50) + "manifest.json")
    assert page["parts"] == json.loads(manifest)["parts"]
    assert page["kept"] is True
    discard(story.store.root / "checkpoints")
    assert story.read().checkpoints[0] == page | {"kept": False}


def test_tries_and_how_they_ended_are_all_there(story: Story) -> None:
    failed = {"succeeded": False, "reason": "boom", "ended": 5.0}
    story.put(layout.past_outcome(5.0), failed, 5)
    story.put(layout.audit_retry(5.0), {"by": "arn:someone", "ended": 5.0}, 6)
    assert "it has not ended" in story.told()
    story.put(layout.OUTCOME, {"succeeded": True, "reason": "every worker ended well", "ended": 7.0}, 7)
    told = story.told()
    assert told.index("failed: boom") < told.index("succeeded: every worker ended well")
    assert "tried again by arn:someone" in told
    assert "has not ended" not in told


def test_a_try_leaves_the_times_of_what_came_before_it(story: Story) -> None:
    """`trainwright retry` copies the outcome, hours or days later."""
    failed = {"succeeded": False, "reason": "boom", "ended": BEGAN + 5 * HOUR}
    story.put(layout.OUTCOME, failed, 5)
    before = story.read().generations
    story.put(layout.audit_retry(pardon("r-1", story.store)), {"by": "arn:someone"}, 29)
    story.touch(layout.past_outcome(BEGAN + 5 * HOUR), 29)
    story.generation(2, 30, "i-1")
    told = story.told()
    assert f"{audit.stamp(BEGAN + 5 * HOUR)}  failed: boom" in told
    assert story.read().generations[:1] == before
    assert story.read().outcomes[0]["at"] == BEGAN + 5 * HOUR


def test_a_cost_with_an_unknown_price_is_unknown_and_never_too_low(story: Story) -> None:
    story.node("i-3", 0, 1, kind="m6a.large")
    assert story.read().usd is None
    assert "at least 7.00 node hours, USD unknown" in story.told()


def test_how_far_an_own_program_said_to_be_safe_is_in_the_record(story: Story) -> None:
    assert "is safe" not in story.told()
    story.store.put(layout.card("i-1"), Card("i-1", "10.0.0.4", "", "1", 8, progress=60).json())
    story.store.put(layout.card("i-2"), b"torn {")
    assert "its program has said that step 60 is safe" in story.told()


@pytest.mark.parametrize("width", [60, 80])
def test_no_id_of_a_node_is_ever_cut_short(story: Story, width: int) -> None:
    names = [f"i-0a41c9d27be350f1{number}" for number in range(3)]
    for name in names:
        story.node(name, 0, 4)
    console = Console(file=io.StringIO(), width=width)
    audit.show(story.read(), console)
    assert all(name in console.file.getvalue() for name in names)  # type: ignore[attr-defined]


def test_programs_read_all_of_it(story: Story) -> None:
    story.save(50)
    read = json.loads(json.dumps(audit.as_json(story.read())))
    assert (read["node_hours"], read["usd"]) == (6.0, [120.0, 300.0])
    assert [node["hours"] for node in read["nodes"]] == [4.0, 2.0]
    assert read["launches"][0]["by"].endswith("user/ada")


def test_a_page_that_cant_be_read_hides_no_other(story: Story) -> None:
    story.store.put(layout.audit_checkpoint(60, "0" * 64), b"torn {")
    story.store.put(layout.audit_checkpoint(70, "0" * 64), b'{"step": [1], "parts": 4}')
    story.store.put(layout.generation(2), b"[]")
    told = story.told()
    assert told.count("its page can't be read") == 2
    assert "its record can't be read" in told
    assert "generation 1: 2 nodes" in told


def test_a_run_of_which_nothing_is_known_says_so(tmp_path: Path) -> None:
    told = Story(tmp_path).told()
    assert "no page says who declared it" in told
    assert "it has not ended" in told
