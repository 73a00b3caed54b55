"""A run's checkpoints from the command: what is listed, what is told damaged, and what is exported."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from rich.console import Console
from typer.testing import CliRunner

from cli import checkpoints, main
from cli.errors import Refused
from cli.workspace import Workspace
from trainer.store import FileStore, S3Store, Store
from trainer.train.checkpoint import Manifest, publish, write


def saved(store: Store, folder: Path, step: int, model: bytes = b"weights") -> None:
    told: dict[str, Any] = {"position": step, "samples": 9, "vocabulary": 257, "world": 2, "generation": 1}
    manifest = Manifest(step=step, torch="2", job={}, **told)
    parts = {name: lambda file, name=name: file.write(model + name.encode()) for name in ("model.pt", "optimizer.pt")}
    publish(write(folder / "scratch", manifest, parts), store)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    made = FileStore(tmp_path / "run")
    for step in (10, 20):
        saved(made, tmp_path, step)
    return made


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined]


def path_of(store: FileStore, step: int, name: str) -> Path:
    return store.root / f"checkpoints/step-{step:09d}" / name


def test_all_are_listed_with_what_is_wrong_with_them(store: FileStore, tmp_path: Path, console: Console) -> None:
    for step in (30, 40, 50):
        saved(store, tmp_path, step)
    path_of(store, 30, "model.pt").unlink()
    path_of(store, 40, "manifest.json").rename(path_of(store, 40, "manifest.json.corrupt"))
    path_of(store, 50, "manifest.json").unlink()
    found = checkpoints.listed(store)
    assert [(item.step, item.world, item.state.split(":")[0]) for item in found] == [
        (50, None, "unfinished"), (40, None, "set aside"), (30, 2, "damaged"), (20, 2, "whole"), (10, 2, "whole"),
    ]  # fmt: skip
    assert found[3].size == 2 * len("weights") + len("model.ptoptimizer.pt")
    console.print(checkpoints.table(found, now=found[-1].written + 90))
    for text in ("age", "1 min 30 s", "34 B", "whole", "model.pt absent or cut short"):
        assert text in said(console)
    assert json.loads(json.dumps(checkpoints.as_json(found)))[4]["state"] == "whole"


@pytest.mark.parametrize("verb", [["list"], ["verify"], ["export", "--to", "m.pt"]])
def test_each_verb_takes_a_run_as_the_other_verbs_do(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Workspace, "run", lambda _, run: asked.append(run) or (run, store))
    monkeypatch.chdir(tmp_path)
    for named in ([], ["--run", "older"]):
        done = CliRunner().invoke(main.app, ["checkpoints", *verb, *named])
        assert done.exit_code == 0, done.output
        (tmp_path / "m.pt").unlink(missing_ok=True)
    assert asked == ["", "older"]


def test_a_run_without_checkpoints_says_so(tmp_path: Path, console: Console) -> None:
    empty = FileStore(tmp_path / "none")
    console.print(checkpoints.table(checkpoints.listed(empty)))
    assert said(console) == "no checkpoint yet\n"
    with pytest.raises(Refused, match="has no checkpoint yet"):
        checkpoints.verify(empty, console)


def test_what_is_altered_in_the_bucket_is_damaged(store: FileStore, console: Console) -> None:
    """No size tells: every part is read."""
    assert checkpoints.verify(store, console) == 0
    assert said(console).count("good, 34 B in 2 parts") == 2
    altered = path_of(store, 10, "optimizer.pt")
    altered.write_bytes(altered.read_bytes()[:-1] + b"?")
    assert {item.state for item in checkpoints.listed(store)} == {"whole"}
    assert checkpoints.verify(store, console) == 1
    assert "step 10: damaged: optimizer.pt was altered: its SHA-256 is not the manifest's" in said(console)
    assert checkpoints.verify(store, console, step=20) == 0
    with pytest.raises(Refused, match=r"no checkpoint of step 15. There are 20, 10"):
        checkpoints.verify(store, console, step=15)


def test_a_model_is_exported_whole_or_not_at_all(store: FileStore, tmp_path: Path, console: Console) -> None:
    target = tmp_path / "out" / "model.pt"
    with pytest.raises(Refused, match="there is no folder"):
        checkpoints.export(store, console, target)
    target.parent.mkdir()
    checkpoints.export(store, console, target, step=10)
    assert target.read_bytes() == b"weightsmodel.pt"
    with pytest.raises(Refused, match="is there already"):
        checkpoints.export(store, console, target)
    path_of(store, 20, "model.pt").write_bytes(b"WEIGHTSmodel.pt")
    with pytest.raises(Refused, match="was altered"):
        checkpoints.export(store, console, target.with_name("other.pt"))
    assert [path.name for path in target.parent.iterdir()] == ["model.pt"]


def test_a_bucket_is_read_as_a_folder_is(tmp_path: Path, console: Console) -> None:
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1", **keys)
        client.create_bucket(Bucket="data")
        store = S3Store("data", "runs/r-1", client)
        saved(store, tmp_path, 10)
        assert [item.state for item in checkpoints.listed(store)] == ["whole"]
        assert checkpoints.verify(store, console) == 0
        checkpoints.export(store, console, tmp_path / "model.pt")
    assert (tmp_path / "model.pt").read_bytes() == b"weightsmodel.pt"


def test_an_extra_that_is_absent_is_named(store: FileStore, tmp_path: Path, console: Console, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(Refused, match=r"trainwright\[export\]"):
        checkpoints.export(store, console, tmp_path / "m.safetensors", kind="safetensors")


@pytest.mark.torch
def test_safetensors_holds_the_same_tensors(tmp_path: Path, console: Console) -> None:
    pytest.importorskip("safetensors", reason="the extra `export` is not installed")
    import torch
    from safetensors import safe_open

    from trainer.train import learner

    assert checkpoints.MODEL == learner.MODEL
    weight = torch.arange(12.0).reshape(3, 4)
    content = io.BytesIO()
    torch.save({"a": weight.T, "tied": weight, "half": weight.bfloat16()}, content)
    store = FileStore(tmp_path / "run")
    told: dict[str, Any] = {"position": 1, "samples": 9, "vocabulary": 257, "world": 2, "generation": 1}
    manifest = Manifest(step=7, torch="2", job={}, **told)
    publish(write(tmp_path / "scratch", manifest, {"model.pt": lambda file: file.write(content.getvalue())}), store)
    target = tmp_path / "m.safetensors"
    checkpoints.export(store, console, target, kind="safetensors")
    with safe_open(target, "pt") as read:
        assert read.metadata()["step"] == "7"
        assert torch.equal(read.get_tensor("a"), weight.T)
        assert torch.equal(read.get_tensor("tied"), weight)
        assert read.get_tensor("half").dtype == torch.bfloat16
