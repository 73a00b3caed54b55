"""The sign of life that a worker owes its agent: held to its own word, timed by the agent's clock alone."""

import os
import subprocess

import pytest

from trainer.pulse import LINE, LONGEST_GAP_S, PATIENCE_S, STOPPED_S, WITH_PEERS, Pulse, Pulses


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def watched(tmp_path):
    """A rank's pulse, its agent's view of it, and time, in which the agent looks each second."""
    clock, path = Clock(), tmp_path / "pulse"
    pulses = Pulses({3: path}, clock)

    def after(seconds):
        broken = {}
        for _ in range(seconds):
            clock.now += 1
            broken = pulses.broken()
        return broken

    return Pulse(path), after, clock, path


def test_a_broken_promise_is_found_and_says_what_was_done(watched):
    pulse, after, _, _ = watched
    pulse.promise("step 7", 10)
    assert after(11) == {}
    assert after(1) == {3: "step 7"}


def test_each_promise_begins_anew(watched):
    pulse, after, _, _ = watched
    for step in range(5):
        pulse.promise(f"step {step}", 10)
        assert after(9) == {}
    pulse.promise("the last checkpoint", 100)
    assert after(99) == {}
    assert after(3) == {3: "the last checkpoint"}


def test_the_same_promise_again_counts(watched):
    pulse, after, _, path = watched
    pulse.promise("step 7", 10)
    assert after(9) == {}
    pulse.promise("step 7", 10)
    os.utime(path, ns=(1, 1))  # file systems keep time in ticks, and this test takes less than one
    assert after(9) == {}


def test_one_that_never_promised_is_never_found(watched):
    _, after, _, path = watched
    assert after(10_000) == {}
    path.write_text("nonsense")
    assert after(10_000) == {}
    path.unlink()
    assert after(10_000) == {}


def test_a_pause_of_the_agent_is_not_held_against_its_workers(watched):
    """A node that was frozen for an hour finds its own worker as it was."""
    pulse, after, clock, _ = watched
    pulse.promise("step 7", 10)
    assert after(2) == {}
    clock.now += 3600
    assert after(1) == {}
    assert LONGEST_GAP_S < 10


def test_a_shorter_promise_leaves_nothing_of_a_longer_one(watched):
    pulse, after, _, path = watched
    pulse.promise("x" * 200, 1)
    pulse.promise("a b", 2.5)
    assert path.read_text().strip() == "2.5 a b"
    assert path.stat().st_size == LINE
    assert after(4) == {3: "a b"}


def test_a_script_may_promise_from_a_shell(watched):
    _, after, _, path = watched
    subprocess.run(["sh", "-c", f'echo "5 evaluating" > {path}'], check=True)
    assert after(5) == {}
    assert after(2) == {3: "evaluating"}


def test_without_an_agent_nobody_is_told(tmp_path):
    Pulse(None).promise("step 1", 10)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_ends_no_worker(tmp_path):
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    Pulse(full).promise("step 1", 600)
    Pulse(tmp_path / "nowhere" / "pulse").promise("step 1", 600)


def test_one_that_waits_for_peers_is_given_longer_than_they_are(watched):
    """All wait for the one that hangs: it must be found before they are."""
    pulse, after, _, _ = watched
    pulse.promise(f"step 7, {WITH_PEERS}", 10)
    assert after(11 + int(PATIENCE_S)) == {}
    assert after(1) == {3: "step 7, with its peers"}


@pytest.fixture
def two(tmp_path):
    """Two ranks with a promise of an hour, of which the test sets which are stopped."""
    clock, stopped = Clock(), set()
    paths = {rank: tmp_path / str(rank) for rank in (0, 1)}
    pulses = Pulses(paths, clock, stopped=stopped.__contains__)
    for path in paths.values():
        Pulse(path).promise(f"step 7, {WITH_PEERS}", 3600)

    def after(seconds):
        broken = {}
        for _ in range(seconds):
            clock.now += 1
            broken = pulses.broken()
        return broken

    return pulses, stopped, after


def test_a_process_that_is_stopped_hangs_whatever_it_promised(two):
    pulses, stopped, after = two
    assert after(5) == {}
    stopped.add(1)
    assert after(1 + int(STOPPED_S)) == {}
    assert after(1) == {1: "step 7, with its peers"}
    assert pulses.held_up([0, 1]) == [0], "one that is stopped waits for nobody"


def test_a_process_that_is_stopped_for_a_moment_has_its_time_anew(two):
    _, stopped, after = two
    for _ in range(5):
        stopped.add(1)
        assert after(int(STOPPED_S)) == {}
        stopped.clear()
        assert after(1) == {}


def test_in_doubt_every_promise_holds_longer(tmp_path):
    clock, path = Clock(), tmp_path / "pulse"
    pulses = Pulses({0: path}, clock, more_s=60)
    Pulse(path).promise("step 7", 10)
    looks = [pulses.broken()]
    for _ in range(72):
        clock.now += 1
        looks.append(pulses.broken())
    assert [look for look in looks if look] == [{0: "step 7"}] * 2


def test_one_that_never_begins_hangs_where_its_first_promise_has_a_limit(tmp_path):
    """It waits for its disk, or for itself, before it has promised anything."""
    clock, paths = Clock(), {rank: tmp_path / f"{rank}" for rank in range(3)}
    pulses, endless = Pulses(paths, clock, first_s=60), Pulses(paths, clock)
    Pulse(paths[1]).promise("its start", 600)
    paths[2].touch()  # as where the disk had room for a file's name alone
    for _ in range(60):
        clock.now += 1
        assert (pulses.broken(), endless.broken()) == ({}, {})
    clock.now += 1
    assert (pulses.broken(), endless.broken()) == ({0: "its start"}, {})
