"""A cluster's life with a `pulumi` that writes down what it is asked, and a folder as the bucket."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli import lifecycle
from cli.account import Group
from cli.errors import Interrupted, Refused
from cli.verbs import cluster
from cli.workspace import REPOSITORY, Workspace
from emulator import cloud
from trainer.store import FileStore

PULUMI = """#!/bin/sh
case "$1 $2" in
  version*) echo v3.280.0 ;;
  "stack output") cat {outputs} ;;
  *) echo "$@" >> {asked}; exit $(cat {code}) ;;
esac
"""


class Setting:
    """A project with the stacks `local` and `prod`, whose run is the one that a test's `prefix` tells of."""

    def __init__(self, folder: Path, prefix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.asked, self.code = folder, folder / "asked", folder / "code"
        self.console = Console(file=io.StringIO(), width=100)
        self.instances = frozenset(prefix.nodes)
        self.cloud: cloud.Cloud | None = None
        (folder / "stacks").mkdir(parents=True)
        (folder / "Pulumi.yaml").write_text("name: p\n")
        shipped = (REPOSITORY / "stacks" / "Pulumi.local.yaml").read_text()
        (folder / "stacks" / "Pulumi.local.yaml").write_text(shipped.replace("python-stdlib", "poems"))
        real = shipped.replace("127.10.", "10.10.").replace("ami-00000000000000000", "ami-0123456789abcdef0")
        (folder / "stacks" / "Pulumi.prod.yaml").write_text(real)
        self.code.write_text("0")
        outputs = folder / "outputs.json"
        outputs.write_text(json.dumps({"bucket": "b", "group": "g", "run": prefix.run}))
        program = folder / "bin" / "pulumi"
        program.parent.mkdir()
        program.write_text(PULUMI.format(outputs=outputs, asked=self.asked, code=self.code))
        program.chmod(0o755)
        for name in ("TRAINWRIGHT_HOME", "PULUMI_HOME", "AWS_ENDPOINT_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        monkeypatch.chdir(folder)
        monkeypatch.setattr(Workspace, "open", lambda *_: FileStore(prefix.store.root))
        monkeypatch.setattr(Workspace, "group", lambda _: Group(prefix.began, self.instances))
        monkeypatch.setattr(lifecycle, "_can_ask", lambda: True)
        monkeypatch.setattr(cloud, "find", lambda _: self.cloud)
        monkeypatch.setattr(cloud, "start", self._start)
        monkeypatch.setattr(cloud, "stop", self._stop)

    def _start(self, home: Path) -> tuple[cloud.Cloud, bool]:
        self.cloud = self.cloud or cloud.Cloud("http://127.0.0.1:1", 1, home)
        return self.cloud, True

    def _stop(self, _: Path) -> None:
        self.cloud = None

    @property
    def commands(self) -> list[str]:
        asked = self.asked.read_text().splitlines() if self.asked.exists() else []
        return [line for line in asked if "select" not in line]

    @property
    def said(self) -> str:
        return self.console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def setting(tmp_path: Path, prefix: Any, monkeypatch: pytest.MonkeyPatch) -> Setting:
    return Setting(tmp_path / "project", prefix, monkeypatch)


def test_a_real_cloud_is_changed_after_a_look_and_a_yes_only(setting: Setting, prefix: Any) -> None:
    prefix.short()
    lifecycle.up("prod", setting.console)
    lifecycle.down("prod", setting.console)
    assert setting.commands == ["up --suppress-outputs --stack prod", "destroy --stack prod"]


def test_one_who_is_sure_is_not_asked(setting: Setting, prefix: Any) -> None:
    prefix.short()
    lifecycle.up("prod", setting.console, sure=True)
    lifecycle.down("prod", setting.console, sure=True)
    assert setting.commands == ["up --yes --suppress-outputs --stack prod", "destroy --yes --stack prod"]


@pytest.mark.parametrize(
    ("verb", "done", "look"),
    [
        (lifecycle.up, "changed", "trainwright preview --stack prod --live"),
        (lifecycle.down, "destroyed", "pulumi destroy --preview-only --stack prod"),
    ],
)
def test_where_nobody_can_be_asked_nothing_is_begun_and_what_would_be_can_be_looked_at(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, verb: Any, done: str, look: str
) -> None:
    """In CI: no cluster is said to be left, as none was touched, and the stack's file stays as it is."""
    monkeypatch.setattr(lifecycle, "_can_ask", lambda: False)
    told = rf"no terminal here to ask on before 'prod' is {done}\. See what would be by `{look}`.*give --yes$"
    with pytest.raises(Refused, match=told):
        verb("prod", setting.console)
    assert not setting.asked.exists()


def test_the_embedded_cloud_is_changed_at_once(setting: Setting, prefix: Any) -> None:
    prefix.short()
    lifecycle.up("local", setting.console)
    lifecycle.down("local", setting.console)
    assert [command.split(" --stack")[0] for command in setting.commands] == [
        "up --yes --skip-preview --suppress-outputs",
        "destroy --yes --skip-preview",
    ]
    assert setting.cloud is None


@pytest.mark.parametrize(("succeeded", "code"), [(True, 0), (False, 1)])
def test_up_says_first_that_the_run_had_ended(setting: Setting, prefix: Any, succeeded: bool, code: int) -> None:
    prefix.short()
    prefix.end(9.0, succeeded=succeeded, reason="no progress")
    assert lifecycle.up("local", setting.console) == code
    line = setting.said.index(f"Run {prefix.run} ended before, and nothing trains now")
    assert "job.seed" in setting.said
    assert line < setting.said.index("wall time")
    assert setting.said.rstrip().endswith("make down ends the cluster")


def test_watching_a_run_that_has_ended_is_no_surprise(setting: Setting, prefix: Any) -> None:
    prefix.short()
    assert lifecycle.watch("prod", setting.console) == 0
    assert "ended before" not in setting.said


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (2, "2 nodes still run and are billed: trainwright down --stack prod"),
        (1, "1 node still runs and is billed: trainwright down --stack prod"),
    ],
)
def test_the_report_of_a_real_cluster_ends_with_what_costs_money(
    setting: Setting, prefix: Any, nodes: int, line: str
) -> None:
    prefix.short()
    setting.instances = frozenset(prefix.nodes[:nodes])
    lifecycle.watch("prod", setting.console)
    assert setting.said.rstrip().endswith(line)


