"""The worker as a process: exit codes, signals, and what it says when something is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import trainer
from trainer.train import __main__ as main

ROOT = Path(trainer.__file__).parents[1]


def test_bad_input_is_refused_in_one_line_and_described_for_the_agent(start, tiny, tmp_path: Path):
    process = start(tiny | {"stepz": 1}, TRAINWRIGHT_ERROR=str(tmp_path / "error.json"), RANK="1", WORLD_SIZE="2")
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said == "rank 1: stepz: there is no such key; did you mean steps?\n"
    error = json.loads((tmp_path / "error.json").read_text())
    assert (error["type"], error["rank"]) == ("InvalidJob", 1)
    assert error["message"].startswith("stepz:")
    assert "Traceback" in error["traceback"]


def test_help_explains_without_torch(start, tiny):
    process = start(tiny, under=("-X", "importtime", "-m", "trainer.train", "--help"))
    explained, imported = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "torchrun --standalone" in explained
    assert "| torch\n" not in imported


@pytest.mark.parametrize("word", ["print(1)", "_describe(ValueError(1))"])
def test_a_log_that_is_full_changes_no_exit_code(word: str):
    """A run that is done would have failed, and the loss of a peer would be this worker's own fault."""
    code = f"from trainer.train.__main__ import _describe, leave; {word}; leave(69)"
    told = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "", "TRAINWRIGHT_ERROR": "/dev/full/error.json"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | told, stdout=full, stderr=full, timeout=30, check=False
        )
    assert done.returncode == 69


@pytest.mark.torch
def test_sigterm_to_one_of_two_makes_both_save_the_same_step_and_leave(start, tiny, port, tmp_path: Path):
    job = tiny | {"steps": 1_000_000, "checkpoint": {"every_steps": 1_000_000}}
    together = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    both = [start(job, RANK=str(rank), LOCAL_RANK=str(rank), **together) for rank in range(2)]
    metrics = tmp_path / "store" / "metrics.jsonl"

    def lines() -> list[dict[str, Any]]:
        whole = metrics.read_text().splitlines() if metrics.exists() else []
        return [json.loads(line) for line in whole[:-1]]

    deadline = time.monotonic() + 50
    while sum("loss" in line for line in lines()) < 3:
        assert time.monotonic() < deadline, "no step within 50 s"
        assert all(process.poll() is None for process in both)
        time.sleep(0.05)
    both[1].send_signal(signal.SIGUSR1)
    time.sleep(0.2)
    both[1].send_signal(signal.SIGTERM)
    said = [process.communicate(timeout=30) for process in both]
    assert [process.returncode for process in both] == [75, 75]
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    last = max(line["step"] for line in steps if "loss" in line)
    assert [line["step"] for line in steps if line.get("event") == "drain"] == [last]
    manifest = json.loads((tmp_path / "store" / "checkpoints" / f"step-{last:09d}" / "manifest.json").read_text())
    assert (manifest["step"], manifest["position"]) == (last, last * job["batch"])
    assert "loop.py" in said[1][1], "SIGUSR1 shows where every thread stands"


@pytest.mark.torch
def test_it_runs_under_torchrun(start, tiny):
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "trainer.train")
    process = start(tiny, under=torchrun)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "done  step 12" in said


@pytest.mark.torch
@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("NCCL error in: NCCLUtils.cpp:1, remote process exited or there was a network error", True),
        ("NCCL error in: NCCLUtils.cpp:1, unhandled cuda error: Cuda failure 'uncorrectable ECC error'", False),
    ],
)
def test_a_fault_of_its_own_gpu_is_not_called_the_loss_of_a_peer(said: str, lost: bool):
    """The node with that GPU would never be to blame, and would fail every generation."""
    from torch.distributed import DistBackendError

    assert main._is_loss_of_a_peer(DistBackendError(said)) is lost
