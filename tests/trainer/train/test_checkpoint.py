"""Whatever moment a save is cut at and whatever becomes of its files, the newest whole checkpoint is found."""

import os
import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.store import FileStore, StoreError
from trainer.train import checkpoint
from trainer.train.checkpoint import Found, Manifest, find, publish, verify, verify_in_store, write
from trainer.train.errors import CheckpointError, DamagedError
from trainer.train.retention import DAY_S, Retention, prune

KEEP = Retention(2)


ROOT = Path(checkpoint.__file__).parents[2]


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
    """Raise `Killed` at the `point`th call that changes something on disk or in the store, before or after its work.

    Calls of this thread alone count: an agent that another test started and left waiting may still beat in one of its.
    """
    calls: list[str] = []
    own = threading.get_ident()

    def guard(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def guarded(*arguments: object, **options: object) -> object:
            if threading.get_ident() != own:
                return original(*arguments, **options)
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
        for step, files in checkpoint.steps_in_store(places.store).items():
            if "manifest.json" in files:
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


def test_a_disk_that_is_really_full_fails_the_save_and_keeps_the_older_one(places: Places):
    """The kernel refuses a write in mid-part; the save after it succeeds."""
    places.save(10)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(places.scratch, manifest(20), parts(20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in places.scratch.iterdir()] == ["step-000000010"]
    assert places.find().manifest.step == 10
    places.save(20)
    assert places.find(places.other).manifest.step == 20


SAVES = """
import sys
from pathlib import Path
from trainer.store import FileStore
from trainer.train.checkpoint import Manifest, publish, write
from trainer.train.retention import Retention, prune
scratch, store, first = Path(sys.argv[1]), FileStore(Path(sys.argv[2])), int(sys.argv[3])
print("saving", flush=True)
for step in range(first, first + 1000):
    content = {name: lambda file, name=name: [file.write(f"{name} of {step}".encode() * 100) for _ in range(200)]
               for name in ("a.pt", "b.pt")}
    told = dict(position=step, samples=1, vocabulary=1, world=1, generation=1, torch="2", job={})
    publish(write(scratch, Manifest(step=step, **told), content), store)
    prune(scratch, store, Retention(2))
"""


def test_k4_a_process_killed_in_mid_save_always_leaves_a_whole_checkpoint(places: Places):
    """SIGKILL, twelve times, at whatever moment: what a restart finds is whole, and never older than what was there."""
    newest, chance = 0, random.Random(5)
    for _ in range(12):
        command = [sys.executable, "-c", SAVES, str(places.scratch), str(places.store.root), str(newest + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
            child.stdout.readline()
            time.sleep(chance.uniform(0.02, 0.12))
            child.kill()
        found = places.find()
        shutil.rmtree(places.other)
        elsewhere = places.find(places.other)
        assert found is None or verify(found.folder) == found.manifest
        assert (found.manifest.step if found else 0) >= newest
        assert (elsewhere.manifest.step if elsewhere else 0) >= newest - 1, "scratch is ahead of the store by one"
        newest = found.manifest.step if found else 0
    assert newest > 12
    assert places.reports == [], "a save that was cut off is no damage"


def test_an_upload_cut_off_goes_on_with_the_parts_that_are_missing(places: Places, monkeypatch):
    found = write(places.scratch, manifest(10), parts(10))
    uploaded, original = [], FileStore.upload

    def once(store: FileStore, path: Path, key: str) -> None:
        if uploaded:
            raise StoreError("gone away")
        uploaded.append(path.name)
        original(store, path, key)

    with monkeypatch.context() as context:
        context.setattr(FileStore, "upload", once)
        with pytest.raises(StoreError, match="gone away"):
            publish(found, places.store)
    assert places.find(places.other) is None
    monkeypatch.setattr(
        FileStore, "upload", lambda store, path, key: (uploaded.append(path.name), original(store, path, key))
    )
    publish(found, places.store)
    assert uploaded == ["a.pt", "b.pt"]
    assert content_is_that_of(places.find(places.other), 10)


def test_a_part_of_another_content_is_sent_anew(places: Places):
    """As long, but of a step that was done before a fault: another world size rounds otherwise."""
    found = write(places.scratch, manifest(10), parts(10))
    places.store.put("checkpoints/step-000000010/a.pt", b"x" * found.manifest.parts[0].size)
    publish(found, places.store)
    assert content_is_that_of(places.find(places.other), 10)


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


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_in_the_store_is_found_there(places: Places, damage):
    places.save(20)
    assert verify_in_store(places.store, 20) == places.find().manifest
    damage(places.store.root / "checkpoints" / "step-000000020")
    with pytest.raises(DamagedError):
        verify_in_store(places.store, 20)


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
    assert list(places.scratch.glob("*.corrupt"))
    places.save(30)
    assert checkpoint.steps_in(places.scratch) == [30, 10]
    assert not list(places.scratch.glob("*.corrupt")), "they would fill scratch"
    assert [step for step in (30, 20, 10) if places.store.exists(f"checkpoints/step-{step:09d}/manifest.json")] == [
        30,
        10,
    ]


DAYS = {step: step * DAY_S for step in (10, 20, 30, 40)}


@pytest.mark.parametrize(
    ("retention", "gone"),
    [
        (Retention(2), [20, 10]),
        (Retention(9), []),
        (Retention(9, 20.0), [10]),
        (Retention(9, 19.5), [20, 10]),
        (Retention(9, 0.1), [20, 10]),
        (Retention(3, 20.0), [10]),
    ],
)
def test_the_newest_stay_unless_too_old_but_two_whatever_their_age(retention: Retention, gone: list[int]):
    assert retention.outlived(DAYS) == gone
    assert retention.outlived({}) == []


def test_age_is_counted_in_the_store_and_scratch_keeps_the_fewest(places: Places):
    for step in range(10, 60, 10):
        publish(write(places.scratch, manifest(step), parts(step)), places.store)
    now = time.time()
    for step, age in ((10, 9), (20, 8), (30, 2), (40, 1)):
        os.utime(places.store.root / f"checkpoints/step-{step:09d}/manifest.json", (now - age * DAY_S,) * 2)
    prune(places.scratch, places.store, Retention(4, 7.0))
    assert checkpoint.steps_in(places.scratch) == [50, 40]
    assert list(checkpoint.steps_in_store(places.store)) == [50, 40, 30]


def test_what_was_resumed_from_stays_until_a_newer_one_stands(places: Places, monkeypatch):
    """Newer ones that failed on their way to the store count for nothing (Lightning#17189)."""
    places.save(10)
    with monkeypatch.context() as context:
        context.setattr(FileStore, "upload", lambda *_: None)
        for step in (20, 30, 40):
            with pytest.raises(CheckpointError):
                places.save(step)
    assert places.find(places.other).manifest.step == 10
    places.save(50)
    assert places.store.exists("checkpoints/step-000000010/manifest.json")
    assert [step for step, files in checkpoint.steps_in_store(places.store).items() if "manifest.json" in files] == [
        50,
        10,
    ]


def test_what_a_killed_upload_left_is_forgotten(places: Places):
    places.save(10)
    left = places.store.root / "checkpoints/step-000000010/.part-1"
    left.write_bytes(b"half")
    places.save(20)
    assert not left.exists()


def test_publishing_again_changes_nothing(places: Places):
    found = write(places.scratch, manifest(10), parts(10))
    assert publish(found, places.store)
    before = places.store.list()
    assert not publish(found, places.store)
    assert places.store.list() == before
