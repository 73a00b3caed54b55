"""The agent's boot, from its configuration to its exit code, with a folder for a bucket and a stub for a trainer."""

import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from trainer import exits, layout
from trainer.metadata import EcsMetadata, Identity
from trainer.node import agent as agent_module
from trainer.node import generations, health
from trainer.node.agent import Agent
from trainer.node.config import NodeConfig, Paths
from trainer.node.fabric import Fabric
from trainer.node.nearby import DataNodes
from trainer.node.queue import Turn
from trainer.node.scratch import Degraded
from trainer.node.serving import PORT
from trainer.store import FileStore, Unavailable

ROOT = Path(__file__).parents[3]
STEPS = ["identify", "storage", "fabric", "health", "peers", "launch"]


class Metadata:
    """A node's own account of itself."""

    address = "127.0.0.1"

    def identity(self):
        return Identity("i-1", self.address, "2026-01-01T00:00:00Z", "m6a.large", "us-west-2a")

    def interruption(self):
        return None

    def terminating(self):
        return False

    def at_risk(self):
        return None


class World:
    def __init__(self, folder, script):
        self.bucket = FileStore(folder / "bucket")
        self.run_store = FileStore(folder / "bucket/runs/r-1")
        self.paths = Paths(folder / "root")
        self.metadata = Metadata()
        self.script = script
        self.bucket.put(layout.FLEET, b'{"min": 1, "desired": 1, "max": 1}')
        self.paths.logs.mkdir(parents=True)

    def pack(self):
        shard = b"\0" * 64
        index = {
            "name": "text",
            "tokens": 32,
            "shards": [{"file": "shard-00000.bin", "sha256": hashlib.sha256(shard).hexdigest()}],
        }
        self.bucket.put("datasets/text/shard-00000.bin", shard)
        self.bucket.put("datasets/text/index.json", json.dumps(index).encode())

    def run(self, gpus=0, job=None, **more):
        job = job or {"dataset": "text", "steps": 3}
        config = NodeConfig("aws", "us-west-2", "c1", "b", "r-1", 1, gpus, job, **more)
        return Agent(config, self.paths, self.metadata).run()

    @property
    def report(self):
        return json.loads(self.run_store.get(layout.boot_report("i-1")))["steps"]


@pytest.fixture
def world(tmp_path, monkeypatch):
    script = tmp_path / "job.py"
    script.write_text(
        "import json, os; json.dump(dict(os.environ), open(os.environ['TRAINWRIGHT_ERROR'] + '.seen', 'w'))"
    )
    world = World(tmp_path, script)
    opened = agent_module.open_store
    monkeypatch.setattr(
        agent_module,
        "open_store",
        lambda url, patience=None: world.bucket if url in {"s3://b", "oss://b"} else opened(url),
    )
    monkeypatch.setattr(agent_module, "trainer_command", lambda: [sys.executable, "-S", str(script)])
    for name in ("FORMING_S", "STEADY_S"):
        monkeypatch.setattr(generations, name, 0.05)
    monkeypatch.setattr(agent_module, "RETRY_S", 0.02)
    monkeypatch.setattr("trainer.node.storage.POLL_S", 0.02)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield world
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_boot_goes_through_all_its_steps_and_the_run_to_its_end(world):
    world.pack()
    assert world.run() == exits.DONE
    assert [(line["step"], line["status"]) for line in world.report] == [
        (step, "ok") for step in (STEPS[0], "scratch", *STEPS[1:3], "system", *STEPS[3:])
    ]
    assert json.loads(world.run_store.get(layout.OUTCOME))["succeeded"] is True
    assert json.loads((world.paths.logs / "boot.json").read_text())["steps"] == world.report


def test_workers_find_what_the_contract_promises(world):
    world.pack()
    world.run()
    seen = json.loads((world.paths.logs / "000001-rank0.error.json.seen").read_text())
    assert json.loads(Path(seen["TRAINWRIGHT_JOB"]).read_text()) == {"dataset": "text", "steps": 3}
    assert seen["TRAINWRIGHT_STORE"] == world.run_store.url()
    assert Path(seen["TRAINWRIGHT_DATA"], "index.json").is_file()
    assert Path(seen["TRAINWRIGHT_SCRATCH"]).is_dir()
    assert seen["GLOO_SOCKET_IFNAME"] == "lo"
    assert seen["CUDA_VISIBLE_DEVICES"] == "", "a type without GPUs uses none"
    assert seen["PATH"] == os.environ["PATH"]


