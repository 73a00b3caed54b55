"""Runs one after another on the same nodes, by the queue: none is replaced, none waits for another's fault."""

from __future__ import annotations

import json
import signal
import uuid
from typing import Any

import boto3
import pytest

from benchmarks.fleet import RUN, Fleet
from tests.project import SMALL_JOB, wait_for
from trainer import layout
from trainer.node.peers import Generation
from trainer.node.queue import Queue, Turn

pytestmark = pytest.mark.torch

QUICK = "import trainer.node.turns as turns; turns.IDLE_S = 0.3"
"""What makes an idle node look at the queue more often."""

OWN = {"launcher": "torchrun-env", "dataset": "", "code": None}
FAILS = {**OWN, "name": "fails", "command": ["false"]}
SLEEPS = {**OWN, "name": "sleeps", "command": ["sleep", "3"], "dataset": SMALL_JOB["dataset"]}
WRITES = {**OWN, "name": "writes", "command": ["sh", "-c", "echo trained > model && cat model"]}


@pytest.fixture
def sqs(endpoint):
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    return boto3.client("sqs", endpoint_url=endpoint, **keys)


class Submitter:
    """Submits as the command does: first into the bucket, then a message."""

    def __init__(self, fleet: Fleet, sqs, url: str) -> None:
        self.fleet, self.sqs, self.url = fleet, sqs, url
        self.queue = Queue(fleet.bucket, Turn(RUN, fleet.job))

    def submit(self, run: str, job: dict[str, Any]) -> None:
        assert self.queue.add(run, job, "me")
        self.sqs.send_message(QueueUrl=self.url, MessageBody=run)

    def ends(self, run: str):
        return self.fleet._wait(f"the end of {run}", lambda: self.queue.outcome(run), 60)

    def count(self) -> int:
        got = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        return sum(int(got[f"ApproximateNumberOfMessages{kind}"]) for kind in ("", "NotVisible"))

    def members(self, run: str) -> list[set[str]]:
        prefix = f"{layout.run_prefix(run)}/{layout.GENERATIONS}"
        records = [Generation.parse(self.fleet.bucket.get(e.key)) for e in self.fleet.bucket.list(prefix)]
        return [{member.node for member in record.members} for record in records]


def test_nodes_go_from_run_to_run_and_wait_for_more(make_fleet, sqs):
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex[:8]}", Attributes={"ReceiveMessageWaitTimeSeconds": "20"})
    url = url["QueueUrl"]
    fleet = make_fleet(job=SLEEPS, config={"queue": url}, patches={"node": QUICK}, least=2)
    submitter = Submitter(fleet, sqs, url)
    fleet.start("a", "b", desired=2)
    wait_for("a first generation", fleet.generations)
    first = {name: node.processes("trainer.node") for name, node in fleet.nodes.items()}
    submitter.submit("r-2", {**SMALL_JOB, "steps": 20})
    submitter.submit("fails-3", FAILS)
    submitter.submit("r-4", WRITES)
    assert [submitter.ends(run).succeeded for run in (RUN, "r-2", "fails-3", "r-4")] == [True, True, False, True]

    wait_for("nodes that idle", lambda: all("idle until" in node.log() for node in fleet.nodes.values()), 30)
    wait_for("no message left", lambda: submitter.count() == 0, 30)
    submitter.submit("r-5", WRITES)
    assert submitter.ends("r-5").succeeded
    wait_for("no message left", lambda: submitter.count() == 0, 30)

    assert [submitter.members(run)[-1] for run in (RUN, "r-2", "r-4", "r-5")] == [{"a", "b"}] * 4
    for name, node in fleet.nodes.items():
        assert node.processes("trainer.node") == first[name], "the node's agent was replaced"
        assert not node.processes("trainer.train"), "a worker of an ended run is left"
    ended = [submitter.queue.outcome(run).ended for run in (RUN, "r-2", "fails-3", "r-4", "r-5")]
    assert ended == sorted(ended), "not in their order"

    # Each run's record is below its own prefix, and nothing of another's in it.
    for run in ("r-2", "r-4"):
        keys = {entry.key.removeprefix(f"{layout.run_prefix(run)}/") for entry in fleet.bucket.list(f"runs/{run}/")}
        assert {layout.boot_report("a"), layout.boot_report("b"), layout.log_chunk("a", "agent", 0)} <= keys
        assert layout.complete_checkpoints(keys) == ([20] if run == "r-2" else [])
    logs = fleet.bucket.list(f"{layout.run_prefix('r-4')}/{layout.LOGS}a/")
    said = {entry.key.split("/")[-2]: fleet.bucket.get(entry.key).decode() for entry in logs}
    assert said["000001-rank0"] == "trained\n", "another run's generation 1"
    assert said["agent"].count("boot: identify ok") == 1
    assert not list(fleet.nodes["a"].root.glob("mnt/scratch/runs/r-4")), "an ended run's files must make room"
    for run, launched in ((RUN, True), ("r-4", False)):
        page = json.loads(fleet.bucket.get(f"{layout.run_prefix(run)}/{layout.audit_node('a')}"))
        assert bool(page["launched"]) is launched, "the hours of earlier runs are not a later one's"

    fleet.nodes["a"].signal(signal.SIGTERM, "trainer.node")
    wait_for("an idle node's end as it is asked to leave", lambda: not fleet.nodes["a"].processes("trainer.node"), 60)
    assert fleet.nodes["a"].log().endswith("was asked to leave\n")
    fleet.close()
