"""A person's credentials with Alibaba Cloud: where they are found, whose come first, and what is said of others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli import credentials
from cli.credentials import found
from cli.errors import Refused
from trainer.alicloud import Credentials

NOW = 1_800_000_000.0
KEYS = {"access_key_id": "ak", "access_key_secret": "sk"}
EVERY = (
    *credentials.KEY, *credentials.SECRET, *credentials.TOKEN, *credentials.PROFILE, *credentials.FILE,
    *credentials.ADDRESS, *credentials.INSTANCE,
)  # fmt: skip


def take(of: Credentials | None, profile: Mapping[str, Any]) -> Credentials:
    """A session, with who gave it in its name."""
    if of is None:
        given = {"ecsramrole": "ram_role_name", "credentialsuri": "credentials_uri"}[credentials.mode_of(profile)]
        return Credentials(f"of {profile[given]}", "r", "t")
    return Credentials(f"{of.key}>{profile['ram_role_arn']}", "r", "t")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in EVERY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def configure(home: Path, *profiles: dict[str, Any], current: str = "default") -> None:
    file = home / ".aliyun" / "config.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"current": current, "profiles": profiles, "meta_path": ""}))


def asked(**given: str) -> Credentials | None:
    return found(given, take, lambda: NOW)


@pytest.mark.usefixtures("home")
def test_variables_come_in_the_providers_order_so_that_engine_and_command_are_the_same_person() -> None:
    assert asked() is None
    standard = {"ALIBABA_CLOUD_ACCESS_KEY_ID": "a", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "b"}
    assert asked(**standard) == Credentials("a", "b")
    assert asked(**standard, ALIBABA_CLOUD_SECURITY_TOKEN="t") == Credentials("a", "b", "t")
    older = {"ALICLOUD_ACCESS_KEY": "c", "ALICLOUD_SECRET_KEY": "d"}
    assert asked(**standard, **older) == Credentials("c", "d")
    assert asked(**standard, ALICLOUD_ACCESS_KEY=" ") == Credentials("a", "b"), "an empty one is none"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("half", ["ALIBABA_CLOUD_ACCESS_KEY_ID", "ALICLOUD_SECRET_KEY"])
def test_half_a_key_is_an_error_and_no_reason_to_look_elsewhere(half: str) -> None:
    with pytest.raises(Refused, match="only half of an access key is set"):
        asked(**{half: "x"})


def test_the_current_profile_is_used_unless_a_variable_names_another(home: Path) -> None:
    configure(home, {"name": "default", "mode": "AK", **KEYS}, {"name": "other", "mode": "AK", **KEYS,
                     "access_key_id": "ak2"})  # fmt: skip
    assert asked() == Credentials("ak", "sk")
    assert asked(ALIBABA_CLOUD_PROFILE="other") == Credentials("ak2", "sk")
    with pytest.raises(Refused, match=r"config.json: there is no profile 'absent'.*Sign in to Alibaba Cloud"):
        asked(ALICLOUD_PROFILE="absent", ALIBABA_CLOUD_PROFILE="other")


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ({"mode": "AK", **KEYS, "sts_token": "old"}, Credentials("ak", "sk")),
        ({"mode": "StsToken", **KEYS, "sts_token": "t"}, Credentials("ak", "sk", "t")),
        ({"mode": "RamRoleArn", **KEYS, "ram_role_arn": "acs:ram::1:role/r"},
         Credentials("ak>acs:ram::1:role/r", "r", "t")),
        ({"mode": "ChainableRamRoleArn", "source_profile": "base", "ram_role_arn": "r2"},
         Credentials("bk>r2", "r", "t")),
        ({"mode": "EcsRamRole", "ram_role_name": "nodes", "credentials_uri": "stale"},
         Credentials("of nodes", "r", "t")),
        ({"mode": "CredentialsURI", "credentials_uri": "http://localhost/"},
         Credentials("of http://localhost/", "r", "t")),
        ({"mode": "ChainableRamRoleArn", "source_profile": "ecs", "ram_role_arn": "r2"},
         Credentials("of nodes>r2", "r", "t")),
        ({"mode": "CloudSSO", **KEYS, "sts_token": "t", "sts_expiration": NOW + 3600},
         Credentials("ak", "sk", "t", "2027-01-15T09:00:00+00:00")),
    ],
)  # fmt: skip
def test_a_profile_is_read_by_its_mode(home: Path, profile: dict[str, Any], expected: Credentials) -> None:
    base = {"name": "base", "mode": "AK", "access_key_id": "bk", "access_key_secret": "s"}
    ecs = {"name": "ecs", "mode": "EcsRamRole", "ram_role_name": "nodes"}
    configure(home, {"name": "default", **profile}, base, ecs)
    assert asked() == expected


def test_an_address_or_an_instances_role_is_named_by_a_variable_too_and_comes_before_the_current_profile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(home, {"name": "default", "mode": "AK", **KEYS})
    role = {"ALIBABA_CLOUD_ECS_METADATA": "nodes"}
    assert asked(**role) == Credentials("of nodes", "r", "t")
    assert asked(**role, ALIBABA_CLOUD_CREDENTIALS_URI="https://a") == Credentials("of https://a", "r", "t")
    assert asked(**role, ALIBABA_CLOUD_PROFILE="default") == Credentials("ak", "sk")
    monkeypatch.setenv(*next(iter(role.items())))
    assert credentials.for_the_engine() == {}, "the provider reads it too"
    assert credentials.present()


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        ({"mode": "OIDC", "ram_role_arn": "r"}, "is of mode 'OIDC'; only AK, StsToken, RamRoleArn"),
        ({"mode": "EcsRamRole"}, "has no ram_role_name. Give it one: `aliyun configure --mode EcsRamRole`"),
        ({"mode": "CredentialsURI"}, "has no credentials_uri. Give it one"),
        ({"mode": "ChainableRamRoleArn", "source_profile": "handed", "ram_role_arn": "r"},
         "profile 'handed': is of mode 'CredentialsURI'; only"),
        ({"mode": "External", "process_command": "x"}, "is of mode 'External'"),
        ({"mode": "AK", "access_key_id": "ak"}, "has no access key id and secret"),
        ({"mode": "StsToken", **KEYS}, "has no token, access key id and secret"),
        ({"mode": "CloudSSO", **KEYS, "sts_token": "t", "sts_expiration": NOW - 1},
         "what was signed in has ended. Sign in anew: `aliyun configure --mode CloudSSO --profile default`"),
        ({"mode": "ChainableRamRoleArn", "source_profile": "default", "ram_role_arn": "r"}, "more than 5 roles"),
        ({}, "is of mode ''"),
    ],
)  # fmt: skip
def test_what_can_not_be_used_is_said_with_the_way_out(home: Path, profile: dict[str, Any], told: str) -> None:
    handed = {"name": "handed", "mode": "CredentialsURI", "credentials_uri": "https://a"}
    configure(home, {"name": "default", **profile}, handed)
    with pytest.raises(Refused) as raised:
        asked()
    assert told in str(raised.value)
    assert "sk" not in str(raised.value).split()


@pytest.mark.parametrize("content", ["{", '{"current": "default"}', '{"current": "default", "profiles": [1]}'])
def test_a_file_of_another_form_is_no_traceback(home: Path, content: str) -> None:
    configure(home)
    (home / ".aliyun" / "config.json").write_text(content)
    with pytest.raises(Refused, match=r"config.json: .*Sign in"):
        asked()


@pytest.mark.parametrize("content", ["[]", "{}"])
def test_a_file_without_a_profile_is_as_none(home: Path, content: str) -> None:
    configure(home)
    (home / ".aliyun" / "config.json").write_text(content)
    assert asked() is None


def test_the_engine_is_given_the_current_profile_which_its_provider_would_not_look_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert credentials.for_the_engine() == {}
    handed = {"name": "handed", "mode": "CredentialsURI", "credentials_uri": "https://a"}
    configure(home, {"name": "work", "mode": "AK", **KEYS}, handed, current="work")
    assert credentials.for_the_engine() == {"ALIBABA_CLOUD_PROFILE": "work"}
    monkeypatch.setenv("ALIBABA_CLOUD_PROFILE", "handed")
    assert credentials.for_the_engine() == {"ALIBABA_CLOUD_CREDENTIALS_URI": "https://a"}
    monkeypatch.delenv("ALIBABA_CLOUD_PROFILE")
    configure(home, handed, current="handed")
    assert credentials.for_the_engine() == {
        "ALIBABA_CLOUD_PROFILE": "handed", "ALIBABA_CLOUD_CREDENTIALS_URI": "https://a",
    }  # fmt: skip
    configure(home, {"name": "mine", "mode": "AK", **KEYS})
    monkeypatch.setenv("ALICLOUD_PROFILE", "mine")
    assert credentials.for_the_engine() == {}
    monkeypatch.delenv("ALICLOUD_PROFILE")
    monkeypatch.setenv("ALICLOUD_ACCESS_KEY", "a")
    assert credentials.for_the_engine() == {}


def test_a_role_is_taken_anew_before_its_session_ends_and_not_for_each_call(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(home, {"name": "default", "mode": "RamRoleArn", **KEYS, "ram_role_arn": "r"})
    sessions: list[str] = []

    def session(*_: Any) -> Credentials:
        sessions.append("s")
        return Credentials("ak", "sk", "t", expires=ends)

    person = credentials.Person(session)
    ends = "2999-01-01T00:00:00Z"
    assert person.credentials() == person.credentials()
    assert len(sessions) == 1
    ends = "2020-01-01T00:00:00Z"
    person = credentials.Person(session)
    person.credentials()
    person.credentials()
    assert len(sessions) == 3


@pytest.mark.usefixtures("home")
def test_nobody_is_told_how_to_sign_in() -> None:
    with pytest.raises(Refused, match=r"there are no credentials for Alibaba Cloud here\. Sign in to Alibaba Cloud"):
        credentials.Person(take).credentials()
