"""The agent's boot, from its configuration to its exit code, with a folder for a bucket and a stub for a trainer."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trainer import exits, layout
from trainer.metadata import Identity
from trainer.node import agent as agent_module
from trainer.node import generations, health
from trainer.node.agent import Agent
from trainer.node.config import NodeConfig, Paths
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

    def run(self, gpus=0):
        config = NodeConfig("aws", "us-west-2", "c1", "b", "r-1", 1, gpus, {"dataset": "text", "steps": 3})
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
        agent_module, "open_store", lambda url, patience=None: world.bucket if url == "s3://b" else opened(url)
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
    assert [(line["step"], line["status"]) for line in world.report] == [(step, "ok") for step in STEPS]
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
    monkeypatch.setattr(agent_module, "DATASET_WAIT_S", 0.1)
    assert world.run() == exits.STEP_FAILED["storage"]


def test_an_address_that_no_interface_has_ends_the_boot(world, monkeypatch):
    world.pack()
    monkeypatch.setattr("trainer.node.fabric._interfaces", dict)
    assert world.run() == exits.STEP_FAILED["fabric"]


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
    monkeypatch.setattr(agent_module, "DATASET_WAIT_S", 3)
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGTERM]).start()
    assert world.run() == exits.DONE
    assert world.run_store.list(layout.GENERATIONS) == []


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
    codes = [exits.DONE, exits.DRAINED, exits.STAGE_FAILED, *exits.STEP_FAILED.values()]
    assert len(set(codes)) == len(codes)
    assert not {1, 2} & set(codes)
    assert list(exits.STEP_FAILED) == STEPS


def test_a_nodes_files_lie_below_its_root(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINWRIGHT_ROOT", str(tmp_path))
    paths = Paths.here()
    assert {p.is_relative_to(tmp_path) for p in (paths.logs, paths.state, paths.scratch)} == {True}
    monkeypatch.delenv("TRAINWRIGHT_ROOT")
    assert Paths.here().scratch == Path("/mnt/scratch")
