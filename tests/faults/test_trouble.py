"""Notices, disks that fill, files that rot, clocks that differ, ranks that hang: nodes stay.

One fleet goes from fault to fault; the clock of every other node is a quarter of an hour ahead all the while. What
costs it a node is the last. Facts: trainer.md, section 2, rows 4, 7, 13, 15, 20.
"""

from __future__ import annotations

import re
import signal
import time

import pytest

from benchmarks.fleet import HARMED
from emulator import processes
from tests.faults.pair import Pair, goes_on, members, same_again
from tests.project import wait_for
from trainer.train.checkpoint import steps_in

pytestmark = pytest.mark.torch

AHEAD_S = 900

SKEWED = f"""
import os, time
if ord(os.environ["TRAINWRIGHT_ROOT"][-1]) % 2 == 0:
    read = time.time
    time.time = lambda: read() + {AHEAD_S}
"""


@pytest.fixture(scope="module")
def shared(make_fleet):
    job = {"checkpoint": {"every_steps": 20}}
    made = Pair(lambda: make_fleet(job=job, patches={"node": SKEWED, "train": SKEWED + HARMED}))
    yield made
    made.fleet.close()


@pytest.fixture
def pair(shared):
    shared.before = shared.ready()
    yield shared
    same_again(shared.fleet.steps())


def test_nodes_whose_clocks_differ_stay_together_and_advice_to_leave_stops_nobody(pair):
    """torch's own rendezvous evicts nodes whose clocks differ by 15 s. A node that is to go is ended by its group."""
    advised = pair.fleet.nodes[pair.names[0]]
    pair.fleet.notice(advised.name, "rebalance", 0)
    wait_for("the advice is seen", lambda: "the cloud may take this node away soon" in advised.log())
    goes_on(pair)
    clocks = {name: _clock(pair.fleet.nodes[name]) for name in members(pair.before)}
    assert AHEAD_S - 60 < abs(clocks[pair.names[0]] - clocks[pair.names[1]]) < AHEAD_S + 60


def _clock(node):
    """The first time of day in a node's log, in seconds."""
    hours, minutes, seconds = node.log().split(" ", 1)[0].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def test_a_full_scratch_fails_the_save_and_not_the_run(pair):
    leader = members(pair.before)[0]
    node, number = pair.fleet.nodes[leader], pair.before.number
    standing = pair.fleet.checkpoints()
    (node.root / "full").touch()
    try:
        failed = wait_for("a save fails for want of space", lambda: _out_of_space(pair.fleet, number))
        goes_on(pair)
        assert standing[-1] in pair.fleet.checkpoints(), "what stood before must go on standing"
        scratch = next(node.root.glob("mnt/scratch/runs/*/checkpoints"))
        assert steps_in(scratch), "and on scratch"
    finally:
        (node.root / "full").unlink()
    pair.fleet.saved(beyond=failed[0]["step"])
    goes_on(pair)


def _out_of_space(fleet, number):
    return [one for one in fleet.events("checkpoint-failed", number) if "No space left on device" in one["error"]]


@pytest.mark.parametrize("damage", [pytest.param("cut short", marks=pytest.mark.slow), "altered"])
def test_a_damaged_newest_checkpoint_is_set_aside_for_the_one_before(pair, damage):
    leader, other = members(pair.before)
    fleet = pair.fleet
    wait_for("two checkpoints", lambda: len(fleet.checkpoints()) > 1)
    for name in (leader, other):
        fleet.nodes[name].signal(signal.SIGSTOP, "trainer.node")  # no new generation until the damage is done
    for name in (other, leader):
        fleet.nodes[name].signal(signal.SIGKILL, "trainer.train")
    wait_for("the workers' end", lambda: not any(_workers(fleet, name) for name in (leader, other)))
    scratch = next(fleet.nodes[leader].root.glob("mnt/scratch/runs/*/checkpoints"))
    newest = max(*fleet.checkpoints(), *steps_in(scratch))
    part = f"step-{newest:09d}/model.pt"
    content = (scratch / part).read_bytes()
    bad = content[:-1] if damage == "cut short" else content[:-1] + bytes([content[-1] ^ 1])
    (scratch / part).write_bytes(bad)
    fleet.store.put(f"checkpoints/{part}", bad)
    for name in (leader, other):
        fleet.nodes[name].signal(signal.SIGCONT, "trainer.node")
    after = fleet.trains(leader, other, after=pair.before.number)
    assert fleet.events("resume", after.number)[0]["step"] < newest
    assert (scratch / f"step-{newest:09d}.corrupt").is_dir()
    assert "set aside" in fleet.nodes[leader].log(f"{after.number:06d}-rank0")


def _workers(fleet, name):
    return [pid for pid in fleet.nodes[name].processes("trainer.train") if processes.started(pid) is not None]


def test_a_rank_that_is_stopped_is_named_and_the_run_goes_on(pair):
    """Its node beats on; its peers wait in a collective (pytorch#118369)."""
    other = members(pair.before)[1]
    pair.fleet.nodes[other].signal(signal.SIGSTOP, "trainer.train")
    _goes_on_after_a_hang(pair, other, "it broke its promise of a sign of life: rank 1 hangs in step ")


def test_a_rank_that_hangs_in_its_own_code_is_named_with_its_place(pair):
    """Not its peers, which wait for it."""
    leader = members(pair.before)[0]
    pair.fleet.harm(leader, "hangs-computing")
    why = r"it broke its promise of a sign of life: rank 0 hangs in step \d+, computing, at "
    _goes_on_after_a_hang(pair, leader, why)


@pytest.mark.slow
def test_a_rank_that_hangs_as_it_reads_is_named_once_its_peers_give_up(pair):
    """A file system may be to blame, which stalls for all alike: so it is given longer than they wait."""
    other = members(pair.before)[1]
    pair.fleet.harm(other, "hangs-reading")
    _goes_on_after_a_hang(pair, other, r"its peers waited in vain: rank 1 hangs in step \d+, reading data, at ")


def _goes_on_after_a_hang(pair, node, why):
    after = pair.fleet.trains(*members(pair.before), after=pair.before.number)
    assert after.number == pair.before.number + 1
    assert re.match(f"{node}: {why}", after.why), after.why
    assert after.tally.blamed == {node: pair.before.tally.blamed.get(node, 0) + 1}


def test_on_notice_a_node_hands_over_before_the_deadline(pair):
    leader, other = members(pair.before)
    pair.fleet.notice(leader, "spot", 120)
    noticed = time.time()
    after = pair.fleet.trains(other, after=pair.before.number)
    assert time.time() < noticed + 110, "the node would be gone"
    assert after.graceful
    assert "drained" in after.why
    drained = pair.fleet.events("drain", pair.before.number)[0]["step"]
    assert pair.fleet.events("resume", after.number)[0]["step"] == drained, "a step was lost although there was time"
    assert "draining: the cloud takes this node away at " in pair.fleet.nodes[leader].log()
    pair.fleet.nodes[leader].signal(signal.SIGKILL)  # as the cloud does at last
    assert after.tally.losses == 0
