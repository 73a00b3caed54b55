"""How a checkpoint reaches every rank: over the network once for a node, and into main memory once, as page cache."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch

PARTS = ["model.pt", "optimizer.pt"]


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("scratch-*/restore-*")]


@pytest.fixture
def saved(ranks, tiny, tmp_path: Path) -> Path:
    """A folder with the checkpoint of a run's third step, on the scratch of rank 0 alone."""
    assert ranks.run("train", 1, tiny, tmp_path, drain_at=3) == [{"code": 75}]
    return tmp_path


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_one_rank_of_each_other_node_writes_what_all_of_its_ranks_map(ranks, tiny, saved: Path, sharding: str):
    """Each would hold three times a part in main memory: a run that starts might not be able to go on."""
    first, second, third = ranks.run("restored", 3, tiny | {"sharding": sharding}, saved, per_node=2)
    assert [rank["wrote"] for rank in (first, second, third)] == [0, 0, 2]
    assert all(rank["held"] == PARTS for rank in (first, second, third))
    assert all(rank["sums"] == first["sums"] for rank in (second, third))
    assert left_in(saved) == []


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_what_learns_keeps_nothing_that_lies_on_scratch(ranks, tiny, saved: Path, sharding: str):
    """A file that was mapped takes its room on the disk until the last tensor in it goes, whatever is deleted."""
    assert [rank["kept"] for rank in ranks.run("restored", 2, tiny | {"sharding": sharding}, saved)] == [[], []]


@pytest.mark.parametrize(("world", "per_node"), [(1, 1), (3, 3)])
def test_nothing_is_sent_where_all_ranks_see_the_checkpoint(ranks, tiny, saved: Path, world: int, per_node: int):
    answers = ranks.run("restored", world, tiny, saved, per_node=per_node)
    assert [(rank["passed"], rank["held"]) for rank in answers] == [(0, PARTS)] * world
    assert left_in(saved) == []


def test_what_a_restore_that_was_cut_off_left_goes_with_the_next(ranks, tiny, saved: Path):
    for node in (0, 1):
        stale = saved / f"scratch-{node}" / "restore-abc"
        stale.mkdir(parents=True)
        (stale / "model.pt").write_bytes(b"half")
    assert [rank["wrote"] for rank in ranks.run("restored", 2, tiny, saved)] == [0, 2]
    assert left_in(saved) == []


def test_a_scratch_that_takes_nothing_is_an_error_in_words(ranks, tiny, saved: Path):
    """It fails this node, and isn't taken for a fault of the job's code."""
    (saved / "scratch-1").write_text("in the way")
    _, second = ranks.run("restored", 2, tiny, saved)
    assert second["error"].startswith(f"CheckpointError: step 3: {saved / 'scratch-1'}")
    assert second["error"].endswith("Not a directory; see to the node's scratch")
    assert left_in(saved) == []


def test_so_it_is_on_the_scratch_of_rank_0(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from trainer.train import restore
    from trainer.train.errors import CheckpointError

    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    monkeypatch.setattr(restore, "mkdtemp", full)
    found = SimpleNamespace(manifest=SimpleNamespace(step=3, parts=[]), folder=tmp_path)
    group = SimpleNamespace(told=lambda _word, make, _seconds: make())
    with pytest.raises(CheckpointError, match=r"step 3: .*: No space left on device; see to the node's scratch"):
        restore.restore(lambda: found, None, None, group, tmp_path)
