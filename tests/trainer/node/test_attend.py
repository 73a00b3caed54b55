"""How `mpirun` reaches another node: what it asks for there, and what that node does, without Open MPI in either."""

import json
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from trainer import exits, layout
from trainer.node import attend, remote
from trainer.node.peers import Card, Ended
from trainer.node.remote import Answer, Request
from trainer.store import FileStore, Unavailable

ROOT = Path(attend.__file__).parents[2]


@pytest.fixture
def generation(make_generation):
    return make_generation(1, 1, number=2)


@pytest.fixture
def store(tmp_path, generation):
    made = FileStore(tmp_path / "run")
    made.put(layout.generation(2), generation.json())
    return made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    for module in (attend, remote):
        pauses = SimpleNamespace(sleep=lambda _: time.sleep(0.01), monotonic=time.monotonic)
        monkeypatch.setattr(module, "time", pauses)
    monkeypatch.setattr(attend, "SETTLE_S", 0.5)


@pytest.fixture
def attendance(store):
    """The second node's, which runs lines in a plain shell."""
    made = attend.Attendance(store, 2, 1, lambda line: subprocess.Popen(["/bin/sh", "-c", line]))
    yield made
    if made.child:
        made.child.kill()
        made.child.wait()


def ended(store, generation, how):
    card = Card("a", "10.0.0.1", "t", "0", 1, ended=Ended(generation, how) if how else None)
    store.put(layout.card("a"), json.dumps(asdict(card)).encode())


def ask(store, line, generation=2, host="first"):
    store.put(layout.remote_request(generation, "b"), Request(line, host).json())


def until(path):
    """A line that runs until there is this file."""
    return f"while [ ! -e {path} ]; do sleep 0.02; done"


def answer(store):
    return Answer(**json.loads(store.get(layout.remote_answer(2, "b"))))


@pytest.mark.parametrize(
    ("how", "code"),
    [("done", exits.DONE), ("drained", exits.DRAINED), ("failed", 1), ("stopped", exits.PEER_LOST)],
)
def test_the_other_nodes_end_as_the_leader_does(store, attendance, how, code):
    """Where `mpirun` fails, each node says that its own part failed: no node alone is blamed for another's rank."""
    ended(store, 2, how)
    assert attendance.attend() == code


def test_an_earlier_generations_end_is_waited_over(store, attendance, monkeypatch):
    ended(store, 1, "failed")
    monkeypatch.setattr(attend.time, "sleep", lambda _: ended(store, 2, "done"))
    assert attendance.attend() == exits.DONE


def test_what_is_asked_for_runs_and_the_asker_is_told(store, attendance, monkeypatch, tmp_path):
    ask(store, f"echo ran > {tmp_path}/ran; {until(tmp_path / 'over')}")
    monkeypatch.setattr(attend.time, "sleep", lambda _: (tmp_path / "over").touch() or ended(store, 2, "done"))
    assert attendance.attend() == exits.DONE
    assert answer(store) == Answer(None)
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_what_was_asked_for_in_another_generation_never_runs(store, attendance, monkeypatch):
    ask(store, "exit 0", generation=1)
    ask(store, "exit 0", generation=3)
    monkeypatch.setattr(attend.time, "sleep", lambda _: ended(store, 2, "done"))
    assert attendance.attend() == exits.DONE
    assert attendance.child is None


@pytest.mark.parametrize(("line", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("/nowhere/prted", 127)])
def test_what_cant_run_is_told_to_the_asker(store, attendance, monkeypatch, line, code):
    ask(store, line)
    monkeypatch.setattr(attend.time, "sleep", lambda _: ended(store, 2, "failed"))
    assert attendance.attend() == 1
    assert answer(store).code == code
    assert "on b, whose log says why" in answer(store).said


def test_a_daemon_that_fails_while_mpirun_goes_on_ends_the_generation(store, attendance, monkeypatch):
    monkeypatch.setattr(attend, "NOTICED_S", 0.05)
    ask(store, "exit 3")
    assert attendance.attend() == 1


def test_a_node_called_as_the_leader_runs_nothing(store, attendance, monkeypatch):
    """Open MPI 5.0.11 knows nodes by their hosts' names: with one for both, `mpirun` never ends."""
    ask(store, "exit 0", host=socket.gethostname())
    monkeypatch.setattr(attend.time, "sleep", lambda _: ended(store, 2, "failed"))
    assert attendance.attend() == 1
    assert attendance.child is None
    assert answer(store).code == remote.REFUSED
    assert "give each a host name of its own" in answer(store).said


@pytest.mark.parametrize("line", ["kill -9 $$", "exit 3", "exec sleep 60"])
def test_a_node_whose_daemon_did_not_end_well_failed_though_mpirun_ends_well(store, attendance, monkeypatch, line):
    """Open MPI 5.0.11 exits with 0 when it has lost one."""
    monkeypatch.setattr(attend, "NOTICED_S", 0.1)
    ask(store, line)
    monkeypatch.setattr(attend.time, "sleep", lambda _: ended(store, 2, "done"))
    assert attendance.attend() == 1


