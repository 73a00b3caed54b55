"""Buckets and objects: what is set arrives, content comes from assets, and nothing is left behind."""

from pathlib import Path
from typing import Any

import pytest

from emulator.provider.aws import s3
from emulator.provider.aws.api import ApiError
from emulator.provider.wire import ASSET, SIGNATURE

Deployment = Any
OBJECT = "aws:s3/bucketObjectv2:BucketObjectv2"


def versioned(deployment: Deployment, **more: Any) -> tuple[Any, Any]:
    bucket = deployment.create("aws:s3/bucket:Bucket", more)
    setting = {"bucket": bucket.id, "versioningConfiguration": {"status": "Enabled"}}
    return bucket, deployment.create("aws:s3/bucketVersioning:BucketVersioning", setting)


def test_what_is_set_on_a_bucket_reaches_the_api(deployment: Deployment) -> None:
    bucket, _ = versioned(deployment, bucket="data", tags={"a": "b"})
    of = {"bucket": "data"}
    rule = {
        "applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": "key"},
        "bucketKeyEnabled": True,
    }
    encryption = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
    deployment.create(encryption, {**of, "rules": [rule]})
    flags = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    deployment.create("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", {**of, **dict.fromkeys(flags, True)})
    owner = {**of, "rule": {"objectOwnership": "BucketOwnerEnforced"}}
    deployment.create("aws:s3/bucketOwnershipControls:BucketOwnershipControls", owner)
    client = deployment.client("s3")
    assert client.get_bucket_versioning(Bucket="data")["Status"] == "Enabled"
    assert client.get_bucket_tagging(Bucket="data")["TagSet"] == [{"Key": "a", "Value": "b"}]
    [held] = client.get_bucket_encryption(Bucket="data")["ServerSideEncryptionConfiguration"]["Rules"]
    assert held["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "key"}
    assert held["BucketKeyEnabled"]
    assert all(client.get_public_access_block(Bucket="data")["PublicAccessBlockConfiguration"].values())
    [ownership] = client.get_bucket_ownership_controls(Bucket="data")["OwnershipControls"]["Rules"]
    assert ownership == {"ObjectOwnership": "BucketOwnerEnforced"}
    assert bucket.state["bucketRegionalDomainName"] == "data.s3.us-west-2.amazonaws.com"


def test_an_object_takes_a_files_content_and_all_its_properties(deployment: Deployment, tmp_path: Path) -> None:
    bucket, _ = versioned(deployment)
    file = tmp_path / "bundle"
    file.write_bytes(b"\x00\xff")
    deployment.create(
        OBJECT,
        {
            "bucket": bucket.id,
            "key": "bundles/1",
            "source": {SIGNATURE: ASSET, "path": str(file), "hash": "h"},
            "contentType": "application/gzip",
            "cacheControl": "no-store",
            "serverSideEncryption": "aws:kms",
            "kmsKeyId": "key",
            "metadata": {"run": "x"},
            "tags": {"a": "b c"},
        },
    )
    client = deployment.client("s3")
    found = client.get_object(Bucket=bucket.id, Key="bundles/1")
    assert found["Body"].read() == b"\x00\xff"
    assert (found["ContentType"], found["CacheControl"]) == ("application/gzip", "no-store")
    assert (found["ServerSideEncryption"], found["SSEKMSKeyId"]) == ("aws:kms", "key")
    assert found["Metadata"] == {"run": "x"}
    assert client.get_object_tagging(Bucket=bucket.id, Key="bundles/1")["TagSet"] == [{"Key": "a", "Value": "b c"}]


def test_a_changed_asset_is_put_again_and_its_hash_tells(deployment: Deployment) -> None:
    bucket, _ = versioned(deployment)
    source = {SIGNATURE: ASSET, "text": "one", "hash": "1"}
    one = deployment.create(OBJECT, {"bucket": bucket.id, "source": source})
    assert one.id == "x", "an object without a key is named like its resource"
    first = one.state["versionId"]
    new = {**one.inputs, "source": {SIGNATURE: ASSET, "text": "two", "hash": "2"}}
    assert list(deployment.stand_in.diff(one.urn, one.inputs, new).changes) == ["source"]
    deployment.update(one, source=new["source"])
    assert one.state["versionId"] != first
    assert deployment.client("s3").get_object(Bucket=bucket.id, Key="x")["Body"].read() == b"two"


def test_an_unreadable_source_is_one_clear_line(deployment: Deployment) -> None:
    bucket, _ = versioned(deployment)
    for source, reason in (
        ({"path": "/nowhere"}, "No such file"),
        ({"uri": "https://x"}, "string and file assets only"),
    ):
        with pytest.raises(ApiError, match=f"^PutObject: UnreadableSource: .*{reason}"):
            deployment.create(OBJECT, {"bucket": bucket.id, "source": {SIGNATURE: ASSET, **source}})


@pytest.mark.parametrize("suspended", [False, True])
def test_a_bucket_goes_with_all_versions_and_markers(deployment: Deployment, suspended: bool) -> None:
    bucket, setting = versioned(deployment, forceDestroy=True)
    client = deployment.client("s3")
    for key in ("a", "a", "b"):
        client.put_object(Bucket=bucket.id, Key=key, Body=b"x")
    client.delete_object(Bucket=bucket.id, Key="a")
    if suspended:
        deployment.delete(setting)
    deployment.delete(bucket)
    assert not client.list_buckets()["Buckets"]


class Writer:
    """A node that writes a new object whenever the bucket has been emptied: so many times, or for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, s3_client: Any, times: float):
        self.written = 0
        emptied = s3.empty

        def empty(api: Any, bucket: str) -> None:
            emptied(api, bucket)
            if self.written < times:
                self.written += 1
                s3_client.put_object(Bucket=bucket, Key=f"late-{self.written}", Body=b"x")

        monkeypatch.setattr(s3, "empty", empty)
        monkeypatch.setattr(s3, "_POLL", 0.01)


def test_a_bucket_that_nodes_still_write_to_goes_once_they_have_left(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, _ = versioned(deployment, forceDestroy=True)
    writer = Writer(monkeypatch, deployment.client("s3"), times=3)
    deployment.delete(bucket)
    assert writer.written == 3
    assert not deployment.client("s3").list_buckets()["Buckets"]


def test_a_bucket_that_is_written_to_for_ever_is_given_up_in_bounded_time(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, _ = versioned(deployment, forceDestroy=True)
    Writer(monkeypatch, deployment.client("s3"), times=float("inf"))
    monkeypatch.setattr(s3, "_EMPTY_SECONDS", 0.2)
    with pytest.raises(ApiError, match="DeleteBucket: BucketNotEmpty"):
        deployment.delete(bucket)


def test_a_bucket_that_holds_something_stays_without_force(deployment: Deployment) -> None:
    bucket, _ = versioned(deployment)
    deployment.client("s3").put_object(Bucket=bucket.id, Key="a", Body=b"x")
    with pytest.raises(ApiError, match="DeleteBucket: BucketNotEmpty"):
        deployment.delete(bucket)


def test_deleting_an_object_leaves_those_whose_key_starts_alike(deployment: Deployment) -> None:
    bucket, _ = versioned(deployment)
    one, other = (deployment.create(OBJECT, {"bucket": bucket.id, "key": key, "content": "x"}) for key in ("a", "ab"))
    deployment.delete(one)
    assert deployment.read(one)[0] == ""
    assert deployment.read(other)[0] == "ab"
