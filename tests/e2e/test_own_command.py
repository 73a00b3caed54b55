"""A user's own program on the embedded cloud: it gets to each node, finds its peers, and ends the run as it ends."""

from __future__ import annotations

import json

import pytest
import torch

from tests.project import Project

pytestmark = [pytest.mark.engine, pytest.mark.torch]

OWN = """
import os, sys
import torch, torch.distributed as dist
import helper
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print(f"{helper.GREETING} sum {total.item():.0f} of {dist.get_world_size()}, generation "
      f"{os.environ['TRAINWRIGHT_GENERATION']}, argument {sys.argv[1]}", flush=True)
if os.environ["TRAINWRIGHT_GENERATION"] == "1":
    open(os.environ["TRAINWRIGHT_PROGRESS"], "w").write("7")
    if dist.get_rank() == 0:
        sys.path.append(os.environ["TRAINWRIGHT_LIBRARY"])
        from pathlib import Path
        from trainer.store import open_store
        from trainer.train import checkpoint
        told = dict(position=0, samples=0, vocabulary=0, world=2, generation=1, torch=torch.__version__, job={})
        parts = {"model.pt": lambda file: torch.save({"weight": torch.ones(3)}, file)}
        saved = checkpoint.write(Path(os.environ["TRAINWRIGHT_SCRATCH"]), checkpoint.Manifest(step=5, **told), parts)
        checkpoint.publish(saved, open_store(os.environ["TRAINWRIGHT_STORE"]))
    dist.barrier()
    sys.exit(3)
"""


def own(project: Project) -> Project:
    code = project.folder / "training"
    code.mkdir(exist_ok=True)
    (code / "own.py").write_text(OWN)
    (code / "helper.py").write_text("GREETING = 'hello,'")
    (code / ".env").write_text("SECRET=1")
    project.job = {"name": "mine", "command": ["python", "own.py", "fine"], "code": "training"}
    project.write()
    return project


def test_a_users_own_program_runs_goes_on_after_a_failure_and_ends_the_run(project: Project) -> None:
    up = own(project).trainwright("up")
    assert up.returncode == 0, up.stdout + up.stderr
    logs = project.trainwright("logs", "--stream", "rank").stdout
    for generation in (1, 2):
        assert logs.count(f"hello, sum 3 of 2, generation {generation}, argument fine") == 2
    history = project.history()
    history.refresh()
    assert history.outcome is not None
    assert history.outcome.succeeded
    assert {number: record.step for number, record in history.generations.items()} == {1: 0, 2: 7}
    status = json.loads(project.trainwright("status", "--json").stdout)
    assert status["outcome"]["succeeded"] is True
    assert [path.name for path in (project.home / "cloud").rglob(".env")] == []

    (kept,) = json.loads(project.trainwright("checkpoints", "list", "--json").stdout)
    assert (kept["step"], kept["state"]) == (5, "whole")
    verified = project.trainwright("checkpoints", "verify")
    assert (verified.returncode, "step 5: good" in verified.stdout) == (0, True)
    assert project.trainwright("checkpoints", "export", "--to", "model.pt").returncode == 0
    assert torch.load(project.folder / "model.pt")["weight"].sum() == 3

    record = json.loads(project.trainwright("audit", "--json").stdout)
    assert record["launches"][0]["by"].endswith(":user/local")
    assert record["launches"][0]["job"]["command"] == ["python", "own.py", "fine"]
    assert len(record["nodes"]) == 2
    assert record["node_hours"] > 0
    assert [page["number"] for page in record["generations"]] == [1, 2]
    assert record["checkpoints"][0]["step"] == 5
    assert [page["succeeded"] for page in record["outcomes"]] == [True]
    assert "declared by arn:aws:iam::" in project.trainwright("audit").stdout
