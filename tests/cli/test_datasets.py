from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from cli import datasets
from cli.errors import Refused
from trainer.store import FileStore

NAME = "datasets/poems"


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80)


def packed(home: Path, text: str) -> Path:
    home.mkdir(exist_ok=True)
    (home / "poem.txt").write_text(text)
    return datasets.pack([home / "poem.txt"], "poems", home)


class Recording(FileStore):
    """Keeps what was done to it, in order."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.done: list[tuple[str, str]] = []

    def delete(self, key: str) -> None:
        self.done.append(("delete", key))
        super().delete(key)

    def upload(self, path: Path, key: str) -> None:
        self.done.append(("upload", key))
        super().upload(path, key)


def test_the_same_dataset_again_is_no_work_and_no_error(tmp_path: Path, console: Console) -> None:
    bucket = FileStore(tmp_path / "bucket")
    datasets.upload(packed(tmp_path / "home", "one"), bucket, console)
    before = bucket.list()
    datasets.upload(packed(tmp_path / "home", "one"), bucket, console)
    assert bucket.list() == before
    assert "there already, the same" in console.file.getvalue()  # type: ignore[attr-defined]


def test_another_of_the_same_name_is_refused_and_the_first_left_whole(tmp_path: Path, console: Console) -> None:
    bucket = FileStore(tmp_path / "bucket")
    datasets.upload(packed(tmp_path / "home", "one"), bucket, console)
    before = bucket.list()
    with pytest.raises(Refused, match=r"dataset poems: the bucket has another.*--replace"):
        datasets.upload(packed(tmp_path / "home", "other"), bucket, console)
    assert bucket.list() == before


def test_a_replaced_dataset_is_never_whole_with_another_ones_shards(tmp_path: Path, console: Console) -> None:
    bucket = Recording(tmp_path / "bucket")
    datasets.upload(packed(tmp_path / "home", "one"), bucket, console)
    bucket.done.clear()
    folder = packed(tmp_path / "home", "other")
    datasets.upload(folder, bucket, console, replace=True)
    prefix = f"datasets/{folder.name}"
    index = f"{prefix}/index.json"
    assert bucket.done == [("delete", index), ("upload", f"{prefix}/shard-00000.bin"), ("upload", index)]
    assert bucket.get(index) == (folder / "index.json").read_bytes()


@pytest.mark.parametrize("name", ["../bucket", "Poems", ""])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match="--name"):
        datasets.pack([tmp_path], name, tmp_path)
