"""Whatever moment a save is cut at and whatever becomes of its files, the newest whole checkpoint is found."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.store import FileStore, StoreError
from trainer.train import checkpoint
from trainer.train.checkpoint import Found, Manifest, find, prune, publish, verify, write
from trainer.train.errors import CheckpointError, DamagedError

KEEP = 2


class Killed(BaseException):
    """Ends a save as SIGKILL would: no handler of ours runs on it."""


def manifest(step: int) -> Manifest:
    return Manifest(
        step=step,
        position=step * 32,
        samples=1000,
        vocabulary=257,
        world=2,
        generation=1,
        torch="2",
        job={"name": "a"},
    )


def parts(step: int) -> dict[str, Callable]:
    return {name: lambda file, name=name: file.write(f"{name} of {step}".encode() * 100) for name in ("a.pt", "b.pt")}


class Places:
    """A node's scratch, the run's store, and a second node's empty scratch."""

    def __init__(self, root: Path) -> None:
        self.scratch, self.other, self.store = root / "scratch", root / "other", FileStore(root / "store")
        self.scratch.mkdir(parents=True)
        self.other.mkdir()
        self.reports: list[str] = []

    def save(self, step: int) -> None:
        publish(write(self.scratch, manifest(step), parts(step)), self.store)
        prune(self.scratch, self.store, KEEP)

    def find(self, scratch: Path | None = None) -> Found | None:
        return find(scratch or self.scratch, self.store, self.reports.append)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def content_is_that_of(found: Found, step: int) -> bool:
    assert verify(found.folder) == found.manifest
    return (found.folder / "b.pt").read_bytes() == f"b.pt of {step}".encode() * 100


def test_what_was_saved_is_found_here_and_on_another_node(places: Places):
    assert places.find() is None
    places.save(10)
    for scratch in (places.scratch, places.other):
        found = places.find(scratch)
        assert found is not None
        assert (found.manifest.step, found.manifest.position, found.manifest.job) == (10, 320, {"name": "a"})
        assert content_is_that_of(found, 10)
    assert places.reports == []


# --- Kills


