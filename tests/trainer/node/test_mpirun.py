"""The real `mpirun` over two nodes, which share no key and listen at no port: Open MPI's wheel, and mpi4py's."""

import json
import os
import signal
import socket
import sys
import textwrap
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from trainer import layout
from trainer.node import attend, launchers, processes
from trainer.node.peers import DONE, DRAINED, FAILED, Card, Ended, Generation, Member
from trainer.node.workers import Job, Workers
from trainer.store import FileStore

ROOT = Path(attend.__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Open MPI, whose wheel is installed on Linux")

BEGINS = """
import os, signal, sys, time
from pathlib import Path
from mpi4py import MPI

world = MPI.COMM_WORLD
place = Path(os.environ["TRAINWRIGHT_SCRATCH"])
named = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
"""


class Pair:
    """Two nodes, one of two workers and one of one, as their agents would start and end a generation's workers."""

    def __init__(self, folder, text):
        self.folder = folder
        self.store = FileStore(folder / "store")
        members = Member("a", "127.0.0.1", "0", 2), Member("b", "127.0.0.2", "0", 1)
        self.generation = Generation(1, members, 4321, "first", graceful=False, step=0)
        self.store.put(layout.generation(1), self.generation.json())
        code = folder / "code"
        code.mkdir()
        (code / "helper.py").write_text("")
        (code / "trainer.py").write_text("")  # which is no part of ours
        (code / "job.py").write_text(BEGINS + textwrap.dedent(text))
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(code),
            "TRAINWRIGHT_LIBRARY": str(ROOT),
            "TRAINWRIGHT_STORE": self.store.url(),
        }
        self.jobs = {}
        for name in "ab":
            logs, scratch = folder / name / "logs", folder / name / "scratch"
            self.jobs[name] = Job(
                ["python", "-m", "mpi4py", "job.py"], "r-1", environment, logs, scratch, "mpirun", code
            )
        # Both nodes are one host, which the second one's part of Open MPI must not know.
        renamed = {attend.RENAMED: socket.gethostname()[0]}
        self.jobs["b"] = replace(self.jobs["b"], environment=environment | renamed)
        self.workers = {}

    def start(self, *names):
        for rank, member in enumerate(self.generation.members):
            if member.node in names:
                self.workers[member.node] = Workers.start(self.jobs[member.node], self.generation, rank)

    def tell(self):
        """What agents do: look how workers are, and put their end on the node's card. All ends, once there are."""
        for name, workers in self.workers.items():
            if ended := workers.poll():
                self.store.put(layout.card(name), json.dumps(asdict(Card(name, "", "t", "0", 1, ended=ended))).encode())
        ends = [workers.poll() for workers in self.workers.values()]
        return ends if all(ends) else None

    def log(self, name):
        (path,) = (self.folder / name / "logs").glob("*-rank*.log")
        return path.read_text()

    def ranks(self):
        """The ranks that run, by node, once all three do."""
        found = {
            name: processes.outermost(workers._launched(), launchers.RANKS) for name, workers in self.workers.items()
        }
        begun = list(self.folder.glob("*/scratch/begun*"))
        return found if len(begun) == 3 else None


@pytest.fixture
def pair(tmp_path):
    made = []

    def make(text):
        made.append(Pair(tmp_path, text))
        return made[0]

    yield make
    for workers in made[0].workers.values():
        workers.stop()


def test_ranks_on_both_nodes_compute_together_each_in_its_nodes_environment(pair, wait_for):
    nodes = pair("""
        import helper
        total = world.allreduce(world.rank + 1)
        print(*named, world.size, total, place.parent.name, os.environ["NODE_RANK"], "RANK" in os.environ, flush=True)
    """)
    nodes.start("a", "b")
    assert wait_for("the end", nodes.tell, 60) == [Ended(1, DONE), Ended(1, DONE)], nodes.log("a") + nodes.log("b")
    said = ["0 0 3 6 a 0 False", "1 1 3 6 a 0 False", "2 0 3 6 b 1 False"]
    lines = [line for line in nodes.log("a").splitlines() if not line.startswith("[")]  # not of PRRTE
    assert sorted(lines) == said, "mpirun's log has all ranks' words"


def test_a_rank_that_raises_fails_the_generation_with_what_it_raised_and_blames_no_node(pair, wait_for):
    nodes = pair("""
        world.Barrier()
        if world.rank == 2:
            raise ValueError("bad data")
        world.Barrier()
    """)
    nodes.start("a", "b")
    first, second = wait_for("the end", nodes.tell, 60)
    assert first == Ended(1, FAILED, "mpirun exited with 1: ValueError: bad data", "ValueError: bad data")
    assert (second.how, second.error) == (FAILED, "")


RUNS_ON = """
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    world.Barrier()
    (place / f"begun-{world.rank}").touch()
    while not world.allreduce(len(asked), MPI.MAX):
        time.sleep(0.02)
    print("saved", flush=True)
    MPI.Finalize()
    os._exit(75)
"""


def test_a_drain_of_one_node_lets_every_rank_save(pair, wait_for):
    """`mpirun` that is asked itself kills its ranks half a second later, as DeepSpeed's does at once."""
    nodes = pair(RUNS_ON)
    nodes.start("a", "b")
    wait_for("three ranks", nodes.ranks, 60)
    nodes.workers["b"].drain()
    assert [ended.how for ended in wait_for("the end", nodes.tell, 60)] == [DRAINED, DRAINED]
    assert nodes.log("a").count("saved") == 3


@pytest.mark.parametrize("name", [pytest.param("a", marks=pytest.mark.slow), "b"])
def test_a_generation_that_is_ended_leaves_no_rank_on_any_node(pair, wait_for, gone, name):
    """Open MPI puts ranks into process groups of their own; a GPU's memory would stay taken."""
    nodes = pair(RUNS_ON)
    nodes.start("a", "b")
    ranks = wait_for("three ranks", nodes.ranks, 60)
    assert {node: len(pids) for node, pids in ranks.items()} == {"a": 2, "b": 1}
    nodes.workers[name].stop()
    assert all(gone(pid) for pid in ranks[name])
    assert not nodes.workers[name]._launched()


@pytest.mark.parametrize("part", [pytest.param("attends", marks=pytest.mark.slow), "its daemon"])
def test_a_node_whose_part_was_killed_fails_whatever_mpirun_says(pair, wait_for, gone, part):
    """Open MPI 5.0.11 exits with 0 when it has lost a daemon: the run would have ended well."""
    nodes = pair(RUNS_ON)
    nodes.start("a", "b")
    ranks = wait_for("three ranks", nodes.ranks, 60)
    second = nodes.workers["b"]
    (attends,) = second.processes.values()
    daemon = next(pid for pid in second._launched() - ranks["b"] if processes._parent(pid) == attends.pid)
    os.kill(attends.pid if part == "attends" else daemon, signal.SIGKILL)
    assert wait_for("the end", nodes.tell, 60)[1].how == FAILED
    assert gone(daemon)


def test_a_node_that_does_not_answer_fails_mpirun_with_a_word(pair, wait_for):
    """Here it answers that it can't; that it doesn't answer at all differs by how long it takes."""
    nodes = pair("")
    nodes.jobs["b"] = nodes.jobs["a"]
    nodes.jobs["b"] = replace(nodes.jobs["b"], logs=nodes.folder / "b/logs", scratch=nodes.folder / "b/scratch")
    nodes.start("a", "b")
    first, _ = wait_for("the end", nodes.tell, 60)
    assert first.how == FAILED
    host = socket.gethostname()
    assert f"mpirun's daemon can't be started: b and the leader are both called {host}" in nodes.log("a")
