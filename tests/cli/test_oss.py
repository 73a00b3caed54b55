"""OSS's own protocol: the signature, keys of any kind, and what is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from cli import oss
from cli.alicloud import Fixed
from emulator import places
from emulator.oss import Oss as Embedded
from tests.cli.alibaba import PERSON, served
from tests.cli.alibaba import Oss as Served
from trainer.alicloud import ApiError, Credentials

QUERY = {"param1": "value1", "+param1": "value3", "|param1": "value4", "+param2": "", "|param2": "", "param2": ""}


@pytest.mark.parametrize(
    ("at", "token", "signature"),
    [
        (1702743657, "", "e21d18daa82167720f9b1047ae7e7f1ce7cb77a31e8203a7d5f4624fa0284afe"),
        (1702784856, "token", "b94a3f999cf85bcdc00d332fbd3734ba03e48382c36fa4d5af5df817395bd9ea"),
    ],
)
def test_requests_are_signed_as_osss_own_client_does(at: int, token: str, signature: str) -> None:
    """Vectors of alibabacloud-oss-python-sdk-v2 (Apache-2.0), tests/unit/signer/test_v4.py."""
    asked = sorted((quote(name, safe=""), quote(value, safe="")) for name, value in QUERY.items())
    query = "&".join(f"{name}={value}" if value else name for name, value in asked)
    given = {"x-oss-head1": "value", "abc": "value", "ZAbc": "value", "XYZ": "value", "content-type": "text/plain"}
    path = quote("/bucket/1234+-/123/1.txt", safe="/")
    signed = oss.sign(
        "PUT", path, query, given, Credentials("ak", "sk", token), "cn-hangzhou", datetime.fromtimestamp(at, UTC)
    )
    assert signed["Authorization"].endswith(f",Signature={signature}")


@pytest.fixture
def cloud() -> Served:
    return Served()


@pytest.fixture
def client(cloud: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[oss.Oss]:
    monkeypatch.setattr(oss.time, "sleep", lambda _: None)
    with served(cloud) as url:
        yield oss.Oss(Fixed(PERSON), at_once=4, endpoint=url)


@pytest.mark.parametrize("key", ["a/../b", "a/./b", "a//b", "a b+c%20d", "é/ü?x=1&y#z", "~_-.", "a/", "\x01"])
def test_a_key_arrives_as_it_is(cloud: Served, client: oss.Oss, key: str) -> None:
    client.ask("cn-hangzhou", "PUT", "data", key, body=b"x")
    assert cloud.buckets["data"].keys == [key]
    assert client.ask("cn-hangzhou", "GET", "data", key).body == b"x"


@pytest.mark.parametrize(
    ("inside", "region", "host"),
    [
        ("", "cn-hangzhou", "data.oss-cn-hangzhou.aliyuncs.com"),
        ("cn-hangzhou", "cn-hangzhou", "data.oss-cn-hangzhou-internal.aliyuncs.com"),
        ("cn-hangzhou", "cn-beijing", "data.oss-cn-beijing.aliyuncs.com"),
    ],
)
def test_a_bucket_is_reached_within_its_regions_network_from_there_alone(
    monkeypatch: pytest.MonkeyPatch, inside: str, region: str, host: str
) -> None:
    asked: list[str] = []

    class Session:
        def __init__(self, **_: Any) -> None: ...

        def send(self, request: Any) -> Any:
            asked.append(request.url)
            return SimpleNamespace(status_code=200, headers={}, content=b"")

    monkeypatch.setattr(oss, "URLLib3Session", Session)
    oss.Oss(Fixed(PERSON), at_once=1, inside=inside).ask(region, "GET", "data", "a b")
    assert asked == [f"https://{host}/a%20b"]


def test_a_refusal_tells_its_code_also_where_there_is_no_body(client: oss.Oss) -> None:
    for method, code in (("GET", "NoSuchKey"), ("HEAD", "404")):
        with pytest.raises(ApiError, match=f"OSS: {code}") as raised:
            client.ask("cn-hangzhou", method, "data", "absent")
        assert raised.value.code == code


def test_what_oss_can_not_answer_for_now_is_asked_again_and_no_other(cloud: Served, client: oss.Oss) -> None:
    cloud.failing = {("GET", "a"): (503, "ServiceUnavailable"), ("GET", "b"): (403, "AccessDenied")}
    for key, tries in (("a", oss.TRIES), ("b", 1)):
        cloud.asked.clear()
        with pytest.raises(ApiError):
            client.ask("cn-hangzhou", "GET", "data", key)
        assert len(cloud.asked) == tries


def test_nobody_there_is_an_error_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oss.time, "sleep", lambda _: None)
    with pytest.raises(ApiError, match="OSS: Could not connect") as raised:
        oss.Oss(Fixed(PERSON), at_once=1, endpoint="http://127.0.0.1:9").ask("cn-hangzhou", "GET", "data", "a")
    assert raised.value.code == ""


def test_the_embedded_cloud_takes_osss_own_protocol_for_s3s() -> None:
    """Its server looks for a service by how a request is signed, and has none that is called so."""
    seen: list[str] = []

    def inner(environ: dict[str, Any], _: Any) -> list[bytes]:
        seen.append(environ["HTTP_AUTHORIZATION"])
        return []

    now = datetime(2026, 11, 30, tzinfo=UTC)
    signed = oss.sign("GET", "/data/", "versions", {}, PERSON, "cn-hangzhou", now)["Authorization"]
    given = {"PATH_INFO": "/data/", "REQUEST_METHOD": "GET", "HTTP_AUTHORIZATION": signed}
    list(Embedded(inner)(given, lambda *_: None))
    known = f"AWS4-HMAC-SHA256 Credential={PERSON.key}/20261130/{places.REGION}/s3/aws4_request, Signature="
    assert seen[0].startswith(known)
