"""The object store: one interface, over an S3-compatible bucket or a folder.

`open_store` takes `s3://bucket/prefix`, `oss://bucket/prefix`, a `file://` URL or a folder's path. Both kinds mean the
same by every call, so that the trainer runs under plain `torchrun` on a laptop with the code that it has on a cluster.
Keys are relative to the store's prefix.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from trainer import multipart
from trainer.dialects import DIALECTS, S3, Dialect

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class StoreError(Exception):
    """The store answered no: access denied, no such bucket. Waiting doesn't help."""


class Missing(StoreError):
    """There is no object of this key."""


class Unavailable(StoreError):
    """The store did not answer, or asked to slow down. Worth trying again."""


@dataclass(frozen=True)
class Entry:
    """An object as a listing shows it. `etag` changes whenever the content does; `size` is in bytes.

    `modified`: when it was written, in seconds since 1970, by the store's own clock.
    """

    key: str
    size: int
    etag: str
    modified: float = 0.0


@dataclass(frozen=True)
class Patience:
    """How long a call may wait: to connect, for each read, and how often it is tried in all."""

    connect_s: float = 3
    read_s: float = 10
    attempts: int = 3


class Store(ABC):
    """Objects below one prefix. Every call may raise `StoreError`, of which `Unavailable` is worth another try."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The object's content. Raises `Missing`."""

    @abstractmethod
    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write the object whole. With `if_absent`, return False and change nothing where one exists already."""

    @abstractmethod
    def list(self, prefix: str = "") -> list[Entry]:
        """All objects whose key starts with `prefix`, in order of their keys."""

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Whether there is an object of this key."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the object; nothing happens where there is none."""

    @abstractmethod
    def upload(self, path: Path, key: str) -> None:
        """Write a file's content as one object, in parts where it is large.

        An upload that was cut off goes on where it was, by the next call for the same file and key.
        """

    @abstractmethod
    def abandon(self, prefix: str) -> None:
        """Forget the uploads below `prefix` that were cut off. None may be under way there."""

    @abstractmethod
    def holds(self, key: str, path: Path) -> bool:
        """Whether the object is there with this file's content, by its checksum."""

    @abstractmethod
    def sha256(self, key: str) -> str:
        """The SHA-256 of the object's content, in hex, which is read for it in pieces. Raises `Missing`."""

    @abstractmethod
    def download(self, key: str, path: Path) -> None:
        """Write the object's content to `path`, whole or not at all. Raises `Missing`."""

    @abstractmethod
    def url(self, key: str = "") -> str:
        """The address of a key (or of the prefix), as `open_store` takes it."""


MOST_CLAIMS = 5
"""Claims that a writer goes by at most, should one after another be deleted and made anew while it writes."""

UNFINISHED = ".part-"
"""What names of files begin with that are still being written into a folder."""


