"""Two local stacks on one embedded cloud: what ends one leaves the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import workspace
from cli.workspace import Workspace
from emulator import cloud


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stacks' states, of a home whose cloud runs."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    monkeypatch.setattr(workspace.cloud, "find", lambda home: cloud.Cloud("http://127.0.0.1:1", 1, home))
    folder = tmp_path / "state/.pulumi/stacks/trainwright"
    folder.mkdir(parents=True)
    for name, resources in {"local": [{"urn": "u"}], "local-alicloud": [{"urn": "u"}], "local-empty": None}.items():
        state = {"checkpoint": {"latest": {"resources": resources} if resources else {}}}
        (folder / f"{name}.json").write_text(json.dumps(state))
        (folder / f"{name}.json.attrs").write_text("{}")
    (folder / "local-broken.json").write_text("{")
    return folder


def test_the_stacks_that_are_up_beside_are_known(states: Path) -> None:
    assert Workspace("local").beside == ["local-alicloud"]
    assert Workspace("local-alicloud").beside == ["local"]
    assert Workspace("local-empty").beside == ["local", "local-alicloud"]
    (states / "local.json").unlink()
    assert Workspace("local-alicloud").beside == []


def test_none_is_up_beside_where_no_cloud_runs(states: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace.cloud, "find", lambda _: None)
    assert Workspace("local").beside == []
