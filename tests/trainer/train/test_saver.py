"""A save copies what it is given, never blocks what comes after it, and tells how it ended."""

import threading
from pathlib import Path

import pytest
import torch

from trainer.store import FileStore
from trainer.train import checkpoint
from trainer.train.checkpoint import Manifest
from trainer.train.errors import CheckpointError
from trainer.train.learner import copied
from trainer.train.retention import Retention
from trainer.train.saver import Saver

pytestmark = pytest.mark.torch


def manifest(step: int) -> Manifest:
    return Manifest(
        step=step, position=step, samples=9, vocabulary=257, world=1, generation=1, torch="2", job={"name": "a"}
    )


@pytest.fixture
def saver(tmp_path: Path) -> Saver:
    return Saver(tmp_path / "scratch", str(tmp_path / "store"), Retention(2))


def test_what_was_copied_is_saved_although_training_goes_on(saver: Saver, tmp_path: Path):
    weight = torch.ones(1000, requires_grad=True)
    state = {"model.pt": {"weight": weight, "step": 3, "groups": [{"lr": 0.1, "betas": (0.9, 0.95)}]}}
    saver.save(manifest(1), copied(state), 1.5)
    with torch.no_grad():
        weight.zero_()
    assert saver.wait(10)
    (outcome,) = saver.outcomes()
    assert (outcome.step, outcome.key, outcome.error) == (1, "checkpoints/step-000000001/", "")
    assert outcome.size > 4000
    assert outcome.stall_ms == 1.5
    saved = torch.load(tmp_path / "store" / outcome.key / "model.pt", weights_only=True)
    assert saved["weight"].sum() == 1000
    assert (saved["step"], saved["groups"]) == (3, [{"lr": 0.1, "betas": (0.9, 0.95)}])


def test_a_store_that_hangs_is_waited_for_no_longer_than_told(saver: Saver, monkeypatch):
    answer, original = threading.Event(), FileStore.upload
    monkeypatch.setattr(FileStore, "upload", lambda *args: answer.wait(20) and original(*args))
    saver.save(manifest(1), {"model.pt": {}})
    assert not saver.wait(0.1)
    assert saver.busy
    assert saver.outcomes() == []
    with pytest.raises(CheckpointError, match="step 2: an earlier checkpoint is still being saved"):
        saver.save(manifest(2), {"model.pt": {}})
    answer.set()
    assert saver.wait(10)
    assert [outcome.error for outcome in saver.outcomes()] == [""]


def test_a_save_that_fails_is_told_and_leaves_the_older_one(saver: Saver, tmp_path: Path, monkeypatch):
    saver.save(manifest(1), {"model.pt": {}})
    saver.wait(10)
    with monkeypatch.context() as context:

        def full(_handle: int) -> None:
            raise OSError(28, "No space left on device")

        context.setattr(checkpoint.os, "fsync", full)
        saver.save(manifest(2), {"model.pt": {}})
        saver.wait(10)
    good, bad = saver.outcomes()
    assert good.error == ""
    assert "checkpoint of step 2 was not saved" in bad.error
    assert "No space left" in bad.error
    assert checkpoint.steps_in(tmp_path / "scratch") == [1]
    saver.save(manifest(3), {"model.pt": {}})
    assert saver.wait(10)
    assert checkpoint.steps_in(tmp_path / "scratch") == [3, 1]