class FileStore(Store):
    """A folder as a store. Writes are atomic (temporary name, then link or rename)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _path(self, key: str) -> Path:
        return self.root / key

    def get(self, key: str) -> bytes:
        """See `Store.get`."""
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise Missing(f"{self.url(key)}: no such object") from None

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See `Store.put`."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._temporary(path) as temporary:
            temporary.write_bytes(data)
            if not if_absent:
                temporary.replace(path)
                return True
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            return True

    def list(self, prefix: str = "") -> list[Entry]:
        """See `Store.list`."""
        if not self.root.is_dir():
            return []
        entries = []
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = Path(folder, name)
                key = path.relative_to(self.root).as_posix()
                if key.startswith(prefix) and not name.startswith(UNFINISHED):
                    try:
                        stat = path.stat()
                    except FileNotFoundError:
                        continue
                    etag = f"{stat.st_ino:x}-{stat.st_mtime_ns:x}"
                    entries.append(Entry(key, stat.st_size, etag, stat.st_mtime))
        return sorted(entries, key=lambda entry: entry.key)

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        return self._path(key).is_file()

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        self._path(key).unlink(missing_ok=True)

    def upload(self, path: Path, key: str) -> None:
        """See `Store.upload`."""
        _copy(path, self._path(key), self._temporary)

    def abandon(self, prefix: str) -> None:
        """See `Store.abandon`."""
        for left in self._path(prefix).rglob(f"{UNFINISHED}*"):
            left.unlink(missing_ok=True)

    def holds(self, key: str, path: Path) -> bool:
        """See `Store.holds`."""
        return self.exists(key) and sha256_file(self._path(key)) == sha256_file(path)

    def sha256(self, key: str) -> str:
        """See `Store.sha256`."""
        if not self.exists(key):
            raise Missing(f"{self.url(key)}: no such object")
        return sha256_file(self._path(key))

    def download(self, key: str, path: Path) -> None:
        """See `Store.download`."""
        if not self.exists(key):
            raise Missing(f"{self.url(key)}: no such object")
        _copy(self._path(key), path, self._temporary)

    def url(self, key: str = "") -> str:
        """See `Store.url`."""
        return self._path(key).absolute().as_uri()

    @staticmethod
    @contextmanager
    def _temporary(path: Path) -> Iterator[Path]:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=UNFINISHED, dir=path.parent)
        os.close(handle)
        try:
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)


def _copy(source: Path, target: Path, temporary_for: Any) -> None:
    with temporary_for(target) as temporary:
        with source.open("rb") as reader, temporary.open("wb") as writer:
            while block := reader.read(1 << 20):
                writer.write(block)
        temporary.replace(target)


class S3Store(Store):
    """A prefix in a bucket, through boto3, of S3 or of a service that speaks its API in a dialect of its own."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        client: S3Client | None = None,
        *,
        patience: Patience | None = None,
        dialect: Dialect = S3,
    ) -> None:
        self.bucket = bucket
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.dialect = dialect
        self.client = client or dialect.connect(_limits(patience or Patience()))
        self._claims = self._bucket_of_claims() if dialect.claims else None

    def _bucket_of_claims(self) -> S3Store:
        """Where objects can be created only if absent, as they can't in this bucket."""
        plain = replace(self.dialect, claims="")
        return S3Store(f"{self.bucket}{self.dialect.claims}", self.prefix, self.client, dialect=plain)

    def get(self, key: str) -> bytes:
        """See `Store.get`."""
        with self._translated(key):
            return self.client.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].read()

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See `Store.put`."""
        if if_absent and self._claims:
            return self._put_first(self._claims, key, data)
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if if_absent else {}
        try:
            with self._translated(key):
                self.client.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=data, **condition)
        except _Refused:
            return False
        return True

    def _put_first(self, claims: S3Store, key: str, data: bytes) -> bool:
        """Write what was claimed first. Who comes second sees to that too: the first may be gone before it has.

        Meanwhile, claim and object may be deleted, by which what is written late would come back: it goes too. Where
        the writer may delete nothing, it stays, as what is written that late does on S3.
        """
        if self.exists(key):
            return False
        first, wrote = claims.put(key, data, if_absent=True), None
        if first:
            self.put(key, wrote := data)
        elif self.exists(key):
            return False
        for _ in range(MOST_CLAIMS):
            try:
                claimed = claims.get(key)
            except Missing:
                if wrote is not None:
                    with suppress(StoreError):
                        self._remove(key)
                break
            if claimed == wrote:
                break
            self.put(key, wrote := claimed)
        return first

    def list(self, prefix: str = "") -> list[Entry]:
        """See `Store.list`."""
        entries = []
        with self._translated(prefix):
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix + prefix
            )
            for page in pages:
                for item in page.get("Contents", []):
                    key = item["Key"].removeprefix(self.prefix)
                    etag = item["ETag"].strip('"')
                    entries.append(Entry(key, item["Size"], etag, item["LastModified"].timestamp()))
        return entries

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        try:
            with self._translated(key):
                self.client.head_object(Bucket=self.bucket, Key=self.prefix + key)
        except Missing:
            return False
        return True

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        if self._claims:
            # First: an object without its claim stands, but a claim without its object would bring that back.
            self._claims.delete(key)
        self._remove(key)

    def _remove(self, key: str) -> None:
        with self._translated(key):
            self.client.delete_object(Bucket=self.bucket, Key=self.prefix + key)

    def upload(self, path: Path, key: str) -> None:
        """See `Store.upload`."""
        with self._translated(key):
            multipart.upload(self.client, self.bucket, self.prefix + key, path, self.dialect)

    def abandon(self, prefix: str) -> None:
        """See `Store.abandon`."""
        with self._translated(prefix):
            multipart.abandon(self.client, self.bucket, self.prefix + prefix)

    def holds(self, key: str, path: Path) -> bool:
        """See `Store.holds`. A service that keeps no SHA-256 is read from, unless the size tells already."""
        ask: dict[str, Any] = {"ChecksumMode": "ENABLED"} if self.dialect.keeps_sha256 else {}
        try:
            with self._translated(key):
                head = self.client.head_object(Bucket=self.bucket, Key=self.prefix + key, **ask)
                if self.dialect.keeps_sha256:
                    return multipart.is_content(path, head)
            return head["ContentLength"] == path.stat().st_size and self.sha256(key) == sha256_file(path)
        except Missing:
            return False

    def sha256(self, key: str) -> str:
        """See `Store.sha256`."""
        digest = hashlib.sha256()
        with self._translated(key):
            for block in self.client.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].iter_chunks(1 << 20):
                digest.update(block)
        return digest.hexdigest()

    def download(self, key: str, path: Path) -> None:
        """See `Store.download`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._translated(key):
            self.client.download_file(self.bucket, self.prefix + key, str(path))

    def url(self, key: str = "") -> str:
        """See `Store.url`."""
        return f"{self.dialect.scheme}://{self.bucket}/{self.prefix}{key}".rstrip("/")

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        """Turn botocore's exceptions into ours, with the address of what was asked for."""
        from boto3.exceptions import Boto3Error  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            yield
        except (ClientError, BotoCoreError, Boto3Error, OSError) as error:
            # boto3 wraps an upload's error in one of its own, whose text alone tells what it was.
            answer = error if isinstance(error, ClientError) else error.__context__
            if not isinstance(answer, ClientError):
                raise Unavailable(f"{self.url(key)}: {error}") from error
            details: Any = answer.response
            code = details.get("Error", {}).get("Code", "")
            kind = _refusal(code, details.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            said = "no such object" if kind is Missing else f"{code}: {answer}"
            raise kind(f"{self.url(key)}: {said}") from error


def _limits(patience: Patience) -> dict[str, Any]:
    """What botocore's `Config` calls it."""
    return {
        "connect_timeout": patience.connect_s,
        "read_timeout": patience.read_s,
        "retries": {"mode": "standard", "total_max_attempts": patience.attempts},
    }


class _Refused(StoreError):
    """A conditional write found an object there."""


def _refusal(code: str, status: int) -> type[StoreError]:
    """What an error of the S3 API means (S3 API reference, "List of error codes"; OSS has a word of its own)."""
    if code in {"NoSuchKey", "404", "NotFound"}:
        return Missing
    if code in {"PreconditionFailed", "ConditionalRequestConflict", "FileAlreadyExists"}:
        return _Refused
    return Unavailable if status >= 500 or code in {"SlowDown", "RequestTimeout"} else StoreError


def open_store(url: str | Path, patience: Patience | None = None) -> Store:
    """The store at `url`: `s3://bucket/prefix`, `oss://…`, `file:///folder` or a folder's path.

    Raises `ValueError` for others.
    """
    parts = urlparse(str(url))
    if dialect := DIALECTS.get(parts.scheme):
        return S3Store(parts.netloc, parts.path, patience=patience, dialect=dialect)
    if parts.scheme == "file":
        return FileStore(Path(unquote(parts.path)))
    if parts.scheme == "":
        return FileStore(Path(url))
    raise ValueError(
        f"{url}: not a store: use s3://bucket/prefix, oss://bucket/prefix, file:///folder or a folder's path"
    )


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's content, in hex, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
