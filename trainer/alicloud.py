"""Alibaba Cloud from a node: its role's credentials, and calls of the APIs, signed, with the standard library alone.

Endpoints are those within a VPC. Credentials stay in memory: nothing here writes, logs or passes them on.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPException
from typing import Any, Protocol

from trainer.metadata import EcsMetadata, opened

REGION = "ALIBABA_CLOUD_REGION_ID"
"""The environment variable that has the region, for Alibaba's own tools as well."""

ENDPOINT = "TRAINWRIGHT_ALICLOUD_ENDPOINT"
"""The one that has another address for all APIs, each below its own name, as the embedded cloud's."""

KEYS = ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN")
"""Where a person's credentials are found (Alibaba Cloud SDK, "Manage access credentials"); a node has none there."""

TIMEOUT_S = 10.0

FRESH_S = 1200.0
"""Credentials that end sooner than this are asked for anew: boto3 does so 15 minutes ahead."""

TRIES = 3
RETRY_S = 1.0
"""The metadata service turns away who asks too often (ECS user guide, "Instance metadata"), as many workers at once."""

SERVICES = {
    "ess": ("2022-02-22", "ess-vpc.{region}.aliyuncs.com"),
    "cms": ("2019-01-01", "cms-vpc.{region}.aliyuncs.com"),
}
"""Version of each API that is called, and its endpoint ("Endpoints" in each product's API reference)."""


class ApiError(OSError):
    """An API answered no, or not at all. `code` is its own word for why, '' where it gave none."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Credentials:
    """What signs calls. `expires`: when they end, ISO 8601; nothing for a person's own."""

    key: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)
    expires: str = ""

    def lasts(self, seconds: float) -> bool:
        """Whether they are good for so long."""
        return not self.expires or datetime.fromisoformat(self.expires).timestamp() > time.time() + seconds


class Caller(Protocol):
    """Whoever calls."""

    def credentials(self) -> Credentials:
        """Credentials that last. Raises `OSError` where there are none, yet or at all."""


@dataclass
class Role:
    """Whoever this process acts as: the person whose keys are in its environment, or else the role of its node."""

    metadata: EcsMetadata = field(default_factory=EcsMetadata)
    _held: Credentials | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def credentials(self) -> Credentials:
        """Credentials that last. Raises `OSError` where there are none, yet or at all."""
        with self._lock:
            if self._held is None or not self._held.lasts(FRESH_S):
                self._held = own() or self._fetched()
            return self._held

    def _fetched(self) -> Credentials:
        """The node's role's (ECS user guide, "Instance RAM roles")."""
        for left in reversed(range(TRIES)):
            try:
                return self._ask()
            except (OSError, HTTPException, ValueError, KeyError) as error:
                if not left:
                    raise OSError(f"no credentials of the node's role: {error}") from None
                time.sleep(RETRY_S)
        raise AssertionError

    def _ask(self) -> Credentials:
        names = (self.metadata.get("meta-data/ram/security-credentials/") or "").split()
        if not names:
            raise OSError("the instance has no RAM role")
        found = json.loads(self.metadata.get(f"meta-data/ram/security-credentials/{names[0]}") or "{}")
        return Credentials(
            found["AccessKeyId"], found["AccessKeySecret"], found["SecurityToken"], str(found["Expiration"])
        )


def own() -> Credentials | None:
    """A person's, as this process's environment has them; None on a node."""
    key, secret, token = (os.environ.get(name, "") for name in KEYS)
    return Credentials(key, secret, token) if key and secret else None


@dataclass
class Api:
    """The APIs of one region, in RPC style."""

    region: str
    role: Caller = field(default_factory=Role)
    services: Mapping[str, tuple[str, str]] = field(default_factory=lambda: SERVICES, repr=False)
    """As `SERVICES`, which are those of nodes."""

    def call(self, service: str, action: str, **parameters: str | int) -> dict[str, Any]:
        """The answer of an action. Raises `ApiError`."""
        version, host = self.services[service]
        elsewhere = os.environ.get(ENDPOINT)
        address = f"{elsewhere}/{service}" if elsewhere else f"https://{host.format(region=self.region)}"
        query = canonical({"RegionId": self.region, **parameters})
        try:
            signed = headers(self.role.credentials(), "POST", f"{address}/?{query}", action, version)
            asked = {**signed, "accept": "application/json"}  # or some answer in XML ("Common parameters", `Format`)
            request = urllib.request.Request(f"{address}/?{query}", headers=asked, method="POST")  # noqa: S310
            with opened(request, TIMEOUT_S, direct=address.startswith("http://")) as answer:
                found: dict[str, Any] = json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            code, message = _said(error.read())
            raise ApiError(f"{service} {action}: {code or error.code}: {message or error.reason}", code) from None
        except (OSError, HTTPException, ValueError) as error:
            raise ApiError(f"{service} {action}: {error}") from None
        return found


def _said(content: bytes) -> tuple[str, str]:
    """Code and message of an API's error."""
    try:
        answer = json.loads(content)
        return str(answer.get("Code", "")), str(answer.get("Message", ""))
    except (ValueError, AttributeError):
        return "", ""


def canonical(parameters: Mapping[str, str | int]) -> str:
    """A query as it is signed and sent: in order of names, RFC 3986's unreserved characters alone unescaped."""
    return "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(parameters.items()))


def _quoted(value: str | int) -> str:
    return urllib.parse.quote(str(value), safe="-_.~")


def headers(
    credentials: Credentials, method: str, url: str, action: str, version: str, now: str = "", nonce: str = ""
) -> dict[str, str]:
    """Headers of a request without a body (Alibaba Cloud SDK, "Request syntax and signature method V3").

    `now` and `nonce` are made up where they aren't given.
    """
    parts = urllib.parse.urlsplit(url)
    content = hashlib.sha256(b"").hexdigest()
    signed = {
        "host": parts.netloc,
        "x-acs-action": action,
        "x-acs-content-sha256": content,
        "x-acs-date": now or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "x-acs-signature-nonce": nonce or uuid.uuid4().hex,
        "x-acs-version": version,
        **({"x-acs-security-token": credentials.token} if credentials.token else {}),
    }
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = f"{method}\n{parts.path or '/'}\n{parts.query}\n{lines}\n{names}\n{content}"
    text = f"ACS3-HMAC-SHA256\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.new(credentials.secret.encode(), text.encode(), hashlib.sha256).hexdigest()
    authorization = f"ACS3-HMAC-SHA256 Credential={credentials.key},SignedHeaders={names},Signature={signature}"
    return {**signed, "authorization": authorization}
