"""Buckets that are OSS's answer as OSS does where it differs from S3, and all others as S3."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from emulator import places
from trainer.dialects import OSS
from trainer.store import S3Store

World = Any


@pytest.fixture
def made(world: World):
    """Makes buckets, of OSS or of S3, that go with the test."""
    s3 = world.client("s3")
    names = []

    def make(name: str, *, oss: bool = True, versions: bool = False) -> str:
        s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        names.append(name)
        if oss:
            s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": [{"Key": places.BUCKET_TAG, "Value": "cn-x"}]})
        if versions:
            s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    yield make
    for name in names:
        listed = s3.list_object_versions(Bucket=name)
        for one in [*listed.get("Versions", []), *listed.get("DeleteMarkers", [])]:
            s3.delete_object(Bucket=name, Key=one["Key"], VersionId=one["VersionId"])
        s3.delete_bucket(Bucket=name)


@pytest.fixture
def client(world: World) -> Any:
    """A client as of Alibaba Cloud's: of a region that AWS lacks, and with checksums only where they must be."""
    session = boto3.Session(aws_access_key_id="k", aws_secret_access_key="s", region_name="cn-hangzhou")
    config = Config(request_checksum_calculation="when_required", response_checksum_validation="when_required")
    found = session.client("s3", endpoint_url=world.cloud.endpoint, config=config)
    forbid = "before-call.s3.PutObject"
    found.meta.events.register(forbid, lambda params, **_: params["headers"].update({"x-oss-forbid-overwrite": "true"}))
    return found


def code(error: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    answer: Any = error.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def test_an_object_is_not_replaced_where_that_is_forbidden(made, client, world) -> None:
    bucket = made("first")
    client.put_object(Bucket=bucket, Key="a/ü", Body=b"one")
    with pytest.raises(ClientError) as refused:
        client.put_object(Bucket=bucket, Key="a/ü", Body=b"two")
    assert code(refused) == (409, "FileAlreadyExists")
    assert client.get_object(Bucket=bucket, Key="a/ü")["Body"].read() == b"one"
    world.client("s3").put_object(Bucket=bucket, Key="a/ü", Body=b"three")
    assert client.get_object(Bucket=bucket, Key="a/ü")["Body"].read() == b"three"


def test_one_of_many_who_forbid_it_at_once_is_first(made, client) -> None:
    bucket = made("race")

    def put(number: int) -> bool:
        try:
            client.put_object(Bucket=bucket, Key="leader", Body=b"%d" % number)
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, range(16))) == 1


@pytest.mark.parametrize("oss", [True, False])
def test_it_counts_for_nothing_where_versions_are_kept_or_on_s3(made, client, oss: bool) -> None:
    bucket = made("kept" if oss else "plain", oss=oss, versions=oss)
    client.put_object(Bucket=bucket, Key="a", Body=b"one")
    client.put_object(Bucket=bucket, Key="a", Body=b"two")
    assert client.get_object(Bucket=bucket, Key="a")["Body"].read() == b"two"


@pytest.mark.parametrize(
    ("given", "answer"),
    [({"IfNoneMatch": "*"}, (501, "NotImplemented")), ({"ContentEncoding": "aws-chunked"}, (400, "InvalidArgument"))],
)
def test_what_oss_lacks_of_s3_is_refused_in_its_buckets_alone(made, world, given, answer) -> None:
    s3 = world.client("s3")
    bucket, plain = made("refusing"), made("taking", oss=False)
    with pytest.raises(ClientError) as refused:
        s3.put_object(Bucket=bucket, Key="a", Body=b"one" * 100000, **given)
    assert code(refused) == answer
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    if "IfNoneMatch" in given:
        s3.put_object(Bucket=plain, Key="a", Body=b"one", **given)


def test_oss_tells_no_checksum_of_s3(made, world) -> None:
    s3 = world.client("s3")
    for bucket, told in ((made("silent"), False), (made("telling", oss=False), True)):
        s3.put_object(Bucket=bucket, Key="a", Body=b"one", ChecksumAlgorithm="SHA256")
        head = s3.head_object(Bucket=bucket, Key="a", ChecksumMode="ENABLED")
        assert ("ChecksumSHA256" in head) == told


def test_the_trainer_s_store_finds_what_it_counts_on(made, client, monkeypatch, world, tmp_path: Path) -> None:
    for name, value in (("ACCESS_KEY_ID", "k"), ("ACCESS_KEY_SECRET", "s"), ("REGION_ID", "cn-hangzhou")):
        monkeypatch.setenv(f"ALIBABA_CLOUD_{name}", value)
    monkeypatch.setenv("TRAINWRIGHT_OSS_ENDPOINT", world.cloud.endpoint)
    bucket = made("store", versions=True)
    made("store-claims")
    store = S3Store(bucket, "runs/r", dialect=OSS)
    assert store.put("one", b"first", if_absent=True)
    assert not store.put("one", b"second", if_absent=True)
    assert store.get("one") == b"first"
    (tmp_path / "part").write_bytes(b"x" * (9 << 20))
    store.upload(tmp_path / "part", "large")
    assert store.holds("large", tmp_path / "part")
    assert [entry.key for entry in store.list()] == ["large", "one"]
