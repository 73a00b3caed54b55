"""Packing is exact, repeatable and whole: what the shards hold is the text, and a folder with an index is complete."""

import hashlib
import json
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.pack import END_OF_DOCUMENT, PackError, pack


def tokens_of(folder: Path) -> list[int]:
    index = json.loads((folder / "index.json").read_text())
    return [int(token) for shard in index["shards"] for token in np.fromfile(folder / shard["file"], dtype="<u2")]


@settings(max_examples=30, deadline=None)
@given(
    texts=st.lists(st.text(min_size=1).map(lambda text: text.replace("\0", "")), min_size=1),
    shard_tokens=st.integers(1, 50),
)
def test_shards_hold_every_document_and_its_end(texts, shard_tokens, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pack")
    expected = []
    for number, text in enumerate(text for text in texts if text):
        path = folder / "text" / f"{number:05d}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
        expected += [*text.encode(), END_OF_DOCUMENT]
    if not expected:
        return
    index = pack([folder / "text"], folder / "out", "t", shard_tokens=shard_tokens)
    assert tokens_of(folder / "out") == expected
    assert index["tokens"] == len(expected)
    assert all(shard["tokens"] == shard_tokens for shard in index["shards"][:-1])
    for shard in index["shards"]:
        content = (folder / "out" / shard["file"]).read_bytes()
        assert (len(content) / 2, hashlib.sha256(content).hexdigest()) == (shard["tokens"], shard["sha256"])


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    (folder / "b" / "skip").mkdir(parents=True)
    (folder / "b" / "two.txt").write_text("zwei")
    (folder / "a.txt").write_text("eins")
    (folder / "b" / "skip" / "x.txt").write_text("nie")
    (folder / "b.bin").write_bytes(b"\0\1")
    (folder / "latin.txt").write_bytes("größer".encode("latin-1"))
    (folder / "empty.txt").write_text("")
    (folder / "loop").symlink_to(folder)
    return folder


def test_files_come_sorted_and_binaries_are_counted(text: Path, tmp_path: Path):
    index = pack([text], tmp_path / "out", "t", exclude=["skip"])
    assert tokens_of(tmp_path / "out") == [*b"eins", END_OF_DOCUMENT, *b"zwei", END_OF_DOCUMENT]
    assert (index["documents"], index["skipped"]) == (2, 2)


@pytest.mark.parametrize("pattern", ["skip", "b/skip", "x.*", "b/skip/*"])
def test_exclude_matches_names_and_relative_paths(text: Path, tmp_path: Path, pattern: str):
    assert pack([text], tmp_path / "out", "t", exclude=[pattern])["documents"] == 2
    assert pack([text], tmp_path / "out", "t")["documents"] == 3


def test_packing_again_leaves_nothing_of_the_old_dataset(text: Path, tmp_path: Path):
    pack([text], tmp_path / "out", "t", shard_tokens=2)
    index = pack([text], tmp_path / "out", "t")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index.json", "shard-00000.bin"]
    assert len(index["shards"]) == 1


def test_a_folder_whose_packing_failed_has_no_index(text: Path, tmp_path: Path):
    pack([text], tmp_path / "out", "t")
    with pytest.raises(PackError, match="no such file or folder"):
        pack([text, tmp_path / "absent"], tmp_path / "out", "t")
    assert not (tmp_path / "out" / "index.json").exists()


def test_no_text_is_an_error_that_counts_what_was_skipped(tmp_path: Path):
    (tmp_path / "x.bin").write_bytes(b"\0")
    with pytest.raises(PackError, match=r"no UTF-8 text.*1 binary"):
        pack([tmp_path / "x.bin"], tmp_path / "out", "t")


def test_the_standard_library_packs(tmp_path: Path):
    index = pack([Path(sysconfig.get_path("stdlib"))], tmp_path, "stdlib", exclude=["test", "tests", "site-packages"])
    assert index["tokens"] > 1_000_000
