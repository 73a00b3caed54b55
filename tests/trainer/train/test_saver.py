"""A save copies what it is given, never blocks what comes after it, and tells how it ended."""

import errno
import io
import json
import os
import threading
from pathlib import Path

import pytest
import torch

from trainer import layout
from trainer.node.preflight import COPIES
from trainer.store import FileStore, Unavailable
from trainer.train import checkpoint
from trainer.train.checkpoint import Manifest
from trainer.train.errors import CheckpointError
from trainer.train.learner import copied
from trainer.train.retention import FEWEST, Retention
from trainer.train.saver import Saver, _write_state

pytestmark = pytest.mark.torch


def manifest(step: int, generation: int = 1) -> Manifest:
    told = {"samples": 9, "vocabulary": 257, "world": 1, "torch": "2", "job": {"name": "a"}}
    return Manifest(step=step, position=step, generation=generation, **told)


@pytest.fixture
def saver(tmp_path: Path) -> Saver:
    return Saver(tmp_path / "scratch", str(tmp_path / "store"), Retention(2))


def test_what_was_copied_is_saved_although_training_goes_on(saver: Saver, tmp_path: Path):
    weight = torch.ones(1000, requires_grad=True)
    state = {"model.pt": {"weight": weight, "step": 3, "groups": [{"lr": 0.1, "betas": (0.9, 0.95)}]}}
    saver.save(manifest(1), copied(state), 1.5)
    with torch.no_grad():
        weight.zero_()
    assert saver.wait(60)
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
    assert saver.wait(60)
    assert [outcome.error for outcome in saver.outcomes()] == [""]


def test_a_save_that_fails_is_told_and_leaves_the_older_one(saver: Saver, tmp_path: Path, monkeypatch):
    saver.save(manifest(1), {"model.pt": {}})
    saver.wait(60)
    with monkeypatch.context() as context:

        def full(_handle: int) -> None:
            raise OSError(28, "No space left on device")

        context.setattr(checkpoint.os, "fsync", full)
        saver.save(manifest(2), {"model.pt": {}})
        saver.wait(60)
    good, bad = saver.outcomes()
    assert good.error == ""
    assert "checkpoint of step 2 was not saved" in bad.error
    assert "No space left" in bad.error
    assert checkpoint.steps_in(tmp_path / "scratch") == [1]
    saver.save(manifest(3), {"model.pt": {}})
    assert saver.wait(60)
    assert checkpoint.steps_in(tmp_path / "scratch") == [3, 1]


def saved(saver: Saver, step: int) -> str:
    """Saves a step; what went wrong."""
    saver.save(manifest(step), {"model.pt": {"step": step}})
    assert saver.wait(60)
    (outcome,) = saver.outcomes()
    return outcome.error


@pytest.fixture
def disk(tmp_path: Path, monkeypatch):
    """Makes scratch a disk with room for so many checkpoints; tells how often it was full."""
    scratch, full, original = tmp_path / "scratch", [], os.fsync

    def make(room: int) -> list[int]:
        def fsync(handle: int) -> None:
            whole = len(checkpoint.steps_in(scratch))
            if str(Path(f"/proc/self/fd/{handle}").readlink()).endswith(".pt") and whole >= room:
                full.append(whole)
                raise OSError(errno.ENOSPC, "No space left on device")
            original(handle)

        monkeypatch.setattr(checkpoint.os, "fsync", fsync)
        return full

    return make


def test_a_disk_that_is_full_loses_the_older_checkpoint_and_not_the_new_one(saver: Saver, tmp_path: Path, disk):
    """Else each later save would fail alike, and with the last the run that is done."""
    assert [saved(saver, step) for step in (1, 2)] == ["", ""]
    full = disk(2)
    assert saved(saver, 3) == ""
    assert full == [2], "one try found it full"
    assert checkpoint.steps_in(tmp_path / "scratch") == [3, 2]
    assert list(checkpoint.steps_in_store(FileStore(tmp_path / "store"))) == [3, 2], "pruned as ever, and no further"


def test_a_disk_with_no_room_at_all_keeps_its_newest_and_is_tried_twice(saver: Saver, tmp_path: Path, disk):
    assert [saved(saver, step) for step in (1, 2)] == ["", ""]
    full = disk(0)
    assert "checkpoint of step 3 was not saved: OSError: [Errno 28] No space left" in saved(saver, 3)
    assert full == [2, 1]
    assert checkpoint.steps_in(tmp_path / "scratch") == [2]
    assert list(checkpoint.steps_in_store(FileStore(tmp_path / "store"))) == [2, 1], "the store has room"
    disk(9)
    assert saved(saver, 4) == ""


def test_another_error_than_a_full_disk_costs_no_checkpoint(saver: Saver, tmp_path: Path, monkeypatch):
    assert [saved(saver, step) for step in (1, 2)] == ["", ""]

    def broken(_handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint.os, "fsync", broken)
    assert "Input/output error" in saved(saver, 3)
    assert checkpoint.steps_in(tmp_path / "scratch") == [2, 1]


def test_torch_hides_no_full_disk():
    """Its archive's writer fails an assertion as it is closed, which would be all that is told (torch 2.15)."""

    class Full(io.RawIOBase):
        def writable(self) -> bool:
            return True

        room = 2

        def write(self, content: bytes) -> int:
            self.room -= 1
            if self.room >= 0:
                return len(content)
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        _write_state({"weight": torch.ones(100)}, Full())


