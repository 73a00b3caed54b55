"""An instance's metadata service; EC2's by tokens only, as the EC2 User Guide's "Instance metadata" describes it."""

import contextlib
import hashlib
import hmac
import ipaddress
import json
import re
import secrets
import socketserver
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from emulator import ACCOUNT_ID, notices
from emulator.guard import Guarded
from emulator.instances import ERRORS, Api, Instance, Profile

_MAX_TOKEN_SECONDS = 21600
_RENEW_BEFORE = timedelta(minutes=20)
_MAX_BODY = 4096


@dataclass(frozen=True)
class Dialect:
    """What differs between the clouds' services, besides what they tell."""

    server: str
    """How it calls itself."""

    token: str
    """The header that a token comes in; the one that asks for one has `-ttl-seconds` behind."""

    without_token: int
    """Status of an answer to who shows no token, or one that holds no more."""


class Metadata(ABC):
    """What the service of one instance holds: files by path, each made when it is asked for."""

    dialect: ClassVar[Dialect]

    def __init__(self, instance: Instance, api: Api, notice: Path) -> None:
        self._instance = instance
        self._api = api
        self._notice = notice
        self._lock = Lock()
        self._credentials: dict[str, Any] | None = None

    def get(self, path: str) -> bytes | None:
        """A file's content or a folder's listing; None if there is neither. Raises `instances.ERRORS`."""
        path = path.strip("/")
        files = self._files(path)
        if path in files:
            return files[path]()
        entries = listing(files, path)
        return "\n".join(entries).encode() if entries else None

    def open(self) -> bool:
        """Whether it is given out without a token. Raises `instances.ERRORS`."""
        return False

    @abstractmethod
    def _files(self, path: str) -> dict[str, Callable[[], bytes]]:
        """All files, for somebody who asks for one of them, or a folder, at this path."""

    def _fresh(self, profile: Profile) -> dict[str, Any]:
        """Credentials of the role, in the form that STS answers, with when they were made: `LastUpdated`."""
        now = datetime.now(UTC)
        with self._lock:
            if self._credentials is None or self._credentials["Expiration"] - now < _RENEW_BEFORE:
                self._credentials = self._api.credentials(self._instance, profile) | {"LastUpdated": now}
            return self._credentials


class Ec2Metadata(Metadata):
    """EC2's."""

    dialect = Dialect("EC2ws", "X-aws-ec2-metadata-token", without_token=401)

    def _files(self, path: str) -> dict[str, Callable[[], bytes]]:
        instance = self._instance
        host = hostname(instance.address, instance.region)
        fixed = {
            "ami-id": instance.image,
            "hostname": host,
            "instance-id": instance.id,
            "instance-life-cycle": "spot" if instance.spot else "on-demand",
            "instance-type": instance.type,
            "local-hostname": host,
            "local-ipv4": instance.address,
            "mac": instance.mac,
            "placement/availability-zone": instance.zone,
            "placement/region": instance.region,
        }
        files: dict[str, Callable[[], bytes]] = {
            "dynamic/instance-identity/document": lambda: json_file(self._identity()),
            "meta-data/autoscaling/target-lifecycle-state": lambda: self._api.target_state(instance).encode(),
        }
        files |= {f"meta-data/{name}": value.encode for name, value in fixed.items()}
        if profile := instance.profile:
            files["meta-data/iam/info"] = lambda: json_file(_info(profile))
            role_file = f"meta-data/iam/security-credentials/{profile.role}"
            files[role_file] = lambda: json_file(self._role_credentials(profile))
        if instance.tags_shown:
            files["meta-data/tags/instance/"] = bytes
            if path.startswith("latest/meta-data/tags"):
                entries = self._api.tags(instance)
                files |= {f"meta-data/tags/instance/{key}": value.encode for key, value in entries.items()}
        for name, content in _interruptions(notices.read(self._notice)).items():
            files[f"meta-data/{name}"] = content
        if instance.user_data:
            files["user-data"] = lambda: instance.user_data
        return {f"latest/{name}": make for name, make in files.items()}

    def _identity(self) -> dict[str, str]:
        instance = self._instance
        return {
            "accountId": ACCOUNT_ID,
            "architecture": instance.architecture,
            "availabilityZone": instance.zone,
            "imageId": instance.image,
            "instanceId": instance.id,
            "instanceType": instance.type,
            "pendingTime": timestamp(instance.launched),
            "privateIp": instance.address,
            "region": instance.region,
            "version": "2017-09-30",
        }

    def _role_credentials(self, profile: Profile) -> dict[str, str]:
        credentials = self._fresh(profile)
        return {
            "Code": "Success",
            "LastUpdated": timestamp(credentials["LastUpdated"]),
            "Type": "AWS-HMAC",
            "AccessKeyId": credentials["AccessKeyId"],
            "SecretAccessKey": credentials["SecretAccessKey"],
            "Token": credentials["SessionToken"],
            "Expiration": timestamp(credentials["Expiration"]),
        }


