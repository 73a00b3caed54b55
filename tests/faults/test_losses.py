"""Processes, nodes and stores that die, freeze, come and go: the others compute on what they would have computed.

One fleet goes from fault to fault; the one that costs it two nodes is the last, since each has to be replaced for the
next. Facts: trainer.md, section 2, rows 1, 2, 3, 7, 8.
"""

from __future__ import annotations

import signal
import time

import pytest

from tests.faults.pair import Pair, goes_on, members, same_again
from tests.project import wait_for
from trainer.node.membership import DEAD_AFTER_S

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def shared(make_fleet):
    soon = "import trainer.node.standby as standby\nstandby.SETTLED_S = 1.0\n"
    made = Pair(lambda: make_fleet(job={"checkpoint": {"every_steps": 20}}, patches={"node": soon}))
    yield made
    made.fleet.close()


@pytest.fixture
def pair(shared):
    shared.before = shared.ready()
    yield shared
    same_again(shared.fleet.steps())


def test_a_killed_worker_starts_again_with_its_peers(pair):
    leader, other = members(pair.before)
    nodes = pair.fleet.nodes
    waiting = {name: wait_for("one waits", lambda name=name: nodes[name].standbys()) for name in (leader, other)}
    nodes[other].signal(signal.SIGKILL, "trainer.train")
    after = pair.fleet.trains(leader, other, after=pair.before.number)
    assert {name: nodes[name].processes("trainer.train") for name in waiting} == waiting, "torch was imported anew"
    assert after.why == f"{other}: rank 1 was killed by SIGKILL"
    assert after.number == pair.before.number + 1, "peers that lost it made a generation of their own"
    assert after.tally.losses == 0


def test_a_killed_agent_takes_its_workers_along_and_comes_back_as_itself(pair, wait_gone):
    """A service is started anew by systemd; orphans would train on beside the next generation (facts, section 3)."""
    leader, other = members(pair.before)
    workers = pair.fleet.nodes[other].processes("trainer.train")
    assert workers
    pair.fleet.nodes[other].signal(signal.SIGKILL, "trainer.node")
    wait_gone(workers)
    pair.fleet.start(other)
    after = pair.fleet.trains(leader, other, after=pair.before.number)
    assert pair.fleet.generations()[pair.before.number + 1].why == f"{other}: lost"
    assert after.number <= pair.before.number + 2


def test_the_leaders_node_dies_and_the_next_one_leads(pair):
    leader, other = members(pair.before)
    pair.fleet.nodes[leader].signal(signal.SIGKILL)
    after = pair.fleet.trains(other, after=pair.before.number)
    assert (after.why, after.number) == (f"{leader}: lost", pair.before.number + 1)
    assert after.address != pair.before.address, "the address where workers meet is gone with the node"
    assert (after.tally.losses, after.tally.fruitless) == (1, 0)
    resumed = pair.fleet.events("resume", after.number)[0]["step"]
    assert resumed % 20 == 0
    assert resumed >= after.step


def test_a_frozen_node_is_left_behind_and_taken_back_when_it_thaws(pair):
    """Its connections stay open: nothing but its silence tells (pytorch#111646)."""
    leader, other = members(pair.before)
    pair.fleet.nodes[other].signal(signal.SIGSTOP)
    try:
        after = pair.fleet.trains(leader, after=pair.before.number)
        assert after.why == f"{other}: lost"
    finally:
        pair.fleet.nodes[other].signal(signal.SIGCONT)
    again = pair.fleet.trains(leader, other, after=after.number)
    assert pair.fleet.generations()[after.number + 1].graceful
    assert again.tally.fruitless == 0


def test_a_node_comes_and_another_leaves_on_request(pair):
    """Late joins kill torchrun's jobs (facts, section 3)."""
    first, second = members(pair.before)
    third = pair.add()
    three = pair.fleet.trains(first, second, third, after=pair.before.number)
    assert (three.why, three.graceful) == (f"{third}: joined", True)
    resumed = pair.fleet.events("resume", three.number)[0]["step"]
    assert resumed == pair.fleet.steps(pair.before.number)[-1]["step"], "a step was lost although all could save"
    pair.fleet.nodes[second].signal(signal.SIGTERM, "trainer.node")
    two = pair.fleet.trains(first, third, after=three.number)
    assert two.graceful
    assert "drained" in two.why
    assert "was asked to leave" in pair.fleet.nodes[second].log()
    pair.fleet.nodes[second].signal(signal.SIGKILL)  # as the cloud does at last


@pytest.mark.parametrize("seconds", [DEAD_AFTER_S + 3, pytest.param(60, marks=pytest.mark.slow)])
def test_a_store_that_is_away_and_then_slow_costs_no_step(pair, seconds):
    """Nobody is dead because nobody can look. What fails meanwhile waits for the store: no generation can follow."""
    fleet = pair.fleet
    fleet.gate.shut = True
    try:
        goes_on(pair)
        time.sleep(seconds)
        goes_on(pair)
    finally:
        fleet.gate.shut = False
    fleet.gate.delay_s = 0.1
    try:
        begun = fleet.steps(pair.before.number)[-1]["step"]
        fleet.saved(beyond=begun)
        goes_on(pair)
    finally:
        fleet.gate.delay_s = 0.0


def test_two_nodes_at_once_and_the_third_goes_on(pair):
    first, second = members(pair.before)
    third = pair.add()
    three = pair.fleet.trains(first, second, third, after=pair.before.number)
    for name in (first, second):
        pair.fleet.nodes[name].signal(signal.SIGKILL)
    after = pair.fleet.trains(third, after=three.number)
    assert after.why.endswith(": lost")
