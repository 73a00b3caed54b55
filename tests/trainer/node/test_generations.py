"""Agents as processes over one folder, with a job that trains nothing: they meet, turn, drain, fail and end.

Waits are shortened in the agents themselves; what is awaited is always a record that they wrote, never a time.
"""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainer import exits, layout
from trainer.node.generations import FINISHING_S, LINGERING_S, PARTING_S, Generations, Quarantined
from trainer.node.membership import Membership
from trainer.node.peers import (
    DONE,
    DRAINED,
    DRAINING,
    FAILED,
    GRACE_S,
    QUARANTINED,
    STOPPED,
    Card,
    Ended,
    Generation,
    Member,
    Tally,
)
from trainer.node.shipping import Shipper
from trainer.node.steps import BootReport
from trainer.node.workers import KEPT, Workers, environment, trainer_command
from trainer.store import FileStore

ROOT = Path(__file__).parents[3]

AGENT = """
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from trainer.node import generations, lifecycle, membership, peers, rules, shipping
generations.FORMING_S = generations.STEADY_S = generations.NOTICE_S = 0.1
generations.TICK_S = 0.02
generations.GRACE_S = 5
generations.LINGERING_S = generations.FINISHING_S = 1
membership.DEAD_AFTER_S = 1.5
rules.JOIN_SETTLE_S = 0.2
shipping.SHORTEST_S = 0.05
from trainer.node.workers import Job
from trainer.store import FileStore

name, folder = sys.argv[1], Path(sys.argv[2])
place = folder / name
(place / "tmp").mkdir(parents=True, exist_ok=True)

class Metadata:
    notice_s = 120.0

    def interruption(self):
        notice = place / "notice"
        return notice.read_text() if notice.exists() else None

    def terminating(self):
        return (place / "terminating").exists()

    def at_risk(self):
        return None

class AutoScaling:
    def describe_auto_scaling_instances(self, InstanceIds):
        return {{"AutoScalingInstances": [{{"AutoScalingGroupName": "g"}}]}}

    def complete_lifecycle_action(self, **told):
        (place / "completed").write_text(json.dumps(told))

lifecycle.boto3.client = lambda *_, **__: AutoScaling()
store = FileStore(folder / "bucket/runs/r-1")
shipper = shipping.Shipper(store)
shipper.start()
environment = {{"PATH": os.environ["PATH"], "FOLDER": str(folder), "NODE": name}}
job = Job([sys.executable, "-S", str(folder / "job.py")], "r-1", environment, place / "logs", place / "scratch")
card = peers.Card(name, "127.0.0.1", f"t-{{name}}", f"{{name}}-{{os.getpid()}}", 1)
member = membership.Membership(store, FileStore(folder / "bucket"), card)
held = lifecycle.Lifecycle(Metadata(), name, "us-west-2", "drain")
mine = generations.Generations(member, held, job, shipper)
signal.signal(signal.SIGTERM, lambda *_: setattr(mine, "leaving", True))
try:
    print(mine.first()[1], flush=True)
    mine.launch()
    outcome = mine.follow()
finally:
    mine.stop()
    shipper.close()
print("outcome", json.dumps(outcome and [outcome.succeeded, outcome.reason]), flush=True)
"""

JOB = f"""
import json, os, signal, sys, time
from pathlib import Path
folder, rank, generation = Path(os.environ["FOLDER"]), os.environ["RANK"], os.environ["TRAINWRIGHT_GENERATION"]

def drain(*_):
    print("drained", flush=True)
    sys.exit({exits.DRAINED})

signal.signal(signal.SIGTERM, drain)
print("rank", rank, "of", os.environ["WORLD_SIZE"], "in", generation, flush=True)
step = 0
hangs = generation == "1" and (folder / "hang").exists() and (folder / "hang").read_text() == os.environ["NODE"]
while hangs or not (folder / "finish").exists():
    step += 1
    if (folder / "bad").exists() and (folder / "bad").read_text() == os.environ["NODE"]:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    if (folder / "fail").exists():
        sys.exit("made up")
    if rank == "0":
        with open(os.environ["TRAINWRIGHT_METRICS"], "a") as file:
            file.write(json.dumps({{"step": step, "generation": int(generation)}}) + "\\n")
    time.sleep(0.03)
"""


