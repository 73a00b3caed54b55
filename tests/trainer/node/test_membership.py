"""Heartbeats as one node sees them: whom it takes for alive, and what it never holds against anyone."""

import json
import os

import pytest

from trainer import layout
from trainer.node.membership import DEAD_AFTER_S, HURRIED, LONGEST_GAP_S, QUIET_AFTER_S, Membership, newest_checkpoint
from trainer.node.peers import DRAINED, FAILED, READY, Card, Ended, Generation, Member
from trainer.node.rules import End, Form, decide
from trainer.store import FileStore, Missing, Unavailable


class Shaky(FileStore):
    """A folder that can be out of reach."""

    down = False

    def _path(self, key):
        if self.down:
            raise Unavailable("down")
        return super()._path(key)

    def list(self, prefix=""):
        if self.down:
            raise Unavailable("down")
        return super().list(prefix)


class World:
    """A bucket, a clock, and nodes that look when they are told to."""

    def __init__(self, folder, least=1, desired=2):
        self.bucket = FileStore(folder)
        self.bucket.put(layout.FLEET, json.dumps({"min": least, "desired": desired, "max": 8}).encode())
        self.now = 1000.0

    def node(self, name, incarnation="1"):
        card = Card(name, f"10.0.0.{ord(name)}", f"t-{name}", name + incarnation, 1)
        return Membership(Shaky(self.bucket.root / "runs/r"), self.bucket, card, clock=lambda: self.now)

    def pass_time(self, seconds, *nodes, every=1.0):
        """Time goes by, in which these nodes look once each second."""
        for _ in range(round(seconds / every)):
            self.now += every
            for node in nodes:
                node.sync()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_beat_that_was_there_at_the_first_look_shows_no_life(world):
    """It may be the last of a node that died before this one came."""
    a, b = world.node("a"), world.node("b")
    b.sync()
    a.sync()
    view = a.view()
    assert view.alive == {"a"}
    assert view.unsure == {"b"}
    world.pass_time(1, b, a)
    assert (a.view().alive, a.view().unsure) == ({"a", "b"}, frozenset())


def test_a_beat_that_comes_later_shows_life(world):
    a, b = world.node("a"), world.node("b")
    a.sync()
    world.pass_time(1, b, a)
    assert a.view().alive == {"a", "b"}


def test_the_dead_of_an_earlier_time_are_told_from_the_living_in_the_end(world):
    world.node("a").sync()
    b = world.node("b")
    b.sync()
    world.pass_time(DEAD_AFTER_S, b)
    assert b.view().unsure == {"a"}
    world.pass_time(1, b)
    assert (b.view().alive, b.view().unsure) == ({"b"}, frozenset())


def test_a_late_joiner_does_not_form_a_generation_of_its_own(world):
    """At its first look nobody's beat has changed: it must not take all the others for lost."""
    b, c = world.node("b"), world.node("c")
    world.pass_time(2, b, c)
    b.form(Form(decide(b.view()).members, "first", graceful=False), 1, 0)
    world.pass_time(1, b, c)
    a = world.node("a")  # the oldest, as a node is whose agent starts anew
    a.sync()
    assert a.generation.number == 1
    assert not isinstance(decide(a.view()), Form | End)
    world.pass_time(1, b, c, a)
    world.pass_time(3, b, c, a)
    assert [m.node for m in decide(a.view()).members] == ["a", "b", "c"]


def test_a_node_that_stops_beating_is_lost_after_six_observed_seconds(world):
    a, b = world.node("a"), world.node("b")
    world.pass_time(3, b, a)
    world.pass_time(DEAD_AFTER_S, a)
    assert "b" in a.view().alive
    world.pass_time(1, a)
    assert a.view().alive == {"a"}


def test_a_node_that_misses_three_beats_is_quiet_long_before_it_is_lost(world):
    a, b = world.node("a"), world.node("b")
    world.pass_time(3, b, a)
    world.pass_time(QUIET_AFTER_S, a)
    assert a.view().quiet == frozenset()
    world.pass_time(1, a)
    assert (a.view().quiet, "b" in a.view().alive) == ({"b"}, True)
    world.pass_time(1, b, a)
    assert a.view().quiet == frozenset()


