"""Samples are the tokens that the packer wrote, and a folder that isn't what its index says is refused in words."""

import json
from pathlib import Path

import numpy as np
import pytest

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
    expected = [
        shard[start : start + CONTEXT + 1]
        for shard in shards_of(folder)
        for start in range(0, len(shard) - CONTEXT, CONTEXT)
    ]
    tokens = Tokens(folder, CONTEXT)
    assert len(tokens) == len(expected)
    order = np.random.default_rng(0).permutation(len(tokens))
    batch = np.zeros((len(order), CONTEXT + 1), dtype=np.int64)
    tokens.gather(order, batch)
    assert (batch == np.stack(expected)[order]).all()


def test_a_shard_shorter_than_a_sample_gives_none(tmp_path: Path):
    (tmp_path / "text.txt").write_text("x" * 25)
    pack([tmp_path / "text.txt"], tmp_path / "data", "t", shard_tokens=20)
    assert len(Tokens(tmp_path / "data", 19)) == 1


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
