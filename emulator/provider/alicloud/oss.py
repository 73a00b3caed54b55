"""OSS buckets and objects, which are S3's, in buckets that answer as OSS does."""

# ruff: noqa: ARG002 - all kinds answer the same calls

from pathlib import Path
from typing import Any

from emulator import places
from emulator.provider import naming
from emulator.provider.aws import s3
from emulator.provider.aws.api import Api, ApiError, tag_list
from emulator.provider.aws.kind import Kind, Setting, changed, without
from emulator.provider.wire import Props


class Bucket(s3.Bucket):
    """A bucket, with what of its own settings its objects show: versions. All others are kept as they are given."""

    type = "alicloud:oss/bucket:Bucket"
    replace_on = frozenset({"bucket", "storageClass", "redundancyType"})

    def create(self, api: Api, props: Props) -> str:
        """Makes it."""
        place = {"LocationConstraint": api.region}
        api.call("s3", "create_bucket", Bucket=props["bucket"], CreateBucketConfiguration=place)
        return str(props["bucket"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Versions, and the tags with the one that makes it OSS's."""
        if (status := _status(new)) != _status(old):
            _set_versions(api, id_, status or "Suspended")
        tags = {**(new.get("tags") or {}), places.BUCKET_TAG: api.place}
        if not old or changed(old, new, ["tags"]):
            api.call("s3", "put_bucket_tagging", Bucket=id_, Tagging={"TagSet": tag_list(tags)})

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its tags, versions and addresses."""
        found = super().read(api, id_, props)
        status = api.call("s3", "get_bucket_versioning", Bucket=id_).get("Status")
        return {
            "tags": places.own_tags(found["tags"]),
            "bucket": id_,
            "owner": naming.ACCOUNT,
            "location": f"oss-{api.place}",
            "extranetEndpoint": f"oss-{api.place}.aliyuncs.com",
            "intranetEndpoint": f"oss-{api.place}-internal.aliyuncs.com",
            **({"versioning": {"status": status}} if status and props.get("versioning") else {}),
        }


class BucketVersioning(Setting):
    """Whether a bucket keeps versions."""

    type = "alicloud:oss/bucketVersioning:BucketVersioning"
    service = "s3"
    replace_on = frozenset({"bucket"})

    def create(self, api: Api, props: Props) -> str:
        """Sets it."""
        _set_versions(api, props["bucket"], props.get("status") or "Enabled")
        return str(props["bucket"])

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """The status."""
        return {"bucket": id_, "status": api.call("s3", "get_bucket_versioning", Bucket=id_).get("Status", "")}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """It can only be suspended."""
        _set_versions(api, id_, "Suspended")


class BucketObject(Kind):
    """An object, from a file or a text; any change puts it again."""

    type = "alicloud:oss/bucketObject:BucketObject"
    service = "s3"
    replace_on = frozenset({"bucket", "key"})

    def moving(self, old: Props, new: Props) -> frozenset[str]:
        """Each put makes a version."""
        return frozenset({"etag", "versionId", "contentLength"})

    def create(self, api: Api, props: Props) -> str:
        """Puts it; its id is its key."""
        told = {"ContentType": props["contentType"]} if props.get("contentType") else {}
        api.call("s3", "put_object", Bucket=props["bucket"], Key=props["key"], Body=_content(props), **told)
        return str(props["key"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Puts it again."""
        if old:
            self.create(api, new)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its tag, version and size."""
        answer: dict[str, Any] = api.call("s3", "head_object", Bucket=props["bucket"], Key=id_)
        return {
            "key": id_,
            "etag": answer["ETag"].strip('"'),
            "versionId": answer.get("VersionId", ""),
            "contentLength": str(answer["ContentLength"]),
            **({"contentType": answer["ContentType"]} if props.get("contentType") else {}),
        }

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes all its versions."""
        s3.empty(api, str(props["bucket"]), id_)


def _status(props: Props) -> str | None:
    status: str | None = without(props.get("versioning") or {}, []).get("status")
    return status


def _set_versions(api: Api, bucket: str, status: str) -> None:
    api.call("s3", "put_bucket_versioning", Bucket=bucket, VersioningConfiguration={"Status": status})


def _content(props: Props) -> bytes:
    """Relative paths count from the program's folder, where plugins run."""
    if not props.get("source"):
        return str(props.get("content") or "").encode()
    try:
        return Path(str(props["source"])).read_bytes()
    except OSError as error:
        raise ApiError("PutObject", "UnreadableSource", f"'{props['key']}': {error}") from error


KINDS: tuple[Kind, ...] = (Bucket(), BucketVersioning(), BucketObject())