def test_a_pause_of_its_own_does_not_age_its_peers(world):
    """Stopped for an hour (a debugger, a migrated host), then looking before the others have beaten again."""
    a, b = world.node("a"), world.node("b")
    world.pass_time(3, a, b)
    world.now += 3600
    a.sync()
    assert a.view().alive == {"a", "b"}
    assert LONGEST_GAP_S < DEAD_AFTER_S


def test_time_in_which_the_store_is_away_ages_nobody(world):
    a, b = world.node("a"), world.node("b")
    world.pass_time(3, a, b)
    a.store.down = b.store.down = True
    for _ in range(60):
        world.now += 1
        for node in (a, b):
            with pytest.raises(Unavailable):
                node.sync()
    a.store.down = False
    world.pass_time(3, a)  # b's clients take a little longer to come back
    assert a.view().alive == {"a", "b"}


def test_a_first_look_that_breaks_off_takes_nobody_for_alive(world):
    """The listing came, the reading of a card did not: what was listed was there at the first look."""
    world.node("b").sync()
    a = world.node("a")
    read, a.store.get = a.store.get, lambda key: (_ for _ in ()).throw(Unavailable("down"))
    with pytest.raises(Unavailable):
        a.sync()
    a.store.get = read
    a.sync()
    assert a.view().alive == {"a"}


def test_what_a_card_says_is_seen_with_the_next_look(world):
    a, b = world.node("a"), world.node("b")
    world.pass_time(2, a, b)
    b.say(ended=Ended(1, FAILED, "why"))
    assert a.view().cards["b"].ended is None
    world.pass_time(1, b, a)
    assert (a.view().cards["b"].ended, a.view().cards["b"].state) == (Ended(1, FAILED, "why"), READY)


def test_a_card_is_written_and_read_only_when_it_changes(world):
    """One listing a second tells all; more would be paid for by every node, every second."""
    a, b = world.node("a"), world.node("b")
    world.pass_time(2, b, a)
    asked, told = [], []
    get, put = a.store.get, a.store.put
    a.store.get = lambda key: asked.append(key) or get(key)
    a.store.put = lambda key, *rest, **more: told.append(key) or put(key, *rest, **more)
    world.pass_time(3, b, a)
    assert asked == []
    assert told == [layout.beat("a")] * 3


def test_the_first_record_of_a_number_stands(world):
    a, b = world.node("a"), world.node("b")
    world.pass_time(2, a, b)
    members = decide(a.view()).members
    a.form(Form(members, "first", graceful=False), 1, 0)
    b.form(Form(members[::-1], "mine", graceful=False), 2, 0)
    world.pass_time(1, a, b)
    assert a.generation == b.generation
    assert (b.generation.number, b.generation.why) == (1, "first")


def test_a_leader_that_slept_cannot_overrule_what_came_since(world):
    a, b = world.node("a"), world.node("b")
    world.pass_time(2, a, b)
    members = decide(a.view()).members
    for number in (1, 2):
        b.form(Form(members, f"{number}", graceful=False), 1, 0)
        world.pass_time(1, b)
    a.form(Form(members, "stale", graceful=False), 1, 0)
    world.pass_time(1, a, b)
    assert (a.generation.number, a.generation.why) == (2, "2")


def test_the_first_outcome_stands_and_all_see_it(world):
    a, b = world.node("a"), world.node("b")
    world.pass_time(2, a, b)
    b.end(succeeded=False, reason="why")
    a.end(succeeded=True, reason="late")
    world.pass_time(1, a, b)
    for node in (a, b):
        assert (node.outcome.succeeded, node.outcome.reason) == (False, "why")


def test_reading_the_outcome_shows_nobody_that_this_node_is_here(world):
    world.node("a").read_outcome()
    assert world.bucket.list("runs/") == []


