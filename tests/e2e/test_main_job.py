"""The main job on the real engine: from nothing to a trained model, and every change in between.

Needs the Pulumi CLI (`make setup` gets one), torch, and 127.0.0.0/8 on loopback.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from emulator import cloud
from emulator.notices import raise_notice
from tests.project import Project, wait_for

pytestmark = [pytest.mark.engine, pytest.mark.torch]


def test_up_trains_to_the_end_and_down_leaves_nothing(shipped: Project) -> None:
    project = shipped
    up = project.trainwright("up")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "Trained to the end" in up.stdout
    assert "ended before" not in up.stdout
    assert up.stdout.rstrip().endswith("make down ends the cluster")
    page = (project.home / "report.html").read_text()
    assert "Trained to the end" in page
    assert "<svg" in page

    status = json.loads(project.trainwright("status", "--json").stdout)
    history = project.history()
    history.refresh()
    assert history.outcome is not None
    assert history.outcome.succeeded
    assert [len(generation.members) for generation in history.generations.values()] == [2]
    assert {step.world for step in history.steps} == {2}
    assert [step.step for step in history.steps] == list(range(1, 301))
    assert history.steps[-1].loss < history.steps[0].loss * 2 / 3
    assert history.checkpoints[-1] == 300
    assert status["outcome"]["succeeded"] is True
    assert {node["state"] for node in status["nodes"]} == {"done"}
    logs = project.trainwright("logs", "--stream", "agent").stdout
    assert logs.count("boot: launch ok") == 2

    assert project.pulumi("preview", "--expect-no-changes").returncode == 0
    assert project.pulumi("refresh", "--yes", "--expect-no-changes").returncode == 0
    assert "unchanged" in project.trainwright("preview").stdout

    again = project.trainwright("up")
    assert again.returncode == 0
    assert "ended before, and nothing trains now" in again.stdout
    assert "Trained to the end" in again.stdout

    down = project.trainwright("down")
    assert down.returncode == 0, down.stdout + down.stderr
    assert project.left_running() == []
    assert not (project.home / "cloud").exists()


def test_a_preview_leaves_nothing_behind_that_was_not_there(project: Project) -> None:
    preview = project.trainwright("preview")
    assert preview.returncode == 0, preview.stdout + preview.stderr
    assert "to create" in preview.stdout
    assert project.left_running() == []
    assert not (project.home / "cloud").exists()


def test_pulumi_by_hand_does_what_up_does(project: Project) -> None:
    assert project.pulumi("stack", "select", "--create").returncode == 0
    up = project.pulumi("up", "--yes", "--skip-preview")
    assert up.returncode == 0, up.stdout + up.stderr
    text = str(Path(json.__file__).parent)
    packed = project.trainwright("data", "pack", text)
    assert packed.returncode == 0, packed.stderr
    assert "there already, the same" in project.trainwright("data", "pack", text).stdout
    refused = project.trainwright("data", "pack", text, "--exclude", "decoder.py")
    assert refused.returncode == 1
    assert "--replace" in refused.stderr
    watched = project.trainwright("watch")
    assert watched.returncode == 0, watched.stdout + watched.stderr
    destroyed = project.pulumi("destroy", "--yes", "--skip-preview")
    assert destroyed.returncode == 0, destroyed.stdout + destroyed.stderr
    assert wait_for("no instance runs", lambda: project.instances() == [])


def test_a_killed_node_is_replaced_and_the_run_ends_well(project: Project) -> None:
    project.job |= {"steps": 2500, "checkpoint": {"every_steps": 100}}
    project.write()
    up = project.start("up")
    history = wait_for("the cluster is up", lambda: _history(project), limit_s=90)
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
    assert [step.step for step in history.steps if step.step > resumed] == list(range(resumed + 1, 2501))


def test_the_fleet_scales_and_a_noticed_node_drains_while_the_run_goes_on(project: Project) -> None:
    project.job |= {"steps": 100_000, "checkpoint": {"every_steps": 500}}
    project.write()
    up = project.start("up")
    history = wait_for("the cluster is up", lambda: _history(project), limit_s=90)
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
    up.wait(20)


def test_a_run_that_failed_goes_on_by_retry(project: Project) -> None:
    """A dataset too small for one sample ends the run; a larger one and another try, and it trains to the end."""
    project.job |= {"dataset": "mine", "steps": 40}
    project.write()
    text = project.folder / "text"
    text.mkdir()
    (text / "short.txt").write_text("abc")
    up = project.start("up")
    history = wait_for("the cluster is up", lambda: _history(project), limit_s=90)
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


def test_a_killed_up_is_cleared_by_the_next_one(project: Project) -> None:
    up = project.start("up")
    wait_for("the cloud starts", lambda: cloud.find(project.home), limit_s=60)
    time.sleep(2.5)  # within the engine's update
    _kill_session(up.pid)
    up.wait(10)
    running = cloud.find(project.home)
    assert running is not None
    again = project.trainwright("up")
    assert again.returncode == 0, again.stdout + again.stderr

    _kill(running.pid)
    wait_for("the nodes die with their cloud", lambda: project.left_running() == [])
    afresh = project.trainwright("up")
    assert afresh.returncode == 0, afresh.stdout + afresh.stderr


def test_two_projects_on_one_machine_leave_each_other_alone(project: Project, tmp_path) -> None:
    other = Project(tmp_path / "other", nodes={"desired": 1, "max": 1})
    try:
        first, second = project.start("up"), other.start("up")
        assert first.wait(200) == 0, (project.folder / "output.txt").read_text()
        assert second.wait(200) == 0, (other.folder / "output.txt").read_text()
        assert other.trainwright("down").returncode == 0
        assert other.left_running() == []
        assert len(project.instances()) == 2
    finally:
        cloud.stop(other.home)


def _history(project: Project):
    """The run's history, once the stack has outputs."""
    if cloud.find(project.home) is None or not (project.home / "state").is_dir():
        return None
    done = project.pulumi("stack", "output", "--json")
    return project.history() if done.returncode == 0 and "bucket" in done.stdout else None


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


def _kill_session(leader: int) -> None:
    """Kill the command and the engine that it started, but not the daemon, which has a session of its own."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)
        except ProcessLookupError:
            continue


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
