"""Large files into a bucket in parts: a killed upload goes on where it was, and no part counts that arrived altered.

S3 keeps the parts of an upload until it is completed or aborted, and refuses a part that hasn't the SHA-256 sent with
it (S3 user guide, "Checking object integrity in Amazon S3"); OSS does so by its MD5. How a file is cut is a function of
its size alone, so that whoever comes later cuts it the same.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.dialects import S3, Dialect, md5

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, HeadObjectOutputTypeDef, PartTypeDef

PART_BYTES = 16 << 20
"""Bytes of a part, and of the largest file that is sent whole."""

MOST_PARTS = 10_000
"""That an upload may have (S3 user guide, "Amazon S3 multipart upload limits")."""

SENDERS = 8
"""Parts on their way at a time."""


@dataclass(frozen=True)
class Piece:
    """The part of a file that an upload's part `number` is."""

    number: int
    path: Path
    offset: int
    size: int

    def read(self) -> bytes:
        """Its content."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


def pieces(path: Path) -> list[Piece]:
    """How a file is cut; one piece for one that is sent whole."""
    size = path.stat().st_size
    step = max(PART_BYTES, -(-size // MOST_PARTS))
    starts = range(0, max(size, 1), step)
    return [Piece(number, path, start, min(step, size - start)) for number, start in enumerate(starts, start=1)]


UNTOLD = {"AccessDenied", "NoSuchUpload", "NotImplemented", "MethodNotAllowed"}
"""Answers to who asks for uploads that are pending, which mean that it can't know of any. That OSS lists them is not
among what it says of S3's API."""


def upload(client: S3Client, bucket: str, key: str, path: Path, dialect: Dialect = S3) -> None:
    """Write a file as one object; parts that an upload cut off before has left there are not sent again.

    Raises botocore's errors. The parts sent until then stay, for a next call or for `abandon`.
    """
    cut = pieces(path)
    if len(cut) == 1:
        content = cut[0].read()
        proof: dict[str, Any] = {**dialect.proof(content)}
        client.put_object(Bucket=bucket, Key=key, Body=content, **proof)
        return
    upload_id, there = _pending(client, bucket, key, dialect)
    send = partial(_send, client, bucket, key, upload_id, there, dialect)
    with ThreadPoolExecutor(SENDERS, "upload") as pool:
        parts = list(pool.map(send, cut))
    client.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts})


def abandon(client: S3Client, bucket: str, prefix: str) -> None:
    """Abort all uploads below `prefix` that are not complete: their parts are billed and seen in no listing.

    Who may not list them leaves them to the bucket's own rules.
    """
    from botocore.exceptions import ClientError  # noqa: PLC0415

    try:
        for key, upload_id in list(_uploads(client, bucket, prefix)):
            client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") not in UNTOLD:
            raise


def is_content(path: Path, head: HeadObjectOutputTypeDef) -> bool:
    """Whether an object, by what `head_object` says with its checksum, has a file's content.

    By its SHA-256, or by its ETag where the service keeps none: that is then made of MD5 sums, or equals none of ours
    (S3 API reference, "Object", ETag).
    """
    if head["ContentLength"] != path.stat().st_size:
        return False
    cut = pieces(path)
    if "ChecksumSHA256" in head:  # with `-` and the number of parts behind it, where it was sent in parts
        return head["ChecksumSHA256"].partition("-")[0] == b64encode(_digest(cut, hashlib.sha256)).decode()
    return head["ETag"].strip('"').partition("-")[0] == _digest(cut, md5).hex()


def _send(
    client: S3Client,
    bucket: str,
    key: str,
    upload_id: str,
    there: Mapping[int, PartTypeDef],
    dialect: Dialect,
    piece: Piece,
) -> CompletedPartTypeDef:
    """Send a part, unless the upload has the same already."""
    content = piece.read()
    proof: dict[str, Any] = {**dialect.proof(content)}
    held = there.get(piece.number)
    if held is not None and _is_same(held, content):
        etag = held["ETag"]
    else:
        etag = client.upload_part(
            Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=piece.number, Body=content, **proof
        )["ETag"]
    if not dialect.keeps_sha256:
        return {"PartNumber": piece.number, "ETag": etag}
    return {"PartNumber": piece.number, "ETag": etag, "ChecksumSHA256": proof["ChecksumSHA256"]}


def _is_same(held: PartTypeDef, content: bytes) -> bool:
    if "ChecksumSHA256" in held:
        return held["ChecksumSHA256"] == b64encode(hashlib.sha256(content).digest()).decode()
    return held["ETag"].strip('"').lower() == md5(content).hexdigest()


def _pending(client: S3Client, bucket: str, key: str, dialect: Dialect) -> tuple[str, dict[int, PartTypeDef]]:
    """The upload of this key to go on with, and the parts that it has; a new one where none is pending.

    Who may not list uploads begins anew each time.
    """
    from botocore.exceptions import ClientError  # noqa: PLC0415

    try:
        for found, upload_id in _uploads(client, bucket, key):
            if found == key:
                pages = client.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=upload_id)
                return upload_id, {part["PartNumber"]: part for page in pages for part in page.get("Parts", [])}
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") not in UNTOLD:
            raise
    kept: dict[str, Any] = {"ChecksumAlgorithm": "SHA256"} if dialect.keeps_sha256 else {}
    return client.create_multipart_upload(Bucket=bucket, Key=key, **kept)["UploadId"], {}


def _uploads(client: S3Client, bucket: str, prefix: str) -> Iterator[tuple[str, str]]:
    """Key and id of each upload below `prefix` that is neither complete nor aborted."""
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
        yield from ((item["Key"], item["UploadId"]) for item in page.get("Uploads", []))


def _digest(cut: Sequence[Piece], algorithm: Callable[[bytes], Any]) -> bytes:
    """The checksum that S3 has of a file: of its content, or, sent in parts, of the checksums of these."""
    sums: list[bytes] = [algorithm(piece.read()).digest() for piece in cut]
    whole: bytes = sums[0] if len(cut) == 1 else algorithm(b"".join(sums)).digest()
    return whole
