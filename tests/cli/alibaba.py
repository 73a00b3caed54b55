"""Alibaba Cloud in miniature, on loopback: OSS as its API reference describes it, and APIs in RPC style.

Neither knows our client but by its signature, which both check anew: a path or query that is signed otherwise than it
is sent is refused, as the clouds do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from cli.oss import sign
from trainer.alicloud import Credentials, headers

PERSON = Credentials("LTAI-ada", "secret")


@dataclass
class Stored:
    """A version of an object, or a marker."""

    key: str
    id: str
    body: bytes = b""
    marker: bool = False
    kms: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    written: datetime = field(default_factory=lambda: datetime.now(UTC))
    until: datetime | None = None
    held: bool = False


@dataclass
class Bucket:
    """`keeps`: whether it has versions. `days`: of its retention policy. `to`: buckets and their regions."""

    keeps: bool = True
    days: int = 0
    to: dict[str, str] = field(default_factory=dict)
    stored: list[Stored] = field(default_factory=list)
    uploads: list[tuple[str, str]] = field(default_factory=list)

    def put(self, key: str, body: bytes = b"ten bytes.", **more: Any) -> Stored:
        if not self.keeps:
            self.stored = [one for one in self.stored if one.key != key]
        made = Stored(key, f"CAEQ{len(self.stored):04d}" if self.keeps else "null", body, **more)
        self.stored.append(made)
        return made

    def mark(self, key: str) -> Stored:
        return self.put(key, b"", marker=True)

    def locked(self, one: Stored) -> bool:
        now = datetime.now(UTC)
        by_policy = self.days and one.written + timedelta(days=self.days) > now
        return not one.marker and bool(by_policy or one.held or (one.until and one.until > now))

    @property
    def keys(self) -> list[str]:
        return sorted(one.key for one in self.stored)


class Answered(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


class Oss:
    """OSS in one region. `page`: entries of a listing's page; `failing`: what is answered, by method and key."""

    def __init__(self, region: str = "cn-hangzhou") -> None:
        self.region = region
        self.buckets: dict[str, Bucket] = {"data": Bucket()}
        self.page = 1000
        self.failing: dict[tuple[str, str], tuple[int, str]] = {}
        self.silent: set[str] = set()
        """Keys that a list is silent about, though they aren't deleted."""
        self.asked: list[str] = []

    def answer(self, method: str, path: str, given: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(path)
        self._check(method, parts.path, parts.query, given)
        bucket, _, key = unquote(parts.path).removeprefix("/").partition("/")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.asked.append(f"{method} {key} {'&'.join(sorted(query))}")
        try:
            told = self._told_of(bucket, method, key, query, given, body)
        except Answered as error:
            said = f"<Error><Code>{error.code}</Code><Message>{error.code} it is</Message></Error>".encode()
            return error.status, {}, b"" if method == "HEAD" else said
        return (200, {}, told) if isinstance(told, bytes) else (200, *told)

    def _told_of(
        self, bucket: str, method: str, key: str, query: dict[str, str], given: dict[str, str], body: bytes
    ) -> bytes | tuple[dict[str, str], bytes]:
        if failing := self.failing.get((method, key)):
            raise Answered(*failing)
        if bucket not in self.buckets:
            raise Answered(404, "NoSuchBucket")
        held = self.buckets[bucket]
        return self._object(held, method, key, query, given, body) if key else self._bucket(held, query, body)

    def _check(self, method: str, path: str, query: str, given: dict[str, str]) -> None:
        now = datetime.strptime(given["x-oss-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        wanted = ("content-type", "content-md5")
        signed = {name: value for name, value in given.items() if name.startswith("x-oss-") or name in wanted}
        region = re.findall(r"/\d{8}/([^/]+)/oss/", given["authorization"])[0]
        expected = sign(method, path, query, signed, PERSON, region, now)
        assert given["authorization"] == expected["Authorization"], "the request is signed otherwise than it is sent"

    def _bucket(self, held: Bucket, query: dict[str, str], body: bytes) -> bytes:
        if "delete" in query:
            return self._delete(held, body)
        if "versioning" in query:
            status = "<Status>Enabled</Status>" if held.keeps else ""
            return f"<VersioningConfiguration>{status}</VersioningConfiguration>".encode()
        if "replication" in query:
            if not held.to:
                raise Answered(404, "NoSuchReplicationConfiguration")
            rules = "".join(
                f"<Rule><ID>{name}</ID><Action>ALL</Action><Destination><Bucket>{name}</Bucket><Location>oss-{region}"
                f"</Location></Destination><Status>doing</Status></Rule>"
                for name, region in held.to.items()
            )
            return f"<ReplicationConfiguration>{rules}</ReplicationConfiguration>".encode()
        if "worm" in query:
            if not held.days:
                raise Answered(404, "NoSuchWORMConfiguration")
            return (
                "<WormConfiguration><WormId>1</WormId><State>Locked</State><RetentionPeriodInDays>"
                f"{held.days}</RetentionPeriodInDays></WormConfiguration>"
            ).encode()
        if "uploads" in query:
            rows = [
                f"<Upload><Key>{quote(key, safe='')}</Key><UploadId>{upload}</UploadId></Upload>"
                for key, upload in sorted(held.uploads)
                if key.startswith(query["prefix"])
            ]
            return self._page(rows, query, "ListMultipartUploadsResult", "upload-id-marker", "UploadIdMarker")
        assert "versions" in query
        age = {id(one): number for number, one in enumerate(held.stored)}
        newest_first = sorted(held.stored, key=lambda one: (one.key.encode(), -age[id(one)]))
        rows = [self._row(one) for one in newest_first if one.key.startswith(query["prefix"])]
        return self._page(rows, query, "ListVersionsResult", "version-id-marker", "VersionIdMarker")

    @staticmethod
    def _row(one: Stored) -> str:
        kind = "DeleteMarker" if one.marker else "Version"
        more = "" if one.marker else f'<ETag>"{md5(one.body).hexdigest().upper()}"</ETag><Size>{len(one.body)}</Size>'
        return f"<{kind}><Key>{quote(one.key, safe='')}</Key><VersionId>{one.id}</VersionId>{more}</{kind}>"

    def _page(self, rows: list[str], query: dict[str, str], root: str, second: str, tag: str) -> bytes:
        """Pages are counted through the second marker, which is opaque to whoever lists."""
        assert query["encoding-type"] == "url"
        at = int(query.get(second, "0"))
        assert not at or query["key-marker"], "the first marker is wanted with the second"
        left = at + self.page < len(rows)
        more = f"<NextKeyMarker>k%20%26</NextKeyMarker><Next{tag}>{at + self.page}</Next{tag}>" if left else ""
        told = "".join(rows[at : at + self.page])
        return (
            f'<?xml version="1.0" encoding="UTF-8"?><{root} xmlns="http://doc.oss-cn-hangzhou.aliyuncs.com">'
            f"<IsTruncated>{str(left).lower()}</IsTruncated>{more}{told}</{root}>"
        ).encode()

    def _delete(self, held: Bucket, body: bytes) -> bytes:
        """OSS names what is gone; one that a policy protects makes it refuse the whole list."""
        wanted = [
            (one.findtext("Key") or "", one.findtext("VersionId"))
            for one in ElementTree.fromstring(body).iter("Object")
        ]
        assert len(wanted) <= 1000
        assert all((version is not None) == held.keeps for _, version in wanted), "versions where there are none"
        named = [one for one in held.stored if (one.key, one.id if held.keeps else None) in wanted]
        if any(held.locked(one) for one in named):
            raise Answered(409, "FileImmutable")
        going = [one for one in named if one.key not in self.silent]
        markers = {(one.key, one.id) for one in going if one.marker}
        held.stored = [one for one in held.stored if one not in going]
        rows = "".join(
            f"<Deleted><Key>{quote(key, safe='')}</Key>"
            + (f"<{self._told((key, version) in markers)}>{escape(version)}" if version else "")
            + (f"</{self._told((key, version) in markers)}>" if version else "")
            + "</Deleted>"
            for key, version in wanted
            if key not in self.silent
        )
        return f"<DeleteResult>{rows}</DeleteResult>".encode()

    @staticmethod
    def _told(marker: bool) -> str:
        return "DeleteMarkerVersionId" if marker else "VersionId"

    def _object(
        self, held: Bucket, method: str, key: str, query: dict[str, str], given: dict[str, str], body: bytes
    ) -> bytes | tuple[dict[str, str], bytes]:
        if "uploadId" in query:
            if (key, query["uploadId"]) not in held.uploads:
                raise Answered(404, "NoSuchUpload")
            held.uploads.remove((key, query["uploadId"]))
            return b""
        if method == "PUT":
            return {"x-oss-version-id": held.put(key, body).id}, b""
        found = [one for one in held.stored if one.key == key and query.get("versionId", one.id) == one.id]
        if not found:
            raise Answered(404, "NoSuchVersion" if "versionId" in query else "NoSuchKey")
        one = found[-1]
        if method == "DELETE":
            if held.locked(one):
                raise Answered(409, "FileImmutable")
            held.stored.remove(one)
            return b""
        if "tagging" in query:
            tags = "".join(f"<Tag><Key>{name}</Key><Value>{value}</Value></Tag>" for name, value in one.tags.items())
            return f"<Tagging><TagSet>{tags}</TagSet></Tagging>".encode()
        if "legalHold" in query:
            return f"<LegalHold><Status>{'ON' if one.held else 'OFF'}</Status></LegalHold>".encode()
        if "retention" in query:
            if one.until is None:
                raise Answered(404, "NoSuchObjectWORMConfiguration")
            until = f"{one.until:%Y-%m-%dT%H:%M:%S.000Z}"
            return f"<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>".encode()
        told = {"Last-Modified": format_datetime(one.written, usegmt=True), "ETag": "e"}
        if one.kms:
            told |= {"x-oss-server-side-encryption": "KMS", "x-oss-server-side-encryption-key-id": one.kms}
        return told, one.body


Action = Callable[[dict[str, str]], dict[str, Any]]


class Rpc:
    """APIs in RPC style: an action, as `api Action`, is a function of its parameters, or what it refuses with."""

    def __init__(self) -> None:
        self.actions: dict[str, Action | tuple[int, str]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.by: list[Credentials] = [PERSON]

    def answer(self, method: str, path: str, given: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        action = given["x-acs-action"]
        assert given.get("accept") == "application/json", "it would be answered in XML"
        self._check(method, f"http://{given['host']}{path}", given)
        parameters = dict(parse_qsl(urlsplit(path).query, keep_blank_values=True))
        self.asked.append((action, parameters))
        known = self.actions.get(action, (404, "InvalidAction.NotFound"))
        told: Any = known.pop(0) if isinstance(known, list) else known
        if isinstance(told, tuple):
            return told[0], {}, json.dumps({"Code": told[1], "Message": f"{told[1]} it is"}).encode()
        return 200, {}, json.dumps(told(parameters)).encode()

    def _check(self, method: str, url: str, given: dict[str, str]) -> None:
        signed = [
            headers(
                caller, method, url, given["x-acs-action"], given["x-acs-version"],
                given["x-acs-date"], given["x-acs-signature-nonce"],
            )["authorization"]
            for caller in self.by
        ]  # fmt: skip
        assert given["authorization"] in signed, "signed by nobody who is known"


@contextmanager
def served(cloud: Any) -> Iterator[str]:
    """The URL at which it answers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            given = {name.lower(): value for name, value in self.headers.items()}
            try:
                status, more, told = cloud.answer(self.command, self.path, given, body)
            except Exception as error:
                wrong.append(error)
                status, more, told = 400, {}, b""
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _do

        def log_message(self, *_: object) -> None:
            pass

    wrong: list[Exception] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert not wrong, wrong
