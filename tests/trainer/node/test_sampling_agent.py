"""An agent that samples its node, and, where somebody listens, stays to say that its run has ended."""

import json
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from trainer import exits, layout
from trainer.metadata import Identity
from trainer.node import agent as agent_module
from trainer.node import metrics
from trainer.node.agent import Agent
from trainer.node.config import NodeConfig, Paths
from trainer.node.membership import Outcome
from trainer.store import FileStore


class Metadata:
    def identity(self):
        return Identity("i-1", "127.0.0.1", "2026-01-01T00:00:00Z", "m6a.large", "us-west-2a")


class Heard:
    """What CloudWatch hears: whether the run goes on, sample by sample."""

    def __init__(self):
        self.active = []

    def put_metric_data(self, Namespace, MetricData):
        self.active.append((Namespace, MetricData[0]["Values"][0]))


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node of a run that has ended: what its agent does is to find that out."""
    bucket, heard = FileStore(tmp_path / "bucket"), Heard()
    bucket.put("runs/r-1/" + layout.OUTCOME, b'{"succeeded": true, "reason": "done", "ended": 1.0}')
    paths = Paths(tmp_path / "root")
    paths.logs.mkdir(parents=True)
    opened = agent_module.open_store
    monkeypatch.setattr(
        agent_module, "open_store", lambda url, patience=None: bucket if url == "s3://b" else opened(url)
    )
    monkeypatch.setattr(metrics, "_connect", lambda: heard)
    monkeypatch.setattr(metrics, "EVERY_S", 0.02)
    monkeypatch.setattr(agent_module, "LINGER_S", 60.0)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def run(**more):
        config = NodeConfig("aws", "us-west-2", "c1", "b", "r-1", 1, 0, {"dataset": "text"}, **more)
        begun = time.monotonic()
        return Agent(config, paths, Metadata()).run(), time.monotonic() - begun

    run.heard, run.bucket, run.paths = heard, bucket, paths
    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_node_whose_run_has_ended_stays_and_says_so_for_a_bounded_time(node, monkeypatch, capsys):
    """Its agent's end would be silence, which ends no fleet: it would be paid for until somebody looks."""
    monkeypatch.setattr(agent_module, "LINGER_S", 0.4)
    code, took = node(namespace="Trainwright/b")
    assert (code, took > 0.4) == (exits.DONE, True)
    said = [active for _, active in node.heard.active]
    assert len(said) > 3
    assert set(said) == {0.0}, "one that comes late must not keep the others up"
    assert {space for space, _ in node.heard.active} == {"Trainwright/b"}
    assert "says so to CloudWatch until the node is ended" in capsys.readouterr().out


def test_a_node_that_stays_is_ended_by_a_signal_at_once(node):
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGTERM]).start()
    code, took = node(namespace="Trainwright/b")
    assert code == exits.DONE
    assert took < agent_module.LINGER_S / 2


def test_a_node_that_was_asked_to_leave_before_its_runs_end_does_not_stay(node, monkeypatch):
    """Who stops the service, or ends the instance, would wait for it, and then kill it."""

    def train(agent, *_):
        agent.sampler = metrics.Sampler(node.paths.logs / "samples", None, metrics.CloudWatch("space", node.heard))
        agent.lifecycle, agent.generations = SimpleNamespace(attend=time.sleep), SimpleNamespace(leaving=True)
        return Outcome(True, "done", 1.0)

    monkeypatch.setattr(Agent, "_train", train)
    code, took = node(namespace="Trainwright/b")
    assert code == exits.DONE
    assert took < agent_module.LINGER_S / 2


def test_where_nobody_listens_the_agent_ends_with_its_run(node):
    code, took = node()
    assert code == exits.DONE
    assert took < agent_module.LINGER_S / 2
    assert node.heard.active == []


def test_a_run_is_said_to_go_on_from_the_boots_first_step(node, monkeypatch):
    """Also while nodes wait for a dataset, or for enough of them: a fleet at that is not idle."""
    node.bucket.delete("runs/r-1/" + layout.OUTCOME)
    monkeypatch.setattr("trainer.node.tiers.DATASET_WAIT_S", 0.5)
    monkeypatch.setattr("trainer.node.storage.POLL_S", 0.02)
    code, _ = node(namespace="Trainwright/b")
    assert code == exits.STEP_FAILED["storage"], "and a boot that failed doesn't stay"
    assert {active for _, active in node.heard.active} == {1.0}
    (first, *_) = node.bucket.get(f"runs/r-1/{layout.sample_chunk('i-1', 0)}").decode().splitlines()
    assert json.loads(first)["active"] is True