def test_a_jobs_environment_and_nccls_log_reach_workers_and_the_report_and_not_the_trainers_job(world):
    world.pack()
    own = {"environment": {"MINE": "1", "NCCL_SOCKET_IFNAME": "lo,eth0"}, "nccl_debug": True}
    assert world.run(job={"dataset": "text", "steps": 3, **own}) == exits.DONE
    seen = json.loads((world.paths.logs / "000001-rank0.error.json.seen").read_text())
    assert (seen["MINE"], seen["NCCL_SOCKET_IFNAME"], seen["GLOO_SOCKET_IFNAME"]) == ("1", "lo,eth0", "lo")
    assert seen["NCCL_DEBUG_FILE"] == str(world.paths.logs / "000001-rank0.nccl.log")
    assert json.loads(Path(seen["TRAINWRIGHT_JOB"]).read_text()) == {"dataset": "text", "steps": 3}
    (fabric,) = (line["detail"] for line in world.report if line["step"] == "fabric")
    assert "GLOO_SOCKET_IFNAME=lo by the fabric; MINE, NCCL_SOCKET_IFNAME=lo,eth0 by job.environment" in fabric


def test_n11_a_node_whose_gpus_would_go_over_tcp_does_not_join(world, monkeypatch):
    world.pack()
    tried = []
    monkeypatch.setattr(health, "check", lambda *_: "8 GPUs")
    monkeypatch.setattr(agent_module.fabric, "find", lambda *_: Fabric("efa", 4, "lo"))

    def loopback(environment, gpus, kind, folder):
        tried.append((environment["FI_EFA_USE_HUGE_PAGE"], gpus, kind))
        (folder.parent / "loopback").mkdir(exist_ok=True)
        (folder / "rank0.log").write_text("NCCL INFO Using network Socket\n")
        if kind == "efa":
            raise health.Unfit("NCCL uses the network Socket")
        return "all-reduce 400 GB/s"

    monkeypatch.setattr(agent_module.preflight, "loopback", loopback)
    monkeypatch.setattr(agent_module.preflight, "system", lambda *_: (None, ""))
    assert world.run(gpus=8) == exits.STEP_FAILED["health"]
    assert world.report[-1]["detail"] == "Unfit: NCCL uses the network Socket"
    assert b"Using network Socket" in world.run_store.get(layout.log_chunk("i-1", "loopback", 0)), "shipped, to be read"
    world.run(gpus=8, job={"dataset": "text", "steps": 3, "environment": {"NCCL_NET": "Socket"}})
    assert tried == [("0", 8, "efa"), ("0", 8, "tcp")], "who chose the network is not stopped"
    (fit,) = (line["detail"] for line in world.report if line["step"] == "health")
    assert fit == "8 GPUs, all-reduce 400 GB/s"


OWN = "import json, os; json.dump(dict(os.environ), open('seen.json', 'w'))"


def test_a_users_own_command_runs_in_its_code_and_not_beside_ours(world):
    """The bundle's boto3, which knows S3 alone, must not stand before the image's."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("own.py")
        info.size = len(OWN)
        archive.addfile(info, io.BytesIO(OWN.encode()))
    sha256 = hashlib.sha256(buffer.getvalue()).hexdigest()
    world.bucket.put(layout.code(sha256), buffer.getvalue())
    own = {"command": ["python", "own.py"], "code": sha256, "dataset": "", "launcher": "torchrun-env"}
    assert world.run(job=own) == exits.DONE
    folder = world.paths.root / "opt/trainwright/code" / sha256
    seen = json.loads((folder / "seen.json").read_text())
    assert seen["PYTHONPATH"] == str(folder)
    assert seen["TRAINWRIGHT_LIBRARY"] == str(ROOT)
    assert seen["GPUS_PER_NODE"] == "0"
    assert "TRAINWRIGHT_DATA" not in seen
    assert json.loads(world.run_store.get(layout.OUTCOME))["succeeded"] is True


def test_a_command_that_raises_fails_the_run_with_what_it_said(world):
    own = {"command": ["python", "-c", "raise ValueError('no such shape')"], "code": None, "dataset": ""}
    assert world.run(job=own | {"launcher": "torchrun-env"}) == exits.DONE
    outcome = json.loads(world.run_store.get(layout.OUTCOME))
    assert outcome["succeeded"] is False
    assert "ValueError: no such shape" in outcome["reason"]


WARM = "fs-0a.fsx.us-west-2.amazonaws.com@tcp:/abcd"


def test_b7_tiers_that_fail_are_in_the_report_and_the_node_trains(world, monkeypatch):
    """awsome-distributed-ai#927: what is optional degrades; here an image without mdadm and without Lustre's client."""
    world.pack()

    def lesser(paths):
        raise Degraded("1 of 8 instance-store disks, 931 GiB, made anew: the image has no mdadm")

    monkeypatch.setattr("trainer.node.scratch.assemble", lesser)
    monkeypatch.setattr("trainer.node.tools.Tools.has", lambda tools, name: False)
    assert world.run(warm=WARM) == exits.DONE
    lines = {line["step"]: line for line in world.report}
    assert [step for step, line in lines.items() if line["status"] == "degraded"] == ["scratch", "warm"]
    assert lines["scratch"]["detail"].endswith("the image has no mdadm")
    assert "no Lustre client" in lines["warm"]["detail"]
    assert lines["storage"]["detail"].endswith("1 of 1 shards fetched")