@pytest.mark.parametrize(("stack", "ending"), [("local", "make down"), ("prod", "trainwright down --stack prod")])
def test_an_up_that_fails_says_what_failed_and_how_to_end_it(setting: Setting, stack: str, ending: str) -> None:
    workspace = Workspace(stack)
    setting.code.write_text("0")
    workspace.create()
    setting.folder.joinpath("bin", "pulumi").write_text(
        setting.folder.joinpath("bin", "pulumi").read_text().replace('case "$1', '[ "$1" = up ] && exit 9\ncase "$1')
    )
    with pytest.raises(Refused, match=f"`pulumi up .*ended with 9.*`{ending}` ends"):
        lifecycle.up(stack, setting.console)


def test_a_report_that_cannot_be_written_leaves_the_outcome_as_it_is(setting: Setting, prefix: Any) -> None:
    prefix.short()
    (setting.folder / ".local" / "report-prod.html").mkdir(parents=True)
    assert lifecycle.watch("prod", setting.console) == 0
    assert "can't be written: Is a directory" in setting.said
    assert "Trained to the end" in setting.said


def test_a_preview_ends_the_cloud_that_ran_for_it_alone(setting: Setting) -> None:
    lifecycle.preview("local", setting.console)
    assert setting.commands == ["preview --stack local"]
    assert setting.cloud is None


def test_a_preview_leaves_a_cluster_that_is_up_alone(setting: Setting) -> None:
    setting._start(setting.folder)
    lifecycle.preview("local", setting.console)
    assert setting.cloud is not None


