"""What happens to a cluster that trains: nodes die, come and go, jobs change and fail; on the real engine.

Needs the Pulumi CLI (`make setup` gets one), torch, and 127.0.0.0/8 on loopback.
"""

from __future__ import annotations

import signal

import pytest

from emulator.notices import raise_notice
from tests.project import Project, wait_for

pytestmark = [pytest.mark.engine, pytest.mark.torch]


def test_a_killed_node_is_replaced_and_the_run_ends_well(project: Project) -> None:
    project.job |= {"steps": 800, "checkpoint": {"every_steps": 100}}
    project.write()
    up = project.start("up")
    wait_for("the cluster is up", lambda: project.is_up)
    history = project.history()
    wait_for("a checkpoint", lambda: _seen(history, lambda: history.checkpoints))
    victim = history.generation.members[0].node
    project.kill_node(victim)
    assert up.wait(180) == 0, (project.folder / "output.txt").read_text()
    history.refresh()
    assert len(history.generations) >= 2
    assert victim not in project.instances()
    assert len(project.instances()) == 2
    # What the dead node had not shipped of its metrics is lost, at most a second of them; no step of training is.
    resumed = next(event.step for event in history.events if event.event == "resume")
    assert resumed % 100 == 0
    assert [step.step for step in history.steps if step.step > resumed] == list(range(resumed + 1, 801))


def test_the_fleet_scales_and_a_noticed_node_drains_while_the_run_goes_on(project: Project) -> None:
    project.job |= {"steps": 100_000, "checkpoint": {"every_steps": 500}}
    project.write()
    up = project.start("up")
    wait_for("the cluster is up", lambda: project.is_up)
    history = project.history()
    wait_for("steps", lambda: _seen(history, lambda: history.steps))
    template = _template_version(project)

    project.nodes["desired"] = 3
    project.write()
    assert project.pulumi("up", "--yes", "--skip-preview").returncode == 0
    wait_for("three nodes train", lambda: _seen(history, lambda: _world(history) == 3))
    assert _template_version(project) == template, "scaling made a new template version, which would replace nodes"

    victim = history.generation.members[1].node
    raise_notice(project.home, victim, "spot", seconds=12)
    wait_for("the others go on", lambda: _seen(history, lambda: victim not in _members(history)))
    assert any(event.event == "drain" for event in history.events)
    wait_for("a replacement joins", lambda: _seen(history, lambda: _world(history) == 3))

    project.nodes["desired"] = 2
    project.write()
    assert project.pulumi("up", "--yes", "--skip-preview").returncode == 0
    wait_for("two nodes train", lambda: _seen(history, lambda: _world(history) == 2))
    assert history.outcome is None

    project.job |= {"name": "other", "steps": 60}
    project.write()
    assert project.pulumi("up", "--yes", "--skip-preview").returncode == 0
    assert _template_version(project) == template + 1
    other = project.history()
    assert other.run != history.run
    wait_for("the new job is done", lambda: _seen(other, lambda: other.outcome))
    assert other.outcome.succeeded
    up.send_signal(signal.SIGINT)
    up.wait(60)


def test_a_run_that_failed_goes_on_by_retry(project: Project) -> None:
    """A dataset too small for one sample ends the run; a larger one and another try, and it trains to the end."""
    project.job |= {"dataset": "mine", "steps": 40}
    project.write()
    text = project.folder / "text"
    text.mkdir()
    (text / "short.txt").write_text("abc")
    up = project.start("up")
    wait_for("the cluster is up", lambda: project.is_up)
    history = project.history()
    assert project.trainwright("data", "pack", str(text)).returncode == 0
    assert up.wait(120) == 1
    said = (project.folder / "output.txt").read_text()
    assert "trainwright retry" in project.trainwright("up").stdout
    assert "Traceback" not in said

    (text / "long.txt").write_text("to be or not to be\n" * 20_000)
    assert project.trainwright("data", "pack", str(text), "--replace").returncode == 0
    retried = project.trainwright("retry")
    assert retried.returncode == 0, retried.stderr
    watched = project.trainwright("watch")
    assert watched.returncode == 0, watched.stdout + watched.stderr
    history.refresh()
    assert history.steps[-1].step == 40


def _seen(history, condition):
    history.refresh()
    return condition()


def _world(history) -> int:
    return history.generation.world if history.generation else 0


def _members(history) -> set[str]:
    return {member.node for member in history.generation.members}


def _template_version(project: Project) -> int:
    templates = project.client("ec2").describe_launch_templates()["LaunchTemplates"]
    assert len(templates) == 1
    return templates[0]["LatestVersionNumber"]
