"""S3 objects with content from assets and texts."""

# ruff: noqa: ARG002 - all kinds answer the same calls

import base64
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode

from emulator.provider import naming
from emulator.provider.aws.api import Api, ApiError
from emulator.provider.aws.kind import Kind, without
from emulator.provider.aws.s3 import empty
from emulator.provider.wire import Props, asset_bytes

_NOT_SENT = ("content", "contentBase64", "source", "sourceHash", "etag", "forceDestroy", "overrideProvider")


class BucketObject(Kind):
    """An object in a bucket; any change puts it again."""

    type = "aws:s3/bucketObjectv2:BucketObjectv2"
    service = "s3"
    replace_on = frozenset({"bucket", "key"})
    names: ClassVar[Mapping[str, str]] = {
        "kmsKeyId": "SSEKMSKeyId",
        "websiteRedirect": "WebsiteRedirectLocation",
        "tags": "Tagging",
        "contentType": "ContentType",
    }

    def moving(self, old: Props, new: Props) -> frozenset[str]:
        """Each put makes a version."""
        return frozenset({"etag", "versionId"})

    def create(self, api: Api, props: Props) -> str:
        """Puts it; its id is its key."""
        sent = without(props, (*_NOT_SENT, "region", "tags"))
        tags = {"tags": urlencode(props["tags"])} if props.get("tags") else {}
        api.send("s3", "put_object", {**sent, **tags}, self.names, Body=_content(props))
        return str(props["key"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Puts it again."""
        if old:
            self.create(api, new)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its tag, version, type and ARN."""
        answer: dict[str, Any] = api.call("s3", "head_object", Bucket=props["bucket"], Key=id_)
        return {
            "key": id_,
            "arn": naming.arn("s3", api.region, f"{props['bucket']}/{id_}", regional=False, account=False),
            "etag": answer["ETag"].strip('"'),
            "versionId": answer.get("VersionId", ""),
            "contentType": answer.get("ContentType", ""),
        }

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes all its versions."""
        empty(api, str(props["bucket"]), id_)


class LegacyBucketObject(BucketObject):
    """The same under the type's older name."""

    type = "aws:s3/bucketObject:BucketObject"


def _content(props: Props) -> bytes:
    try:
        if props.get("source"):
            return asset_bytes(props["source"])
        if props.get("contentBase64"):
            return base64.b64decode(str(props["contentBase64"]), validate=True)
    except (OSError, ValueError) as error:
        raise ApiError("PutObject", "UnreadableSource", f"'{props.get('key')}': {error}") from error
    return str(props.get("content") or "").encode()


KINDS: tuple[Kind, ...] = (BucketObject(), LegacyBucketObject())
