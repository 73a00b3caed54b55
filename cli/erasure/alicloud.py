"""What erasing asks of Alibaba Cloud. `aws` is its twin.

A bucket here has a second one beside it, of claims (`trainer/dialects.py`): objects of the same names, with the content
that was written first. It is erased like a replica. It keeps no versions, so that what is deleted in it is gone; that
OSS lists it as it does others, with `null` for the versions' ids, is unverified on a real account.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

from cli import alicloud
from cli.alicloud import advice, refusals
from cli.erasure.alicloud_keys import Keys, id_of
from cli.erasure.scope import LARGEST_RECORD, PLAIN, Hold, Mirror, Upload, Version
from cli.errors import Refused
from cli.oss import Node, Oss, md5, text
from cli.words import plain
from trainer.alicloud import ApiError
from trainer.dialects import CLAIMS, INTERNAL

AT_ONCE = 16
"""Requests, where each version has to be asked for by one."""

NULL = "null"
"""Id of what was written while a bucket kept no versions (OSS user guide, "Versioning")."""

UNREPLICATED = ("NoSuchReplication", "ReplicationConfigurationNotFound")
"""What codes begin with that say so: OSS's, and S3's, which the embedded cloud has."""

GONE = {"NoSuchKey", "NoSuchVersion", "404"}
OF_SOME = {"FileImmutable", "MalformedXML", "InvalidArgument"}
"""Why a list may be refused for one that is in it."""

CLUSTER_TAG = "trainwright:cluster"
"""The tag that all of a cluster has, with its name (`components/plan.py`)."""


class Alicloud(Keys):
    """OSS, KMS, NAS and auto scaling, with the caller's credentials; see `scope.Cloud`.

    `endpoint` is where OSS is asked instead of its own address.
    """

    def __init__(self, account: alicloud.Alicloud, endpoint: str = "") -> None:
        super().__init__(account)
        inside = self.region if os.environ.get(INTERNAL) else ""
        self._oss = Oss(account.person, at_once=AT_ONCE, endpoint=endpoint, inside=inside)
        self._regions: dict[str, str] = {}
        """Of buckets that lie elsewhere, as a rule of replication told."""
        self._keeps: dict[str, bool] = {}
        """Which buckets keep versions, as far as they were asked."""

    def _ask(self, method: str, bucket: str, key: str = "", **more: Any) -> Any:
        return self._oss.ask(self._regions.get(bucket, self.region), method, bucket, key, **more)

    def caller(self) -> str:
        """See `Cloud.caller`."""
        return self._account.caller()

    def replicas(self, bucket: str) -> list[str]:
        """See `Cloud.replicas`: the bucket of claims, and what rules name, those too that are being closed."""
        with refusals(f"where bucket {bucket} is replicated to"):
            ours = bucket not in self._regions and not bucket.endswith(CLAIMS)  # another's may be anybody's
            claims = [f"{bucket}{CLAIMS}"] if ours and self._is_there(f"{bucket}{CLAIMS}") else []
            try:
                rules = self._ask("GET", bucket, query={"replication": ""}).tree.iter("Destination")
            except ApiError as error:
                if not error.code.startswith(UNREPLICATED):
                    raise
                return claims
            found = {text(rule, "Bucket"): text(rule, "Location").removeprefix("oss-") for rule in rules}
        self._regions |= {name: region for name, region in found.items() if region}
        return [*claims, *sorted(found)]

    def _is_there(self, bucket: str) -> bool:
        try:
            self._keeps[bucket] = self._keeps_versions(bucket)
        except ApiError as error:
            if error.code == "NoSuchBucket":
                return False
            raise
        return True

    def _keeps_versions(self, bucket: str) -> bool:
        """Whether it does, or did once: where it never did, an object has no version that could be named."""
        if bucket not in self._keeps:
            self._keeps[bucket] = bool(text(self._ask("GET", bucket, query={"versioning": ""}).tree, "Status"))
        return self._keeps[bucket]

    def versions(self, bucket: str, prefix: str) -> Iterator[Version]:
        """See `Cloud.versions`. Both kinds come in order of their keys (OSS API, ListObjectVersions)."""
        with refusals(f"what bucket {bucket} holds"):
            self._keeps_versions(bucket)
            for page in self._pages(bucket, "versions", prefix, ("key-marker", "version-id-marker")):
                for item in page:
                    if item.tag in {"Version", "DeleteMarker"}:
                        marker = item.tag == "DeleteMarker"
                        size = 0 if marker else int(text(item, "Size"))
                        etag = text(item, "ETag").strip('"')
                        yield Version(unquote(text(item, "Key")), text(item, "VersionId") or NULL, etag, size, marker)

    def uploads(self, bucket: str, prefix: str) -> Iterator[Upload]:
        """See `Cloud.uploads`."""
        with refusals(f"what is being uploaded to bucket {bucket}"):
            for page in self._pages(bucket, "uploads", prefix, ("key-marker", "upload-id-marker")):
                for item in page.iter("Upload"):
                    yield Upload(unquote(text(item, "Key")), text(item, "UploadId"))

    def _pages(self, bucket: str, what: str, prefix: str, markers: tuple[str, str]) -> Iterator[Node]:
        """One page of a listing after the other. Raises `ApiError`, and where one leads to itself."""
        query = {what: "", "prefix": prefix, "encoding-type": "url"}
        query["max-keys" if what == "versions" else "max-uploads"] = "1000"
        at = ("", "")
        while True:
            page = self._ask("GET", bucket, query=query).tree
            yield page
            if text(page, "IsTruncated") != "true":
                return
            kind = "VersionIdMarker" if what == "versions" else "UploadIdMarker"
            after = (unquote(text(page, "NextKeyMarker")), text(page, f"Next{kind}"))
            if after == at:
                raise ApiError("OSS: a page of the listing leads to itself")
            at = after
            query |= {name: value for name, value in zip(markers, at, strict=True) if value}

    def tagged(self, bucket: str, versions: list[Version], tag: str, value: str) -> set[Version]:
        """See `Cloud.tagged`. OSS finds nothing by its tags: each version is asked."""

        def has(version: Version) -> bool:
            tags = self._ask("GET", bucket, version.key, query={"tagging": "", **self._id(bucket, version)}).tree
            return any((text(one, "Key"), text(one, "Value")) == (tag, value) for one in tags.iter("Tag"))

        return self._those(has, versions, f"the tags in bucket {bucket}")

    def encrypted_otherwise(self, bucket: str, versions: list[Version], key: str) -> set[Version]:
        """See `Cloud.encrypted_otherwise`. OSS tells a key's id (OSS API, HeadObject)."""
        wanted = id_of(key)

        def other(version: Version) -> bool:
            head = self._ask("HEAD", bucket, version.key, query=self._id(bucket, version)).headers
            return bool(head.get("x-oss-server-side-encryption-key-id") != wanted)

        return self._those(other, versions, f"how bucket {bucket} is encrypted")

    def reading(self, bucket: str, versions: list[Version], judge: Callable[[bytes], bool]) -> set[Version]:
        """See `Cloud.reading`."""

        def judged(version: Version) -> bool:
            body = self._ask("GET", bucket, version.key, query=self._id(bucket, version)).body
            return judge(body[:LARGEST_RECORD])

        return self._those(judged, versions, f"what is in the queue in bucket {bucket}")

    @staticmethod
    def _those(judge: Callable[[Version], bool], versions: list[Version], asked: str) -> set[Version]:
        """The versions that are judged so. One that is gone meanwhile is none of them."""

        def judged(version: Version) -> bool:
            try:
                return judge(version)
            except ApiError as error:
                if error.code in GONE:
                    return False
                raise

        with refusals(asked), ThreadPoolExecutor(AT_ONCE) as pool:
            return {version for version, yes in zip(versions, pool.map(judged, versions), strict=True) if yes}

    def _id(self, bucket: str, version: Version) -> dict[str, str]:
        """How a request names the version; not at all in a bucket that never kept any."""
        return {"versionId": version.id} if self._keeps.get(bucket, True) or version.id != NULL else {}

    def delete(self, bucket: str, versions: list[Version]) -> dict[Version, str]:
        """See `Cloud.delete`. OSS names what it deleted, and says of nothing else why not: that is asked for alone."""
        listed = [version for version in versions if PLAIN.fullmatch(version.key)]
        try:
            gone = self._delete_listed(bucket, listed) if listed else set()
        except ApiError as error:
            if error.code not in OF_SOME:
                return dict.fromkeys(versions, _told(error))
            gone = set()
        except Refused as refused:
            return dict.fromkeys(versions, str(refused))
        alone = [version for version in versions if version not in gone]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            why = pool.map(lambda version: self._delete_one(bucket, version), alone)
            return {version: reason for version, reason in zip(alone, why, strict=True) if reason}

    def _delete_listed(self, bucket: str, versions: list[Version]) -> set[Version]:
        """Those that are gone, by one call for all (OSS API, DeleteMultipleObjects)."""
        named = "".join(
            f"<Object><Key>{escape(version.key)}</Key>"
            + "".join(f"<VersionId>{escape(value)}</VersionId>" for value in self._id(bucket, version).values())
            + "</Object>"
            for version in versions
        )
        body = f'<?xml version="1.0" encoding="UTF-8"?><Delete><Quiet>false</Quiet>{named}</Delete>'.encode()
        headers = {"Content-MD5": md5(body), "Content-Type": "application/xml"}
        query = {"delete": "", "encoding-type": "url"}
        said = self._ask("POST", bucket, query=query, body=body, headers=headers).tree
        gone = {
            (unquote(text(item, "Key")), text(item, name) or NULL)
            for item in said.iter("Deleted")
            for name in ("VersionId", "DeleteMarkerVersionId")
            if text(item, name) or not self._keeps.get(bucket, True)
        }
        return {version for version in versions if (version.key, version.id) in gone}

    def _delete_one(self, bucket: str, version: Version) -> str:
        """Why the version still stands after a call to delete it; empty where it doesn't."""
        try:
            self._ask("DELETE", bucket, version.key, query=self._id(bucket, version))
        except ApiError as error:
            return "" if error.code in GONE else _told(error)
        except Refused as refused:
            return str(refused)
        return ""

    def abort(self, bucket: str, upload: Upload) -> str:
        """See `Cloud.abort`."""
        try:
            self._ask("DELETE", bucket, upload.key, query={"uploadId": upload.id})
        except ApiError as error:
            return "" if error.code == "NoSuchUpload" else _told(error)
        except Refused as refused:
            return str(refused)
        return ""

    def hold(self, bucket: str, version: Version) -> Hold | None:
        """See `Cloud.hold`: the bucket's retention policy, from when an object was written, or the object's own lock.

        OSS shows them to who may read them (OSS user guide, "Retention policy", "Object-level retention policy"); to
        others there is none.
        """
        if version.marker:
            return None
        return self._bucket_hold(bucket, version) or self._object_hold(bucket, version)

    def _bucket_hold(self, bucket: str, version: Version) -> Hold | None:
        try:
            policy = self._ask("GET", bucket, query={"worm": ""}).tree
            days, state = int(text(policy, "RetentionPeriodInDays")), text(policy, "State")
            head = self._ask("HEAD", bucket, version.key, query=self._id(bucket, version)).headers
            until = parsedate_to_datetime(head["last-modified"]) + timedelta(days=days)
        except (ApiError, Refused, KeyError, ValueError):
            return None
        return Hold(f"locked by the bucket's policy ({state.lower()})", _iso(until)) if until > _now() else None

    def _object_hold(self, bucket: str, version: Version) -> Hold | None:
        try:
            own = self._ask("GET", bucket, version.key, query={"legalHold": "", **self._id(bucket, version)}).tree
            if text(own, "Status") == "ON":
                return Hold("a legal hold, which ends when somebody takes it off")
        except (ApiError, Refused):
            pass
        try:
            own = self._ask("GET", bucket, version.key, query={"retention": "", **self._id(bucket, version)}).tree
            until = datetime.fromisoformat(text(own, "RetainUntilDate"))
        except (ApiError, Refused, ValueError):
            return None
        return Hold(f"locked ({text(own, 'Mode').lower()})", _iso(until)) if until > _now() else None

    def mirrors(self, cluster: str, bucket: str, prefix: str) -> list[Mirror]:  # noqa: ARG002  all of it is datasets
        """See `Cloud.mirrors`. They are filled by nodes and know nothing of the bucket; their tag says whose
        they are.
        """
        mirrors: list[Mirror] = []
        with refusals(f"which file systems hold what is in bucket {bucket}"):
            for page in range(1, alicloud.MOST_PAGES + 1):
                tag: dict[str, str | int] = {"Tag.1.Key": CLUSTER_TAG, "Tag.1.Value": cluster}
                told = self._account.call("nas", "DescribeFileSystems", PageSize=100, PageNumber=page, **tag)
                found = told["FileSystems"]["FileSystem"]
                mirrors += [Mirror(str(one["FileSystemId"]), False, "absent: nodes fill it") for one in found]
                if len(found) < 100:
                    break
        return mirrors

    def nodes(self, groups: Iterable[str]) -> frozenset[str]:
        """See `Cloud.nodes`."""
        with refusals("which nodes there are"):
            return frozenset(name for group in groups for name, _ in self._account.instances(group))

    def put(self, bucket: str, key: str, body: bytes) -> None:
        """See `Cloud.put`."""
        with refusals(f"a place in bucket {bucket}"):
            headers = {"Content-MD5": md5(body), "Content-Type": "application/json"}
            self._ask("PUT", bucket, key, body=body, headers=headers)

    def url(self, bucket: str, key: str) -> str:
        """See `Cloud.url`."""
        return f"oss://{bucket}/{key}"

    def to_end(self, group: str) -> str:
        """See `Cloud.to_end`."""
        return f"aliyun ess ModifyScalingGroup --region {self.region} --ScalingGroupId {group} --DesiredCapacity 0"


def _told(error: ApiError) -> str:
    return ". ".join(filter(None, [plain(str(error)), advice(error.code)]))


def _now() -> datetime:
    return datetime.now(UTC)


def _iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
