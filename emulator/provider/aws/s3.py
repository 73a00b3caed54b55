"""S3 buckets and the settings that are resources of their own."""

# ruff: noqa: ARG002 - all kinds answer the same calls

import time
from collections.abc import Mapping
from typing import ClassVar

from emulator.provider import naming
from emulator.provider.aws.api import Api, ApiError, tag_list, tag_map
from emulator.provider.aws.kind import Kind, Setting, tags_state, without
from emulator.provider.wire import Props

_EMPTY_SECONDS = 15.0
_POLL = 0.2


class Bucket(Kind):
    """A bucket; all but its tags and lock is set by resources of their own."""

    type = "aws:s3/bucket:Bucket"
    service = "s3"
    replace_on = frozenset({"bucket", "bucketPrefix", "objectLockEnabled"})
    settings = frozenset({"forceDestroy"})
    names: ClassVar[Mapping[str, str]] = {"objectLockEnabled": "ObjectLockEnabledForBucket"}

    def create(self, api: Api, props: Props) -> str:
        """Makes it in the region."""
        place = {"createBucketConfiguration": {"locationConstraint": api.region}} if api.region != "us-east-1" else {}
        api.send("s3", "create_bucket", {**self.sent(props), **place}, self.names)
        return str(props["bucket"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Tags."""
        if (tags := new.get("tags") or {}) != (old.get("tags") or {}):
            if tags:
                api.call("s3", "put_bucket_tagging", Bucket=id_, Tagging={"TagSet": tag_list(tags)})
            else:
                api.call("s3", "delete_bucket_tagging", Bucket=id_)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its names, region and tags."""
        api.call("s3", "head_bucket", Bucket=id_)
        suffix = "amazonaws.com.cn" if api.region.startswith("cn-") else "amazonaws.com"
        return tags_state(_tags(api, id_)) | {
            "bucket": id_,
            "arn": naming.arn("s3", api.region, id_, regional=False, account=False),
            "bucketDomainName": f"{id_}.s3.{suffix}",
            "bucketRegion": api.region,
            "bucketRegionalDomainName": f"{id_}.s3.{api.region}.{suffix}",
        }

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it, with `forceDestroy` also all versions of all it holds.

        Nodes that are being terminated may go on writing for as long as they may take to leave, so that one is
        emptied again, as by the real provider, until it stays empty.
        """
        deadline = time.monotonic() + _EMPTY_SECONDS
        while True:
            if props.get("forceDestroy"):
                empty(api, id_)
            try:
                api.call("s3", "delete_bucket", Bucket=id_)
            except ApiError as error:
                if not props.get("forceDestroy") or error.code != "BucketNotEmpty" or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)
            else:
                return


class _BucketSetting(Setting):
    """One setting of a bucket: put_<what>, get_<what>, delete_<what>."""

    service = "s3"
    replace_on = frozenset({"bucket", "expectedBucketOwner"})
    what: ClassVar[str]

    def wrapped(self, props: Props) -> Props:
        """The setting as the put operation's parameters."""
        raise NotImplementedError

    def create(self, api: Api, props: Props) -> str:
        """Puts it."""
        own = {key: props.get(key) for key in ("bucket", "expectedBucketOwner")}
        api.send("s3", f"put_{self.what}", {**own, **self.wrapped(props)}, self.names)
        return str(props["bucket"])

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Whether it is there; subclasses read values."""
        api.call("s3", f"get_{self.what}", Bucket=id_)
        return {"bucket": id_}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Takes it away."""
        api.call("s3", f"delete_{self.what}", Bucket=id_)


class BucketVersioning(_BucketSetting):
    """Whether a bucket keeps versions."""

    type = "aws:s3/bucketVersioning:BucketVersioning"
    what = "bucket_versioning"

    def wrapped(self, props: Props) -> Props:
        """Status, and MFA deletion."""
        mfa = {"mFA": props["mfa"]} if props.get("mfa") else {}
        return {"versioningConfiguration": props["versioningConfiguration"], **mfa}

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its status."""
        status = api.call("s3", "get_bucket_versioning", Bucket=id_).get("Status")
        old = props.get("versioningConfiguration") or {}
        return {"bucket": id_} | ({"versioningConfiguration": {**old, "status": status}} if status else {})

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Versioning can only be suspended."""
        _set_versioning(api, id_, "Suspended")


class BucketEncryption(_BucketSetting):
    """A bucket's default encryption."""

    type = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
    what = "bucket_encryption"
    names: ClassVar[Mapping[str, str]] = {
        "serverSideEncryptionConfiguration.rules.applyServerSideEncryptionByDefault.kmsMasterKeyId": "KMSMasterKeyID",
        "serverSideEncryptionConfiguration.rules.blockedEncryptionTypes": "BlockedEncryptionTypes",
    }

    def wrapped(self, props: Props) -> Props:
        """The rules; blocked types are a list in an object of the API."""
        rules = [
            {**rule, "blockedEncryptionTypes": {"encryptionType": rule["blockedEncryptionTypes"]}}
            if rule.get("blockedEncryptionTypes")
            else rule
            for rule in props["rules"]
        ]
        return {"serverSideEncryptionConfiguration": {"rules": rules}}


class BucketPublicAccessBlock(_BucketSetting):
    """What a bucket refuses of public access."""

    type = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
    what = "public_access_block"

    def wrapped(self, props: Props) -> Props:
        """The four flags."""
        flags = without(props, ["bucket", "region", "skipDestroy"])
        return {"publicAccessBlockConfiguration": flags}

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """The flags."""
        answer = api.call("s3", "get_public_access_block", Bucket=id_)
        return self.state(answer["PublicAccessBlockConfiguration"]) | {"bucket": id_}


class BucketPolicy(_BucketSetting):
    """A bucket's policy."""

    type = "aws:s3/bucketPolicy:BucketPolicy"
    what = "bucket_policy"

    def wrapped(self, props: Props) -> Props:
        """The document."""
        return {"policy": props["policy"]}

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """The document."""
        return {"bucket": id_, "policy": api.call("s3", "get_bucket_policy", Bucket=id_)["Policy"]}


class BucketOwnershipControls(_BucketSetting):
    """Who owns a bucket's objects."""

    type = "aws:s3/bucketOwnershipControls:BucketOwnershipControls"
    what = "bucket_ownership_controls"

    def wrapped(self, props: Props) -> Props:
        """One rule."""
        return {"ownershipControls": {"rules": [props["rule"]]}}


class BucketLifecycle(_BucketSetting):
    """What a bucket moves and forgets with time."""

    type = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
    what = "bucket_lifecycle_configuration"

    def wrapped(self, props: Props) -> Props:
        """The rules; one without a filter is for all objects."""
        rules = [rule if "prefix" in rule else {"filter": {}, **rule} for rule in props.get("rules") or []]
        rest = without(props, ["bucket", "region", "rules", "timeouts", "expectedBucketOwner"])
        return {"lifecycleConfiguration": {"rules": rules}, **rest}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """This operation has a shorter name."""
        api.call("s3", "delete_bucket_lifecycle", Bucket=id_)


def empty(api: Api, bucket: str, key: str | None = None) -> None:
    """Deletes all versions of all objects of a bucket, or of one object."""
    pages = api.pages("s3", "list_object_versions", Bucket=bucket, Prefix=key or "")
    # moto stumbles over delete markers in a bucket whose versioning is suspended
    suspended = api.call("s3", "get_bucket_versioning", Bucket=bucket).get("Status") == "Suspended"
    resume = suspended and any(page.get("DeleteMarkers") for page in pages)
    if resume:
        _set_versioning(api, bucket, "Enabled")
    for page in pages:
        doomed = [
            {"Key": version["Key"], "VersionId": version["VersionId"]}
            for version in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
            if key in (None, version["Key"])
        ]
        if doomed:
            answer = api.call("s3", "delete_objects", Bucket=bucket, Delete={"Objects": doomed, "Quiet": True})
            for refused in answer.get("Errors", []):
                raise ApiError("DeleteObjects", refused["Code"], f"{bucket}/{refused['Key']}: {refused['Message']}")
    if resume:
        _set_versioning(api, bucket, "Suspended")


def _set_versioning(api: Api, bucket: str, status: str) -> None:
    api.call("s3", "put_bucket_versioning", Bucket=bucket, VersioningConfiguration={"Status": status})


def _tags(api: Api, bucket: str) -> dict[str, str]:
    try:
        return tag_map(api.call("s3", "get_bucket_tagging", Bucket=bucket)["TagSet"])
    except ApiError as error:
        if error.gone:
            return {}
        raise


KINDS: tuple[Kind, ...] = (
    Bucket(),
    BucketVersioning(),
    BucketEncryption(),
    BucketPublicAccessBlock(),
    BucketPolicy(),
    BucketOwnershipControls(),
    BucketLifecycle(),
)
