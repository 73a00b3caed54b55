"""What OSS does otherwise than S3, in the buckets that are OSS's: a layer before the server's own S3.

OSS developer reference, "Compatibility with Amazon S3" and "PutObject" (`x-oss-forbid-overwrite`, which counts for
nothing where versions are kept).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import Any

from moto.core.utils import utcnow
from moto.s3.models import FakeBucket, s3_backends

from emulator import ACCOUNT_ID, places

Environment = dict[str, Any]
Start = Callable[..., Any]
Application = Callable[[Environment, Start], Iterable[bytes]]

_TOLD = "x-amz-checksum-"
_WRITES = ("PUT", "POST")
_OWN = re.compile(r"OSS4-HMAC-SHA256 (Credential=[^/]+/\d+)/[^/]+/oss/aliyun_v4_request,(.*)")
"""How OSS's own protocol is signed."""


class Oss:
    """The application `inner`, which speaks S3, with OSS's ways for its buckets."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner
        self._lock = Lock()

    def __call__(self, environ: Environment, start: Start) -> Iterable[bytes]:
        """Answer a request. One in OSS's own protocol is let in by any key, and answered as S3 answers its like."""
        if signed := _OWN.match(environ.get("HTTP_AUTHORIZATION", "")):
            environ["HTTP_AUTHORIZATION"] = f"AWS4-HMAC-SHA256 {signed[1]}/{places.REGION}/s3/aws4_request, {signed[2]}"
        path = environ.get("PATH_INFO", "").encode("latin-1").decode(errors="replace")  # as WSGI has it
        name, _, key = path.lstrip("/").partition("/")
        bucket = bucket_of_oss(name)
        if bucket is None:
            return self._inner(environ, start)
        write = bool(key) and environ["REQUEST_METHOD"] in _WRITES
        if write and "aws-chunked" in environ.get("HTTP_CONTENT_ENCODING", ""):
            return _refuse(
                environ, start, "400 Bad Request", "InvalidArgument", "aws-chunked encoding is not supported"
            )
        if write and "HTTP_IF_NONE_MATCH" in environ:
            words = "A header you provided implies functionality that is not implemented: If-None-Match"
            return _refuse(environ, start, "501 Not Implemented", "NotImplemented", words)
        forbidden = environ.get("HTTP_X_OSS_FORBID_OVERWRITE", "").lower() == "true"
        if not (write and forbidden and bucket.versioning_status is None):
            return self._inner(environ, _untold(start))
        with self._lock:  # who looks and who writes must be one
            if bucket.keys.get(key) is not None:
                return _refuse(
                    environ, start, "409 Conflict", "FileAlreadyExists", "The object you specified already exists."
                )
            return list(self._inner(environ, _untold(start)))


def bucket_of_oss(name: str) -> FakeBucket | None:
    """The bucket of this name, if there is one that answers as OSS does."""
    partition, _ = s3_backends.bucket_accounts.get(name, ("", ""))
    if not partition:
        return None
    backend = s3_backends[ACCOUNT_ID][partition]
    bucket = backend.buckets.get(name)
    tagged = bucket is not None and places.BUCKET_TAG in backend.tagger.get_tag_dict_for_resource(bucket.arn)
    return bucket if tagged else None


def _untold(start: Start) -> Start:
    """The answer without the checksums that S3 would tell."""

    def answer(status: str, headers: Iterable[tuple[str, str]], *rest: Any) -> Any:
        return start(status, [(name, value) for name, value in headers if not name.lower().startswith(_TOLD)], *rest)

    return answer


def _refuse(environ: Environment, start: Start, status: str, code: str, message: str) -> Iterator[bytes]:
    """OSS's form of an error (OSS API reference, "Error responses"). The body is read, as the client sends it first."""
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message>'
        f"<RequestId>{utcnow():%Y%m%d%H%M%S%f}</RequestId></Error>"
    ).encode()
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return iter([body])
