"""An Alibaba Cloud cluster on the real engine, from nothing to a trained model, on the embedded cloud."""

from __future__ import annotations

import json
import signal

import pytest

from emulator.notices import raise_notice
from tests.project import Project, wait_for

pytestmark = [pytest.mark.engine, pytest.mark.torch]


def test_up_trains_two_nodes_to_the_end_and_down_leaves_nothing(alibaba: Project) -> None:
    project = alibaba
    up = project.trainwright("up")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "Trained to the end" in up.stdout
    assert up.stdout.rstrip().endswith("trainwright down --stack local-alicloud ends the cluster")

    outputs = project.outputs()
    assert outputs["group"].startswith("asg-")
    assert outputs["keyArn"].startswith("acs:kms:ap-southeast-1:")
    history = project.history()
    history.refresh()
    assert history.outcome is not None
    assert history.outcome.succeeded
    assert [len(generation.members) for generation in history.generations.values()] == [2]
    assert [step.step for step in history.steps] == list(range(1, 151))
    assert history.checkpoints[-1] == 150

    status = json.loads(project.trainwright("status", "--json").stdout)
    assert {node["state"] for node in status["nodes"]} == {"done"}
    logs = project.trainwright("logs", "--stream", "agent").stdout
    assert logs.count("ecs.g8i.large in ap-southeast-1a, 127.11.") == 2
    record = json.loads(project.trainwright("audit", "--json").stdout)
    assert record["launches"][0]["by"] == "acs:ram::123456789012:user/local"
    leftovers = project.trainwright("leftovers")
    assert leftovers.returncode == 0, leftovers.stdout + leftovers.stderr

    assert project.pulumi("preview", "--expect-no-changes").returncode == 0
    assert project.pulumi("refresh", "--yes", "--expect-no-changes").returncode == 0

    down = project.trainwright("down")
    assert down.returncode == 0, down.stdout + down.stderr
    assert project.left_running() == []
    assert not (project.home / "cloud").exists()


@pytest.mark.slow
def test_a_noticed_node_drains_and_another_job_gets_nodes_of_its_own(alibaba: Project) -> None:
    project = alibaba
    project.job |= {"steps": 100_000, "checkpoint": {"every_steps": 500}}
    project.write()
    up = project.start("up")
    wait_for("the cluster is up", lambda: project.is_up)
    history = project.history()

    def training() -> bool:
        history.refresh()
        return bool(history.steps)

    wait_for("the run has steps", training)
    victim = history.generation.members[1].node
    raise_notice(project.home, victim, "spot", seconds=12)

    def drained() -> bool:
        history.refresh()
        members = {member.node for member in history.generation.members}
        return len(members) == 2 and victim not in members

    wait_for("another node takes its place", drained)
    assert any(event.event == "drain" for event in history.events)
    before = set(project.instances())

    project.job |= {"name": "other", "steps": 60}
    project.write()
    assert project.pulumi("up", "--yes", "--skip-preview").returncode == 0
    other = project.history()
    assert other.run != history.run

    def done() -> bool:
        other.refresh()
        return other.outcome is not None

    wait_for("the new job is done", done)
    assert other.outcome.succeeded
    assert not before & set(project.instances()), "the group's nodes were refreshed"
    up.send_signal(signal.SIGINT)
    up.wait(60)