def test_workers_read_the_dataset_in_the_warm_tier_once_it_is_mounted(world, monkeypatch):
    world.pack()
    (world.paths.warm / "datasets").mkdir(parents=True)
    shutil.copytree(world.bucket.root / "datasets/text", world.paths.warm / "datasets/text")
    mounted = []
    monkeypatch.setattr(
        "trainer.node.warm.mount", lambda source, paths: mounted.append(source) or (paths.warm, "mounted")
    )
    assert world.run(warm=WARM) == exits.DONE
    assert mounted == [WARM]
    seen = json.loads((world.paths.logs / "000001-rank0.error.json.seen").read_text())
    assert seen["TRAINWRIGHT_DATA"] == str(world.paths.warm / "datasets/text")
    assert not (world.paths.scratch / "datasets").exists(), "nothing is fetched"


def test_a_run_that_has_ended_is_left_alone(world):
    world.run_store.put(layout.OUTCOME, b'{"succeeded": true, "reason": "r", "ended": 1.0}')
    assert world.run() == exits.DONE
    assert [line["step"] for line in world.report] == ["identify"]
    assert world.run_store.list(layout.MEMBERS) == []


def _refuse(*_):
    raise health.Unfit("a GPU is lost")


def test_b7_each_step_that_fails_has_an_exit_code_of_its_own_and_says_why(world, monkeypatch, capsys):
    world.pack()
    monkeypatch.setattr(health, "check", _refuse)
    assert world.run() == exits.STEP_FAILED["health"]
    assert world.report[-1]["detail"] == "Unfit: a GPU is lost"
    assert "gives up: health: Unfit: a GPU is lost" in capsys.readouterr().out
    assert world.run_store.list(layout.MEMBERS) == [], "an unfit node shows itself to nobody"


def test_a_dataset_that_never_comes_ends_the_boot(world, monkeypatch):
    monkeypatch.setattr("trainer.node.tiers.DATASET_WAIT_S", 0.1)
    assert world.run() == exits.STEP_FAILED["storage"]


def test_an_address_that_no_interface_has_ends_the_boot(world, monkeypatch):
    world.pack()
    monkeypatch.setattr("trainer.node.fabric._interfaces", dict)
    assert world.run() == exits.STEP_FAILED["fabric"]


def test_c6_a_node_that_waits_for_others_in_vain_gives_up(world, monkeypatch):
    """Part of a gang would be paid for, idle, for as long as the rest finds no capacity."""
    monkeypatch.setattr(agent_module, "PEERS_LIMIT_S", 1.0)
    world.bucket.put(layout.FLEET, b'{"min": 2, "desired": 2, "max": 2}')
    world.pack()
    assert world.run() == exits.STEP_FAILED["peers"]
    assert world.report[-1]["detail"] == "took longer than 1 s"


def test_n11_a_node_that_lacks_its_fast_devices_is_given_back(world):
    """Over TCP it would train, at the pace of a tenth of what the gang costs."""
    world.pack()
    assert world.run(efa=4) == exits.STEP_FAILED["fabric"]
    assert "Short: 0 EFA devices" in world.report[-1]["detail"]


def test_metadata_that_does_not_answer_ends_the_boot(world):
    def silent():
        raise OSError("timed out")

    world.metadata.identity = silent
    assert world.run() == exits.STEP_FAILED["identify"]
    assert (world.paths.logs / "boot.json").exists(), "what can't be published is on the disk"


