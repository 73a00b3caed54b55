"""Many agents over one store and one clock of the test's own, through whatever happens to nodes.

What must hold is stated once, and checked in runs that hypothesis makes up: crashes, arrivals, agents that start anew,
pauses, clients and stores that fail.
"""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trainer import layout
from trainer.node.membership import Membership
from trainer.node.peers import DONE, DRAINING, FAILED, STOPPED, Card, Ended
from trainer.node.rules import End, Form, decide
from trainer.store import Entry, Missing, Store, StoreError, Unavailable

SETTLED_S = 30
"""After the last change: more than the time to notice a death, to settle, and to turn."""


class Memory(Store):
    """Objects in a dictionary, as strongly consistent as S3; keeps what was ever written to a generation."""

    def __init__(self):
        self.objects, self.version, self.down = {}, 0, False
        self.refused_twice = []

    def _up(self):
        if self.down:
            raise Unavailable("down")

    def get(self, key):
        self._up()
        if key not in self.objects:
            raise Missing(key)
        return self.objects[key][0]

    def put(self, key, data, *, if_absent=False):
        self._up()
        if if_absent and key in self.objects:
            return False
        if key.startswith(layout.GENERATIONS) and key in self.objects:
            self.refused_twice.append(key)
        self.version += 1
        self.objects[key] = (data, str(self.version))
        return True

    def list(self, prefix=""):
        self._up()
        return [
            Entry(key, len(data), etag) for key, (data, etag) in sorted(self.objects.items()) if key.startswith(prefix)
        ]

    def exists(self, key):
        return key in self.objects

    def delete(self, key):
        self.objects.pop(key, None)

    def upload(self, path, key):
        raise NotImplementedError

    download = abandon = holds = sha256 = upload

    def url(self, key=""):
        return key


@dataclass
class Agent:
    """One agent: its look at the run each second, as `Generations` does it, and workers that are only a number."""

    membership: Membership
    adopted: int = 0
    paused_until: float = 0.0
    formed: list = field(default_factory=list)

    def look(self, now):
        if now < self.paused_until or self.membership.outcome:
            return
        try:
            self.membership.sync()
            if self.membership.outcome:
                return
            told = self.membership.card.ended
            if {end.how for end in self.membership.ends(self.adopted)} & {FAILED, STOPPED} and (
                told is None or told.generation != self.adopted
            ):
                self.membership.say(ended=Ended(self.adopted, STOPPED))
            view = self.membership.view()
            match decide(view):
                case Form() as form:
                    self.formed.append(form)
                    self.membership.form(form, 1, view.step)
                    self.membership.sync()
                case End(succeeded, reason):
                    self.membership.end(succeeded=succeeded, reason=reason)
                    self.membership.sync()
        except StoreError:
            return
        if self.membership.generation:
            self.adopted = self.membership.generation.number


class Simulation:
    def __init__(self, desired, least=1):
        self.store, self.fleet, self.now, self.agents, self.born = Memory(), Memory(), 0.0, {}, 0
        self.fleet.put(layout.FLEET, json.dumps({"min": least, "desired": desired, "max": 9}).encode())
        for _ in range(desired):
            self.arrive()

    def arrive(self):
        self.born += 1
        self.start(f"i-{self.born}")

    def start(self, node):
        """A new agent on the node, the first or a later one."""
        incarnation = f"{node}-{self.now}-{len(self.store.objects)}"
        card = Card(node, "10.0.0.1", f"t{node}", incarnation, 1)
        self.agents[node] = Agent(Membership(self.store, self.fleet, card, clock=lambda: self.now))

    def step(self, seconds):
        for _ in range(seconds):
            self.now += 1
            for agent in list(self.agents.values()):
                agent.look(self.now)

    @property
    def newest(self):
        records = self.store.list(layout.GENERATIONS)
        return json.loads(self.store.get(records[-1].key)) if records else None


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["crash", "arrive", "restart", "pause", "down", "up", "nothing", "fail", "checkpoint"]),
        st.integers(0, 5),
        st.integers(0, 9),
    ),
    max_size=12,
)


def _apply(world, change, which):
    nodes = sorted(world.agents)
    node = nodes[which % len(nodes)] if nodes else None
    if change == "crash" and len(nodes) > 1:
        del world.agents[node]
    elif change == "arrive" and len(nodes) < 6:
        world.arrive()
    elif change == "restart" and node:
        world.start(node)
    elif change == "pause" and node:
        world.agents[node].paused_until = world.now + 5 + 3 * which
    elif change in {"down", "up"}:
        world.store.down = change == "down"
    elif change == "fail" and node and world.agents[node].adopted:
        member = world.agents[node].membership
        member.say(ended=Ended(world.agents[node].adopted, FAILED, "made up"))
    elif change == "checkpoint" and not world.store.down:
        world.store.put(f"{layout.checkpoint(int(world.now) + 1)}manifest.json", b"{}")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 4), CHANGES)
