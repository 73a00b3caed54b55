"""What erasing asks of AWS, against moto's S3, KMS and auto scaling; FSx and errors are stubbed where moto has none."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws
from rich.console import Console
from typer.testing import CliRunner

from cli import main
from cli.erasure import certificate, erase
from cli.erasure.aws import Aws
from cli.erasure.clouds import asked_for
from cli.erasure.cluster import Cluster
from cli.erasure.key import erase_key
from cli.erasure.scope import Mirror, Scope, Upload, Version, found
from cli.errors import Refused
from cli.verbs import erasure
from cli.workspace import Workspace
from trainer import layout
from trainer.node.membership import Outcome
from trainer.node.queue import ERASED, Queue, Turn
from trainer.store import S3Store

REGION = "us-west-2"
LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)


MADE: dict[str, Any] = {}
"""Clients, each made once for all tests: making them is what takes time."""


def shared(service: str, **_: Any) -> Any:
    if service not in MADE:
        MADE[service] = fresh(service)
    return MADE[service]


def fresh(service: str) -> Any:
    """A client of a test's own, for it to change."""
    session = boto3.Session("testing", "testing", "testing", REGION)
    return session.client(service)  # type: ignore[call-overload]


class Account:
    """An account with a cluster's bucket and keys."""

    def __init__(self) -> None:
        self.s3 = shared("s3")
        self.kms = shared("kms")
        made = self.kms.create_key(KeySpec="ECC_NIST_P256", KeyUsage="SIGN_VERIFY")
        self.evidence = made["KeyMetadata"]["Arn"]
        self.data_key = self.kms.create_key()["KeyMetadata"]["Arn"]
        self.bucket("data")
        self.cluster = Cluster("prod", False, REGION, "data", ("nodes",), "gpt-1", self.data_key, self.evidence)

    def bucket(self, name: str, *, lock: bool = False) -> None:
        where: Any = {"LocationConstraint": REGION}
        self.s3.create_bucket(Bucket=name, CreateBucketConfiguration=where, ObjectLockEnabledForBucket=lock)
        self.s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})

    def put(self, key: str, bucket: str = "data", **more: Any) -> str:
        return str(self.s3.put_object(Bucket=bucket, Key=key, Body=b"ten bytes.", **more)["VersionId"])

    def left(self, bucket: str = "data") -> list[str]:
        page = self.s3.list_object_versions(Bucket=bucket)
        return sorted(item["Key"] for name in ("Versions", "DeleteMarkers") for item in page.get(name, ()))


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(boto3, "client", shared)
    with mock_aws():
        yield Account()


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def told(path: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(path.read_text())["certificate"]
    return body


def test_what_is_to_be_typed_by_hand_goes_to_the_clusters_region() -> None:
    cloud = Aws(REGION)
    for command in (cloud.to_end("g"), cloud.to_restore(f"arn:aws:kms:{REGION}:1:key/k")):
        assert f" --region {REGION} " in command


def test_every_version_marker_and_unfinished_upload_of_a_run_goes_and_nothing_else(
    account: Account, console: Console, tmp_path: Path
) -> None:
    for key in ("runs/gpt-1/checkpoints/step-1/a", "runs/gpt-1/checkpoints/step-1/a", "runs/gpt-1/audit/launch-1.json"):
        account.put(key)
    account.s3.delete_object(Bucket="data", Key="runs/gpt-1/checkpoints/step-1/a")
    account.s3.create_multipart_upload(Bucket="data", Key="runs/gpt-1/checkpoints/step-2/a")
    account.s3.create_multipart_upload(Bucket="data", Key="runs/gpt-10/x")
    others = ["datasets/d/index.json", "fleet.json", "runs/gpt-10/x"]
    for key in others:
        account.put(key)
    assert erase(Scope("run", "gpt-1"), account.cluster, Aws(REGION), console, tmp_path / "c", sure=True) == 0
    copy = [key for key in account.left() if key.startswith("erasures/")]
    assert account.left() == sorted(others + copy)
    assert account.s3.get_object(Bucket="data", Key=copy[0])["Body"].read() == (tmp_path / "c").read_bytes()
    assert [item["Key"] for item in account.s3.list_multipart_uploads(Bucket="data")["Uploads"]] == ["runs/gpt-10/x"]
    (bucket,) = told(tmp_path / "c")["buckets"]
    assert bucket["erased"] == {"versions": 3, "markers": 1, "uploads": 1, "bytes": 30}
    certificate.verify(tmp_path / "c", console, asked_for)
    assert f"KMS has the same public key for {account.evidence}" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_that_was_submitted_never_trains_again_and_no_record_of_it_is_left(
    account: Account, console: Console, tmp_path: Path
) -> None:
    store = S3Store("data", client=account.s3)
    job = {"name": "gpt", "dataset": "text"}

    def queue() -> Queue:
        """As a node that comes has it."""
        return Queue(store, Turn("gpt-1", job))

    for run in ("gpt-1", "a", "b"):
        queue().add(run, job, "arn:aws:iam::123456789012:user/ada")
        ended = json.dumps(asdict(Outcome(succeeded=True, reason="", ended=1.0))).encode()
        store.put(f"{layout.run_prefix(run)}/{layout.OUTCOME}", ended)
    for run, number in (("a", 1), ("b", 2)):
        assert erase(Scope("run", run), account.cluster, Aws(REGION), console, tmp_path / run, sure=True) == 0
        assert queue().next() is None
        versions = account.s3.list_object_versions(Bucket="data", Prefix=layout.queued(number))
        assert [version["Size"] for version in versions["Versions"]] == [len(ERASED)]
        assert told(tmp_path / run)["buckets"][0]["erased"]["versions"] == 2
    assert {place.turn.run for place in queue().places()} == {"gpt-1"}
    again = queue().add("c", job, "ada")
    assert again
    assert again.number == 3, "a number is never given twice"


def test_a_person_is_found_by_folder_and_tag_in_every_dataset_and_run(
    account: Account, console: Console, tmp_path: Path
) -> None:
    account.put("datasets/d/subject=k/x")
    account.put("runs/r/samples/x")
    account.put("runs/r/samples/x", Tagging="trainwright:subject=k&a=b")
    kept = [("datasets/d/subject=kk/x", ""), ("datasets/d/y", "trainwright:subject=kk"), ("datasets/d/z", "subject=k")]
    for key, tags in kept:
        account.put(key, Tagging=tags)
    assert erase(Scope("subject", "k"), account.cluster, Aws(REGION), console, tmp_path / "c", sure=True) == 0
    assert [key for key in account.left() if "erasures" not in key] == [key for key, _ in kept]


@pytest.mark.parametrize("mode", ["GOVERNANCE", "COMPLIANCE"])
def test_what_is_locked_remains_and_goes_once_it_may(
    account: Account, console: Console, tmp_path: Path, mode: str
) -> None:
    account.bucket("locking", lock=True)
    cluster = replace(account.cluster, bucket="locking")
    account.put("runs/gpt-1/a", "locking")
    lock: Any = {"ObjectLockMode": mode, "ObjectLockRetainUntilDate": LATER}
    locked = account.put("runs/gpt-1/b", "locking", **lock)
    held = account.put("runs/gpt-1/c", "locking", ObjectLockLegalHoldStatus="ON")
    assert erase(Scope("run", "gpt-1"), cluster, Aws(REGION), console, tmp_path / "1", sure=True) == 1
    until = f"{LATER:%Y-%m-%dT%H:%M:%SZ}"
    assert told(tmp_path / "1")["remains"] == [
        {"bucket": "locking", "key": "runs/gpt-1/b", "version": locked, "why": f"locked ({mode.lower()})",
         "until": until},
        {"bucket": "locking", "key": "runs/gpt-1/c", "version": held,
         "why": "a legal hold, which ends when somebody takes it off"},
    ]  # fmt: skip
    account.s3.put_object_legal_hold(Bucket="locking", Key="runs/gpt-1/c", VersionId=held, LegalHold={"Status": "OFF"})
    assert erase(Scope("run", "gpt-1"), cluster, Aws(REGION), console, tmp_path / "2", sure=True) == 1
    assert told(tmp_path / "2")["list"]["lines"] == told(tmp_path / "2")["remaining"] == 1


def test_replicas_are_erased_version_by_version_as_s3_does_not_replicate_that(
    account: Account, console: Console, tmp_path: Path
) -> None:
    account.bucket("copy")
    for bucket in ("data", "copy"):
        account.put("datasets/d/x", bucket)
    rule: Any = {"Status": "Disabled", "Priority": 1, "Filter": {}, "Destination": {"Bucket": "arn:aws:s3:::copy"},
                 "DeleteMarkerReplication": {"Status": "Disabled"}}  # fmt: skip
    account.s3.put_bucket_replication(
        Bucket="data", ReplicationConfiguration={"Role": "arn:aws:iam::123456789012:role/r", "Rules": [rule]}
    )
    assert erase(Scope("dataset", "d"), account.cluster, Aws(REGION), console, tmp_path / "c", sure=True) == 0
    assert account.left("copy") == []
    assert [(place["name"], place["erased"]["versions"]) for place in told(tmp_path / "c")["buckets"]] == [
        ("data", 1),
        ("copy", 1),
    ]


def test_keys_that_no_list_in_xml_can_name_are_deleted_too(account: Account) -> None:
    """S3 refuses a whole list of a thousand for one such key (MalformedXML)."""
    versions = [Version(key, account.put(key)) for key in ("runs/r/a&b<c>", "runs/r/plain", "runs/r/é x")]
    odd = Version("runs/r/\x02", "v")
    asked: list[str] = []
    cloud = Aws(REGION)
    client = cloud._clients["s3"] = fresh("s3")
    client.delete_object = lambda **call: asked.append(call["Key"])
    assert cloud.delete("data", [*versions, odd]) == {}
    assert (asked, account.left()) == (["runs/r/\x02"], [])


def test_only_what_s3_names_as_deleted_counts_as_that(account: Account) -> None:
    cloud = Aws(REGION)
    client = cloud._clients["s3"] = fresh("s3")
    one, two, three = (Version(f"runs/r/{name}", "v") for name in "abc")
    answer: Any = {
        "Deleted": [{"Key": one.key, "VersionId": "v"}],
        "Errors": [{"Key": two.key, "VersionId": "v", "Code": "InternalError", "Message": "try\nagain"}],
    }
    with Stubber(client) as stub:
        stub.add_response("delete_objects", answer)
        assert cloud.delete("data", [one, two, three]) == {two: "try again", three: "S3 doesn't say why"}
        stub.add_client_error("delete_objects", "AccessDenied", "no", http_status_code=403)
        left = cloud.delete("data", [one, two])
        assert left.keys() == {one, two}
        assert "Use credentials that may do this" in left[one]
        stub.add_client_error("abort_multipart_upload", "NoSuchUpload")
        assert cloud.abort("data", Upload("k", "u")) == ""
        stub.add_client_error("abort_multipart_upload", "AccessDenied")
        assert "AccessDenied" in cloud.abort("data", Upload("k", "u"))


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_versions_and_markers_come_in_order_of_keys_over_many_pages(account: Account, size: int) -> None:
    for number in range(5):
        for _ in range(3):
            account.put(f"runs/r/{number}")
        account.s3.delete_object(Bucket="data", Key=f"runs/r/{number}")
    cloud = Aws(REGION)
    client = cloud._clients["s3"] = fresh("s3")
    paged = client.get_paginator

    class Small:
        def __init__(self, name: str) -> None:
            self.paginator = paged(name)

        def paginate(self, **call: Any) -> Any:
            return self.paginator.paginate(**call, PaginationConfig={"PageSize": size})

    client.get_paginator = Small
    groups = list(found(cloud, "data", Scope("run", "r")))
    assert [(group[0].key, len(group)) for group in groups] == [(f"runs/r/{number}", 4) for number in range(5)]


def test_file_systems_that_show_the_datasets_are_found_with_whether_they_follow() -> None:
    def link(number: int, path: str, state: str = "AVAILABLE", events: tuple[str, ...] = ("NEW", "DELETED")) -> Any:
        return {"FileSystemId": f"fs-0000000000{number}", "DataRepositoryPath": path, "Lifecycle": state,
                "S3": {"AutoImportPolicy": {"Events": list(events)}}}  # fmt: skip

    cloud = Aws(REGION)
    client = cloud._clients["fsx"] = fresh("fsx")
    first = [link(1, "s3://data/datasets/"), link(2, "s3://data"), link(3, "s3://database/datasets/")]
    second = [link(4, "s3://data/datasets", "MISCONFIGURED"), link(5, "s3://data/datasets/d/", events=("NEW",))]
    with Stubber(client) as stub:
        stub.add_response("describe_data_repository_associations", {"Associations": first, "NextToken": "abc"}, {})
        stub.add_response("describe_data_repository_associations", {"Associations": second}, {"NextToken": "abc"})
        assert cloud.mirrors("prod", "data", "datasets/") == [
            Mirror("fs-00000000001", True, "AVAILABLE"),
            Mirror("fs-00000000002", True, "AVAILABLE"),
            Mirror("fs-00000000004", False, "MISCONFIGURED"),
            Mirror("fs-00000000005", False, "AVAILABLE"),
        ]


def test_nodes_on_their_way_out_still_hold_copies(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"i-1": "InService", "i-2": "Terminating:Wait"}
    group = {"Instances": [{"InstanceId": name, "LifecycleState": state} for name, state in states.items()]}

    class Client:
        def describe_auto_scaling_groups(self, AutoScalingGroupNames: list[str]) -> dict[str, Any]:
            assert AutoScalingGroupNames == ["nodes", "data-nodes"]
            return {"AutoScalingGroups": [group]}

    cloud = Aws(REGION)
    monkeypatch.setattr(cloud, "_client", lambda _: Client())
    assert cloud.nodes(["nodes", "data-nodes"]) == {"i-1", "i-2"}


def test_the_key_is_scheduled_for_deletion_once_and_its_date_certified(
    account: Account, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "prod")
    sealed: Any = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": account.data_key}
    account.put("runs/gpt-1/x", **sealed)
    assert erase_key(account.cluster, Aws(REGION), console, tmp_path / "1") == 0
    state = account.kms.describe_key(KeyId=account.data_key)["KeyMetadata"]
    assert state["KeyState"] == "PendingDeletion"
    after = told(tmp_path / "1")["key"]["after"]
    assert after == f"{state['DeletionDate'].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked again"))
    assert erase_key(account.cluster, Aws(REGION), console, tmp_path / "2") == 0
    assert told(tmp_path / "2")["key"]["after"] == after
    for name in "12":
        certificate.verify(tmp_path / name, console, asked_for)