def test_a_role_that_has_not_reached_its_node_yet_is_waited_for(world, monkeypatch):
    world.pack()
    read, failures = FileStore.get, [1, 1]

    def get(store, key):
        if key == layout.OUTCOME and failures:
            failures.pop()
            raise Unavailable("no credentials")
        return read(store, key)

    monkeypatch.setattr(FileStore, "get", get)
    assert world.run() == exits.DONE
    assert failures == []


def test_a_node_that_is_asked_to_leave_while_it_boots_leaves(world, monkeypatch):
    """Also in the middle of a step that waits: here for a dataset that nobody packs."""
    monkeypatch.setattr("trainer.node.tiers.DATASET_WAIT_S", 3)
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGTERM]).start()
    assert world.run() == exits.DONE
    assert world.run_store.list(layout.GENERATIONS) == []


def _data_node(world):
    """A node's agent, at an address of its own, as data nodes all listen on one port."""
    world.metadata.address = f"127.70.{os.getpid() % 250}.{os.getpid() // 250 % 250 + 1}"
    config = NodeConfig("aws", "us-west-2", "c1", "b", "text", 0, 0, {"dataset": "text"}, role="data")
    return Agent(config, world.paths, world.metadata)


def test_a_data_node_serves_the_dataset_until_it_is_asked_to_leave(world, wait_for):
    world.pack()
    boot, record = f"{layout.DATA}{layout.boot_report('i-1')}", f"{layout.DATA}{layout.data_node('i-1')}"
    nodes, brought = DataNodes(FileStore(world.bucket.root / "data"), "text", "i-2"), []

    def ask_then_end():
        try:
            wait_for("its boot", lambda: world.bucket.exists(boot) and b"shards fetched" in world.bucket.get(boot))
            brought.append(nodes.bring(hashlib.sha256(b"\0" * 64).hexdigest(), world.paths.root / "shard"))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask_then_end)
    asking.start()
    assert _data_node(world).run() == exits.DONE
    asking.join()
    assert brought == [True]
    steps = json.loads(world.bucket.get(boot))["steps"]
    assert [(line["step"], line["status"]) for line in steps if line["step"] in STEPS] == [
        ("identify", "ok"),
        ("launch", "ok"),
        ("storage", "ok"),
    ]
    assert not world.bucket.exists(record), "nobody asks a node that has left"
    assert world.bucket.list("runs/") == [], "it has no part in any run"


def test_a_data_node_that_cannot_listen_gives_up(world):
    world.pack()
    agent = _data_node(world)
    with socket.create_server((world.metadata.address, PORT)):
        assert agent.run() == exits.STEP_FAILED["launch"]


def test_a_node_asks_data_nodes_where_there_are_some(world, monkeypatch):
    world.pack()
    monkeypatch.setattr("trainer.node.nearby.WAIT_S", 0.0)
    assert world.run(data_nodes=True) == exits.DONE
    (line,) = [line for line in world.report if line["step"] == "storage"]
    assert line["detail"] == "dataset text: 32 tokens, 1 of 1 shards fetched, 0 of them from data nodes"


