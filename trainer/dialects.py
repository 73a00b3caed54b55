"""In what services that speak S3's API differ, all of it: how a client is made, and what it may ask for.

OSS takes part of that API (OSS developer reference, "Compatibility with Amazon S3"): buckets by their own host names
alone, and no checksums but Content-MD5. It refuses S3's own condition for creating an object (answer 501), has
`x-oss-forbid-overwrite` for it, and ignores that in a bucket with versions ("PutObject"). So a second bucket, without
versions, has claims: objects of the same keys and content, of which each says who came first.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer import alicloud

if TYPE_CHECKING:
    from botocore.credentials import Credentials
    from mypy_boto3_s3 import S3Client

INTERNAL = "TRAINWRIGHT_OSS_INTERNAL"
"""The environment variable that has the bucket reached within its region's network, from where that can be done."""

ENDPOINT = "TRAINWRIGHT_OSS_ENDPOINT"
"""The one that has another address for OSS, as the embedded cloud's. It is none of boto3's, by which people, and jobs,
lead it to an S3 of theirs: that is not to get what signs requests to OSS."""

CLAIMS = "-claims"
"""What the name of the bucket of claims ends with, behind the bucket's own."""

md5 = partial(hashlib.md5, usedforsecurity=False)


def _sha256_fields(content: bytes) -> dict[str, str]:
    return {"ChecksumSHA256": b64encode(hashlib.sha256(content).digest()).decode()}


def _md5_fields(content: bytes) -> dict[str, str]:
    return {"ContentMD5": b64encode(md5(content).digest()).decode()}


@dataclass(frozen=True)
class Dialect:
    """One service's."""

    scheme: str
    """Of its addresses, as `open_store` takes them."""

    connect: Callable[[Mapping[str, Any]], S3Client]
    """A client, with these values of botocore's `Config`."""

    proof: Callable[[bytes], dict[str, str]]
    """Fields of a request by which the service refuses content that arrives altered."""

    keeps_sha256: bool
    """Whether it keeps an object's SHA-256, and tells it."""

    claims: str = ""
    """What the name of its bucket of claims ends with, where it needs one."""


def _s3(config: Mapping[str, Any]) -> S3Client:
    """Endpoint, region and credentials are found as boto3 finds them."""
    import boto3  # noqa: PLC0415  a worker that keeps its files in a folder never pays for this import
    from botocore.config import Config  # noqa: PLC0415

    return boto3.client("s3", config=Config(**config))


def _oss(config: Mapping[str, Any]) -> S3Client:
    """Region and credentials are found as `trainer.alicloud` finds them.

    Raises `ValueError` where no region is set.
    """
    if not (region := os.environ.get(alicloud.REGION)):
        raise ValueError(f"the region of an oss:// address is not known: set {alicloud.REGION}")
    return oss_client(region, _Provider(), config)


def oss_client(region: str, provider: Any, config: Mapping[str, Any]) -> S3Client:
    """A client of OSS, with the credentials that botocore has from a provider of its kind."""
    import boto3  # noqa: PLC0415
    import botocore.session  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415
    from botocore.credentials import CredentialResolver  # noqa: PLC0415

    own = botocore.session.Session()
    own.register_component("credential_provider", CredentialResolver([provider]))
    client: S3Client = boto3.Session(botocore_session=own).client(
        "s3",
        region_name=region,
        endpoint_url=endpoint(region),
        config=Config(
            signature_version="s3v4",
            # Else, over TLS, what comes with Content-MD5 is signed as UNSIGNED-PAYLOAD.
            s3={"addressing_style": "virtual", "payload_signing_enabled": True},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            **config,
        ),
    )
    client.meta.events.register("before-call.s3.PutObject", _forbid)
    return client


def endpoint(region: str) -> str:
    """OSS's, for S3's API ("Accessing OSS with the AWS SDK"), unless the environment has another."""
    if address := os.environ.get(ENDPOINT):
        return address
    return f"https://s3.oss-{region}{'-internal' if os.environ.get(INTERNAL) else ''}.aliyuncs.com"


def _forbid(params: dict[str, Any], **_: object) -> None:
    """Say in OSS's words, before it is signed, that a request is to create an object, not to replace one."""
    if params["headers"].pop("If-None-Match", None):
        params["headers"]["x-oss-forbid-overwrite"] = "true"


class _Provider:
    """The role's credentials for botocore, which asks for them at the first call, and anew before they end."""

    METHOD = CANONICAL_NAME = "ecs-ram-role"

    def __init__(self) -> None:
        self.role = alicloud.Role()

    def load(self) -> Credentials:
        """See `botocore.credentials.CredentialProvider.load`."""
        from botocore.credentials import Credentials, DeferredRefreshableCredentials  # noqa: PLC0415

        if own := alicloud.own():
            return Credentials(own.key, own.secret, own.token or None)
        return DeferredRefreshableCredentials(refresh_using=self._fetch, method=self.METHOD)

    def _fetch(self) -> dict[str, str]:
        found = self.role.credentials()
        return {
            "access_key": found.key,
            "secret_key": found.secret,
            "token": found.token,
            "expiry_time": found.expires,
        }


S3 = Dialect("s3", _s3, _sha256_fields, keeps_sha256=True)
OSS = Dialect("oss", _oss, _md5_fields, keeps_sha256=False, claims=CLAIMS)
DIALECTS = {dialect.scheme: dialect for dialect in (S3, OSS)}
