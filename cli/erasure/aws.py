"""What erasing asks of AWS. `alicloud` is its twin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cli import aws
from cli.erasure.scope import LARGEST_RECORD, PLAIN, Hold, Mirror, Retired, Upload, Version
from cli.words import plain

AT_ONCE = 16
"""Requests, where each version has to be asked for by one."""

ALGORITHM = "ECDSA_SHA_256"
MOST_PAGES = 100
"""Of associations, a hundred each or so; an account has a few."""

LEAVING = {"PendingDeletion", "PendingReplicaDeletion"}


class Aws:
    """S3, KMS, FSx and auto scaling of one region, with the caller's credentials; see `scope.Cloud`.

    A replica may lie in another region: boto3 follows S3 there.
    """

    def __init__(self, region: str) -> None:
        self.region = region
        self._clients: dict[str, Any] = {}

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            config = aws.PATIENCE.merge(Config(max_pool_connections=AT_ONCE))
            client = boto3.client(service, region_name=self.region, config=config)  # type: ignore[call-overload]
            self._clients[service] = client
        return self._clients[service]

    def caller(self) -> str:
        """See `Cloud.caller`."""
        return aws.Aws(self.region).caller()

    def replicas(self, bucket: str) -> list[str]:
        """See `Cloud.replicas`. Rules that are disabled count: they may have made copies before."""
        with aws.refusals(f"where bucket {bucket} is replicated to"):
            try:
                found = self._client("s3").get_bucket_replication(Bucket=bucket)["ReplicationConfiguration"]
            except ClientError as error:
                if _code(error) == "ReplicationConfigurationNotFoundError":
                    return []
                raise
        return sorted({rule["Destination"]["Bucket"].rpartition(":")[2] for rule in found["Rules"]})

    def versions(self, bucket: str, prefix: str) -> Iterator[Version]:
        """See `Cloud.versions`. A page lists versions and markers each for themselves (S3 API, ListObjectVersions)."""
        with aws.refusals(f"what bucket {bucket} holds"):
            pages = self._client("s3").get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
            for page in pages:
                listed = [
                    *(
                        Version(item["Key"], item["VersionId"], item["ETag"].strip('"'), item["Size"])
                        for item in page.get("Versions", ())
                    ),
                    *(Version(item["Key"], item["VersionId"], marker=True) for item in page.get("DeleteMarkers", ())),
                ]
                yield from sorted(listed, key=lambda version: version.key.encode())

    def uploads(self, bucket: str, prefix: str) -> Iterator[Upload]:
        """See `Cloud.uploads`."""
        with aws.refusals(f"what is being uploaded to bucket {bucket}"):
            pages = self._client("s3").get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
            for page in pages:
                for item in page.get("Uploads", ()):
                    if item["Key"].startswith(prefix):
                        yield Upload(item["Key"], item["UploadId"])

    def tagged(self, bucket: str, versions: list[Version], tag: str, value: str) -> set[Version]:
        """See `Cloud.tagged`. S3 finds nothing by its tags: each version is asked."""
        client = self._client("s3")

        def has(version: Version) -> bool:
            tags = client.get_object_tagging(Bucket=bucket, Key=version.key, VersionId=version.id)["TagSet"]
            return {"Key": tag, "Value": value} in tags

        return self._those(has, versions, f"the tags in bucket {bucket}")

    def encrypted_otherwise(self, bucket: str, versions: list[Version], key: str) -> set[Version]:
        """See `Cloud.encrypted_otherwise`."""
        client = self._client("s3")

        def other(version: Version) -> bool:
            head = client.head_object(Bucket=bucket, Key=version.key, VersionId=version.id)
            return bool(head.get("SSEKMSKeyId") != key)

        return self._those(other, versions, f"how bucket {bucket} is encrypted")

    def reading(self, bucket: str, versions: list[Version], judge: Callable[[bytes], bool]) -> set[Version]:
        """See `Cloud.reading`."""
        client = self._client("s3")

        def judged(version: Version) -> bool:
            body = client.get_object(Bucket=bucket, Key=version.key, VersionId=version.id)["Body"]
            return judge(body.read(LARGEST_RECORD))

        return self._those(judged, versions, f"what is in the queue in bucket {bucket}")

    @staticmethod
    def _those(judge: Callable[[Version], bool], versions: list[Version], asked: str) -> set[Version]:
        """The versions that are judged so. One that is gone meanwhile is none of them."""

        def judged(version: Version) -> bool:
            try:
                return judge(version)
            except ClientError as error:
                if _code(error) in {"NoSuchKey", "NoSuchVersion", "404"}:
                    return False
                raise

        with aws.refusals(asked), ThreadPoolExecutor(AT_ONCE) as pool:
            return {version for version, yes in zip(versions, pool.map(judged, versions), strict=True) if yes}

    def delete(self, bucket: str, versions: list[Version]) -> dict[Version, str]:
        """See `Cloud.delete`. What S3 doesn't name among the deleted still stands; locks are never bypassed."""
        client = self._client("s3")
        odd = [version for version in versions if not PLAIN.fullmatch(version.key)]
        left = {version: why for version in odd if (why := _done(client.delete_object, bucket, version))}
        listed = [version for version in versions if PLAIN.fullmatch(version.key)]
        return left | (self._delete_listed(client, bucket, listed) if listed else {})

    @staticmethod
    def _delete_listed(client: Any, bucket: str, versions: list[Version]) -> dict[Version, str]:
        wanted = {"Objects": [{"Key": version.key, "VersionId": version.id} for version in versions], "Quiet": False}
        try:
            said = client.delete_objects(Bucket=bucket, Delete=wanted)
        except (ClientError, BotoCoreError) as error:
            return dict.fromkeys(versions, _told(error))
        gone = {(item["Key"], item.get("VersionId")) for item in said.get("Deleted", ())}
        why = {
            (item["Key"], version): item.get("Message") or item.get("Code", "")
            for item in said.get("Errors", ())
            for version in (item.get("VersionId"), None)
        }
        return {
            version: plain(why.get((version.key, version.id)) or why.get((version.key, None)) or "S3 doesn't say why")
            for version in versions
            if (version.key, version.id) not in gone
        }

    def abort(self, bucket: str, upload: Upload) -> str:
        """See `Cloud.abort`."""
        try:
            self._client("s3").abort_multipart_upload(Bucket=bucket, Key=upload.key, UploadId=upload.id)
        except (ClientError, BotoCoreError) as error:
            gone = isinstance(error, ClientError) and _code(error) == "NoSuchUpload"
            return "" if gone else _told(error)
        return ""

    def hold(self, bucket: str, version: Version) -> Hold | None:
        """See `Cloud.hold`. S3 shows locks to who may read them (S3 API, HeadObject); to others there is none."""
        if version.marker:
            return None
        try:
            head = self._client("s3").head_object(Bucket=bucket, Key=version.key, VersionId=version.id)
        except (ClientError, BotoCoreError):
            return None
        if head.get("ObjectLockLegalHoldStatus") == "ON":
            return Hold("a legal hold, which ends when somebody takes it off")
        until = head.get("ObjectLockRetainUntilDate")
        if until and until > datetime.now(UTC):
            return Hold(f"locked ({head['ObjectLockMode'].lower()})", _iso(until))
        return None

    def mirrors(self, cluster: str, bucket: str, prefix: str) -> list[Mirror]:  # noqa: ARG002  by bucket is enough
        """See `Cloud.mirrors`. Only an association that is available imports (FSx API, DataRepositoryAssociation)."""
        with aws.refusals(f"which file systems mirror bucket {bucket}"):
            client, links = self._client("fsx"), []
            more: dict[str, str] = {}
            for _ in range(MOST_PAGES):
                page = client.describe_data_repository_associations(**more)
                links += page["Associations"]
                more = {"NextToken": page["NextToken"]} if page.get("NextToken") else {}
                if not more:
                    break
        ours = f"s3://{bucket}/"
        return [
            Mirror(
                link["FileSystemId"],
                link["Lifecycle"] == "AVAILABLE"
                and "DELETED" in link.get("S3", {}).get("AutoImportPolicy", {}).get("Events", ()),
                link["Lifecycle"],
            )
            for link in links
            if _overlap(f"{link['DataRepositoryPath'].rstrip('/')}/", f"{ours}{prefix}")
        ]

    def nodes(self, groups: Iterable[str]) -> frozenset[str]:
        """See `Cloud.nodes`."""
        with aws.refusals("which nodes there are"):
            asked = self._client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=list(groups))
        return frozenset(item["InstanceId"] for group in asked["AutoScalingGroups"] for item in group["Instances"])

    def retired(self, key: str) -> Retired | None:
        """See `Cloud.retired`."""
        with aws.refusals(f"the key {key}"):
            found = self._client("kms").describe_key(KeyId=key)["KeyMetadata"]
        date = found.get("DeletionDate")
        return Retired(found["KeyState"], _iso(date) if date else "") if found["KeyState"] in LEAVING else None

    def retire(self, key: str, days: int) -> Retired:
        """See `Cloud.retire`. KMS refuses keys that AWS governs itself, and fewer days than 7 or more than 30.

        A key with replicas in other regions goes once they are gone, which has no date (KMS API, ScheduleKeyDeletion).
        """
        with aws.refusals(f"the deletion of key {key}"):
            said = self._client("kms").schedule_key_deletion(KeyId=key.rpartition("/")[2], PendingWindowInDays=days)
        date = said.get("DeletionDate")
        return Retired(said.get("KeyState", "PendingDeletion"), _iso(date) if date else "")

    def sign(self, key: str, message: bytes) -> bytes:
        """See `Cloud.sign`: KMS hashes the message, of 4,096 bytes at most (KMS API, Sign)."""
        with aws.refusals(f"a signature by key {key}"):
            said = self._client("kms").sign(KeyId=key, Message=message, MessageType="RAW", SigningAlgorithm=ALGORITHM)
        return bytes(said["Signature"])

    def public_key(self, key: str) -> bytes:
        """See `Cloud.public_key`."""
        with aws.refusals(f"the public key of {key}"):
            return bytes(self._client("kms").get_public_key(KeyId=key)["PublicKey"])

    def put(self, bucket: str, key: str, body: bytes) -> None:
        """See `Cloud.put`."""
        with aws.refusals(f"a place in bucket {bucket}"):
            self._client("s3").put_object(Bucket=bucket, Key=key, Body=body, ContentType="application/json")

    def url(self, bucket: str, key: str) -> str:
        """See `Cloud.url`."""
        return f"s3://{bucket}/{key}"

    def to_end(self, group: str) -> str:
        """See `Cloud.to_end`."""
        named = f"--region {self.region} --auto-scaling-group-name {group}"
        return f"aws autoscaling set-desired-capacity {named} --desired-capacity 0"

    def to_restore(self, key: str) -> str:
        """See `Cloud.to_restore`."""
        return f"aws kms cancel-key-deletion --region {self.region} --key-id {key.rpartition('/')[2]}"


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _done(call: Callable[..., Any], bucket: str, version: Version) -> str:
    """Why a version still stands after a call to delete it; empty where it doesn't."""
    try:
        call(Bucket=bucket, Key=version.key, VersionId=version.id)
    except (ClientError, BotoCoreError) as error:
        return _told(error)
    return ""


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _told(error: Exception) -> str:
    return ". ".join(filter(None, [plain(str(error)), aws.advice(error)]))


def _iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