def test_what_a_store_that_is_away_has_not_got_does_not_pile_up(saver: Saver, tmp_path: Path, monkeypatch):
    """Not even for a moment are there more than the node was asked to have room for."""
    most, original = [0], checkpoint.write

    def write(folder, *arguments):
        found = original(folder, *arguments)
        most.append(len(checkpoint.steps_in(folder)))
        return found

    monkeypatch.setattr(checkpoint, "write", write)
    assert saved(saver, 1) == ""
    with monkeypatch.context() as context:

        def away(*_):
            raise Unavailable("timed out")

        context.setattr(FileStore, "upload", away)
        assert all("timed out" in saved(saver, step) for step in range(2, 8))
    assert max(most) == FEWEST + 1 == COPIES
    assert list(checkpoint.steps_in_store(FileStore(tmp_path / "store")))[-1] == 1, "what all nodes would go on from"
    assert saved(saver, 8) == ""
    assert checkpoint.steps_in(tmp_path / "scratch") == [8, 7]


def test_scratch_keeps_two_however_many_the_store_does(tmp_path: Path):
    saver = Saver(tmp_path / "scratch", str(tmp_path / "store"), Retention(9))
    assert {saved(saver, step) for step in range(1, 6)} == {""}
    assert checkpoint.steps_in(tmp_path / "scratch") == [5, 4]
    assert list(checkpoint.steps_in_store(FileStore(tmp_path / "store"))) == [5, 4, 3, 2, 1]


# --- Two generations on one store: rank 0 of the first was frozen, and goes on when the second has begun


def formed(store: FileStore, number: int, *, graceful: bool) -> None:
    store.put(layout.generation(number), json.dumps({"number": number, "graceful": graceful}).encode())


class Frozen:
    """A generation's saver whose first upload waits until it is told to go on."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.saver = Saver(root / "frozen", str(root / "store"), Retention(2))
        self._stopped, self._goes_on, original = threading.Event(), threading.Event(), FileStore.upload

        def upload(store: FileStore, path: Path, key: str) -> None:
            if (root / "frozen") in path.parents and not self._stopped.is_set():
                self._stopped.set()
                assert self._goes_on.wait(60)
            original(store, path, key)

        monkeypatch.setattr(FileStore, "upload", upload)

    def save(self, step: int) -> None:
        self.saver.save(manifest(step, 1), {name: {"of": "old"} for name in ("model.pt", "optimizer.pt")})
        assert self._stopped.wait(60)

    def go_on(self) -> str:
        self._goes_on.set()
        assert self.saver.wait(60)
        return "".join(outcome.error for outcome in self.saver.outcomes())


@pytest.fixture
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frozen:
    return Frozen(tmp_path, monkeypatch)


def test_a_rank_0_that_thaws_changes_no_more_than_the_part_it_was_at(frozen: Frozen, saver: Saver, tmp_path: Path):
    """The second generation reaches the same step again, perhaps with other bytes: another number of ranks sums so."""
    store = FileStore(tmp_path / "store")
    frozen.save(5)
    formed(store, 2, graceful=False)
    saver.save(manifest(5, 2), {name: {"of": "new"} for name in ("model.pt", "optimizer.pt")})
    assert saver.wait(60)
    assert "generation 1 is over" in frozen.go_on()
    manifested = Manifest.decode(store.get(layout.checkpoint(5) + "manifest.json"))
    assert manifested.generation == 2
    assert torch.load(tmp_path / "store" / layout.checkpoint(5) / "optimizer.pt", weights_only=True) == {"of": "new"}


def test_the_save_of_a_drain_goes_on_and_leaves_the_store_to_the_next(frozen: Frozen, tmp_path: Path):
    """The next generation is formed while the last one's workers save; what it uploads must not be swept away."""
    store = FileStore(tmp_path / "store")
    frozen.save(5)
    formed(store, 2, graceful=True)
    store.put(layout.checkpoint(3) + "model.pt", b"half of what generation 2 is about")
    assert frozen.go_on() == ""
    assert store.exists(layout.checkpoint(5) + "manifest.json")
    assert store.exists(layout.checkpoint(3) + "model.pt")


@pytest.mark.parametrize("graceful", [1, 2, 3])
def test_the_save_of_a_drain_goes_on_while_others_join_or_are_drained(frozen: Frozen, tmp_path: Path, graceful: int):
    """None of them has trained: each waits for this very save."""
    store = FileStore(tmp_path / "store")
    frozen.save(5)
    for number in range(2, 2 + graceful):
        formed(store, number, graceful=True)
    assert frozen.go_on() == ""
    assert store.exists(layout.checkpoint(5) + "manifest.json")


@pytest.mark.parametrize("graceful", [0, 1, 2])
def test_the_save_of_a_drain_is_over_with_the_first_that_waits_for_none(frozen: Frozen, tmp_path: Path, graceful: int):
    store = FileStore(tmp_path / "store")
    frozen.save(5)
    for number in range(2, 2 + graceful):
        formed(store, number, graceful=True)
    formed(store, 2 + graceful, graceful=False)
    formed(store, 3 + graceful, graceful=True)
    assert "generation 1 is over" in frozen.go_on()
    assert not store.exists(layout.checkpoint(5) + "manifest.json")


def test_whoever_no_agent_counts_is_held_to_no_generation(saver: Saver, tmp_path: Path):
    """As under plain torchrun, in a folder that agents used before."""
    formed(FileStore(tmp_path / "store"), 1, graceful=False)
    saver.save(manifest(5, 0), {"model.pt": {}})
    assert saver.wait(60)
    assert [outcome.error for outcome in saver.outcomes()] == [""]