def test_a_node_that_joined_a_running_cluster_keeps_to_its_least_size(tmp_path):
    """Its sizes are read when it leads, not only before the first generation: else `nodes.min` is forgotten."""
    world = World(tmp_path, least=2, desired=2)
    a, b = world.node("a"), world.node("b")
    world.pass_time(2, a, b)
    a.form(Form(decide(a.view()).members, "first", graceful=False), 1, 0)
    world.pass_time(1, a, b)
    c = world.node("c")
    world.pass_time(3, a, b, c)
    world.pass_time(DEAD_AFTER_S + 2, c)
    assert c.view().leads
    assert not isinstance(decide(c.view()), Form)


def test_a_fleet_that_was_scaled_is_seen_by_the_leader(world):
    a, b = world.node("a"), world.node("b")
    world.pass_time(2, a, b)
    assert a.view().desired == 2
    world.bucket.put(layout.FLEET, b'{"min": 1, "desired": 5, "max": 8}')
    assert a.view().desired == 5


def test_a_leader_that_does_not_know_the_fleets_size_decides_nothing(world):
    a = world.node("a")
    a.fleet = Shaky(world.bucket.root)
    a.sync()
    a.fleet.down = True
    with pytest.raises(Unavailable):
        a.view()


def test_a_run_by_hand_without_a_cluster_trains_with_who_is_there(world):
    world.bucket.delete(layout.FLEET)
    a = world.node("a")
    a.sync()
    assert isinstance(decide(a.view()), Form)


def test_newcomers_settle_anew_when_another_comes(world):
    a, b, c, d = (world.node(name) for name in "abcd")
    world.pass_time(2, a, b)
    a.form(Form(decide(a.view()).members, "first", graceful=False), 1, 0)
    world.pass_time(3, a, b, c)
    a.view()
    world.pass_time(1, a, b, c)
    assert a.view().joined_s == 1
    world.pass_time(1, a, b, c, d)
    a.sync()
    a.view()
    assert a.view().joined_s == 0
    assert a.view().newcomers == {"c", "d"}


def test_it_is_seen_who_still_runs_workers_of_an_older_generation(world):
    """By what each says it runs: in a row of graceful generations, a member may have started none of the last."""
    a, b, c = nodes = [world.node(name) for name in "abc"]
    members = tuple(Member(node.card.node, node.card.address, node.card.incarnation, 1) for node in nodes)
    for number, graceful in ((1, False), (2, True), (3, True)):
        a.store.put(layout.generation(number), Generation(number, members, 1, "x", graceful, 0).json())
    a.say(started=1)
    b.say(started=1)
    world.pass_time(3, *nodes)
    assert (a.saving(), c.saving()) == ({"b"}, {"a", "b"})
    a.say(ended=Ended(1, DRAINED))
    world.pass_time(1, *nodes)
    assert c.saving() == {"b"}
    a.say(started=3)
    world.pass_time(1, *nodes)
    assert c.saving() == {"b"}, "what runs in the newest saves for none"
    world.pass_time(DEAD_AFTER_S + 1, a, c)
    assert c.saving() == set(), "the dead save nothing"


def test_only_a_checkpoint_with_its_manifest_counts(tmp_path):
    store = FileStore(tmp_path)
    assert newest_checkpoint(store) == 0
    for step in (50, 100):
        store.put(f"{layout.checkpoint(step)}manifest.json", b"{}")
    store.put(f"{layout.checkpoint(150)}rank0", b"half")
    assert newest_checkpoint(store) == 100
    with pytest.raises(Missing):
        store.get("absent")


def test_what_workers_say_is_safe_counts_like_a_checkpoint_also_of_a_node_that_is_gone(world):
    """A user's own program keeps checkpoints of its own: without this, each of its failures would lead nowhere."""
    a, b = world.node("a"), world.node("b")
    b.say(progress=70)
    for node in (a, b, a):
        node.sync()
    a.form(Form((), "first", graceful=False), 1, 0)
    a.sync()
    assert a.view().step == 70
    b.say(progress=50)
    world.pass_time(1, b)
    world.pass_time(20, a)
    assert a.view().step == 70, "b is lost, and what it said stands"
    a.store.put(layout.checkpoint(100) + "manifest.json", b"{}")
    assert a.view().step == 100


