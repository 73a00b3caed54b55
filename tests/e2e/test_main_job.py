"""The main job on the real engine: from nothing to a trained model, and what clears up after it.

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
    leftovers = project.trainwright("leftovers")
    assert leftovers.returncode == 0, leftovers.stdout + leftovers.stderr

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


def test_a_killed_up_is_cleared_by_the_next_one(project: Project) -> None:
    up = project.start("up")
    wait_for("the cloud starts", lambda: cloud.find(project.home))
    time.sleep(2.5)  # within the engine's update
    _kill_session(up.pid)
    up.wait(60)
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