@pytest.mark.parametrize("content", [None, "", "{}", "[]", "torn {"])
def test_a_configuration_that_is_no_use_is_said_in_one_line(tmp_path, content):
    path = tmp_path / "node.json"
    if content is not None:
        path.write_text(content)
    command = [sys.executable, "-m", "trainer.node", str(path)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == exits.STEP_FAILED["identify"]
    (line,) = done.stderr.splitlines()
    assert line.startswith("agent: no usable configuration: ")


def test_exit_codes_are_all_different_and_none_is_pythons_own():
    codes = [exits.DONE, exits.DRAINED, exits.QUARANTINED, exits.STAGE_FAILED, *exits.STEP_FAILED.values()]
    assert len(set(codes)) == len(codes)
    assert not {1, 2} & set(codes)
    assert [step for step in exits.STEP_FAILED if step != "harden"] == STEPS, "that one is Alibaba Cloud's"


def test_a_nodes_files_lie_below_its_root(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINWRIGHT_ROOT", str(tmp_path))
    paths = Paths.here()
    assert {p.is_relative_to(tmp_path) for p in (paths.logs, paths.state, paths.scratch)} == {True}
    monkeypatch.delenv("TRAINWRIGHT_ROOT")
    assert Paths.here().scratch == Path("/mnt/scratch")


LACKING = {"command": ["python", "own.py"], "code": "0" * 64, "dataset": "", "launcher": "torchrun-env"}


def test_with_a_queue_a_run_that_lacks_what_it_needs_fails_and_makes_way(world, monkeypatch):
    """Else each node would end in turn, and be replaced, and what waits would wait for ever."""

    def nothing_waits(*_):
        raise agent_module.Left

    monkeypatch.setattr(agent_module.Turns, "next", nothing_waits)
    assert world.run(job=LACKING, queue="http://127.0.0.1:9/1/q") == exits.DONE
    outcome = json.loads(world.run_store.get(layout.OUTCOME))
    assert outcome["succeeded"] is False
    assert "no such object" in outcome["reason"]


def test_nodes_begin_with_the_run_that_the_bucket_names_whatever_their_user_data_does(world, monkeypatch):
    """Nodes that were not replaced after a change of the job would be at one run, and new ones at another."""

    def nothing_waits(*_):
        raise agent_module.Left

    monkeypatch.setattr(agent_module.Turns, "next", nothing_waits)
    job = {**LACKING, "command": [sys.executable, "-c", "print('trained')"], "code": None}
    world.bucket.put(layout.OWN, Turn("r-first", job).json())
    assert world.run(job=LACKING, queue="http://127.0.0.1:9/1/q") == exits.DONE
    outcome = FileStore(world.bucket.root / "runs/r-first").get(layout.OUTCOME)
    assert json.loads(outcome)["succeeded"] is True
    assert not world.run_store.list("")


@pytest.fixture
def alone(monkeypatch):
    """Nothing waits in the queue."""

    def nothing_waits(*_):
        raise agent_module.Left

    monkeypatch.setattr(agent_module.Turns, "next", nothing_waits)


QUEUE = {"queue": "http://127.0.0.1:9/1/q"}


def test_what_one_node_lacks_ends_no_run_that_others_train(world, alone):
    """A newcomer's broken disk, or a dataset that was packed anew, is not the run's end."""
    world.run_store.put(layout.card("i-2"), b"{}")
    assert world.run(job=LACKING, **QUEUE) == exits.STEP_FAILED["storage"]
    assert not world.run_store.exists(layout.OUTCOME)


def test_what_a_node_lacks_once_ends_no_run(world, alone, monkeypatch):
    """A shard that is torn on its way, or by this node's disk."""
    world.pack()
    read, torn = FileStore.download, [1]

    def download(store, key, path):
        read(store, key, path)
        if key.startswith("shard") and torn:
            torn.pop()
            path.write_bytes(b"torn")

    monkeypatch.setattr(FileStore, "download", download)
    assert world.run(**QUEUE) == exits.DONE
    assert torn == []
    assert json.loads(world.run_store.get(layout.OUTCOME))["succeeded"] is True


def test_a_bucket_that_does_not_answer_ends_no_run(world, alone, monkeypatch):
    world.pack()
    read = FileStore.get

    def get(store, key):
        if key == "index.json":
            raise Unavailable("timed out")
        return read(store, key)

    monkeypatch.setattr(FileStore, "get", get)
    monkeypatch.setattr("trainer.node.tiers.DATASET_WAIT_S", 0.1)
    assert world.run(**QUEUE) == exits.STEP_FAILED["storage"]
    assert not world.run_store.exists(layout.OUTCOME)


HUGE = {"dataset": "text", "steps": 3, "model": {"layers": 1000, "width": 100_000}}
"""Its checkpoints are larger than any disk."""


def test_with_a_queue_a_run_too_large_for_an_empty_disk_fails_and_makes_way(world, alone):
    """Else each node would exit, until the breaker stopped the fleet."""
    world.pack()
    assert world.run(job=HUGE, **QUEUE) == exits.DONE
    outcome = json.loads(world.run_store.get(layout.OUTCOME))
    assert outcome["succeeded"] is False
    assert "MiB in all, too little for checkpoints" in outcome["reason"]
    assert "nodes.disk_gb" in outcome["reason"]
    assert world.run_store.list(layout.MEMBERS) == []


def _lesser(_):
    raise Degraded("no mdadm")


@pytest.mark.parametrize("why", ["alone", "trained", "degraded"])
def test_a_run_too_large_for_one_nodes_disk_ends_the_node_alone(world, alone, monkeypatch, why):
    """As without a queue, where others train it, and where this node's disk is less than it should be."""
    world.pack()
    if why == "trained":
        world.run_store.put(layout.card("i-2"), b"{}")
    if why == "degraded":
        monkeypatch.setattr("trainer.node.scratch.assemble", _lesser)
    more = {} if why == "alone" else QUEUE
    assert world.run(job=HUGE, **more) == exits.STEP_FAILED["health"]
    assert not world.run_store.exists(layout.OUTCOME)


def test_without_a_queue_a_run_that_lacks_what_it_needs_ends_the_node_alone(world):
    assert world.run(job=LACKING) == exits.STEP_FAILED["storage"]
    assert not world.run_store.exists(layout.OUTCOME)


def test_a_node_that_the_queue_has_called_trains_what_waits_though_its_own_run_has_ended(world, monkeypatch):
    world.run_store.put(layout.OUTCOME, b'{"succeeded": true, "reason": "", "ended": 1.0}')
    job = {**LACKING, "command": [sys.executable, "-c", "print('trained')"], "code": None}
    world.bucket.put(layout.queued(1), Turn("r-2", job, 1, "me", 1.0).json())
    wait, calls = agent_module.Turns.next, []

    def once(*given):
        calls.append(given)
        if len(calls) > 1:
            raise agent_module.Left
        return wait(*given)

    monkeypatch.setattr(agent_module.Turns, "next", once)
    assert world.run(queue="http://127.0.0.1:9/1/q") == exits.DONE
    store = FileStore(world.bucket.root / "runs/r-2")
    assert json.loads(store.get(layout.OUTCOME))["succeeded"] is True
    assert json.loads(store.get(layout.boot_report("i-1")))["steps"][-1]["step"] == "launch"
    assert store.get(layout.log_chunk("i-1", "000001-rank0", 0)) == b"trained\n"
    assert json.loads(store.get(layout.audit_node("i-1")))["launched"], "it was launched for this run"
    assert not world.run_store.exists(layout.audit_node("i-1"))


# --- On Alibaba Cloud


def _there(world, **more):
    config = NodeConfig("alicloud", "cn-hangzhou", "c1", "b", "r-1", 1, 0, {"dataset": "text", "steps": 3}, **more)
    return Agent(config, world.paths, world.metadata).run()


def test_where_the_cloud_tells_no_age_a_node_is_as_old_as_the_bucket_knows_it(world, monkeypatch):
    """The leader is the oldest: by the bucket's clock for all alike, and the same after a restart of the agent."""
    world.pack()
    monkeypatch.setattr(
        world.metadata, "identity", lambda: Identity("i-1", "127.0.0.1", "", "ecs.g8i.xlarge", "cn-hangzhou-j")
    )
    world.run_store.put(layout.seen("i-1"), b"")
    os.utime(world.run_store.root / layout.seen("i-1"), (1_700_000_000, 1_700_000_000))
    assert _there(world) == exits.DONE
    told = json.loads(world.run_store.get(layout.audit_node("i-1")))
    assert told["launched"] == "2023-11-14T22:13:20+00:00"


def test_a_node_that_was_never_seen_is_as_old_as_its_first_boot(world, monkeypatch):
    world.pack()
    monkeypatch.setattr(
        world.metadata, "identity", lambda: Identity("i-1", "127.0.0.1", "", "ecs.g8i.xlarge", "cn-hangzhou-j")
    )
    assert _there(world) == exits.DONE
    (entry,) = world.run_store.list(layout.SEEN)
    launched = datetime.fromisoformat(json.loads(world.run_store.get(layout.audit_node("i-1")))["launched"])
    assert launched.timestamp() == pytest.approx(entry.modified, abs=1e-3)


def test_a_node_of_a_queue_says_what_it_leaves_before_its_group_may_end_it(world, monkeypatch):
    world.run_store.put(layout.OUTCOME, b'{"succeeded": true, "reason": "", "ended": 1.0}')
    left = []
    monkeypatch.setattr("trainer.node.backlog.Backlog.leave", lambda _: left.append(True))

    def released(_turns, _sampler, lifecycle):
        lifecycle.leaving()
        assert left == [True]
        raise agent_module.Left

    monkeypatch.setattr(agent_module.Turns, "next", released)
    assert _there(world, queue="https://1.mns.cn-hangzhou-internal.aliyuncs.com/queues/q") == exits.DONE
    assert left


def test_a_node_that_is_asked_to_leave_its_queue_says_what_it_leaves(world, monkeypatch):
    """Also where no hook of its group holds it: as a spot node, or one that is shut down."""
    world.run_store.put(layout.OUTCOME, b'{"succeeded": true, "reason": "", "ended": 1.0}')
    left = []
    monkeypatch.setattr("trainer.node.backlog.Backlog.leave", lambda _: left.append(True))

    def leaves(*_):
        assert not left
        raise agent_module.Left

    monkeypatch.setattr(agent_module.Turns, "next", leaves)
    assert _there(world, queue="https://1.mns.cn-hangzhou-internal.aliyuncs.com/queues/q") == exits.DONE
    assert left == [True]


class Open(EcsMetadata):
    """A metadata service that answers whoever asks."""

    def identity(self):
        return Identity("i-1", "127.0.0.1", "", "ecs.ebmgn7v.32xlarge", "cn-hangzhou-j")

    def interruption(self):
        return None

    def answers_without_token(self):
        return True


def test_a_node_whose_metadata_service_is_open_ends_with_its_own_reason_and_leaves_it_as_it_is(world, monkeypatch):
    """To close it takes a right that RAM could give it over all nodes of its cluster alone: it asks for nothing."""
    world.pack()
    world.metadata = Open()
    monkeypatch.setattr(agent_module.harden, "LIMIT_S", 0)
    monkeypatch.setattr(agent_module.Api, "call", lambda *asked, **_: pytest.fail(f"asked for {asked}"))
    assert _there(world, harden=True) == exits.STEP_FAILED["harden"]
    assert [line["step"] for line in world.report] == ["identify", "harden"]
    assert "instance metadata answers without a token" in world.report[-1]["detail"]


def test_metadata_is_looked_at_only_where_a_node_was_told_to(world):
    world.pack()
    world.metadata = Open()
    assert _there(world) == exits.DONE
    assert "harden" not in [line["step"] for line in world.report]


def test_metrics_are_shown_at_the_port_that_the_node_was_told(world, monkeypatch):
    world.pack()
    shown = []
    monkeypatch.setattr(agent_module.exposition, "serve", lambda *asked: shown.append(asked))
    assert world.run(prometheus=9100) == exits.DONE
    ((address, port, sample, labels),) = shown
    assert (address, port, labels) == ("127.0.0.1", 9100, {"cluster": "c1", "node": "i-1"})
    assert sample()["active"] in {True, False}


def test_without_a_port_nothing_is_shown(world, monkeypatch):
    world.pack()
    monkeypatch.setattr(agent_module.exposition, "serve", lambda *_: pytest.fail("nobody asked for it"))
    assert world.run() == exits.DONE


def test_a_run_ends_when_its_time_is_up_though_its_program_never_does(world):
    """One that waits for itself, without a pulse, would be paid for until somebody looks."""
    world.pack()
    world.script.write_text("import time; time.sleep(60)")
    world.run(job={"dataset": "text", "steps": 3, "hours": 1 / 3600})
    outcome = json.loads(world.run_store.get(layout.OUTCOME))
    assert not outcome["succeeded"]
    assert outcome["reason"].endswith("hours, the most by job.hours")


@pytest.mark.parametrize("more", [{}, {"queue": "queue"}, {"role": "data"}], ids=["node", "of a queue", "data node"])
def test_a_node_whose_clock_stays_minutes_off_asks_the_bucket_for_nothing(world, monkeypatch, capsys, more):
    def far_off():
        raise health.Unfit("the clock is 400 s off")

    monkeypatch.setattr("trainer.node.preflight.set_clock", far_off)
    world.pack()
    for name in ("get", "list"):
        monkeypatch.setattr(FileStore, name, lambda *_: pytest.fail("asked, with a signature that is refused"))
    assert world.run(**more) == exits.STEP_FAILED["identify"]
    assert "the clock is 400 s off" in capsys.readouterr().out


def test_an_agent_that_is_asked_to_leave_while_it_waits_for_peers_says_so_and_ends(world):
    """It would else go on beating, as one that is ready, for as long as its process takes to end."""
    world.pack()
    world.bucket.put(layout.FLEET, b'{"min": 2, "desired": 2, "max": 2}')
    card = world.run_store.root / layout.card("i-1")

    def ask():
        while not card.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    assert world.run() == exits.DONE
    asking.join()
    assert json.loads(card.read_text())["state"] == "draining"
