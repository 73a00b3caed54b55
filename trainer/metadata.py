"""The instance metadata service of the cloud that a node runs on, with the standard library alone."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPMessage, HTTPResponse
from typing import IO, Protocol

from trainer.console import say

TIMEOUT_S = 2
TOKEN_TTL_S = 21600

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
"""How Alibaba Cloud writes a moment, which is all of its notice. Whatever else comes in its place is none: a proxy, or
an unhardened service, may answer 200 with a page that says 404."""


@dataclass(frozen=True)
class Identity:
    """What the cloud says a node is. `launched` is the control plane's time, ISO 8601, so it orders nodes fairly.

    It is empty where the cloud doesn't say.
    """

    node: str
    address: str
    launched: str
    type: str
    zone: str

    def __str__(self) -> str:
        return f"{self.node}, {self.type} in {self.zone}, {self.address}"


class Metadata(Protocol):
    """What a node asks. Each call may raise `OSError`, or `http.client.HTTPException`, while the service is away."""

    notice_s: float
    """How many seconds ahead of an interruption its notice comes, at the most."""

    def identity(self) -> Identity:
        """Who this node is, from the identity document."""

    def interruption(self) -> str | None:
        """When the cloud takes this node away, as the service says it, or None."""

    def terminating(self) -> bool:
        """Whether the group that the node belongs to ends it, as far as this service tells."""

    def at_risk(self) -> str | None:
        """Since when a spot node is likely to be taken away, or None."""


class _Staying(urllib.request.HTTPRedirectHandler):
    """Follows nowhere: what is asked and shown is for one address alone."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, _msg: str, headers: HTTPMessage, _newurl: str
    ) -> None:
        """See `HTTPRedirectHandler`. Raises `HTTPError`."""
        told = "it sends on to another address, which isn't followed"
        raise urllib.error.HTTPError(req.full_url, code, told, headers, fp)


def opened(request: urllib.request.Request, timeout_s: float, *, direct: bool) -> HTTPResponse:
    """The answer to a request that shows a secret, or asks for one; `direct`: past any proxy of the environment.

    urllib would follow an answer to any address, in the clear and headers with it, and send what is for a plain address
    to `http_proxy` (Python's library reference, `urllib.request`). Raises `OSError`, `http.client.HTTPException`.
    """
    proxies = urllib.request.ProxyHandler({} if direct else None)
    answer: HTTPResponse = urllib.request.build_opener(proxies, _Staying).open(request, timeout=timeout_s)
    return answer


class Tokened:
    """A service whose values take a token that is asked for first. Raises `OSError` while it can't be reached."""

    variable: str
    """The environment variable that has another endpoint than the cloud's, if any."""

    default: str
    token_header: str
    notice_s: float
    """See `Metadata`."""

    def __init__(self, endpoint: str | None = None) -> None:
        self.endpoint = endpoint or os.environ.get(self.variable, self.default)
        self._token = ""
        self._token_until = 0.0
        self._ignored: set[str] = set()

    def get(self, path: str) -> str | None:
        """The value at a path below `/latest/`, or None where there is none."""
        if time.monotonic() >= self._token_until:
            self._renew()
        request = urllib.request.Request(f"{self.endpoint}/latest/{path}", headers={self.token_header: self._token})
        try:
            return self._read(request)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            self._token_until = 0.0
            raise

    def _notice(self, path: str, read: Callable[[str], str | None]) -> str | None:
        """What a notice at a path says, or None: what `read` takes for none is ignored, which is said once."""
        answer = self.get(path)
        notice = None if answer is None else read(answer)
        if answer is not None and notice is None and path not in self._ignored:
            self._ignored.add(path)
            say(f"the metadata service's answer at {path} is no notice, and is ignored: {answer[:200]!r}")
        return notice

    def _renew(self) -> None:
        request = urllib.request.Request(f"{self.endpoint}/latest/api/token", method="PUT")
        request.add_header(f"{self.token_header}-ttl-seconds", str(TOKEN_TTL_S))
        self._token = self._read(request)
        self._token_until = time.monotonic() + TOKEN_TTL_S / 2

    @staticmethod
    def _read(request: urllib.request.Request) -> str:
        with opened(request, TIMEOUT_S, direct=True) as answer:
            content: bytes = answer.read()
        return content.decode()