class MetadataService:
    """The web server before an instance's metadata; it answers from its making until `close`."""

    def __init__(self, metadata: Metadata, address: str) -> None:
        server = {"metadata": metadata, "tokens": Tokens(), "server_version": metadata.dialect.server}
        handler = type("Handler", (_Handler,), server)
        self._server = _bind(address, handler)
        self.url = "http://{}:{}".format(*self._server.server_address)
        # The argument is how long `close` may have to wait, in seconds.
        Thread(target=self._server.serve_forever, args=(0.1,), name=f"metadata {address}", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class Tokens:
    """Session tokens: each carries the time of its end, under a seal that only this object can make."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def issue(self, seconds: int) -> str:
        """A token that holds for so many seconds."""
        expiry = f"{time.monotonic() + seconds:.3f}"
        return f"{expiry}-{self._seal(expiry)}"

    def valid(self, token: str) -> bool:
        """Whether it is one of ours and still holds."""
        expiry, _, seal = token.partition("-")
        return hmac.compare_digest(seal.encode(), self._seal(expiry).encode()) and time.monotonic() < float(expiry)

    def _seal(self, expiry: str) -> str:
        return hmac.new(self._key, expiry.encode(), hashlib.sha256).hexdigest()


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        # The base class would ask the resolver for the address's name, which can take seconds.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients are killed with their nodes, in the middle of a request too.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(Guarded, BaseHTTPRequestHandler):
    metadata: Metadata
    tokens: Tokens

    protocol_version = "HTTP/1.1"
    timeout = 60
    # Headers and body leave in one packet: in two, the second would wait for the client's delayed acknowledgement.
    wbufsize = -1

    def do_PUT(self) -> None:
        """Give out a session token."""
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > _MAX_BODY:
            self.close_connection = True
            return self._answer(400)
        self.rfile.read(int(length))
        if "X-Forwarded-For" in self.headers:
            return self._answer(403)
        if urlsplit(self.path).path != "/latest/api/token":
            return self._answer(405)
        header = f"{self.metadata.dialect.token}-ttl-seconds"
        seconds = token_seconds(self.headers.get(header, ""))
        if seconds is None:
            return self._answer(400)
        return self._answer(200, self.tokens.issue(seconds).encode(), {header: str(seconds)})

    def do_GET(self) -> None:
        """Give out metadata, against a token."""
        dialect = self.metadata.dialect
        shown = self.headers.get(dialect.token, "")
        try:
            if not (self.tokens.valid(shown) or (not shown and self.metadata.open())):
                return self._answer(dialect.without_token)
            content = self.metadata.get(unquote(urlsplit(self.path).path))
        except ERRORS as error:
            return self._answer(503, str(error).encode())
        return self._answer(404) if content is None else self._answer(200, content)

    def log_message(self, format: str, *args: object) -> None:
        """Keep no log of requests."""

    def _answer(self, status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def listing(files: Iterable[str], folder: str) -> list[str]:
    """The entries of a folder, in order; a slash marks folders, but as on EC2 not in the two topmost ones."""
    prefix = f"{folder}/" if folder else ""
    mark = "/" if folder.count("/") or folder not in ("", "latest") else ""
    entries = set()
    for name in files:
        if name.startswith(prefix):
            head, slash, _ = name.removeprefix(prefix).partition("/")
            entries.add(head + (mark if slash else ""))
    return sorted(entries - {""})


def token_seconds(header: str) -> int | None:
    """How long a token is asked to hold: 1 to 21600 seconds; None for anything else."""
    if not re.fullmatch(r"[0-9]{1,5}", header):
        return None
    return int(header) if 1 <= int(header) <= _MAX_TOKEN_SECONDS else None


def hostname(address: str, region: str) -> str:
    """The private name that EC2 gives an address (EC2 User Guide, "EC2 instance hostnames")."""
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{domain}"


def timestamp(moment: datetime) -> str:
    """In the metadata's form: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _interruptions(raised: dict[str, float]) -> dict[str, Callable[[], bytes]]:
    times = {kind: timestamp(datetime.fromtimestamp(moment, UTC)) for kind, moment in raised.items()}
    files: dict[str, Callable[[], bytes]] = {}
    if spot := times.get("spot"):
        files["spot/instance-action"] = lambda: json_file({"action": "terminate", "time": spot})
    if rebalance := times.get("rebalance"):
        files["events/recommendations/rebalance"] = lambda: json_file({"noticeTime": rebalance})
    return files


def _info(profile: Profile) -> dict[str, str]:
    return {
        "Code": "Success",
        "LastUpdated": timestamp(datetime.now(UTC)),
        "InstanceProfileArn": profile.arn,
        "InstanceProfileId": profile.id,
    }


def _bind(address: str, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    # An address that is not loopback could be one of this machine's own, and open to its network.
    if ipaddress.ip_address(address).is_loopback:
        with contextlib.suppress(OSError):
            return _Server((address, 0), handler)
    return _Server(("127.0.0.1", 0), handler)


def json_file(document: dict[str, str]) -> bytes:
    """A file that is a JSON document."""
    return json.dumps(document, indent=2).encode()
