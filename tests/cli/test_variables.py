from __future__ import annotations

import boto3
import pytest
from botocore.utils import get_environ_proxies

from cli import credentials, variables
from trainer.alicloud import Credentials

ENDPOINT = "http://127.0.0.1:4711"


def test_what_a_user_excludes_from_the_proxy_stays_excluded_beside_loopback() -> None:
    led = variables.leading(ENDPOINT, {"NO_PROXY": "corp.example, 127.0.0.1"})
    assert led["NO_PROXY"] == led["no_proxy"] == "corp.example,127.0.0.1,localhost"
    assert variables.leading(ENDPOINT, led) == led


def test_a_spelling_that_is_unset_takes_the_others_names() -> None:
    led = variables.leading(ENDPOINT, {"no_proxy": "a.example"})
    assert led["NO_PROXY"] == led["no_proxy"] == "a.example,127.0.0.1,localhost"


def test_nobodys_own_credentials_with_alibaba_cloud_reach_the_embedded_one() -> None:
    given = {
        "ALICLOUD_ACCESS_KEY": "mine", "ALICLOUD_SECRET_KEY": "mine", "ALICLOUD_SECURITY_TOKEN": "mine",
        "ALIBABACLOUD_SECURITY_TOKEN": "mine", "ALIBABA_CLOUD_ACCESS_KEY_ID": "mine", "ALICLOUD_PROFILE": "mine",
        "ALIBABA_CLOUD_SECURITY_TOKEN": "mine", "ALIBABA_CLOUD_PROFILE": "mine",
    }  # fmt: skip
    led = given | variables.leading(ENDPOINT, given)
    left = {name: value for name, value in led.items() if name not in variables.misleading(given)}
    assert credentials.found(left, lambda *_: pytest.fail("took a role")) == Credentials("local", "local")
    assert "mine" not in left.values()
    assert left["TRAINWRIGHT_ALICLOUD_ENDPOINT"].startswith(f"{ENDPOINT}/")
    assert left["TRAINWRIGHT_OSS_ENDPOINT"] == ENDPOINT


def test_boto3_finds_the_embedded_cloud_whatever_else_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    config = tmp_path / "config"
    config.write_text("[default]\nignore_configured_endpoint_urls = true\nendpoint_url = http://elsewhere:1\n")
    given = {
        "AWS_CONFIG_FILE": str(config),
        "AWS_ENDPOINT_URL_S3": "http://elsewhere:2",
        "AWS_PROFILE": "work",
        "AWS_DEFAULT_PROFILE": "work",
        "AWS_DEFAULT_REGION": "us-west-2",
        "HTTP_PROXY": "http://127.0.0.1:1",
    }
    for name, value in (given | variables.leading(ENDPOINT, given)).items():
        monkeypatch.setenv(name, value)
    for name in variables.misleading(given):
        monkeypatch.delenv(name)
    client = boto3.session.Session().client("s3")
    assert client.meta.endpoint_url == ENDPOINT
    assert get_environ_proxies(ENDPOINT) == {}


@pytest.mark.parametrize(
    ("given", "sign"),
    [
        ({}, None),
        ({"PULUMI_HOME": "/home/me/.local/share/pulumi", "PULUMI_BACKEND_URL": "s3://state"}, None),
        ({"PULUMI_BACKEND_URL": "file://./state"}, None),
        ({"AWS_ENDPOINT_URL": "https://vpce-1.example.com"}, None),
        ({"PULUMI_HOME": "/p/.local/pulumi", "PULUMI_BACKEND_URL": "file:///p/.local/state"}, "PULUMI_HOME"),
        ({"PULUMI_HOME": "/p/.local/pulumi", "TRAINWRIGHT_HOME": "/p/.local"}, "PULUMI_HOME"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:4711"}, "AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL": "http://localhost:4711"}, "AWS_ENDPOINT_URL"),
        ({"TRAINWRIGHT_ALICLOUD_ENDPOINT": "http://127.0.0.1:4711/x"}, "TRAINWRIGHT_ALICLOUD_ENDPOINT"),
        ({"TRAINWRIGHT_OSS_ENDPOINT": "http://127.0.0.1:4711"}, "TRAINWRIGHT_OSS_ENDPOINT"),
    ],
)
def test_a_shell_that_leads_to_an_embedded_cloud_is_known_by_what_was_set_there(given, sign) -> None:
    assert variables.embedded_sign(given) == sign
