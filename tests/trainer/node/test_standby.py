"""Workers in waiting: made once what runs has settled, taken for the next generation, gone with the agent."""

import json
import subprocess
import sys

import pytest

from trainer.node.standby import COMMAND, ROOM_BYTES, SETTLED_S, Standby
from trainer.node.workers import spawn_standby

ECHO = [sys.executable, "-c", "import sys; line = sys.stdin.readline(); open('{path}', 'w').write(line)"]


@pytest.fixture
def standby(tmp_path):
    """One whose clock a test sets, whose memory a test says, and whose processes write what they are told to a file."""
    memory = tmp_path / "meminfo"
    now = [0.0]
    made = []

    def spawn(command, environment):
        words = [word.format(path=tmp_path / f"told-{len(made)}") for word in ECHO]
        made.append((command, environment))
        return subprocess.Popen(words, stdin=subprocess.PIPE)

    kept = Standby(spawn, memory, lambda: now[0])
    kept.now, kept.made = now, made
    kept.has = lambda size: memory.write_text(f"MemTotal: 1 kB\nMemAvailable:  {size // 1024} kB\n")
    kept.has(ROOM_BYTES)
    yield kept
    kept.close()


def settled(standby):
    standby.began()
    standby.now[0] += SETTLED_S


def test_some_are_made_where_nothing_runs_yet(standby):
    """A node that joins while the others save has time for it."""
    standby.keep(1, {})
    assert len(standby.waiting) == 1


def test_none_is_made_while_workers_start(standby):
    standby.began()
    standby.now[0] += SETTLED_S - 0.1
    standby.keep(1, {})
    assert not standby.waiting
    standby.now[0] += 0.1
    standby.keep(1, {"A": "1"})
    assert standby.made == [(COMMAND, {"A": "1"})]


def test_as_many_wait_as_there_are_workers_one_made_at_a_time(standby):
    settled(standby)
    counts = []
    for _ in range(4):
        standby.keep(2, {})
        counts.append(len(standby.waiting))
    assert counts == [1, 2, 2, 2]


def test_one_that_died_is_replaced_and_never_taken(standby, tmp_path):
    settled(standby)
    standby.keep(1, {})
    dead = standby.waiting[0]
    dead.kill()
    dead.wait()
    standby.keep(1, {})
    (alive,) = standby.waiting
    assert alive is not dead
    alive.kill()
    alive.wait()
    assert standby.take({}, tmp_path / "log") is None, "its end would be a worker's failure"


@pytest.mark.parametrize("size", [ROOM_BYTES - 1024, 0])
def test_none_is_made_where_memory_has_no_room(standby, size):
    settled(standby)
    standby.has(size)
    standby.keep(1, {})
    assert not standby.waiting
    standby.memory.unlink()
    standby.keep(1, {})
    assert not standby.waiting


def test_who_is_taken_is_told_which_worker_it_is(standby, tmp_path, wait_for):
    settled(standby)
    standby.keep(1, {})
    log = tmp_path / "000002-rank0.log"
    process = standby.take({"RANK": "0", "SECRET": "s"}, log)
    assert process.wait(60) == 0
    assert json.loads((tmp_path / "told-0").read_text()) == {
        "environment": {"RANK": "0", "SECRET": "s"},
        "log": str(log),
    }
    assert standby.take({}, log) is None, "it was the only one"


def test_those_that_wait_end_with_the_agents_work(standby):
    settled(standby)
    standby.keep(1, {})
    (process,) = standby.waiting
    standby.close()
    assert process.returncode is not None
    assert not standby.waiting


@pytest.mark.torch
def test_it_becomes_the_worker_that_it_is_told_to_be(tmp_path):
    """Its environment is all that it was told and nothing that it had, and what it says is in that worker's log."""
    standby = Standby(spawn_standby, tmp_path / "none")
    path = {"PYTHONPATH": ":".join(sys.path)}
    standby.waiting.append(spawn_standby(COMMAND, {**path, "TRAINWRIGHT_JOB": "/left/over.json"}))
    log = tmp_path / "log"
    log.write_text("before\n")
    process = standby.take({**path, "TRAINWRIGHT_JOB": str(tmp_path / "absent.json"), "RANK": "0"}, log)
    assert process.wait(60) == 1
    said = log.read_text()
    assert said.startswith("before\n")
    assert "absent.json" in said
    assert "/left/over.json" not in said


@pytest.mark.torch
def test_it_ends_when_nobody_can_need_it_any_more():
    process = spawn_standby(COMMAND, {"PYTHONPATH": ":".join(sys.path)})
    process.stdin.close()
    assert process.wait(60) == 0
