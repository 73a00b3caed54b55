"""Credentials that metadata or an address hands out: taken as they are told, or refused without a word of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cli import sessions
from cli.alicloud import Alicloud
from cli.errors import Refused
from tests.cli.alibaba import served
from trainer.alicloud import Credentials

ROLE = "/latest/meta-data/ram/security-credentials/nodes"
TOLD = {
    "Code": "Success", "AccessKeyId": "STS.ak", "AccessKeySecret": "hush", "SecurityToken": "tok",
    "Expiration": "2999-01-01T00:00:00Z", "LastUpdated": "2026-01-01T00:00:00Z",
}  # fmt: skip
READ = Credentials("STS.ak", "hush", "tok", "2999-01-01T00:00:00+00:00")


class Handing:
    """Hands out at two paths: as metadata does, to who has a token, and as an address does, to anyone."""

    def __init__(self) -> None:
        self.told: dict[str, Any] | bytes = dict(TOLD)
        self.sends_on = ""
        self.asked: list[str] = []

    def answer(self, method: str, path: str, given: dict[str, str], _: bytes) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(path)
        if self.sends_on and path in {ROLE, "/?user=ada"}:
            return 302, {"Location": self.sends_on}, b""
        if path == "/latest/api/token":
            assert method == "PUT"
            return 200, {}, b"T"
        if path == ROLE and given.get("x-aliyun-ecs-metadata-token") != "T":
            return 403, {}, b""
        if path not in {ROLE, "/?user=ada"}:
            return 404, {}, b""
        return 200, {}, self.told if isinstance(self.told, bytes) else json.dumps(self.told).encode()


@pytest.fixture
def handing(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Handing, str]]:
    cloud = Handing()
    with served(cloud) as url:
        monkeypatch.setenv("TRAINWRIGHT_ECS_METADATA", url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1")
        yield cloud, url


def test_an_instances_role_is_asked_of_its_metadata_with_a_token(handing: tuple[Handing, str]) -> None:
    assert sessions.of_instance("nodes") == READ
    with pytest.raises(Refused, match=r"the RAM role 'other' of this instance: there is none of that name"):
        sessions.of_instance("other")


def test_an_address_hands_out_whatever_its_query_asks_for(handing: tuple[Handing, str]) -> None:
    assert sessions.at_address(f"{handing[1]}/?user=ada") == READ


def test_nobody_is_sent_on_to_another_address(handing: tuple[Handing, str]) -> None:
    """It may be in the clear; and who shows a token shows it there too."""
    cloud, url = handing
    elsewhere = Handing()
    with served(elsewhere) as other:
        cloud.sends_on = f"{other}/?user=ada"
        for ask in (lambda: sessions.of_instance("nodes"), lambda: sessions.at_address(f"{url}/?user=ada")):
            with pytest.raises(Refused, match="it sends on to another address, which isn't followed"):
                ask()
    assert not elsewhere.asked


def test_what_is_this_machines_goes_by_no_proxy(handing: tuple[Handing, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert sessions.at_address(f"{handing[1]}/?user=ada") == sessions.of_instance("nodes") == READ


def test_a_person_has_them_by_a_variable_and_asks_anew_before_they_end(
    handing: tuple[Handing, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ALIBABA_CLOUD_ECS_METADATA", "nodes")
    cloud, url = handing
    person = Alicloud("cn-hangzhou").person
    cloud.told = {**TOLD, "Expiration": "2020-01-01T00:00:00Z"}
    assert person.credentials().expires.startswith("2020")
    cloud.told = dict(TOLD)
    assert person.credentials() == person.credentials() == READ
    monkeypatch.setenv("ALIBABA_CLOUD_CREDENTIALS_URI", f"{url}/?user=ada")
    assert Alicloud("cn-hangzhou").person.credentials() == READ


@pytest.mark.parametrize("address", ["http://example.com/", "ftp://localhost/", "file:///etc/passwd", "nonsense", ""])
def test_nothing_travels_in_the_clear_or_is_read_from_elsewhere(address: str) -> None:
    with pytest.raises(Refused, match="must begin with https://"):
        sessions.at_address(address)


@pytest.mark.parametrize(
    "told",
    [
        b"not json hush", b"[]", {**TOLD, "Code": "Failed"}, {**TOLD, "Expiration": "soon"},
        {name: value for name, value in TOLD.items() if name != "SecurityToken"},
    ],
)  # fmt: skip
def test_an_answer_of_another_form_is_refused_and_not_repeated(handing: tuple[Handing, str], told: Any) -> None:
    cloud, url = handing
    cloud.told = told
    for ask in (lambda: sessions.of_instance("nodes"), lambda: sessions.at_address(f"{url}/?user=ada")):
        with pytest.raises(Refused, match="the answer holds none") as raised:
            ask()
        assert "hush" not in str(raised.value)


def test_who_does_not_answer_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_ECS_METADATA", "http://127.0.0.1:9")
    with pytest.raises(Refused, match="works on an ECS instance alone: use another profile elsewhere"):
        sessions.of_instance("nodes")
    with pytest.raises(
        Refused, match=r"the credentials at 127.0.0.1 can't be asked for: .*See that who hands them out"
    ):
        sessions.at_address("http://127.0.0.1:9/")
