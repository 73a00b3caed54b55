"""Credentials of a node's role, and signed calls, against servers on loopback."""

import json
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.session import Session

from tests.trainer.conftest import Answering
from trainer import alicloud, dialects
from trainer.alicloud import Api, ApiError, Credentials, Role, canonical, headers
from trainer.metadata import EcsMetadata, Identity, open_metadata
from trainer.store import Unavailable, open_store

DOCUMENT = {
    "instance-id": "i-1",
    "private-ipv4": "10.0.0.5",
    "instance-type": "ecs.g8i.xlarge",
    "zone-id": "cn-hangzhou-j",
    "region-id": "cn-hangzhou",
}


def _keys(number, hours):
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600 * hours))
    return json.dumps(
        {
            "AccessKeyId": f"STS.{number}",
            "AccessKeySecret": "s3cr3t",
            "SecurityToken": "to/ken==",
            "Expiration": ends,
            "Code": "Success",
        }
    )


class Service:
    """Alibaba's metadata service and an API in one; `hardened` refuses who shows no token."""

    def __init__(self, serve):
        self.hardened = True
        self.values = {
            "dynamic/instance-identity/document": json.dumps(DOCUMENT),
            "meta-data/instance-id": "i-1",
            "meta-data/ram/security-credentials/": "role-1\n",
            "meta-data/ram/security-credentials/role-1": _keys(1, 6),
        }
        self.busy = 0
        self.asked, self.calls, self.answers = [], [], []
        service = self

        class Handler(Answering):
            def do_PUT(self):
                service.asked.append(("PUT", self.path, self.headers.get("X-aliyun-ecs-metadata-token-ttl-seconds")))
                self.answer(200, "token-1")

            def do_GET(self):
                service.asked.append(("GET", self.path, self.headers.get("X-aliyun-ecs-metadata-token")))
                if service.busy:
                    service.busy -= 1
                    return self.answer(429)
                if service.hardened and self.headers.get("X-aliyun-ecs-metadata-token") != "token-1":
                    return self.answer(403)
                value = service.values.get(self.path.removeprefix("/latest/"))
                return self.answer(404) if value is None else self.answer(200, value)

            def do_POST(self):
                service.calls.append((self.path, dict(self.headers.items())))
                status, answer = service.answers.pop(0) if service.answers else (200, {"RequestId": "r"})
                self.answer(status, answer if isinstance(answer, str) else json.dumps(answer))

        self.url = serve(Handler)


@pytest.fixture
def service(serve, monkeypatch):
    service = Service(serve)
    monkeypatch.setenv("TRAINWRIGHT_ECS_METADATA", service.url)
    monkeypatch.setenv(alicloud.ENDPOINT, service.url)
    monkeypatch.setattr(alicloud, "RETRY_S", 0.01)
    for name in alicloud.KEYS:
        monkeypatch.delenv(name, raising=False)
    return service


# --- The metadata service


def test_a_node_learns_who_it_is_and_that_its_age_is_not_told(service):
    assert open_metadata("alicloud").identity() == Identity("i-1", "10.0.0.5", "", "ecs.g8i.xlarge", "cn-hangzhou-j")
    assert service.asked[0] == ("PUT", "/latest/api/token", "21600")


def test_a_preemptible_node_is_told_when_it_goes(service):
    client = EcsMetadata()
    assert client.interruption() is None
    service.values["meta-data/instance/spot/termination-time"] = "2026-01-01T00:05:00Z\n"
    assert client.interruption() == "2026-01-01T00:05:00Z"
    assert (client.terminating(), client.at_risk()) == (False, None)


@pytest.mark.parametrize(
    "answer", ["<html><body>404 - Not Found</body></html>", "404 - Not Found", "", "2026-01-01", "2026-01-01T00:05:00"]
)
def test_what_is_no_moment_is_no_notice(service, answer):
    """As an unhardened service answers, with 200: every node would drain as soon as it looks."""
    service.values["meta-data/instance/spot/termination-time"] = answer
    assert EcsMetadata().interruption() is None


def test_who_shows_no_token_is_told_apart(service):
    assert EcsMetadata().answers_without_token() is False
    service.hardened = False
    assert EcsMetadata().answers_without_token() is True
    service.busy = 1
    with pytest.raises(OSError, match="429"):
        EcsMetadata().answers_without_token()  # it is busy, which is no refusal


# --- Credentials


def test_the_roles_credentials_are_asked_for_once_and_anew_before_they_end(service):
    role = Role()
    assert (role.credentials().key, role.credentials().token) == ("STS.1", "to/ken==")
    asked = len(service.asked)
    role.credentials()
    assert len(service.asked) == asked
    service.values["meta-data/ram/security-credentials/role-1"] = _keys(2, 0.1)
    role = Role()
    assert role.credentials().key == "STS.2"
    service.values["meta-data/ram/security-credentials/role-1"] = _keys(3, 6)
    assert role.credentials().key == "STS.3"


def test_many_workers_that_ask_at_once_are_not_turned_away(service):
    service.busy = 2
    assert Role().credentials().key == "STS.1"
    service.busy = 20
    with pytest.raises(OSError, match="no credentials of the node's role: HTTP Error 429"):
        Role().credentials()


def test_an_instance_without_a_role_says_so(service):
    service.values["meta-data/ram/security-credentials/"] = ""
    with pytest.raises(OSError, match="the instance has no RAM role"):
        Role().credentials()


def test_a_persons_own_keys_come_first(service, monkeypatch):
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "LTAI1")
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "mine")
    assert Role().credentials() == Credentials("LTAI1", "mine")
    assert service.asked == []


