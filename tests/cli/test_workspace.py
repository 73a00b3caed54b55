"""Which cloud a stack's verbs ask, and in which region."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

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


MPIRUN = """{type: m6a.large, image: ami-00000000000000000, desired: %d}
  trainwright:network: {zones: [us-west-2a]}
  trainwright:job: {name: mine, command: [python, a.py], launcher: mpirun}"""


@pytest.mark.parametrize(
    ("name", "nodes", "refused"), [("local-a", 2, True), ("local-a", 1, False), ("prod", 2, False)]
)
def test_mpirun_on_several_nodes_is_refused_where_all_are_one_host(
    project: Path, name: str, nodes: int, refused: bool
) -> None:
    workspace = stack(project, name, region="us-west-2", nodes=MPIRUN % nodes)
    if not refused:
        assert workspace.plan()[0].fleet.desired == nodes
        return
    with pytest.raises(Refused) as raised:
        workspace.plan()
    assert "job.launcher: mpirun needs nodes with host names of their own, and the 2 of" in str(raised.value)


def test_who_has_no_login_is_told_how_to_get_one(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new user has followed all but that line, and has no CLI on the path to follow it by."""
    said = "error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions"
    monkeypatch.setattr(engine, "run", lambda *_, **__: engine.Ended(3, "", said, interrupted=False))
    workspace = stack(project, "prod", region="us-west-2")
    monkeypatch.setattr(Workspace, "environment", {})
    with pytest.raises(Refused, match=r"no login.*`pulumi login`.*trainwright env --stack prod.*then try again$"):
        _ = workspace.outputs


RUNS = {f"runs/{run}/{key}": b"{}" for run in ("gpt-1a", "gpt-2b", "bert-3c") for key in ("control/a", "logs/b")}


@pytest.fixture(params=["aws", "alicloud"])
def up(request: pytest.FixtureRequest, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """A cluster of either cloud whose bucket has three runs, of which its file declares the last."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", *alicloud.KEYS[:2]):
        monkeypatch.setenv(name, "test")
    outputs = {"bucket": "data", "run": "gpt-2b"}
    monkeypatch.setattr(Workspace, "outputs", outputs)
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="data")
        for key, body in RUNS.items():
            client.put_object(Bucket="data", Key=key, Body=body)
        monkeypatch.setattr("cli.alicloud.oss_client", lambda *_: client)
        yield stack(project, "prod", cloud=request.param, region="us-east-1")


def test_any_run_that_the_bucket_has_can_be_named(up: Workspace) -> None:
    assert up.run()[0] == "gpt-2b"
    assert up.run("bert-3c")[1].list()[0].key == "control/a"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [("gpt-1b", "Did you mean gpt-2b or gpt-1a?"), ("x", "Known: bert-3c, gpt-1a, gpt-2b"), ("gpt-1a/logs", "gpt-1a")],
)
def test_a_run_that_there_is_not_is_told_with_those_there_are(up: Workspace, wrong: str, told: str) -> None:
    with pytest.raises(Refused, match=f"stack 'prod' has no run '{wrong}'. .*{re.escape(told)}"):
        up.run(wrong)


def test_a_bucket_that_shows_no_runs_says_why(up: Workspace) -> None:
    up.outputs["bucket"] = "absent"  # type: ignore[index]
    with pytest.raises(Refused, match=r"what bucket absent holds can't be asked for: .*NoSuchBucket"):
        up.run("gpt-1b")