def test_an_answer_that_the_store_does_not_take_is_given_again(store, attendance, monkeypatch, tmp_path):
    ask(store, until(tmp_path / "over"))
    refused = []

    def put(key, data, *, if_absent=False):
        if "answer" in key and not refused:
            refused.append(key)
            raise Unavailable("slow down")
        return FileStore.put(store, key, data, if_absent=if_absent)

    monkeypatch.setattr(store, "put", put)

    pauses = iter(range(100))

    def over(_):
        next(pauses)
        (tmp_path / "over").touch()
        if store.exists(layout.remote_answer(2, "b")):
            ended(store, 2, "done")

    monkeypatch.setattr(attend.time, "sleep", over)
    assert attendance.attend() == exits.DONE
    assert answer(store) == Answer(None)


@pytest.fixture
def outage(store, monkeypatch):
    """The store's record of the generation can't be read at first."""
    refused, get = [], store.get

    def refuses(key):
        if key == layout.generation(2) and len(refused) < 2:
            refused.append(key)
            raise Unavailable("slow down")
        return get(key)

    monkeypatch.setattr(store, "get", refuses)
    for module in (attend, remote):
        monkeypatch.setattr(module, "open_store", lambda _: store)
    for name, value in told(store).items():
        monkeypatch.setenv(name, value)
    return refused


def test_a_short_outage_of_the_store_fails_no_node_that_attends(store, outage):
    ended(store, 2, "done")
    assert attend.main() == exits.DONE
    assert len(outage) == 2


def test_a_short_outage_of_the_store_fails_no_mpirun(store, outage):
    store.put(layout.remote_answer(2, "b"), Answer(None).json())
    assert remote.main("10.0.0.2", "prted") == 0
    assert len(outage) == 2


def test_who_asks_waits_until_it_runs(store, attendance, monkeypatch):
    monkeypatch.setenv(attend.RENAMED, socket.gethostname()[0])
    monkeypatch.setattr(attend.time, "sleep", lambda _: attendance.answer and ended(store, 2, "done"))
    other = Thread(target=attendance.attend)
    other.start()
    assert remote.start(store, 2, "10.0.0.2", ["exec", "sleep", "60"]) == Answer(None)
    other.join(10)
    assert attendance.child.args[-1] == "exec sleep 60", "words are joined to one line, as by ssh"


def test_a_node_that_does_not_answer_is_waited_for_no_longer_than_it_may_take(store):
    """For its old workers to save and end; never for ever."""
    times = iter(range(0, 10_000, 20))
    said = remote.start(store, 2, "10.0.0.2", ["prted"], clock=lambda: float(next(times)))
    assert said.code == remote.REFUSED
    assert said.said.startswith("b at 10.0.0.2 has not answered in 200 s: its agent may be gone")
    assert next(times) > 200


def test_only_a_node_of_the_generation_is_asked(store):
    assert remote.start(store, 2, "10.0.0.9", ["prted"]) == Answer(255, "10.0.0.9 is no node of generation 2")
    assert not [entry for entry in store.list() if "remote" in entry.key]


def told(store):
    return {
        "TRAINWRIGHT_STORE": store.url(),
        "TRAINWRIGHT_GENERATION": "2",
        "NODE_RANK": "1",
        "PYTHONPATH": str(ROOT),
        "TRAINWRIGHT_PYTHONPATH": "/code",
    }


def test_mpirun_is_told_by_an_exit_code_and_a_word(store):
    store.put(layout.remote_answer(2, "b"), Answer(127, "no such file").json())
    command = [sys.executable, "-m", "trainer.node.remote", "10.0.0.2", "x"]
    done = subprocess.run(command, env=told(store), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (127, "mpirun's daemon can't be started: no such file\n")


def test_what_was_started_ends_with_what_attends_however_that_ends(store, tmp_path, monkeypatch, wait_for, gone):
    """Also where nothing of it could still be done: the agent was killed, and so it was."""
    monkeypatch.undo()
    ask(store, f'echo "$$ $PYTHONPATH" > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/pid; exec sleep 60')
    with subprocess.Popen([sys.executable, "-m", "trainer.node.attend"], env=told(store)) as process:
        pid, path = wait_for(
            "its child", lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()
        ).split()
        process.kill()
    assert path == "/code"
    wait_for("the child's end", lambda: gone(int(pid)))


def test_who_waits_leaves_when_asked_to(store, wait_for):
    ended(store, 1, "")
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "trainer.node.attend"],
        env=told(store),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while "trainer.node.remote" not in process.stderr.readline():
            pass
        wait_for("its handler", lambda: handles_sigterm(process.pid))
        process.terminate()
        process.stderr.read()
    assert process.returncode == exits.DRAINED


def handles_sigterm(pid):
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return int(caught.split()[1], 16) >> 14 & 1