@contextmanager
def killed_at(point: int, after: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Raise `Killed` at the `point`th call that changes something on disk or in the store, before or after its work."""
    calls: list[str] = []

    def guard(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def guarded(*arguments: object, **options: object) -> object:
            calls.append(name)
            number = len(calls)
            if number == point and not after:
                raise Killed
            result = original(*arguments, **options)
            if number == point:
                raise Killed
            return result

        context.setattr(owner, name, guarded)

    with monkeypatch.context() as context:
        for owner, name in [
            (os, "fsync"),
            (Path, "mkdir"),
            (Path, "rename"),
            (shutil, "rmtree"),
            (FileStore, "upload"),
            (FileStore, "put"),
            (FileStore, "delete"),
            (checkpoint, "sha256_file"),
        ]:
            guard(owner, name)
        yield calls


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_save_killed_at_any_point_leaves_a_whole_checkpoint(tmp_path: Path, after: bool, monkeypatch):
    points, outcomes = 0, set()
    for point in range(1, 200):
        places = Places(tmp_path / str(point))
        for step in (10, 20):
            places.save(step)
        try:
            with killed_at(point, after, monkeypatch):
                places.save(30)
        except Killed:
            points += 1
        else:
            break
        for step, keys in checkpoint.steps_in_store(places.store).items():
            if f"checkpoints/step-{step:09d}/manifest.json" in keys:
                shutil.rmtree(checkpoint.fetch(places.other, places.store, step).folder)
        for scratch in (places.other, places.scratch):
            found = places.find(scratch)
            assert found is not None
            assert found.manifest.step in (20, 30), f"killed at call {point}"
            assert content_is_that_of(found, found.manifest.step)
            outcomes.add((scratch.name, found.manifest.step))
        assert places.reports == [], "a save that was cut off is no damage"
        places.save(30)
        assert places.find().manifest.step == 30
        assert not list(places.scratch.glob("*.tmp"))
    assert points > 15
    assert outcomes == {(name, step) for name in ("scratch", "other") for step in (20, 30)}


def test_a_half_written_part_is_no_checkpoint(places: Places):
    places.save(10)

    def cut(file) -> None:
        file.write(b"half")
        raise Killed

    with pytest.raises(Killed):
        write(places.scratch, manifest(20), {"a.pt": cut})
    assert places.find().manifest.step == 10
    assert not list(places.scratch.glob("*.tmp"))


def test_a_full_disk_fails_the_save_and_frees_what_it_took(places: Places, monkeypatch):
    places.save(10)

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(places.scratch, manifest(20), parts(20))
    assert [path.name for path in places.scratch.iterdir()] == ["step-000000010"]
    assert places.find().manifest.step == 10


def test_an_upload_that_arrives_short_never_counts(places: Places, monkeypatch):
    places.save(10)
    monkeypatch.setattr(FileStore, "upload", lambda self, path, key: self.put(key, path.read_bytes()[:-1]))
    with pytest.raises(CheckpointError, match="bytes after an upload of"):
        publish(write(places.scratch, manifest(20), parts(20)), places.store)
    assert places.find(places.other).manifest.step == 10


# --- Damage


def truncate(folder: Path) -> None:
    os.truncate(folder / "b.pt", (folder / "b.pt").stat().st_size - 1)


def flip(folder: Path) -> None:
    content = bytearray((folder / "a.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "a.pt").write_bytes(content)


def lose_part(folder: Path) -> None:
    (folder / "a.pt").unlink()


def spoil_manifest(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 40)


DAMAGES = [truncate, flip, lose_part, spoil_manifest]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_in_both_places_falls_back_and_says_so(places: Places, damage):
    for step in (10, 20):
        places.save(step)
    damage(places.scratch / "step-000000020")
    damage(places.store.root / "checkpoints" / "step-000000020")
    assert places.find().manifest.step == 10
    assert len(places.reports) == 2
    assert all("step-000000020" in report and "set aside" in report for report in places.reports)
    places.reports.clear()
    for scratch in (places.scratch, places.other):
        assert places.find(scratch).manifest.step == 10
    assert places.reports == [], "what was set aside is not met again"


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_on_scratch_is_mended_from_the_store(places: Places, damage):
    for step in (10, 20):
        places.save(step)
    damage(places.scratch / "step-000000020")
    found = places.find()
    assert content_is_that_of(found, 20)
    assert (places.scratch / "step-000000020.corrupt").is_dir()


def test_a_lost_manifest_on_scratch_is_damage(places: Places):
    for step in (10, 20):
        places.save(step)
    (places.scratch / "step-000000020" / "manifest.json").unlink()
    shutil.rmtree(places.store.root)
    assert places.find().manifest.step == 10
    assert "manifest is missing" in places.reports[0]


def test_a_manifest_of_another_version_stops_the_run(places: Places):
    places.save(10)
    path = places.scratch / "step-000000010" / "manifest.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(CheckpointError, match="version 2; this trainer reads version 1") as caught:
        places.find()
    assert not isinstance(caught.value, DamagedError)


def test_a_store_that_refuses_stops_the_search(places: Places, monkeypatch):
    """Going on without the store could go on from an old checkpoint, or from none."""
    places.save(10)

    def refuse(_store: FileStore, _prefix: str = "") -> list:
        raise StoreError("access denied")

    monkeypatch.setattr(FileStore, "list", refuse)
    with pytest.raises(StoreError, match="access denied"):
        places.find()


# --- Retention


def test_the_newest_are_kept_in_both_places(places: Places):
    for step in range(10, 60, 10):
        places.save(step)
    assert checkpoint.steps_in(places.scratch) == [50, 40]
    assert list(checkpoint.steps_in_store(places.store)) == [50, 40]


def test_damaged_ones_dont_count_as_kept(places: Places):
    for step in (10, 20):
        places.save(step)
    truncate(places.scratch / "step-000000020")
    truncate(places.store.root / "checkpoints" / "step-000000020")
    assert places.find().manifest.step == 10
    places.save(30)
    assert checkpoint.steps_in(places.scratch) == [30, 10]
    assert [step for step in (30, 20, 10) if places.store.exists(f"checkpoints/step-{step:09d}/manifest.json")] == [
        30,
        10,
    ]


def test_publishing_again_changes_nothing(places: Places):
    found = write(places.scratch, manifest(10), parts(10))
    assert publish(found, places.store)
    before = places.store.list()
    assert not publish(found, places.store)
    assert places.store.list() == before
