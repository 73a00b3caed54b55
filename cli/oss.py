"""OSS's own protocol, for what its S3-compatible one lacks: versions, tags, uploads that have not ended, replication,
locks (OSS API reference, "Compatibility with Amazon S3"). One signed request at a time, from as many threads as like.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.httpsession import URLLib3Session

from trainer.alicloud import ApiError, Caller, Credentials

PATIENCE: Any = (3, 10)
"""Seconds to connect and for each read."""

TRIES = 3
"""Of a request that is not answered, or by an error of the service's own: each can be sent twice without harm."""

Node = ElementTree.Element


@dataclass(frozen=True)
class Answer:
    """What OSS answered; names of headers in lower case."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def tree(self) -> Node:
        """The body, which is XML, without its namespaces. Raises `ApiError` where it isn't."""
        try:
            return _parsed(self.body)
        except ElementTree.ParseError as error:
            raise ApiError(f"OSS: the answer is no XML: {error}") from None


def text(node: Node, name: str) -> str:
    """The text of a node's child; empty where there is none."""
    return node.findtext(name) or ""


class Oss:
    """Requests to OSS, signed for whoever `person` is.

    `endpoint` is where all of it goes instead (for tests and the embedded cloud); buckets are then in the path.
    `inside` is the region whose network this is in, if it is: OSS is reached within it, and no other region's is (OSS
    user guide, "Access OSS using endpoints and bucket domain names").
    """

    def __init__(self, person: Caller, *, at_once: int, endpoint: str = "", inside: str = "") -> None:
        self._person = person
        self._endpoint = endpoint.rstrip("/")
        self._inside = inside
        self._session = URLLib3Session(timeout=PATIENCE, max_pool_connections=at_once)

    def ask(
        self,
        region: str,
        method: str,
        bucket: str,
        key: str = "",
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """What OSS answers. Raises `ApiError`, `Refused` where there are no credentials."""
        asked = sorted((quote(name, safe=""), quote(value, safe="")) for name, value in (query or {}).items())
        said = "&".join(f"{name}={value}" if value else name for name, value in asked)
        path = quote(f"/{bucket}/{key}", safe="/")
        host = self._endpoint or f"https://{bucket}.oss-{region}{'-internal' * (region == self._inside)}.aliyuncs.com"
        url = f"{host}{path if self._endpoint else path.removeprefix(f'/{bucket}')}{'?' * bool(said)}{said}"
        error: ApiError | None = None
        for attempt in range(TRIES):
            time.sleep(0.3 * (2**attempt - 1))
            signed = sign(method, path, said, headers or {}, self._person.credentials(), region, datetime.now(UTC))
            try:
                answer = self._session.send(AWSRequest(method, url, signed, body or None).prepare())
                status, told = int(answer.status_code), Answer(_lowered(answer.headers), bytes(answer.content))
            except BotoCoreError as failed:
                error = ApiError(f"OSS: {failed}")
                continue
            if status < HTTPStatus.BAD_REQUEST:
                return told
            error = _refusal(status, told)
            if status < HTTPStatus.INTERNAL_SERVER_ERROR:
                break
        assert error is not None
        raise error


def sign(
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    credentials: Credentials,
    region: str,
    now: datetime,
) -> dict[str, str]:
    """The headers with the signature (OSS API reference, "Include signatures in the Authorization header (V4)").

    `path` begins with the bucket, whatever the host; it and `query`, in order of its names, are encoded already.
    """
    at = f"{now:%Y%m%dT%H%M%SZ}"
    given = {**headers, "x-oss-date": at, "x-oss-content-sha256": "UNSIGNED-PAYLOAD"}
    if credentials.token:
        given["x-oss-security-token"] = credentials.token
    lowered = sorted((name.lower(), value.strip()) for name, value in given.items())
    signed = "".join(f"{name}:{value}\n" for name, value in lowered if _is_signed(name))
    canonical = "\n".join((method, path, query, signed, "", "UNSIGNED-PAYLOAD"))
    scope = f"{at[:8]}/{region}/oss/aliyun_v4_request"
    to_sign = f"OSS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"aliyun_v4{credentials.secret}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signature = _hmac(key, to_sign).hex()
    return {**given, "Authorization": f"OSS4-HMAC-SHA256 Credential={credentials.key}/{scope},Signature={signature}"}


def md5(body: bytes) -> str:
    """What `Content-MD5` says of a body."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def _is_signed(name: str) -> bool:
    return name.startswith("x-oss-") or name in {"content-type", "content-md5"}


def _hmac(key: bytes, message: str) -> bytes:
    return hmac.new(key, message.encode(), hashlib.sha256).digest()


def _lowered(headers: Mapping[str, Any]) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _parsed(body: bytes) -> Node:
    tree = ElementTree.fromstring(body)  # noqa: S314  of the service itself, over TLS
    for node in tree.iter():
        node.tag = node.tag.rpartition("}")[2]
    return tree


def _refusal(status: int, answer: Answer) -> ApiError:
    """What the error is: in the body, or, to HEAD, in a header (OSS API reference, "Error responses")."""
    code, message = str(status), HTTPStatus(status).phrase
    try:
        tree = _parsed(answer.body or base64.b64decode(answer.headers.get("x-oss-err", "")))
        code, message = text(tree, "Code") or code, text(tree, "Message") or message
    except (ElementTree.ParseError, ValueError):
        pass
    return ApiError(f"OSS: {code}: {message}", code)
