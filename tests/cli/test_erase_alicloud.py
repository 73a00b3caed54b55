"""What erasing asks of Alibaba Cloud, against OSS, KMS, NAS and auto scaling in miniature (`alibaba.py`)."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from rich.console import Console

from cli import alicloud as account_of
from cli import oss as client
from cli.erasure import alicloud as erasing
from cli.erasure import certificate, erase
from cli.erasure.alicloud import Alicloud
from cli.erasure.clouds import asked_for
from cli.erasure.cluster import Cluster
from cli.erasure.key import erase_key
from cli.erasure.scope import Mirror, Scope, Upload, Version, found
from cli.errors import Refused
from tests.cli.alibaba import PERSON, Bucket, Oss, Rpc, served
from trainer import alicloud as trainer_alicloud
from trainer import dialects, layout
from trainer.node.queue import ERASED, Turn

REGION = "cn-hangzhou"
KEY = f"acs:kms:{REGION}:1234567890123456:key/key-hzz-data"
EVIDENCE = f"acs:kms:{REGION}:1234567890123456:key/key-hzz-evidence"
CLUSTER = Cluster(
    "prod", False, REGION, "data", ("asg-1",), "gpt-1", KEY, EVIDENCE, "audit", warm=True, cloud="alicloud"
)
ADA = "acs:ram::1234567890123456:user/ada"


class Kms:
    """Keys as KMS has them. Signs what it is given the digest of."""

    def __init__(self, api: Rpc) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.state: dict[str, Any] = {"KeyState": "Enabled", "DeletionProtection": "Disabled"}
        self.refuses = ""
        for action in ("DescribeKey", "ScheduleKeyDeletion", "SetDeletionProtection", "ListKeyVersions",
                       "AsymmetricSign", "GetPublicKey"):  # fmt: skip
            api.actions[action] = getattr(self, action)

    def DescribeKey(self, asked: dict[str, str]) -> dict[str, Any]:
        assert asked["KeyId"] == "key-hzz-data"
        return {"KeyMetadata": self.state}

    def ScheduleKeyDeletion(self, asked: dict[str, str]) -> Any:
        assert 7 <= int(asked["PendingWindowInDays"]) <= 366
        assert self.state["DeletionProtection"] == "Disabled", "a protected key can't be deleted"
        if self.refuses:
            raise AssertionError(self.refuses)
        self.state |= {"KeyState": "PendingDeletion", "DeleteDate": "2027-01-01T00:00:00Z"}
        return {}

    def SetDeletionProtection(self, asked: dict[str, str]) -> dict[str, Any]:
        assert asked["ProtectedResourceArn"] == KEY
        self.state["DeletionProtection"] = "Enabled" if asked["EnableDeletionProtection"] == "true" else "Disabled"
        return {}

    def ListKeyVersions(self, asked: dict[str, str]) -> dict[str, Any]:
        versions = [{"KeyVersionId": "kv-1", "CreationDate": "2026-01-01T00:00:00Z"},
                    {"KeyVersionId": "kv-2", "CreationDate": "2026-02-01T00:00:00Z"}]  # fmt: skip
        return {"KeyVersions": {"KeyVersion": versions}}

    def AsymmetricSign(self, asked: dict[str, str]) -> dict[str, Any]:
        assert (asked["KeyId"], asked["KeyVersionId"], asked["Algorithm"]) == (
            "key-hzz-evidence", "kv-2", "ECDSA_SHA_256",
        )  # fmt: skip
        digest = base64.b64decode(asked["Digest"], validate=True)
        assert len(digest) == 32
        signed = self.private.sign(digest, ec.ECDSA(Prehashed(hashes.SHA256())))
        return {"Value": base64.b64encode(signed).decode()}

    def GetPublicKey(self, asked: dict[str, str]) -> dict[str, Any]:
        assert asked["KeyVersionId"] == "kv-2"
        pem = self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return {"PublicKey": pem.decode()}


class Account:
    """An account with a cluster's buckets, its claims', and its keys."""

    def __init__(self, oss: Oss, api: Rpc, cloud: Alicloud) -> None:
        self.oss, self.api, self.cloud = oss, api, cloud
        self.kms = Kms(api)
        self.nodes: list[str] = []
        self.systems: list[str] = []
        oss.buckets |= {"data-claims": Bucket(keeps=False), "audit": Bucket(keeps=False, days=90)}
        self.data, self.claims = oss.buckets["data"], oss.buckets["data-claims"]
        api.actions["GetCallerIdentity"] = lambda _: {"Arn": ADA}
        api.actions["DescribeScalingInstances"] = lambda _: {
            "ScalingInstances": {
                "ScalingInstance": [{"InstanceId": name, "LifecycleState": "Removing:Wait"} for name in self.nodes]
            }
        }
        api.actions["DescribeFileSystems"] = self._systems

    def _systems(self, asked: dict[str, str]) -> dict[str, Any]:
        assert (asked["Tag.1.Key"], asked["Tag.1.Value"]) == ("trainwright:cluster", "prod")
        return {"FileSystems": {"FileSystem": [{"FileSystemId": name} for name in self.systems]}}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    oss, api = Oss(REGION), Rpc()
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", PERSON.key)
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", PERSON.secret)
    for name in ("ALICLOUD_ACCESS_KEY", "ALICLOUD_SECRET_KEY", "ALICLOUD_SECURITY_TOKEN",
                 "ALIBABA_CLOUD_SECURITY_TOKEN"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    with served(oss) as oss_url, served(api) as api_url:
        monkeypatch.setenv(trainer_alicloud.ENDPOINT, api_url)
        monkeypatch.setenv(dialects.ENDPOINT, oss_url)
        yield Account(oss, api, Alicloud(account_of.Alicloud(REGION), oss_url))


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def told(path: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(path.read_text())["certificate"]
    return body


def test_every_version_marker_and_unfinished_upload_of_a_run_goes_with_its_claims_and_nothing_else(
    account: Account, console: Console, tmp_path: Path
) -> None:
    for key in ("runs/gpt-1/checkpoints/step-1/a", "runs/gpt-1/checkpoints/step-1/a", "runs/gpt-1/é & <b>"):
        account.data.put(key)
    account.data.mark("runs/gpt-1/checkpoints/step-1/a")
    account.data.uploads += [("runs/gpt-1/checkpoints/step-2/a", "u1"), ("runs/gpt-10/x", "u2")]
    account.claims.put("runs/gpt-1/control/generations/1.json")
    others = ["datasets/d/index.json", "runs/gpt-10/x"]
    for key in others:
        account.data.put(key)
    account.claims.put("runs/gpt-10/control/generations/1.json")
    assert erase(Scope("run", "gpt-1"), CLUSTER, account.cloud, console, tmp_path / "c", sure=True) == 0
    assert account.data.keys == others
    assert account.claims.keys == ["runs/gpt-10/control/generations/1.json"]
    assert account.data.uploads == [("runs/gpt-10/x", "u2")]
    body = told(tmp_path / "c")
    assert [(place["name"], place["erased"]["versions"], place["erased"]["markers"]) for place in body["buckets"]] == [
        ("data", 3, 1),
        ("data-claims", 1, 0),
    ]
    assert (body["cloud"], body["region"], body["by"]) == ("alicloud", REGION, ADA)


def test_the_certificate_is_signed_by_kms_and_a_copy_locked_in_the_audit_bucket(
    account: Account, console: Console, tmp_path: Path
) -> None:
    account.data.put("runs/gpt-1/x")
    assert erase(Scope("run", "gpt-1"), CLUSTER, account.cloud, console, tmp_path / "c", sure=True) == 0
    (copy,) = account.oss.buckets["audit"].stored
    assert copy.key.startswith("erasures/")
    assert copy.body == (tmp_path / "c").read_bytes()
    assert account.oss.buckets["audit"].locked(copy)
    assert f"its copy: oss://audit/{copy.key} (locked)" in said(console)
    certificate.verify(tmp_path / "c", console, None)
    certificate.verify(tmp_path / "c", console, asked_for)
    assert f"KMS has the same public key for {EVIDENCE}" in said(console)
    account.kms.private = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(Refused, match="another key than the one in the certificate"):
        certificate.verify(tmp_path / "c", console, asked_for)


def test_a_certificate_is_never_signed_with_what_does_not_verify(
    account: Account, console: Console, tmp_path: Path
) -> None:
    account.data.put("runs/gpt-1/x")
    account.api.actions["AsymmetricSign"] = lambda _: {"Value": base64.b64encode(b"r and s, side by side").decode()}
    assert erase(Scope("run", "gpt-1"), CLUSTER, account.cloud, console, tmp_path / "c", sure=True) == 1
    assert "the certificate is not signed" in said(console)
    assert json.loads((tmp_path / "c").read_text())["signature"] is None


def test_a_run_that_was_submitted_leaves_the_queue_and_its_claim_too(
    account: Account, console: Console, tmp_path: Path
) -> None:
    record = Turn("a", {"dataset": "d"}, 1, ADA).json()
    for bucket in (account.data, account.claims):
        bucket.put(layout.queued(1), record)
        bucket.put(layout.queued(2), Turn("b", {}, 2, ADA).json())
    assert erase(Scope("run", "a"), CLUSTER, account.cloud, console, tmp_path / "c", sure=True) == 0
    assert [one.body for one in account.data.stored if one.key == layout.queued(1)] == [ERASED]
    assert account.claims.keys == [layout.queued(2)]


def test_a_person_is_found_by_folder_and_tag(account: Account, console: Console, tmp_path: Path) -> None:
    account.data.put("datasets/d/subject=k/x")
    account.data.put("runs/r/samples/x")
    account.data.put("runs/r/samples/x", tags={"trainwright:subject": "k", "a": "b"})
    account.data.put("datasets/d/y", tags={"trainwright:subject": "kk"})
    account.data.put("datasets/d/z", tags={"subject": "k"})
    assert erase(Scope("subject", "k"), CLUSTER, account.cloud, console, tmp_path / "c", sure=True) == 0
    assert account.data.keys == ["datasets/d/y", "datasets/d/z"]


def test_what_is_locked_remains_with_until_when_and_goes_once_it_may(
    account: Account, console: Console, tmp_path: Path
) -> None:
    """A list with one such is refused whole: the others go all the same."""
    later = (datetime.now(UTC) + timedelta(days=30)).replace(microsecond=0)
    account.data.put("runs/gpt-1/a")
    locked = account.data.put("runs/gpt-1/b", until=later)
    held = account.data.put("runs/gpt-1/c", held=True)
    assert erase(Scope("run", "gpt-1"), CLUSTER, account.cloud, console, tmp_path / "1", sure=True) == 1
    assert told(tmp_path / "1")["remains"] == [
        {"bucket": "data", "key": "runs/gpt-1/b", "version": locked.id, "why": "locked (compliance)",
         "until": f"{later:%Y-%m-%dT%H:%M:%SZ}"},
        {"bucket": "data", "key": "runs/gpt-1/c", "version": held.id,
         "why": "a legal hold, which ends when somebody takes it off"},
    ]  # fmt: skip
    assert told(tmp_path / "1")["buckets"][0]["erased"]["versions"] == 1
    held.held = False
    locked.until = None
    assert erase(Scope("run", "gpt-1"), CLUSTER, account.cloud, console, tmp_path / "2", sure=True) == 0


def test_a_buckets_policy_holds_each_object_from_when_it_was_written(account: Account) -> None:
    account.data.days = 10
    written = datetime.now(UTC).replace(microsecond=0) - timedelta(days=3)
    one = account.data.put("runs/r/a", written=written)
    hold = account.cloud.hold("data", Version(one.key, one.id))
    assert hold
    assert hold.until == f"{written + timedelta(days=10):%Y-%m-%dT%H:%M:%SZ}"
    one.written -= timedelta(days=8)
    assert account.cloud.hold("data", Version(one.key, one.id)) is None


def test_replicas_in_other_regions_are_erased_there(account: Account, console: Console, tmp_path: Path) -> None:
    account.oss.buckets["copy"] = Bucket()
    account.data.to = {"copy": "cn-shanghai"}
    for name in ("data", "data-claims", "copy"):
        account.oss.buckets[name].put("datasets/d/x")
    account.oss.buckets["copy-claims"] = Bucket(keeps=False)  # whose that is, nobody knows
    account.oss.buckets["copy-claims"].put("datasets/d/x")
    regions: set[str] = set()
    check = account.oss._check
    account.oss._check = lambda method, path, query, given: (  # type: ignore[method-assign]
        regions.add(path.split("/")[1] + given["authorization"].split("/")[2]),
        check(method, path, query, given),
    )
    assert erase(Scope("dataset", "d"), CLUSTER, account.cloud, console, tmp_path / "c", sure=True) == 0
    assert account.oss.buckets["copy"].stored == account.claims.stored == []
    assert account.oss.buckets["copy-claims"].keys == ["datasets/d/x"]
    assert {"copycn-shanghai", f"data{REGION}"} <= regions
    assert f"copy{REGION}" not in regions


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_versions_and_markers_come_in_order_of_keys_over_many_pages(account: Account, size: int) -> None:
    for number in range(5):
        for _ in range(3):
            account.data.put(f"runs/r/{number}")
        account.data.mark(f"runs/r/{number}")
        account.data.uploads.append((f"runs/r/{number}", f"u{number}"))
    account.oss.page = size
    groups = list(found(account.cloud, "data", Scope("run", "r")))
    assert [(group[0].key, len(group)) for group in groups] == [(f"runs/r/{number}", 4) for number in range(5)]
    assert [one.id for one in account.cloud.uploads("data", "runs/r/")] == [f"u{number}" for number in range(5)]


def test_a_listing_that_leads_to_itself_ends(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    page = b"<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker></ListVersionsResult>"
    monkeypatch.setattr(account.oss, "_page", lambda *_: page)
    with pytest.raises(Refused, match="leads to itself"):
        list(account.cloud.versions("data", ""))


def test_only_what_oss_names_as_deleted_counts_as_that_and_of_the_rest_it_is_asked_why(account: Account) -> None:
    one, two, three = (account.data.put(f"runs/r/{name}") for name in "abc")
    versions = [Version(stored.key, stored.id) for stored in (one, two, three)]
    account.oss.silent = {"runs/r/b", "runs/r/c"}
    account.oss.failing = {("DELETE", "runs/r/b"): (403, "AccessDenied")}
    left = account.cloud.delete("data", versions)
    assert left.keys() == {versions[1]}
    assert "AccessDenied it is. Use credentials that may do this" in left[versions[1]]
    assert account.data.keys == ["runs/r/b"]


def test_a_list_that_nobody_may_delete_is_not_asked_for_one_by_one(account: Account) -> None:
    versions = [Version(stored.key, stored.id) for stored in map(account.data.put, ("runs/r/a", "runs/r/b"))]
    account.oss.failing = {("POST", ""): (403, "AccessDenied")}
    account.oss.asked.clear()

    def refuse(*_: Any) -> bytes:
        from tests.cli.alibaba import Answered

        raise Answered(403, "AccessDenied")

    account.oss._delete = refuse  # type: ignore[method-assign]
    left = account.cloud.delete("data", versions)
    assert left.keys() == set(versions)
    assert [asked for asked in account.oss.asked if asked.startswith("DELETE")] == []


def test_keys_that_no_list_in_xml_can_name_are_deleted_too(account: Account) -> None:
    versions = [Version(key, account.data.put(key).id) for key in ("runs/r/a&b<c>", "runs/r/é x", "runs/r/\x02")]
    account.oss.asked.clear()
    assert account.cloud.delete("data", versions) == {}
    assert account.data.keys == []
    assert [asked for asked in account.oss.asked if asked.startswith("DELETE")] == ["DELETE runs/r/\x02 versionId"]


def test_an_upload_that_ended_meanwhile_is_no_failure(account: Account) -> None:
    assert account.cloud.abort("data", Upload("runs/r/a", "gone")) == ""
    account.oss.failing = {("DELETE", "runs/r/a"): (403, "AccessDenied")}
    assert "AccessDenied" in account.cloud.abort("data", Upload("runs/r/a", "u"))


def test_nodes_on_their_way_out_are_in_the_way_and_the_command_that_ends_them_is_aliyuns(
    account: Account, console: Console, tmp_path: Path
) -> None:
    account.data.put("runs/gpt-1/x")
    account.nodes = ["i-bp1"]
    with pytest.raises(Refused, match=r"1 node \(i-bp1\) may hold copies") as raised:
        erase(Scope("run", "gpt-1"), CLUSTER, account.cloud, console, tmp_path / "c", sure=True)
    ending = f"aliyun ess ModifyScalingGroup --region {REGION} --ScalingGroupId asg-1 --DesiredCapacity 0"
    assert ending in str(raised.value)
    assert "aws" not in str(raised.value)
    assert account.data.keys == ["runs/gpt-1/x"]


def test_a_file_system_that_nodes_filled_remains(account: Account, console: Console, tmp_path: Path) -> None:
    account.systems = ["extreme-1"]
    assert account.cloud.mirrors("prod", "data", "datasets/") == [Mirror("extreme-1", False, "absent: nodes fill it")]
    account.data.put("datasets/d/x")
    assert erase(Scope("dataset", "d"), CLUSTER, account.cloud, console, tmp_path / "c", sure=True) == 1
    (left,) = told(tmp_path / "c")["remains"]
    assert left["fileSystem"] == "extreme-1"
    assert "delete it" in left["why"]
    assert erase(Scope("run", "r"), CLUSTER, account.cloud, console, tmp_path / "d", sure=True) == 0


@pytest.mark.parametrize("protected", [False, True])
def test_the_key_is_scheduled_for_deletion_once_its_protection_is_off_and_its_date_certified(
    account: Account, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protected: bool
) -> None:
    account.kms.state["DeletionProtection"] = "Enabled" if protected else "Disabled"
    account.data.put("runs/gpt-1/x", kms="key-hzz-data")
    monkeypatch.setattr("builtins.input", lambda *_: "prod")
    assert erase_key(CLUSTER, account.cloud, console, tmp_path / "1") == 0
    body = told(tmp_path / "1")
    assert (body["state"], body["key"]["state"], body["key"]["after"]) == (
        "scheduled", "PendingDeletion", "2027-01-01T00:00:00Z",
    )  # fmt: skip
    assert f"`aliyun kms CancelKeyDeletion --region {REGION} --KeyId key-hzz-data` brings it back" in said(console)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked again"))
    assert erase_key(CLUSTER, account.cloud, console, tmp_path / "2") == 0


def test_a_key_that_kms_keeps_after_all_is_protected_again(account: Account) -> None:
    account.kms.state["DeletionProtection"] = "Enabled"
    account.api.actions["ScheduleKeyDeletion"] = (403, "Forbidden.NoPermission")
    with pytest.raises(Refused, match=r"Forbidden.NoPermission.*Use credentials that may do this"):
        account.cloud.retire(KEY, 7)
    assert account.kms.state["DeletionProtection"] == "Enabled"


def test_what_is_encrypted_otherwise_is_found(account: Account) -> None:
    versions = [
        Version(key, account.data.put(key, kms=kms).id)
        for key, kms in (("a", "key-hzz-data"), ("b", ""), ("c", "key-of-another"))
    ]
    others = account.cloud.encrypted_otherwise("data", [*versions, Version("d", "absent")], KEY)
    assert {version.key for version in others} == {"b", "c"}


def test_what_the_cloud_refuses_is_said_in_words_before_anything_is_deleted(
    account: Account, console: Console, tmp_path: Path
) -> None:
    account.data.put("runs/gpt-1/x")
    with pytest.raises(Refused, match=r"bucket absent.*NoSuchBucket"):
        erase(
            Scope("run", "gpt-1"), replace(CLUSTER, bucket="absent"), account.cloud, console, tmp_path / "c", sure=True
        )
    account.api.actions["GetCallerIdentity"] = (403, "InvalidAccessKeyId.NotFound")
    with pytest.raises(Refused, match=r"who you are.*InvalidAccessKeyId.*Sign in to Alibaba Cloud"):
        erase(Scope("run", "gpt-1"), CLUSTER, account.cloud, console, tmp_path / "c", sure=True)
    assert account.data.keys == ["runs/gpt-1/x"]


def test_a_replica_that_is_away_is_told_and_the_same_command_goes_on_later(
    account: Account, console: Console, tmp_path: Path
) -> None:
    account.data.to = {"copy": "cn-shanghai"}
    account.data.put("runs/gpt-1/x")
    assert erase(Scope("run", "gpt-1"), CLUSTER, account.cloud, console, tmp_path / "1", sure=True) == 1
    assert told(tmp_path / "1")["state"] == "partial"
    assert account.data.keys == []
    account.oss.buckets["copy"] = Bucket()
    account.oss.buckets["copy"].put("runs/gpt-1/x")
    assert erase(Scope("run", "gpt-1"), CLUSTER, account.cloud, console, tmp_path / "2", sure=True) == 0
    assert account.oss.buckets["copy"].keys == []


@pytest.mark.parametrize(("internal", "inside"), [("", ""), ("1", REGION)])
def test_oss_is_reached_within_the_stacks_region_where_the_environment_says_that_this_is_there(
    monkeypatch: pytest.MonkeyPatch, internal: str, inside: str
) -> None:
    """New accounts reach it in no other way in regions of mainland China."""
    found: list[str] = []
    monkeypatch.setattr(erasing, "Oss", lambda *_, inside, **__: found.append(inside))
    monkeypatch.setenv("TRAINWRIGHT_OSS_INTERNAL", internal)
    Alicloud(account_of.Alicloud(REGION))
    assert found == [inside]
