from __future__ import annotations

import io
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError

from cli import lifecycle, main
from cli.errors import Interrupted, Refused
from cli.verbs import cluster
from cli.workspace import Workspace
from trainer.store import Unavailable

REPOSITORY = Path(main.__file__).parents[1]
LONG = "/a/long/folder/with a name/" * 8


def ended(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> object:
    def fail(*_: Any, **__: Any) -> int:
        raise error

    monkeypatch.setattr(lifecycle, "up", fail)
    monkeypatch.setattr(sys, "argv", ["trainwright", "up"])
    with pytest.raises(SystemExit) as left:
        main.main()
    return left.value.code


@pytest.mark.parametrize(
    ("error", "said", "code"),
    [
        (Refused(f"[no] {LONG}"), f"error: [no] {LONG}", 1),
        (PermissionError(13, "Permission denied", LONG), f"error: {LONG}: Permission denied", 1),
        (OSError("no space"), "error: no space", 1),
        (Interrupted(f"interrupted {LONG}"), f"interrupted {LONG}", 130),
    ],
)
def test_an_error_is_one_unbroken_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str, code: int
) -> None:
    assert ended(monkeypatch, error) == code
    assert capsys.readouterr().err == f"{said}\n"


def test_a_bucket_that_wants_credentials_says_how_to_give_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = Unavailable("s3://b: Unable to locate credentials")
    error.__cause__ = NoCredentialsError()
    assert ended(monkeypatch, error) == 1
    assert capsys.readouterr().err.startswith("error: s3://b: Unable to locate credentials. Sign in to AWS")


def test_the_module_itself_is_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m cli.main` said nothing and ended well."""
    monkeypatch.setattr(sys, "argv", ["cli.main", "no-such-verb"])
    monkeypatch.delitem(sys.modules, "cli.main")
    with pytest.raises(SystemExit) as left:
        runpy.run_module("cli.main", run_name="__main__")
    assert left.value.code == 2
    assert "no-such-verb" in capsys.readouterr().err


@pytest.mark.parametrize(("columns", "width"), [("", 160), ("70", 70)])
def test_a_pipe_is_wide_unless_one_says_how_wide(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    """Rich takes 80 columns, and folds what a program is to read."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", columns)
    if not columns:
        monkeypatch.delenv("COLUMNS")
    monkeypatch.delitem(sys.modules, "cli.verbs.options")
    assert runpy.run_module("cli.verbs.options")["console"].width == width


@pytest.mark.parametrize("verb", [["catalog"], ["check"]])
def test_a_reader_that_has_enough_is_no_error(verb: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from cli.main import main; main()", *verb]
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(command, cwd=REPOSITORY, stdout=closed, stderr=subprocess.PIPE, check=False, text=True)
    assert done.stderr == ""


def test_env_takes_back_what_would_lead_past_the_embedded_cloud(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setattr(Workspace, "environment", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "A": "it's"})
    cluster.env("local")
    script = f"{capsys.readouterr().out}echo ${{AWS_PROFILE-gone}} $AWS_ENDPOINT_URL $A"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "gone http://127.0.0.1:1 it's\n"


@pytest.mark.parametrize(
    "verb",
    [
        "up",
        "down",
        "preview",
        "check",
        "env",
        "leftovers",
        "watch",
        "status",
        "logs",
        "catalog",
        "data",
        "queue",
        "erase",
    ],
)
def test_every_verb_explains_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["trainwright", verb, "--help"])
    with pytest.raises(SystemExit) as left:
        main.main()
    assert left.value.code == 0
    assert "Usage" in capsys.readouterr().out
