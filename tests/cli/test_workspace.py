"""Which cloud a stack's verbs ask, and in which region."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli import engine
from cli.alicloud import Alicloud
from cli.aws import Aws
from cli.errors import Refused
from cli.workspace import Workspace
from emulator import cloud
from trainer import alicloud


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: p\n")
    for name in ("AWS_ENDPOINT_URL", "PULUMI_HOME", "TRAINWRIGHT_HOME", alicloud.ENDPOINT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "nowhere")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stack(project: Path, name: str, **values: str) -> Workspace:
    lines = [f"  trainwright:{key}: {value}\n" for key, value in values.items()]
    (project / "stacks" / f"Pulumi.{name}.yaml").write_text("config:\n" + "".join(lines))
    return Workspace(name)


@pytest.mark.parametrize(
    ("given", "kind", "region"),
    [
        ({"region": "us-west-2"}, Aws, "us-west-2"),
        ({"cloud": "aws", "region": "eu-central-1"}, Aws, "eu-central-1"),
        ({"cloud": "alicloud", "region": "cn-hangzhou"}, Alicloud, "cn-hangzhou"),
    ],
)
def test_a_stacks_own_cloud_is_asked_in_its_region(
    project: Path, given: dict[str, str], kind: type, region: str
) -> None:
    account = stack(project, "prod", **given).account
    assert isinstance(account, kind)
    assert account.region == os.environ["AWS_DEFAULT_REGION"] == region  # type: ignore[attr-defined]


def test_a_cloud_that_there_is_not_is_refused_in_words(project: Path) -> None:
    with pytest.raises(Refused, match=r"^stacks/Pulumi.prod.yaml: cloud: there is no cloud 'alibaba'\. .*alicloud"):
        _ = stack(project, "prod", cloud="alibaba", region="cn-hangzhou").account


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", alicloud.ENDPOINT])
def test_a_real_cloud_is_not_asked_from_a_shell_of_the_embedded_one(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:4711")
    with pytest.raises(Refused, match=f"set up for the embedded cloud .by {name}."):
        _ = stack(project, "prod", cloud="alicloud", region="cn-hangzhou").account


def test_a_local_stack_of_alibaba_cloud_leads_to_the_embedded_one_as_nobody(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = cloud.Cloud("http://127.0.0.1:4711", 1, project)
    monkeypatch.setattr(cloud, "find", lambda _: running)
    for name in (*alicloud.KEYS, "ALICLOUD_ACCESS_KEY"):
        monkeypatch.setenv(name, "mine")
    account = stack(project, "local-alicloud", cloud="alicloud", region="cn-hangzhou").account
    assert isinstance(account, Alicloud)
    assert account.person.credentials() == alicloud.Credentials("local", "local")
    assert os.environ[alicloud.ENDPOINT].startswith(running.endpoint)
    assert "ALICLOUD_ACCESS_KEY" not in os.environ


def test_who_has_no_login_is_told_how_to_get_one(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new user has followed all but that line, and has no CLI on the path to follow it by."""
    said = "error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions"
    monkeypatch.setattr(engine, "run", lambda *_, **__: engine.Ended(3, "", said, interrupted=False))
    workspace = stack(project, "prod", region="us-west-2")
    monkeypatch.setattr(Workspace, "environment", {})
    with pytest.raises(Refused, match=r"no login.*`pulumi login`.*trainwright env --stack prod.*then try again$"):
        _ = workspace.outputs