def test_one_request_that_the_store_never_answers_costs_no_node_its_place():
    """`sync` runs in line with the beats: what it may wait for one answer must lie below what peers wait for a beat."""
    assert (HURRIED.connect_s + HURRIED.read_s) * HURRIED.attempts < DEAD_AFTER_S


def test_a_wait_for_nodes_ends_when_another_leads(world):
    """Else one that waited a minute ends, hours later, a healthy run as the first thing it does when it leads again."""
    b = world.node("b")
    world.bucket.put(layout.FLEET, json.dumps({"min": 2, "desired": 2, "max": 8}).encode())
    world.pass_time(5, b)
    b.view()
    world.pass_time(60, b)
    assert b.view().short_s == 60
    a = world.node("a")
    world.pass_time(5, b, a)
    assert not b.view().leads
    assert a.view().short_s == 0
    a.form(Form(decide(a.view()).members, "first", graceful=False), 1, 0)
    world.pass_time(100, b, a)
    assert not b.view().leads
    world.pass_time(DEAD_AFTER_S + 2, b)
    assert b.view().leads
    assert b.view().short_s == 0


def written(store, key, at):
    os.utime(store.root / key, (at, at))


def test_how_long_a_run_takes_is_told_by_the_stores_clock_whoever_leads(world):
    """Nodes' clocks differ, and each comes and goes: a run of days would have the time of its youngest leader."""
    a, b = world.node("a"), world.node("b")
    world.pass_time(2, a, b)
    assert a.view().ran_s == 0
    a.form(Form(decide(a.view()).members, "first", graceful=False), 1, 0)
    world.pass_time(1, a, b)
    began = (a.store.root / layout.beat("a")).stat().st_mtime - 5 * 3600
    written(a.store, layout.generation(1), began)
    a.form(Form(a.generation.members, "again", graceful=False), 2, 0)
    late = world.node("c")
    world.pass_time(1, a, b, late)
    for node in (a, b, late):
        assert 5 * 3600 <= node.view().ran_s < 5 * 3600 + 60
    a.store.put(layout.pardon(1), b"{}")
    world.pass_time(1, a)
    assert a.view().ran_s < 60, "another try has all its time"


def test_a_run_whose_time_is_up_is_ended_by_its_leader(world):
    a = world.node("a")
    a.most_s = 3600.0
    world.bucket.put(layout.FLEET, json.dumps({"min": 1, "desired": 1, "max": 1}).encode())
    world.pass_time(2, a)
    a.form(Form(decide(a.view()).members, "first", graceful=False), 1, 0)
    world.pass_time(1, a)
    assert not isinstance(decide(a.view()), End)
    written(a.store, layout.generation(1), (a.store.root / layout.beat("a")).stat().st_mtime - 3601)
    world.pass_time(1, a)
    assert decide(a.view()) == End(succeeded=False, reason="it has run for 1 hours, the most by job.hours")


def test_nobody_waits_for_nodes_while_a_generation_trains(world):
    """Where more are asked for in mid-run, the wait begins when the generation ends, and has all its time."""
    a, b = world.node("a"), world.node("b")
    world.pass_time(2, a, b)
    a.form(Form(decide(a.view()).members, "first", graceful=False), 1, 0)
    world.bucket.put(layout.FLEET, json.dumps({"min": 3, "desired": 3, "max": 8}).encode())
    for _ in range(10):
        world.pass_time(10, a, b)
        assert a.view().short_s == 0
    b.say(ended=Ended(1, FAILED, "no"))
    for _ in range(2):
        world.pass_time(10, b, a)
        waited = a.view().short_s
    assert waited == 10
