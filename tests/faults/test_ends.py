"""How a run ends that had faults: as an uninterrupted one does, without a bad node, or failed and with its reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from benchmarks.fleet import told
from tests.faults.pair import same_again
from tests.project import CHECKOUT, wait_for
from trainer import exits

pytestmark = pytest.mark.torch

JOB = {"steps": 100, "checkpoint": {"every_steps": 20}}


def test_a_run_that_was_interrupted_computes_what_an_uninterrupted_one_does(make_fleet):
    fleet = make_fleet(job=JOB)
    fleet.start("a", "b", desired=2)
    saved = fleet.saved()
    wait_for("steps to do again", lambda: fleet.steps()[-1]["step"] > saved + 2)
    fleet.nodes["b"].signal(signal.SIGKILL, "trainer.train")
    outcome = fleet.ends()
    assert outcome.succeeded, outcome.reason
    steps = fleet.steps()
    assert len(fleet.generations()) == 2
    assert same_again(steps) > 0

    job, whole = fleet.folder / "job.json", fleet.folder / "whole"
    job.write_text(json.dumps(fleet.job))
    command = [sys.executable, "-m", "trainer.train", "--job", str(job), "--data", str(fleet.data), "--store", whole]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINWRIGHT_")}
    subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, capture_output=True, timeout=120)
    uninterrupted = [line["loss"] for line in told([whole / "metrics.jsonl"]) if "loss" in line]
    last = {line["step"]: line["loss"] for line in steps}
    assert [last[step] for step in sorted(last)] == pytest.approx(uninterrupted, abs=1e-3)
    fleet.close()


RAISES = """
import trainer.train.loop as loop
whole = loop.compute

def compute(*given):
    if compute.taken == 45:
        raise ArithmeticError("a user's mistake")
    compute.taken += 1
    return whole(*given)

compute.taken = 0
loop.compute = compute
"""


def test_code_that_raises_fails_the_run_with_what_it_raised_after_one_more_try(make_fleet):
    """Not endlessly, at a node's full price."""
    fleet = make_fleet(job={"checkpoint": {"every_steps": 60}}, patches={"train": RAISES})
    fleet.start("a", desired=1)
    outcome = fleet.ends()
    assert not outcome.succeeded
    assert outcome.reason == (
        "a second try raised the same error: a: rank 0 exited with 1: ArithmeticError: a user's mistake"
    )
    assert len(fleet.generations()) == 2
    log = fleet.nodes["a"].log("000002-rank0")
    assert "Traceback (most recent call last)" in log
    assert "ArithmeticError: a user's mistake" in log
    pulse = fleet.nodes["a"].root / "var/log/trainwright/000002-rank0.pulse"
    assert pulse.read_text().strip().endswith(" step 46, computing"), "the trainer must say what it is at"
    fleet.close()


DIES = """
if os.environ["TRAINWRIGHT_ROOT"].endswith("b"):
    os.kill(os.getpid(), 9)
"""


def test_a_node_that_alone_fails_time_and_again_is_put_in_quarantine_and_leaves(make_fleet):
    fleet = make_fleet(job={"checkpoint": {"every_steps": 20}}, patches={"train": DIES})
    fleet.start("a", "b", desired=2)
    alone = fleet.trains("a")
    reason = "its workers failed 2 times in a row, no other's did; last: rank 1 was killed by SIGKILL"
    assert alone.tally.quarantined == {"b": reason}
    assert alone.number == 3
    fleet.start("c")
    assert fleet.nodes["b"].init.wait(60) == exits.QUARANTINED, "a node that is not wanted must not bill on"
    assert (fleet.card("b").state, fleet.card("b").reason) == ("quarantined", reason)
    fleet.trains("a", "c", after=alone.number)
    fleet.close()