class Cluster:
    def __init__(self, folder, wait_for):
        self.folder, self.wait_for, self.agents = folder, wait_for, {}
        self.bucket = FileStore(folder / "bucket")
        self.run = FileStore(folder / "bucket/runs/r-1")
        (folder / "job.py").write_text(JOB)
        (folder / "agent.py").write_text(AGENT.format(root=str(ROOT)))

    def start(self, *names, desired=None):
        if desired:
            self.bucket.put(layout.FLEET, json.dumps({"min": 1, "desired": desired, "max": 9}).encode())
        for name in names:
            log = (self.folder / f"{name}.log").open("a")
            command = [sys.executable, str(self.folder / "agent.py"), name, str(self.folder)]
            self.agents[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            log.close()

    def generation(self, number):
        """The record, once it is written and all its ranks run."""
        key = layout.generation(number)
        self.wait_for(f"generation {number}", lambda: self.run.exists(key), 60)
        record = Generation.parse(self.run.get(key))
        for rank, member in enumerate(record.members):
            self.wait_for(f"rank {rank}", lambda r=rank, m=member: f"rank {r} of" in self.log(m.node, number, r), 60)
        return record

    def log(self, node, number, rank):
        path = self.folder / node / f"logs/{number:06d}-rank{rank}.log"
        return path.read_text() if path.exists() else ""

    def said(self, name):
        return (self.folder / f"{name}.log").read_text()

    def end(self, name):
        """The agent's own account of how it ended."""
        assert self.agents[name].wait(60) == 0, self.said(name)
        return json.loads(self.said(name).splitlines()[-1].removeprefix("outcome "))

    def touch(self, name):
        (self.folder / name).touch()

    def close(self):
        for agent in self.agents.values():
            if agent.poll() is None:
                agent.kill()
            agent.wait()


@pytest.fixture
def cluster(tmp_path, wait_for):
    cluster = Cluster(tmp_path, wait_for)
    yield cluster
    cluster.close()


def nodes(record):
    return [member.node for member in record.members]


def test_agents_meet_train_and_agree_that_the_run_succeeded(cluster):
    cluster.start("a", "b", desired=2)
    record = cluster.generation(1)
    assert (nodes(record), record.address, record.why) == (["a", "b"], "127.0.0.1", "first")
    cluster.touch("finish")
    assert cluster.end("a") == cluster.end("b") == [True, "every worker ended well"]
    lines = [json.loads(line) for line in cluster.run.get(layout.metrics_chunk(1, 0)).splitlines()]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    for node, rank in (("a", 0), ("b", 1)):
        shipped = cluster.run.get(layout.log_chunk(node, f"000001-rank{rank}", 0))
        assert shipped.decode() == cluster.log(node, 1, rank)


def test_c8_a_node_that_joins_is_taken_in_after_the_others_saved(cluster):
    cluster.start("a", "b", desired=2)
    cluster.generation(1)
    cluster.start("c")
    record = cluster.generation(2)
    assert (nodes(record), record.graceful, record.why) == (["a", "b", "c"], True, "c: joined")
    assert "drained" in cluster.log("a", 1, 0)
    assert "drained" in cluster.log("b", 1, 1)
    assert cluster.run.list(layout.GENERATIONS)[-1].key == layout.generation(2), "the newcomer formed one of its own"


@pytest.mark.parametrize("lost", ["a", "b"], ids=["leader", "follower"])
def test_c7_the_loss_of_a_node_costs_seconds_and_its_workers_go_with_it(cluster, lost, wait_for, gone):
    cluster.start("a", "b", desired=2)
    cluster.generation(1)
    rank = "ab".index(lost)
    workers = _children(cluster.agents[lost].pid)
    assert workers
    cluster.agents[lost].send_signal(signal.SIGKILL)
    record = cluster.generation(2)
    assert (nodes(record), record.graceful, record.tally.losses) == (["ab"[1 - rank]], False, 1)
    assert record.why == f"{lost}: lost"
    for worker in workers:
        wait_for("the lost node's worker", lambda w=worker: gone(w))
    cluster.start(lost)
    assert nodes(cluster.generation(3)) == ["a", "b"]


def _children(pid):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_on_notice_a_node_has_its_ranks_saved_and_stays_out(cluster):
    cluster.start("a", "b", desired=2)
    cluster.generation(1)
    (cluster.folder / "b/notice").write_text("2026-01-01T00:02:00Z")
    record = cluster.generation(2)
    assert (nodes(record), record.graceful) == (["a"], True)
    assert "drained" in cluster.log("b", 1, 1)
    assert "draining: the cloud takes this node away at 2026-01-01T00:02:00Z" in cluster.said("b")
    cluster.touch("finish")
    assert cluster.end("a") == [True, "every worker ended well"]
    assert cluster.end("b")[0] is True, "it still learns how the run ended"


def test_a_node_that_its_group_ends_drains_first_and_says_when_it_is_done(cluster, wait_for):
    """Scaling in takes no step that was done; and the hook's whole time isn't paid for each time."""
    cluster.start("a", "b", desired=2)
    cluster.generation(1)
    (cluster.folder / "b/terminating").touch()
    record = cluster.generation(2)
    assert (nodes(record), record.graceful) == (["a"], True)
    assert "draining: its group ends this node" in cluster.said("b")
    completed = cluster.folder / "b/completed"
    wait_for("the hook's end", completed.exists)
    assert json.loads(completed.read_text()) == {
        "LifecycleHookName": "drain",
        "AutoScalingGroupName": "g",
        "LifecycleActionResult": "CONTINUE",
        "InstanceId": "b",
    }
    assert "drained" in cluster.log("b", 1, 1)
    assert not (cluster.folder / "a/completed").exists()


def test_a_node_that_waits_for_others_lets_its_group_end_it(cluster, wait_for):
    """It would sit in the hook until that has run out."""
    cluster.start("b", desired=2)
    wait_for("the wait", lambda: cluster.run.exists(layout.card("b")))
    (cluster.folder / "b/terminating").touch()
    wait_for("the hook's end", (cluster.folder / "b/completed").exists)
    assert not cluster.run.exists(layout.generation(1))


def test_an_agent_that_is_asked_to_leave_drains_and_ends(cluster):
    cluster.start("a", "b", desired=2)
    cluster.generation(1)
    cluster.agents["a"].send_signal(signal.SIGTERM)
    assert cluster.end("a") is None
    assert "drained" in cluster.log("a", 1, 0)
    assert nodes(cluster.generation(2)) == ["b"]


def test_b9_a_job_that_fails_each_time_ends_the_run_with_its_reason(cluster):
    cluster.start("a", desired=1)
    cluster.touch("fail")
    succeeded, reason = cluster.end("a")
    assert not succeeded
    assert reason.startswith(
        "3 generations in a row ended without a new checkpoint; last: a: rank 0 exited with 1: made up"
    )
    assert len(cluster.run.list(layout.GENERATIONS)) == 3


def test_b9_a_fleet_of_one_node_outlives_that_nodes_gpu(cluster):
    """The same error twice, and nobody else to compare with: it is the machine's all the same, and it is replaced."""
    (cluster.folder / "bad").write_text("a")
    cluster.start("a", desired=1)
    assert cluster.agents["a"].wait(60) != 0
    assert "Quarantined: its workers failed 2 times in a row" in cluster.said("a")
    assert cluster.generation(3).members == ()
    cluster.start("b")
    assert nodes(cluster.generation(4)) == ["b"]
    assert not cluster.run.exists(layout.OUTCOME)


def test_a_new_checkpoint_between_failures_keeps_the_run_going(cluster):
    cluster.start("a", desired=1)
    cluster.generation(1)
    for number in (1, 2, 3, 4):
        cluster.run.put(f"{layout.checkpoint(number * 10)}manifest.json", b"{}")
        os.kill(_children(cluster.agents["a"].pid)[0], signal.SIGKILL)
        record = cluster.generation(number + 1)
        assert (record.tally.fruitless, record.step) == (0, number * 10)
        assert record.why.startswith("a: rank 0 was killed by SIGKILL")


def test_an_agent_that_comes_after_the_end_finds_the_outcome(cluster):
    cluster.start("a", desired=1)
    cluster.generation(1)
    cluster.touch("finish")
    cluster.end("a")
    cluster.start("b")
    assert cluster.end("b") == [True, "every worker ended well"]
    assert "the run has ended" in cluster.said("b")


class Still:
    """A membership whose generation the test sets."""

    def __init__(self, card):
        self.card, self.generation, self.outcome, self.told = card, None, None, {}
        self.others = set()

    def say(self, **told):
        self.told |= told

    def saving(self):
        return self.others


@pytest.fixture
def node(make_job, tmp_path):
    """One whose workers take no notice of being asked."""
    job = make_job("""
        import signal, time
        signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
        print("ready", flush=True)
        while True:
            time.sleep(0.05)
    """)
    card = type("Card", (), {"node": "a", "incarnation": "1"})()
    mine = Generations(Still(card), None, job, Shipper(FileStore(tmp_path / "store")))
    yield mine
    mine.stop()


@pytest.fixture
def turning(node):
    """Brings it to a generation, and says which its workers are of."""

    def turn(number, *, graceful, member=True, grace_s=GRACE_S):
        members = (Member("a", "127.0.0.1", "1" if member else "2", 1),)
        node.membership.generation = Generation(number, members, 1, "test", graceful, 0, grace_s=grace_s)
        node._turn()
        return node.workers.generation.number if node.workers else None

    return turn, node.job


def _ready(job, number, wait_for):
    wait_for("the worker", lambda: "ready" in (job.logs / f"{number:06d}-rank0.log").read_text())


def test_workers_are_given_time_where_they_can_save_and_none_where_they_cannot(turning, wait_for):
    turn, job = turning
    assert turn(1, graceful=False) == 1
    _ready(job, 1, wait_for)
    assert turn(2, graceful=True) == 1
    wait_for("the request", lambda: "asked" in (job.logs / "000001-rank0.log").read_text())
    assert turn(2, graceful=True) == 1
    assert (job.logs / "000001-rank0.log").read_text().count("asked") == 1
    assert turn(3, graceful=False) == 3, "a peer was lost meanwhile: who waits for a save waits for it in vain"


def test_workers_that_do_not_leave_are_ended_when_their_grace_is_over(turning, wait_for):
    turn, job = turning
    turn(1, graceful=False)
    _ready(job, 1, wait_for)
    assert turn(2, graceful=True, grace_s=0.2) == 1
    assert (job.logs / "000001-grace").read_text() == "0.2\n"
    wait_for("the turn", lambda: turn(2, graceful=True, grace_s=0.2) == 2, 30)


def test_a_notice_in_the_midst_of_a_long_save_leaves_the_shorter_of_the_two_times(turning, wait_for):
    """A node joined, and all save for half an hour at most; then the cloud takes one away in two minutes."""
    turn, job = turning
    turn(1, graceful=False)
    _ready(job, 1, wait_for)
    assert turn(2, graceful=True, grace_s=1800) == 1
    assert turn(3, graceful=True, grace_s=0.2) == 1
    assert (job.logs / "000001-grace").read_text() == "0.2\n"
    wait_for("the turn", lambda: turn(3, graceful=True, grace_s=0.2) == 3, 30)


def test_the_time_that_workers_are_told_is_the_time_that_they_have(turning, node, wait_for):
    """A node joins after a notice: its half hour is none for those whose two minutes run."""
    turn, job = turning
    turn(1, graceful=False)
    _ready(job, 1, wait_for)
    told = job.logs / "000001-grace"
    node._drain("notice", 100.0)
    assert turn(2, graceful=True, grace_s=1800) == 1
    assert float(told.read_text()) <= 100
    assert turn(3, graceful=True, grace_s=50) == 1
    node._drain("another notice", 110.0)
    assert float(told.read_text()) <= 50
    assert node.membership.told["grace_s"] <= 50, "the others end theirs by it"


def test_workers_of_a_graceful_generation_start_once_the_others_have_saved(turning, node):
    """Those of a node that joins would meet nobody for half an hour, give up, and have others blamed for it."""
    turn, _ = turning
    node.membership.others = {"b"}
    assert turn(2, graceful=True, grace_s=1800) is None
    assert turn(3, graceful=True, grace_s=1800) is None, "another joins meanwhile"
    node.membership.others = set()
    assert turn(3, graceful=True, grace_s=1800) == 3
    assert node.membership.told["started"] == 3


def test_a_node_that_waits_for_a_save_has_its_next_workers_import_torch_meanwhile(node):
    kept = []
    node.standby = SimpleNamespace(keep=lambda count, _: kept.append(count), close=lambda: None)
    node.job, node.membership.others = replace(node.job, command=trainer_command()), {"b"}
    assert node.job.bundled
    node.membership.card.workers = 2
    members = (Member("b", "127.0.0.1", "1", 2), Member("a", "127.0.0.1", "1", 2))
    node._keep_some_on_standby()
    node.membership.generation = Generation(2, members, 1, "a: joined", True, 0)
    node._turn()
    node._keep_some_on_standby()
    assert kept == [2]


@pytest.mark.parametrize(
    ("graceful", "grace_s"), [(False, 1800), (True, 0)], ids=["a node was lost", "its time is over"]
)
def test_no_save_is_waited_for_that_is_over(turning, node, graceful, grace_s):
    turn, _ = turning
    node.membership.others = {"b"}
    assert turn(2, graceful=graceful, grace_s=grace_s) == 2


def test_a_save_that_is_given_long_is_not_cut_off_because_others_have_left(turning, node, wait_for):
    turn, job = turning
    turn(1, graceful=False)
    _ready(job, 1, wait_for)
    node.membership.ends = lambda number: {Ended(1, DRAINED)}
    node._over_since = -math.inf
    turn(2, graceful=True, grace_s=1800)
    node._stop_with_the_others()
    assert node.workers.running
    node.membership.ends = lambda number: {Ended(1, FAILED)}
    node._stop_with_the_others()
    assert not node.workers.running, "a peer that failed is waited for in vain"


def test_workers_that_outstay_a_notice_are_ended_though_no_generation_follows(turning, node, wait_for):
    """Too few nodes are left for one: those of a node that isn't taken after all would hang for ever."""
    turn, job = turning
    turn(1, graceful=False)
    _ready(job, 1, wait_for)
    node.membership.ends = lambda number: {Ended(1, DRAINED)}
    node._over_since = -math.inf
    node._drain("notice", 100.0)
    node._stop_with_the_others()
    assert node.workers.running
    node._drain("notice", 0.0)
    node._stop_with_the_others()
    assert not node.workers.running


@pytest.fixture
def parted(turning, node, wait_for, monkeypatch):
    """How this node's workers end, which others of their generation don't outlast that ended so."""
    monkeypatch.setattr("trainer.node.workers.STACK_S", 0.0)
    turn, job = turning

    def end(*ends, launcher="torchrun-env"):
        turn(1, graceful=False)
        _ready(job, 1, wait_for)
        node.job = replace(job, launcher=launcher)
        node.membership.ends = lambda number: {*ends}
        node._over_since = -math.inf
        node._stop_with_the_others()
        return node.workers.poll()

    return end


@pytest.mark.parametrize(
    ("reason", "how"),
    [
        ("rank 0: RuntimeError: [/gloo/transport/tcp/pair.cc:561] Connection closed by peer", STOPPED),
        ("", STOPPED),
        ("rank 0: RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms", FAILED),
    ],
)
def test_a_node_whose_peers_connections_broke_is_not_to_blame_unless_they_waited_for_it(parted, reason, how):
    """The one whose network broke says so first; the healthy one would be put in quarantine."""
    assert parted(Ended(1, STOPPED, reason)).how == how


@pytest.mark.parametrize(("launcher", "how"), [("mpirun", FAILED), ("deepspeed", STOPPED), ("torchrun-env", STOPPED)])
def test_under_mpirun_a_node_fails_with_the_one_that_says_so(parted, launcher, how):
    """Where the store was slow, and what attends has not heard of it: the leader alone would be blamed, and put out."""
    assert parted(Ended(1, FAILED, "mpirun exited with 1"), launcher=launcher).how == how


def test_a_node_keeps_what_its_last_generations_left_and_no_more(turning):
    turn, job = turning
    job.logs.mkdir(parents=True)
    old = [job.logs / f"{number:06d}-rank0.log" for number in (1, 2, 3)]
    for path in (*old, job.logs / "agent.log"):
        path.touch()
    turn(KEPT + 2, graceful=False)
    assert [path.exists() for path in old] == [False, False, True]
    assert (job.logs / "agent.log").exists()


def test_an_agent_that_is_asked_to_leave_while_it_waits_for_others_is_seen_to_leave(cluster, wait_for):
    """Else they take it in, and wait for workers that it never starts."""
    cluster.start("a", desired=2)
    wait_for("the wait", lambda: cluster.run.exists(layout.card("a")))
    cluster.agents["a"].send_signal(signal.SIGTERM)
    assert cluster.end("a") is None
    assert Card.parse(cluster.run.get(layout.card("a"))).state == DRAINING


def test_a_generation_without_this_agent_ends_its_workers(turning):
    turn, _ = turning
    turn(1, graceful=False)
    assert turn(2, graceful=False, member=False) is None


def test_workers_that_hang_after_others_are_done_are_ended_and_the_run_goes_on(cluster):
    """One that never returns from its last collective would keep all nodes waiting, and paid for, without end."""
    (cluster.folder / "hang").write_text("b")
    cluster.start("a", "b", desired=2)
    cluster.generation(1)
    (cluster.folder / "finish").touch()
    assert len(cluster.generation(2).members) == 2
    cluster.wait_for("the end", lambda: cluster.run.exists(layout.OUTCOME), 60)
    assert json.loads(cluster.run.get(layout.OUTCOME))["succeeded"]


@pytest.mark.parametrize(
    ("ends", "promising", "broken", "limit"),
    [
        ({DONE}, False, False, FINISHING_S),
        ({DONE}, True, False, math.inf),
        ({DONE, DRAINED}, True, False, LINGERING_S),
        ({DRAINED}, False, False, LINGERING_S),
        ({DONE, FAILED}, True, True, PARTING_S),
        (set(), True, True, PARTING_S),
    ],
)
def test_who_has_work_left_when_the_others_are_done_is_given_time_for_it(ends, promising, broken, limit):
    """Rank 0 of a script may write its last model for minutes; the pulse, where all keep one, tells when it hangs."""
    workers = SimpleNamespace(promising=promising)
    assert Generations(None, None, None, None)._patience(workers, ends, broken=broken) == limit


def test_a_node_that_the_others_left_out_while_it_booted_leaves_in_quarantine(tmp_path):
    """By its own exit code, not as one whose boot failed in the step `peers`."""
    card = Card("a", "127.0.0.1", "t-a", "1", 1)
    member = Membership(FileStore(tmp_path / "run"), FileStore(tmp_path), card)
    others = (Member("b", "127.0.0.1", "1", 1),)
    member.store.put(
        layout.generation(1), Generation(1, others, 1, "x", False, 0, Tally(quarantined={"a": "bad GPU"})).json()
    )
    booted = Generations(member, None, SimpleNamespace(progress=0), None)
    with pytest.raises(Quarantined, match=r"^bad GPU$"):
        BootReport(lambda *_: None).required("peers", booted.first, 10)
    assert member.card.state == QUARANTINED


@pytest.mark.parametrize("asked", [True, False])
def test_what_nccl_says_is_shipped_beside_each_ranks_log_where_it_is_asked_for(
    tmp_path, make_job, make_generation, asked
):
    job, generation = replace(make_job(""), nccl_debug=asked), make_generation(2)
    shipper = Shipper(FileStore(tmp_path / "run"))
    member = SimpleNamespace(card=SimpleNamespace(node="i-1"))
    workers = Workers(generation, job, dict.fromkeys((0, 1)))
    Generations(member, None, job, shipper, workers=workers)._ship(generation)
    shipped = {stream.key(0) for stream in shipper.streams if "nccl" in stream.path.name}
    assert shipped == {layout.log_chunk("i-1", f"000001-nccl{rank}", 0) for rank in (0, 1) if asked}
    paths = {environment(job, generation, 0, rank).get("NCCL_DEBUG_FILE") for rank in (0, 1)}
    assert not asked or paths == {str(stream.path) for stream in shipper.streams if "nccl" in stream.path.name}