class Ec2Metadata(Tokened):
    """Amazon's service, version 2 (EC2 user guide, "Use IMDSv2")."""

    variable = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
    default = "http://169.254.169.254"
    token_header = "X-aws-ec2-metadata-token"  # noqa: S105  a header's name
    notice_s = 120.0

    def identity(self) -> Identity:
        """See `Metadata.identity`."""
        document = json.loads(self.get("dynamic/instance-identity/document") or "{}")
        return Identity(
            node=document["instanceId"],
            address=document["privateIp"],
            launched=document["pendingTime"],
            type=document["instanceType"],
            zone=document["availabilityZone"],
        )

    def interruption(self) -> str | None:
        """See `Metadata.interruption`. Notice comes two minutes ahead at best."""
        return self._notice("meta-data/spot/instance-action", lambda said: _told(said, "action", "time"))

    def terminating(self) -> bool:
        """See `Metadata.terminating` (Auto Scaling user guide, "Retrieve the target lifecycle state through instance
        metadata").
        """
        return self.get("meta-data/autoscaling/target-lifecycle-state") == "Terminated"

    def at_risk(self) -> str | None:
        """See `Metadata.at_risk` (EC2 user guide, "Rebalance recommendations")."""
        path = "meta-data/events/recommendations/rebalance"
        return self._notice(path, lambda said: _told(said, "noticeTime", "noticeTime"))


class EcsMetadata(Tokened):
    """Alibaba Cloud's service, in its security hardening mode (ECS user guide, "Instance metadata").

    It says neither when an instance was launched nor what a scaling group is about to do with it.
    """

    variable = "TRAINWRIGHT_ECS_METADATA"
    default = "http://100.100.100.200"
    token_header = "X-aliyun-ecs-metadata-token"  # noqa: S105  a header's name
    notice_s = 300.0

    def identity(self) -> Identity:
        """See `Metadata.identity` (ECS user guide, "Instance identities")."""
        document = json.loads(self.get("dynamic/instance-identity/document") or "{}")
        return Identity(
            node=document["instance-id"],
            address=document["private-ipv4"],
            launched="",
            type=document["instance-type"],
            zone=document["zone-id"],
        )

    def interruption(self) -> str | None:
        """See `Metadata.interruption`. Notice of a preemptible instance's release comes five minutes ahead."""
        return self._notice("meta-data/instance/spot/termination-time", lambda said: _moment(said.strip()))

    def terminating(self) -> bool:
        """See `Metadata.terminating`: this service never tells."""
        return False

    def at_risk(self) -> str | None:
        """See `Metadata.at_risk`: Alibaba Cloud gives no such advice."""
        return None

    def answers_without_token(self) -> bool:
        """Whether it still tells who doesn't show a token, which any proxy on the node could be made to ask."""
        try:
            self._read(urllib.request.Request(f"{self.endpoint}/latest/meta-data/instance-id"))
        except urllib.error.HTTPError as error:
            if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                return False
            raise
        return True


def _told(document: str, mark: str, name: str) -> str | None:
    """The moment by this name, however it is written, of a JSON document that has the mark of a notice."""
    try:
        said = json.loads(document)
    except ValueError:
        return None
    return str(said.get(name) or "an unknown time") if isinstance(said, dict) and said.get(mark) else None


def _moment(said: str) -> str | None:
    return said if TIME.fullmatch(said) else None


def open_metadata(cloud: str) -> Ec2Metadata | EcsMetadata:
    """The service of a cloud: `aws` or `alicloud`."""
    return EcsMetadata() if cloud == "alicloud" else Ec2Metadata()
