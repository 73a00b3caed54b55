"""`trainwright comply`: what is judged, what follows for CI, and that nothing ends in a traceback."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli import comply, main, preview
from cli.comply import Wanted
from cli.errors import Refused
from cli.workspace import Workspace
from policies.resources import Resource, Stack
from tests.project import TRAINWRIGHT, Project

BUCKET = "aws:s3/bucket:Bucket"
VOLUME = "aws:ebs/volume:Volume"
URN = f"urn:pulumi:s::p::{VOLUME}::disk"


def state(**props: Any) -> str:
    entry = {"urn": URN, "custom": True, "type": VOLUME, "inputs": props}
    return json.dumps({"version": 3, "deployment": {"resources": [entry]}})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a stack `prod`, whose program declares one disk that isn't encrypted."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: mine\n")
    configure(tmp_path)
    monkeypatch.chdir(tmp_path)
    disk = Resource(VOLUME, "disk", URN, {"encrypted": False, "kmsKeyId": "k"})
    monkeypatch.setattr(
        comply, "planned", lambda workspace: (Stack((disk,)), comply.Subject(workspace.stack, "stacks/x", "planned"))
    )
    return tmp_path


def configure(folder: Path, *lines: str) -> None:
    text = "\n".join(["config:", "  policies:topics: [encryption]", *(f"  policies:{line}" for line in lines)])
    (folder / "stacks" / "Pulumi.prod.yaml").write_text(text)


def judged(wanted: Wanted) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=100)
    code = comply.comply(wanted, "table", None, console)
    return code, console.file.getvalue()  # type: ignore[attr-defined]


def exemption(last_day: str) -> str:
    who = "owner: me@example.com, reason: scratch data"
    return f"exemptions: [{{control: ENC-DISK-01, resource: disk, {who}, expires: {last_day}}}]"


def test_a_breach_is_one(project: Path) -> None:
    code, said = judged(Wanted("prod"))
    assert code == 1
    assert "prod breaks 1 control" in said
    assert "✗ ENC-DISK-01 broken" in said


@pytest.mark.parametrize("line", ["level: advisory", "levels: {ENC-DISK-01: advisory}", exemption("2999-01-01")])
def test_what_refuses_nothing_is_zero_and_is_told(project: Path, line: str) -> None:
    configure(project, line)
    code, said = judged(Wanted("prod"))
    assert code == 0
    assert "ENC-DISK-01" in said


@pytest.mark.parametrize("line", [exemption("2020-01-01"), "level: remediate"])
def test_what_has_expired_or_is_not_mended_is_one(project: Path, line: str) -> None:
    configure(project, line)
    assert judged(Wanted("prod"))[0] == 1


def test_a_control_that_fails_itself_is_one(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from cli.compliance import review

    known = review.declared

    def broken(settings: Any) -> Any:
        return [replace(one, checks={VOLUME: lambda _: 1 / 0}, in_stack={}) for one in known(settings)]

    configure(project, "levels: {}")
    monkeypatch.setattr(review, "declared", broken)
    code, said = judged(Wanted("prod"))
    assert code == 1
    assert "the control itself failed: ZeroDivisionError" in said


@pytest.mark.parametrize(
    ("asked", "output", "told"),
    [
        (Wanted("prod", topics=("nope",)), None, "policies:topics: there is no topic 'nope', but audit"),
        (Wanted("prod"), "absent/x.html", "--output: there is no folder .*absent. Make it first"),
    ],
)
def test_what_can_be_refused_at_once_does_not_wait_for_the_engine(
    project: Path, monkeypatch: pytest.MonkeyPatch, asked: Wanted, output: str | None, told: str
) -> None:
    monkeypatch.setattr(comply, "planned", lambda _: pytest.fail("the engine was asked"))
    with pytest.raises(Refused, match=told) as raised:
        comply.comply(asked, "html", Path(output) if output else None, Console(file=io.StringIO()))
    assert raised.value.code == comply.NOT_JUDGED


def test_the_command_narrows_what_the_stack_asks_for(project: Path) -> None:
    assert judged(Wanted("prod", topics=("network",)))[0] == 0
    assert judged(Wanted("prod", frameworks=("soc2",)))[0] == 1
    assert judged(Wanted("prod", severity="critical"))[0] == 0
    assert "ENC-DISK-01" not in judged(Wanted("prod", severity="critical"))[1]


def test_a_state_is_judged_by_the_settings_of_a_stack_that_is_named(project: Path) -> None:
    (project / "state.json").write_text(state(encrypted=False, kmsKeyId="k"))
    assert judged(Wanted(state="state.json"))[0] == 1
    configure(project, "level: advisory")
    assert judged(Wanted("prod", state="state.json"))[0] == 0


def test_standard_input_is_a_state(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(state(encrypted=True, kmsKeyId="k", region="us-west-2")))
    code, said = judged(Wanted("prod", state="-"))
    assert (code, "standard input breaks none" in said) == (0, True)


REFUSED: list[tuple[list[str], str]] = [
    (["--stack", "absent"], "there is no stack 'absent'"),
    (["--stack", "prod", "--framework", "hippa"], "policies:frameworks: hippa: no such framework"),
    (["--stack", "prod", "--topic", "networks"], "there is no topic 'networks'"),
    (["--state", "absent.json"], "absent.json: No such file"),
    (["--state", "binary"], "no text in UTF-8"),
    (["--state", "broken.json"], "broken.json: is no state as `pulumi stack export` writes it"),
    (["--state", "empty.json"], "empty.json: there is no resource of AWS or Alibaba Cloud in it"),
    (["--state", "state.json", "--output", "nowhere/x"], "--output: there is no folder"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_cannot_be_judged_is_two_in_one_line(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    (project / "binary").write_bytes(b"\xff\xfe")
    (project / "broken.json").write_text("{")
    (project / "empty.json").write_text('{"deployment": {}}')
    (project / "state.json").write_text(state())
    monkeypatch.setattr(sys, "argv", ["trainwright", "comply", *arguments])
    with pytest.raises(SystemExit) as left:
        main.main()
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert said in told
    assert "Traceback" not in told


def test_wrong_settings_of_the_stack_are_two_and_all_of_them(project: Path) -> None:
    configure(project, "severity: severe", "tls: 1.1", "typo: true")
    with pytest.raises(Refused) as refused:
        judged(Wanted("prod"))
    assert refused.value.code == 2
    assert len(str(refused.value).splitlines()) == 3


@pytest.mark.parametrize("form", ["table", "json", "sarif", "junit", "html"])
def test_every_form_goes_to_a_file_with_a_line_of_what_came_of_it(
    project: Path, capsys: pytest.CaptureFixture[str], form: comply.Format
) -> None:
    code = comply.comply(Wanted("prod"), form, project / "out", Console())
    told = capsys.readouterr()
    assert code == 1
    assert "prod breaks 1 control" in told.err
    assert told.out == ""
    assert "ENC-DISK-01" in (project / "out").read_text()


def test_a_machine_gets_nothing_but_its_form(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    comply.comply(Wanted("prod"), "json", None, Console())
    assert json.loads(capsys.readouterr().out)["compliant"] is False


@pytest.mark.parametrize("recorded", ["[]", None])
def test_a_plan_of_which_nothing_was_recorded_complies_with_nothing(
    monkeypatch: pytest.MonkeyPatch, recorded: str | None
) -> None:
    """An empty stack would keep every control."""
    seen: list[Any] = []

    def plan_in(home: Path, workspace: Workspace, *options: str, more: dict[str, str]) -> None:
        seen.append((options[0], more))
        if recorded:
            written = (home / "pack" / "__main__.py").read_text().partition("serve(Path(")[2].partition(")")[0]
            Path(written.strip("'")).write_text(recorded)

    monkeypatch.setattr(preview, "plan_in", plan_in)
    with pytest.raises(Refused, match="local: ") as refused:
        judged(Wanted("local"))
    assert refused.value.code == 2
    assert seen == [("--policy-pack", {"TRAINWRIGHT_FORESEEN": "1"})]


def test_what_is_wrong_with_a_stacks_file_is_said_at_once_and_by_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: mine\n")
    keys = ("cloud: alicloud", "region: [cn-hangzhou]", "regoin: x")
    text = "\n".join(["config:", *(f"  trainwright:{key}" for key in keys)])
    (tmp_path / "stacks" / "Pulumi.prod.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(preview, "plan_in", lambda *_, **__: pytest.fail("the engine was asked"))
    with pytest.raises(Refused) as refused:
        judged(Wanted("prod"))
    said = str(refused.value)
    assert all(f"\n  {path}: " in said for path in ("region", "regoin", "nodes", "network", "job"))
    assert refused.value.code == 2


@pytest.mark.engine
def test_a_shipped_stack_is_judged_whole_by_the_real_engine(tmp_path: Path) -> None:
    """Nothing but a secret that nobody sealed is unknown: ids and ARNs stand in policies as a creation gives them."""
    project = Project(tmp_path / "project")
    shipped = Path(__file__).parents[2] / "stacks" / "Pulumi.prod-us-west.yaml"
    (project.folder / "stacks" / shipped.name).write_text(shipped.read_text())
    arguments = ["comply", "--stack", "prod-us-west", "--format", "json"]
    environment = {**project._clean(), "AWS_EC2_METADATA_DISABLED": "true"}
    done = project._run([TRAINWRIGHT, *arguments], environment, 120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["subject"]["resources"] > 70
    assert told["summary"].get("unknown", 0) == 0
    results = {(one["id"], result["name"]): result for one in told["controls"] for result in one["results"]}
    assert results["TLS-BUCKET-01", "prod-us-west-data"]["outcome"] == "kept"
    assert project.left_running() == []