def test_a_preview_that_fails_is_refused(setting: Setting) -> None:
    setting.code.write_text("7")
    with pytest.raises(Refused, match="ended with 7"):
        lifecycle.preview("prod", setting.console, live=True)


@pytest.mark.parametrize(("verb", "asked"), [("up", "up"), ("down", "destroy")])
def test_ctrl_c_lets_pulumi_end_in_order_and_is_one_line(setting: Setting, verb: str, asked: str) -> None:
    running, in_order = setting.folder / "running", setting.folder / "in-order"
    slow = f"trap 'sleep 1; touch {in_order}; exit 255' INT; touch {running}; sleep 30"
    program = setting.folder / "bin" / "pulumi"
    program.write_text(program.read_text().replace('case "$1', f'[ "$1" = {asked} ] && {{ {slow}; }}\ncase "$1', 1))
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from cli.main import main; main()"
    command = subprocess.Popen(
        [sys.executable, "-c", start, verb, "--stack", "prod", "--yes"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not running.exists():
            assert time.monotonic() < deadline
            assert command.poll() is None
            time.sleep(0.05)
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does
        out, said = command.communicate(timeout=30)
    finally:
        command.kill()
    assert in_order.exists()
    assert command.returncode == 130
    assert len(said.splitlines()) == 1
    assert said.startswith(f"interrupted; `pulumi {asked}` has ended and what it did stays")
    assert out == ""


def test_ctrl_c_in_down_leaves_what_is_left_for_the_next_one(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting._start(setting.folder)

    def interrupted(*_: Any, **__: Any) -> str:
        raise Interrupted("interrupted")

    monkeypatch.setattr(Workspace, "pulumi", interrupted)
    with pytest.raises(Interrupted):
        lifecycle.down("local", setting.console)
    assert setting.cloud is not None


def test_a_destroy_that_fails_ends_the_embedded_cloud_all_the_same(setting: Setting) -> None:
    setting._start(setting.folder)
    setting.code.write_text("7")
    with pytest.raises(Refused):
        lifecycle.down("local", setting.console)
    assert setting.cloud is None


@pytest.mark.parametrize("verb", [lifecycle.up, lifecycle.down, lifecycle.watch, lifecycle.preview])
def test_a_shell_of_the_embedded_cloud_is_never_used_for_a_real_one(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, verb: Any
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4711")
    with pytest.raises(Refused, match=re.escape("set up for the embedded cloud (by AWS_ENDPOINT_URL)")) as raised:
        verb("prod", setting.console)
    assert "open another" in str(raised.value)
    assert setting.commands == []


def test_what_would_lead_past_the_embedded_cloud_does_not_reach_the_engine(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = setting.folder / "seen"
    setting.folder.joinpath("bin", "pulumi").write_text(
        f'#!/bin/sh\n[ "$1" = version ] && echo v3.280.0 || env > {seen}\n'
    )
    for name, value in {"AWS_PROFILE": "work", "AWS_ENDPOINT_URL_S3": "http://x", "NO_PROXY": "a.example"}.items():
        monkeypatch.setenv(name, value)
    Workspace("local").pulumi("preview")
    told = dict(line.split("=", 1) for line in seen.read_text().splitlines() if "=" in line)
    assert "AWS_PROFILE" not in told
    assert "AWS_ENDPOINT_URL_S3" not in told
    assert told["no_proxy"] == told["NO_PROXY"] == "a.example,127.0.0.1,localhost"
    assert told["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"


@pytest.mark.parametrize("name", ["prodd", "local-x"])
def test_a_mistyped_stack_ends_no_cloud_and_fetches_nothing(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    setting.cloud = cloud.Cloud("http://127.0.0.1:1", 1, setting.folder)
    monkeypatch.setattr(cloud, "stop", lambda _: pytest.fail("the embedded cloud was ended"))
    for verb in (lambda: lifecycle.down(name, setting.console), lambda: cluster.env(name)):
        with pytest.raises(Refused, match=f"there is no stack '{name}'"):
            verb()
    assert not setting.asked.exists()
