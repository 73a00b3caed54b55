"""A preview without an account: when it is one, that it says so, and that nothing of the user's is read or changed."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli import lifecycle, preview
from cli.errors import Refused
from cli.preview import Planned
from cli.workspace import REPOSITORY, Workspace
from tests.project import CHECKOUT, TRAINWRIGHT, Project

PULUMI = """#!/bin/sh
[ "$1" = version ] && echo v3.280.0 && exit
{{ echo "$@"; pwd; env; }} >> {seen}
[ "$1" = preview ] && cat {told} && exit $(cat {code})
exit 0
"""
NETWORK = ["aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/subnet:Subnet"]
TYPES = ["pulumi:pulumi:Stack", "pulumi:providers:aws", "trainwright:index:TrainingCluster", *NETWORK]
ALIBABA = [
    "pulumi:pulumi:Stack", "pulumi:providers:alicloud", "trainwright:index:TrainingCluster",
    "alicloud:vpc/network:Network", "alicloud:ecs/securityGroupRule:SecurityGroupRule",
    "alicloud:ecs/securityGroupRule:SecurityGroupRule",
]  # fmt: skip
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIAMINE", "AWS_SECRET_ACCESS_KEY": "mine"}


class Setting:
    """A project with a stack `prod`, whose user has no credentials, and a `pulumi` that notes what it is asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.seen = folder, folder / "seen"
        self.told, self.code = folder / "told.json", folder / "code"
        self.file = folder / "stacks" / "Pulumi.prod.yaml"
        self.console = Console(file=io.StringIO(), width=90)
        (folder / "stacks").mkdir(parents=True)
        (folder / "Pulumi.yaml").write_text("name: mine\n")
        shutil.copy(REPOSITORY / "stacks" / "Pulumi.prod-us-west.yaml", self.file)
        self.answer({"steps": [{"op": "create", "newState": {"type": kind}} for kind in TYPES]})
        program = folder / "bin" / "pulumi"
        program.parent.mkdir()
        program.write_text(PULUMI.format(seen=self.seen, told=self.told, code=self.code))
        program.chmod(0o755)
        for name in [name for name in os.environ if name.startswith(preview.FOREIGN)]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        monkeypatch.chdir(folder)

    def answer(self, told: dict[str, Any], code: int = 0) -> None:
        self.told.write_text(json.dumps(told))
        self.code.write_text(str(code))

    def preview(self, live: bool | None = None) -> str:
        lifecycle.preview("prod", self.console, live=live)
        return self.said

    @property
    def said(self) -> str:
        return self.console.file.getvalue()  # type: ignore[attr-defined]

    @property
    def asked(self) -> str:
        return self.seen.read_text() if self.seen.exists() else ""


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    return Setting(tmp_path / "project", monkeypatch)


def test_without_credentials_it_is_planned_offline_and_says_so_and_how_to_ask_the_account(setting: Setting) -> None:
    said = setting.preview()
    assert said.startswith("prod planned offline: there are no AWS credentials here")
    assert "trainwright preview --stack prod --live" in said
    assert "all counts as new" in " ".join(said.split())
    assert "--config-file" in setting.asked