def test_what_is_encrypted_otherwise_is_found(account: Account) -> None:
    sealed: Any = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": account.data_key}
    ours, theirs = (Version(key, account.put(key, **more)) for key, more in (("a", sealed), ("b", {})))
    gone = Version("c", "absent")
    assert Aws(REGION).encrypted_otherwise("data", [ours, theirs, gone], account.data_key) == {theirs}


def test_what_aws_refuses_is_said_in_words_before_anything_is_deleted(
    account: Account, console: Console, tmp_path: Path
) -> None:
    account.put("runs/gpt-1/x")
    absent = replace(account.cluster, bucket="absent")
    with pytest.raises(Refused, match=r"bucket absent.*can't be asked for"):
        erase(Scope("run", "gpt-1"), absent, Aws(REGION), console, tmp_path / "c", sure=True)
    with pytest.raises(Refused, match="can't be asked for"):
        erase_key(replace(account.cluster, data_key="absent"), Aws(REGION), console, tmp_path / "c")
    assert account.left() == ["runs/gpt-1/x"]


def test_a_certificate_can_not_lead_to_another_service() -> None:
    assert asked_for("arn:aws-cn:kms:cn-north-1:123456789012:key/a-1").region == "cn-north-1"
    for key in ("", "alias/x", "arn:aws:kms:evil.example.com/:123456789012:key/a", "arn:aws:s3:::b\n"):
        with pytest.raises(Refused, match="is no key of AWS or Alibaba Cloud"):
            asked_for(key)