def test_no_secret_is_in_what_is_printed(service):
    role = Role()
    shown = f"{role.credentials()!r} {role!r} {Api('cn-hangzhou', role)!r}"
    assert "s3cr3t" not in shown
    assert "to/ken" not in shown


def test_workers_get_the_roles_credentials_as_boto3_asks_and_none_are_in_the_environment(service):
    """Each worker is a process of its own, which opens its store by address alone."""
    session = Session()
    from botocore.credentials import CredentialResolver

    session.register_component("credential_provider", CredentialResolver([dialects._Provider()]))
    assert service.asked == [], "nothing is asked for until it is needed: a role takes seconds to reach an instance"
    frozen = session.get_credentials().get_frozen_credentials()
    assert (frozen.access_key, frozen.secret_key, frozen.token) == ("STS.1", "s3cr3t", "to/ken==")
    import os

    assert "s3cr3t" not in str(dict(os.environ))


# --- Calls


def test_the_signature_is_the_one_of_the_vendors_example():
    """Alibaba Cloud SDK, "Request syntax and signature method V3", "Fixed parameter example"."""
    query = canonical({"RegionId": "cn-shanghai", "ImageId": "win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd"})
    signed = headers(
        Credentials("YourAccessKeyId", "YourAccessKeySecret"),
        "POST",
        f"https://ecs.cn-shanghai.aliyuncs.com/?{query}",
        "RunInstances",
        "2014-05-26",
        "2023-10-26T10:22:32Z",
        "3156853299f313e23d1673dc12e1703d",
    )
    assert signed["authorization"].endswith("06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0")


def test_a_call_says_what_it_is_in_signed_headers_and_shows_the_roles_token(service):
    service.answers = [(200, {"RequestId": "r", "Found": [1]})]
    assert Api("cn-hangzhou").call("ess", "DescribeScalingInstances", **{"InstanceIds.1": "i-1"})["Found"] == [1]
    ((path, sent),) = service.calls
    parts = urlsplit(path)
    assert parts.path == "/ess/"
    assert parse_qs(parts.query) == {"InstanceIds.1": ["i-1"], "RegionId": ["cn-hangzhou"]}
    told = {name.lower(): value for name, value in sent.items()}
    assert (told["x-acs-action"], told["x-acs-version"]) == ("DescribeScalingInstances", "2022-02-22")
    assert told["x-acs-security-token"] == "to/ken=="
    assert "x-acs-security-token" in told["authorization"]
    assert "s3cr3t" not in str(sent)


@pytest.mark.parametrize(
    ("answer", "said", "code"),
    [
        ((403, {"Code": "NoPermission", "Message": "not yours"}), "ess X: NoPermission: not yours", "NoPermission"),
        ((503, "busy"), "ess X: 503: Service Unavailable", ""),
        ((200, "<html>"), "ess X: Expecting value", ""),
    ],
    ids=["refused", "busy", "not json"],
)
def test_an_api_that_answers_no_says_why(service, answer, said, code):
    service.answers = [answer]
    with pytest.raises(ApiError, match=said) as raised:
        Api("cn-hangzhou").call("ess", "X")
    assert raised.value.code == code


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_signed_call_is_sent_on_to_no_other_address_and_in_the_clear_to_no_proxy(serve, service, monkeypatch, code):
    shown = []

    class Elsewhere(Answering):
        def do_GET(self):
            shown.append(dict(self.headers.items()))
            self.answer(200, "{}")

        do_POST = do_GET

    class Sending(Answering):
        def do_POST(self):
            self.send_response(code)
            self.send_header("Location", elsewhere)
            self.end_headers()

    elsewhere = serve(Elsewhere)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", elsewhere)
    role = Role(EcsMetadata(service.url))
    monkeypatch.setenv(alicloud.ENDPOINT, serve(Sending))
    with pytest.raises(ApiError, match=f"{code}: it sends on to another address, which isn't followed"):
        Api("cn-hangzhou", role).call("ess", "Look")
    monkeypatch.setenv(alicloud.ENDPOINT, service.url)
    Api("cn-hangzhou", role).call("ess", "Look")
    assert not shown


def test_apis_are_called_within_the_network():
    assert {host for _, host in alicloud.SERVICES.values()} == {
        "ess-vpc.{region}.aliyuncs.com",
        "cms-vpc.{region}.aliyuncs.com",
    }


def test_a_worker_reads_and_writes_oss_as_its_nodes_role(service, oss, oss_bucket, monkeypatch):
    """With the address and the region alone, which its environment has from the agent."""
    for name in alicloud.KEYS:
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    store = open_store(f"oss://{oss_bucket}/runs/r-1")
    assert store.put("control/generations/000001.json", b"x", if_absent=True)
    assert store.get("control/generations/000001.json") == b"x"
    assert all(headers["x-amz-security-token"] == "to/ken==" for _, _, headers in oss.asked)
    assert all("Credential=STS.1/" in headers["authorization"] for _, _, headers in oss.asked)
    assert len([path for _, path, _ in service.asked if path.endswith("role-1")]) == 1


def test_a_store_whose_role_has_not_come_yet_is_unavailable_and_works_once_it_has(service, oss_bucket, monkeypatch):
    for name in alicloud.KEYS:
        monkeypatch.delenv(name, raising=False)
    there = service.values.pop("meta-data/ram/security-credentials/")
    store = open_store(f"oss://{oss_bucket}")
    with pytest.raises(Unavailable, match="the instance has no RAM role"):
        store.list()
    service.values["meta-data/ram/security-credentials/"] = there
    assert store.list() == []