def test_with_credentials_the_account_is_asked(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    assert "offline" not in setting.preview()
    assert "preview --stack prod" in setting.asked
    assert "AKIAMINE" in setting.asked


def test_live_is_never_taken_for_offline(setting: Setting) -> None:
    """The engine may hold credentials that are not seen from here; where it has none, it says so itself."""
    setting.answer({}, code=7)
    with pytest.raises(Refused, match="ended with 7"):
        setting.preview(live=True)
    assert "offline" not in setting.said
    assert "--config-file" not in setting.asked


def test_a_profile_that_is_not_there_is_an_error_and_no_reason_to_plan_offline(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(Refused, match=r"absent.*Sign in to AWS"):
        setting.preview()
    assert setting.asked == ""


class Alibaba(Setting):
    """The same with a stack of Alibaba Cloud's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        shutil.copy(REPOSITORY / "stacks" / "Pulumi.prod-cn-hangzhou.yaml", self.file)
        self.answer({"steps": [{"op": "create", "newState": {"type": kind}} for kind in ALIBABA]})


@pytest.fixture
def alibaba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Alibaba:
    return Alibaba(tmp_path / "project", monkeypatch)


def test_a_stack_of_alibaba_cloud_is_planned_and_told_in_its_own_words(alibaba: Setting) -> None:
    said = " ".join(alibaba.preview().split())
    assert said.startswith("prod planned offline: there are no Alibaba Cloud credentials here")
    assert "answered in Alibaba Cloud's place" in said
    assert not re.search(r"\bAWS\b|EFA", said)
    assert re.search(r"ecs 2 SecurityGroupRule\W2 vpc 1 Network pulumi 3 Provider, Stack, TrainingCluster", said)


@pytest.mark.parametrize(
    "given",
    [
        {"ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAI", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "mine"},
        {"ALICLOUD_ACCESS_KEY": "LTAI", "ALICLOUD_SECRET_KEY": "mine"},
    ],
)
def test_with_alibaba_clouds_credentials_the_account_is_asked(
    alibaba: Setting, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    for name, value in {**CREDENTIALS, **given}.items():
        monkeypatch.setenv(name, value)
    assert "offline" not in alibaba.preview()
    assert "=LTAI" in alibaba.asked
    assert "ALIBABA_CLOUD_PROFILE" not in alibaba.asked


def test_awss_credentials_alone_ask_nothing_of_alibaba_cloud(alibaba: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    assert "planned offline" in alibaba.preview()


def test_who_is_signed_in_by_aliyun_is_so_for_the_engine_too(alibaba: Setting) -> None:
    file = alibaba.folder / ".aliyun" / "config.json"
    file.parent.mkdir()
    keys = {"access_key_id": "LTAI", "access_key_secret": "mine"}
    profiles = [{"name": "work", "mode": "AK", **keys}]
    file.write_text(json.dumps({"current": "work", "profiles": profiles}))
    assert "offline" not in alibaba.preview()
    assert "ALIBABA_CLOUD_PROFILE=work" in alibaba.asked
    assert "mine" not in alibaba.asked, "a secret is left where it is"


def test_offline_leaves_login_state_and_credentials_of_the_user_alone(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = {
        **CREDENTIALS,
        "AWS_PROFILE": "mine",
        **dict.fromkeys(("ALICLOUD_SECRET_KEY", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABACLOUD_REGION"), "mine"),
        "PULUMI_ACCESS_TOKEN": "mine",
        "PULUMI_CONFIG_PASSPHRASE_FILE": "mine",
    }
    elsewhere = {"PULUMI_BACKEND_URL": "s3://mine", "PULUMI_HOME": "/mine", "TRAINWRIGHT_HOME": "/mine"}
    for name, value in {**mine, **elsewhere}.items():
        monkeypatch.setenv(name, value)
    before = setting.file.read_bytes()
    assert "as --offline asks" in setting.preview(live=False)
    assert "mine" not in setting.asked.replace(str(setting.folder), "")
    assert setting.file.read_bytes() == before
    homes = set(re.findall(r"^PULUMI_HOME=(.*)$", setting.asked, re.MULTILINE))
    assert len(homes) == 1
    assert not Path(homes.pop()).exists()
    assert not (setting.folder / ".local").exists()


def test_resources_are_counted_by_service_and_in_all(setting: Setting) -> None:
    said = setting.preview()
    assert "6 resources to create" in said
    assert re.search(r"^  ec2 +3  Subnet\W2, Vpc *$", said, re.MULTILINE)
    assert re.search(r"^  pulumi +3  Provider, Stack, TrainingCluster *$", said, re.MULTILINE)
    assert "no findings" in said
    assert "cost of p4d.24xlarge in us-west-2" in said


def test_a_warning_is_shown_once_though_program_and_command_both_give_it(setting: Setting) -> None:
    setting.file.write_text(setting.file.read_text().replace("lock_days: 90", "lock_days: 90\n    lock: compliance"))
    (warning,) = Workspace("prod").plan()[1]
    also = {"severity": "warning", "message": "warning: aws: old\n"}
    setting.answer({"diagnostics": [{"severity": "warning", "message": f"warning: {warning}\n"}, also]})
    said = " ".join(setting.preview().split())
    assert "2 findings" in said
    assert said.count("audit.lock: nobody") == 1
    assert "aws: old" in said


def test_what_the_engine_refuses_is_said_in_its_words(setting: Setting) -> None:
    setting.answer({"diagnostics": [{"severity": "error", "message": "error: aws:x resource 'y' has a problem\n"}]}, 1)
    with pytest.raises(Refused, match="`pulumi preview` ended with 1:\n  aws:x resource 'y' has a problem"):
        setting.preview()


def test_the_engine_reads_the_stacks_file_as_it_is_but_for_its_seal(setting: Setting) -> None:
    """Written anew by Python, text that looks like a number to the engine, such as "0815", would lose its quotes."""
    text = setting.file.read_text().replace('"4711"', '"0815"')
    seal = "encryptionsalt: v1:abc=\nencryptedkey: abc\nsecretsprovider: awskms://alias/mine\n"
    setting.file.write_text(text + seal)
    assert preview._copy(setting.file) == text
    assert '"0815"' in text


@pytest.mark.parametrize(
    ("addition", "said"),
    [
        ("  mine:key: {secure: AAAB}\n", "mine:key: is encrypted"),
        ("  mine:keys:\n  - {deep: {secure: AAAB}}\n", "mine:keys: is encrypted"),
        ("environment: [prod]\n", "environment: its values lie in Pulumi ESC"),
    ],
)
def test_values_that_only_the_login_reads_are_not_made_up(setting: Setting, addition: str, said: str) -> None:
    setting.file.write_text(setting.file.read_text() + addition)
    with pytest.raises(Refused, match=f"stacks/Pulumi.prod.yaml: {said}.*--live"):
        setting.preview()
    assert setting.asked == ""


def test_a_wide_terminal_gets_lines_that_can_be_read(setting: Setting) -> None:
    setting.console = Console(file=io.StringIO(), width=200)
    assert max(map(len, setting.preview().splitlines())) <= preview.WIDEST


def test_types_of_every_package_have_a_place() -> None:
    planned = Planned(preview.Counter(["alicloud:vpc/network:Network", "random:index/randomId:RandomId"]), ())
    table = preview._by_service(planned.types)
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    assert console.file.getvalue().split() == ["vpc", "1", "Network", "pulumi", "1", "RandomId"]  # type: ignore[attr-defined]


def real(folder: Path, **variables: str) -> tuple[Project, dict[str, str]]:
    """A project with the shipped stacks, and the environment of a user who has nothing: no login, no credentials."""
    project = Project(folder / "project")
    shutil.copytree(CHECKOUT / "stacks", project.folder / "stacks", dirs_exist_ok=True)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    home = folder / "home"
    home.mkdir()
    own = {"HOME": str(home), "XDG_CACHE_HOME": cache, "AWS_EC2_METADATA_DISABLED": "true", "COLUMNS": "100"}
    return project, {**project._clean(), **own, **variables}


@pytest.mark.engine
@pytest.mark.parametrize("stack", ["prod-us-west", pytest.param("prod-eu-frankfurt", marks=pytest.mark.slow)])
def test_a_shipped_stack_is_planned_by_the_real_engine_from_nothing(tmp_path: Path, stack: str) -> None:
    project, environment = real(tmp_path, PULUMI_BACKEND_URL="https://127.0.0.1:9", PULUMI_ACCESS_TOKEN="mine")
    file = project.folder / "stacks" / f"Pulumi.{stack}.yaml"
    before = file.read_bytes()
    done = project._run([TRAINWRIGHT, "preview", "--stack", stack], environment, 60)
    assert done.returncode == 0, done.stderr
    assert "planned offline" in done.stdout
    total, rows = re.findall(r"^(\d+) resources to create *\n(.*?)\n *\n", done.stdout, re.MULTILINE | re.DOTALL)[0]
    assert sum(map(int, re.findall(r"^  \w+ +(\d+)  ", rows, re.MULTILINE))) == int(total) > 70
    assert "no findings" in done.stdout
    assert "USD a month" in done.stdout
    assert file.read_bytes() == before
    assert not project.home.exists()
    assert list((tmp_path / "home").iterdir()) == [], "something was written to the user's home"
    assert project.left_running() == []


def test_a_bad_stack_is_refused_with_all_that_is_wrong_and_without_a_traceback(tmp_path: Path) -> None:
    project, environment = real(tmp_path)
    file = project.folder / "stacks" / "Pulumi.prod-eu-frankfurt.yaml"
    text = file.read_text()
    for right, wrong in {
        "type: p4de.24xlarge": "type: p4de.24xlrge",
        'tls: "1.3"': 'tls: "1.1"',
        "-1a]": "-9z]",
    }.items():
        assert right in text
        text = text.replace(right, wrong)
    file.write_text(text)
    done = project._run([TRAINWRIGHT, "preview", "--stack", "prod-eu-frankfurt"], environment, 60)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for path in ("nodes.type", "security.tls", "network.zones.0"):
        assert f"  {path}: " in done.stderr
    assert done.stdout == ""