@pytest.fixture
def typed(account: Account, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The command, typed; stack `prod-us-west` is up, as far as its outputs tell."""
    outputs = {"bucket": "data", "group": "nodes", "run": "gpt-1", "keyArn": account.data_key,
               "evidenceKeyArn": account.evidence}  # fmt: skip
    monkeypatch.setattr(Workspace, "outputs", outputs)
    monkeypatch.setattr(Aws, "mirrors", lambda *_: [])
    monkeypatch.setattr(erasure, "console", Console(file=io.StringIO(), width=200))
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))

    def run(*arguments: str, say: str = "") -> Any:
        return CliRunner().invoke(main.app, ["erase", *arguments], input=say)

    return run


def test_a_cluster_is_known_with_all_that_may_hold_copies(
    account: Account, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data nodes that were not looked for would keep a dataset, and a file system that was not, mirror it."""
    workspace = Workspace("prod-us-west")
    told = {**workspace.outputs, "dataGroup": "data-nodes", "auditBucket": "audit"}
    monkeypatch.setattr(Workspace, "outputs", told)
    cluster = Cluster.of(workspace)
    assert cluster == replace(
        account.cluster, stack="prod-us-west", groups=("nodes", "data-nodes"), audit_bucket="audit", warm=True,
        window_days=30,
    )  # fmt: skip
    assert cluster.queue is None
    monkeypatch.setattr(Workspace, "outputs", {**told, "queueUrl": "https://example.com/q"})
    own = Turn("gpt-0", {"name": "gpt", "dataset": "text"})
    account.s3.put_object(Bucket="data", Key=layout.OWN, Body=own.json())
    cluster = Cluster.of(workspace)
    assert cluster.queue
    assert (cluster.run, cluster.queue.own) == ("gpt-0", own), "nodes have it from the bucket, whatever `up` declared"


def test_the_command_erases_certifies_and_verifies(account: Account, typed: Any, tmp_path: Path) -> None:
    account.put("datasets/d/x")
    stack = ("--stack", "prod-us-west")
    refused = typed("--dataset", "d", *stack, say="no\n")
    assert isinstance(refused.exception, Refused)
    assert account.left() == ["datasets/d/x"]
    assert typed("--dataset", "d", "--yes", *stack).exit_code == 0
    (file,) = (tmp_path / "erasures").iterdir()
    assert told(file)["stack"] == "prod-us-west"
    assert typed("verify", str(file)).exit_code == 0
    assert typed("verify", "--offline", str(file)).exit_code == 0
    said = erasure.console.file.getvalue()  # type: ignore[attr-defined]
    assert said.count("Signature: good") == 2
    assert said.count("KMS has the same public key") == 1


@pytest.mark.parametrize(
    "arguments", [(), ("--run", "a", "--dataset", "b"), ("--crypto", "--run", "a"), ("--run", "../a")]
)
def test_the_command_wants_one_thing_at_a_time(account: Account, typed: Any, arguments: tuple[str, ...]) -> None:
    account.put("runs/a/x")
    assert isinstance(typed(*arguments, "--yes", "--stack", "prod-us-west").exception, Refused)
    assert account.left() == ["runs/a/x"]


def test_the_key_does_not_go_for_yes(account: Account, typed: Any) -> None:
    refused = typed("--crypto", "--yes", "--stack", "prod-us-west", say="yes\n")
    assert isinstance(refused.exception, Refused)
    assert account.kms.describe_key(KeyId=account.data_key)["KeyMetadata"]["KeyState"] == "Enabled"
    assert typed("--crypto", "--stack", "prod-us-west", say="prod-us-west\n").exit_code == 0
    assert account.kms.describe_key(KeyId=account.data_key)["KeyMetadata"]["KeyState"] == "PendingDeletion"
