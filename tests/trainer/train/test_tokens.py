"""Samples are the tokens that the packer wrote, and a folder that isn't what its index says is refused in words."""

import gc
import json
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.pack import pack
from trainer.train.errors import DataError
from trainer.train.tokens import Tokens

CONTEXT = 7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = tmp_path / "text.txt"
    text.write_bytes(bytes(number % 251 + 1 for number in range(1000)).decode("latin-1").encode())
    pack([text], tmp_path / "data", "t", shard_tokens=300)
    return tmp_path / "data"


def shards_of(folder: Path) -> list[np.ndarray]:
    index = json.loads((folder / "index.json").read_text())
    return [np.fromfile(folder / shard["file"], dtype="<u2") for shard in index["shards"]]


def test_samples_are_windows_that_share_one_token_and_stay_in_their_shard(folder: Path):
    expected = windows(shards_of(folder), CONTEXT)
    tokens = Tokens(folder, CONTEXT)
    assert len(tokens) == len(expected)
    order = np.random.default_rng(0).permutation(len(tokens))
    batch = np.zeros((len(order), CONTEXT + 1), dtype=np.int64)
    tokens.gather(order, batch)
    assert (batch == expected[order]).all()


def test_a_shard_shorter_than_a_sample_gives_none(tmp_path: Path):
    (tmp_path / "text.txt").write_text("x" * 25)
    pack([tmp_path / "text.txt"], tmp_path / "data", "t", shard_tokens=20)
    assert len(Tokens(tmp_path / "data", 19)) == 1


def write(folder: Path, sizes: list[int]) -> list[np.ndarray]:
    """A dataset with a shard of each size, of random tokens."""
    folder.mkdir()
    shards = [np.random.default_rng(size).integers(0, 2**16, size).astype("<u2") for size in sizes]
    files = [{"file": f"shard-{number:05d}.bin", "tokens": size} for number, size in enumerate(sizes)]
    for entry, shard in zip(files, shards, strict=True):
        shard.tofile(folder / entry["file"])
    index = {"version": 1, "dtype": "uint16", "vocabulary": 2**16, "tokens": sum(sizes), "shards": files}
    (folder / "index.json").write_text(json.dumps(index))
    return shards


def windows(shards: list[np.ndarray], context: int) -> np.ndarray:
    return np.stack(
        [shard[start : start + context + 1] for shard in shards for start in range(0, len(shard) - context, context)]
    )


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 20), st.integers(1, 4))
@settings(deadline=None, max_examples=50)
def test_samples_are_gathered_from_any_shards_in_any_order(tmp_path_factory, sizes: list[int], context: int, rows: int):
    """Some shards are empty or too short, each map has an address of its own, and blocks end anywhere."""
    folder = tmp_path_factory.mktemp("any") / "data"
    shards = write(folder, [*sizes, context + 1])
    expected = windows(shards, context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainer.train.tokens.BLOCK_BYTES", rows * (context + 1) * 8)
        tokens = Tokens(folder, context)
    assert len(tokens) == len(expected)
    order = np.random.default_rng(1).permutation(len(tokens))
    batch = np.full((len(order), context + 1), -1)
    tokens.gather(order, batch)
    assert (batch == expected[order]).all()


def test_every_shard_is_mapped_shared_and_read_only_for_as_long_as_it_is_read(tmp_path: Path):
    """Ranks of a node share the page cache (proc(5), maps); a map let go under its reader would end the process."""
    write(tmp_path / "data", [5000] * 20)

    def mapped() -> list[str]:
        gc.collect()
        lines = Path("/proc/self/maps").read_text().splitlines()
        return [line.split()[1] for line in lines if str(tmp_path) in line]

    tokens = Tokens(tmp_path / "data", CONTEXT)
    assert mapped() == ["r--s"] * 20
    del tokens
    assert mapped() == []


def test_more_shards_than_may_be_open_are_refused_in_words(tmp_path: Path):
    write(tmp_path / "data", [20] * 50)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as lowest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno() + 10, hard))
    try:
        with pytest.raises(DataError, match=r"shard-000\d\d.bin: can't be mapped \(Too many open files\)"):
            Tokens(tmp_path / "data", CONTEXT)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def damage_index(folder: Path) -> None:
    (folder / "index.json").write_text("{")


def strip_index(folder: Path) -> None:
    (folder / "index.json").write_text(json.dumps({"version": 1, "dtype": "uint16"}))


def other_version(folder: Path) -> None:
    index = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(index | {"version": 2}))


def lose_index(folder: Path) -> None:
    (folder / "index.json").unlink()


def lose_shard(folder: Path) -> None:
    (folder / "shard-00001.bin").unlink()


def shorten_shard(folder: Path) -> None:
    path = folder / "shard-00001.bin"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_index, "index.json: is damaged"),
        (strip_index, "index.json: is damaged"),
        (other_version, "version 2 of uint16 tokens"),
        (lose_index, "index.json: there is no such file"),
        (lose_shard, "shard-00001.bin: the shard is missing"),
        (shorten_shard, "shard-00001.bin: 599 bytes, but its index says 600"),
    ],
)
def test_a_damaged_folder_is_refused(folder: Path, damage, message: str):
    damage(folder)
    with pytest.raises(DataError, match=message):
        Tokens(folder, CONTEXT)


def test_a_dataset_smaller_than_a_sample_is_refused(folder: Path):
    with pytest.raises(DataError, match="a sample takes 301"):
        Tokens(folder, 300)