@example(2, [("fail", 0, 3), ("fail", 0, 0)])  # one that fails alone, and is left out
@example(1, [("arrive", 0, 4), ("fail", 1, 3), ("fail", 1, 3), ("crash", 0, 0)])  # and then the other is lost
def test_once_changes_stop_all_live_nodes_are_one_generation_or_the_run_has_ended(desired, changes):
    world = Simulation(desired)
    world.step(4)
    for change, which, seconds in changes:
        _apply(world, change, which)
        world.step(seconds)
    world.store.down = False
    for agent in world.agents.values():
        agent.paused_until = 0.0
    world.step(SETTLED_S)

    assert world.store.refused_twice == [], "a generation was written twice"
    outcomes = {agent.membership.outcome for agent in world.agents.values()}
    assert len(outcomes) == 1
    if outcomes == {None}:
        out = world.newest["tally"]["quarantined"]
        cards = {node: agent.membership.card for node, agent in world.agents.items() if node not in out}
        if not cards:
            return  # who is left is in quarantine, and would have gone
        members = {(m["node"], m["incarnation"]) for m in world.newest["members"]}
        assert members == {(node, card.incarnation) for node, card in cards.items()}
        assert {agent.adopted for agent in world.agents.values()} == {world.newest["number"]}
        before = world.newest["number"]
        world.step(SETTLED_S)
        assert world.newest["number"] == before, "nothing happens, yet the run turns"

        for agent in world.agents.values():
            agent.membership.say(ended=Ended(agent.adopted, DONE))
        world.step(5)
        assert all(a.membership.outcome and a.membership.outcome.succeeded for a in world.agents.values())
    else:
        assert not outcomes.pop().succeeded


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.lists(st.tuples(st.integers(1, 120), st.integers(1, 8)), max_size=6))
def test_no_outage_of_the_store_costs_a_node_its_place(desired, outages):
    world = Simulation(desired)
    world.step(6)
    assert len(world.newest["members"]) == desired
    for down, up in outages:
        world.store.down = True
        world.step(down)
        world.store.down = False
        world.step(up)
    world.step(10)
    assert world.newest["number"] == 1


def test_nodes_that_come_one_by_one_into_a_running_cluster_are_taken_in_and_form_nothing_of_their_own():
    world = Simulation(2)
    world.step(5)
    for _ in range(3):
        world.arrive()
        world.step(8)
    assert len(world.newest["members"]) == 5
    assert world.newest["number"] == 4
    assert [form for node in ("i-3", "i-4", "i-5") for form in world.agents[node].formed] == []


def test_an_agent_that_starts_anew_on_the_leaders_node_takes_its_peers_along():
    world = Simulation(3)
    world.step(6)
    world.start("i-1")
    world.step(SETTLED_S)
    assert [m["node"] for m in world.newest["members"]] == ["i-1", "i-2", "i-3"]
    alone = [f for agent in world.agents.values() for f in agent.formed if len(f.members) < 3]
    assert alone == []


def test_a_drain_leaves_the_node_out_and_a_replacement_is_taken_in():
    world = Simulation(2)
    world.step(5)
    world.agents["i-2"].membership.say(state=DRAINING)
    world.step(3)
    assert [m["node"] for m in world.newest["members"]] == ["i-1"]
    assert world.newest["graceful"] is True
    del world.agents["i-2"]
    world.arrive()
    world.step(8)
    assert [m["node"] for m in world.newest["members"]] == ["i-1", "i-3"]


@pytest.mark.parametrize(("size", "bad"), [(1, "i-1"), (2, "i-1"), (2, "i-2")], ids=["alone", "leader", "follower"])
def test_a_bad_node_that_all_need_is_replaced_and_the_run_goes_on(size, bad):
    """A gang as large as its least, or a fleet of one node, which is most fleets."""
    world = Simulation(size, least=size)
    world.step(5)
    for _ in range(2):
        told = Ended(world.newest["number"], FAILED, "exited with 1: ECC", "ECC", machine=True)
        world.agents[bad].membership.say(ended=told)
        world.step(4)
    assert (world.newest["members"], list(world.newest["tally"]["quarantined"])) == ([], [bad])
    del world.agents[bad]
    world.step(20)
    assert world.newest["members"] == []
    world.arrive()
    world.step(SETTLED_S)
    assert {m["node"] for m in world.newest["members"]} == world.agents.keys()
    assert all(agent.membership.outcome is None for agent in world.agents.values())


def test_a_job_that_always_fails_ends_with_the_reason():
    world = Simulation(2)
    world.step(5)
    for _ in range(3):
        for agent in world.agents.values():
            agent.membership.say(ended=Ended(agent.adopted, FAILED, "rank 1 exited with 1: ValueError: no"))
        world.step(4)
    outcome = world.agents["i-1"].membership.outcome
    assert not outcome.succeeded
    assert "ValueError: no" in outcome.reason


def test_a_lost_node_counts_as_one_loss_and_no_failure():
    """Else a fleet whose nodes the cloud takes often is given up as if its job failed."""
    world = Simulation(2)
    world.step(6)
    del world.agents["i-2"]
    peer = world.agents["i-1"]
    peer.membership.say(ended=Ended(peer.adopted, FAILED, "rank 0 exited with 1: connection closed by peer"))
    world.step(10)
    world.arrive()
    world.step(8)
    assert [m["node"] for m in world.newest["members"]] == ["i-1", "i-3"]
    tally = world.newest["tally"]
    assert (tally["losses"], tally["fruitless"]) == (1, 0)
