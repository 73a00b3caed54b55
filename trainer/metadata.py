"""The instance metadata service of the cloud that a node runs on, with the standard library alone."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

TIMEOUT_S = 2
TOKEN_TTL_S = 21600

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
"""How both clouds write a moment. Whatever else comes in its place is no notice: a proxy, or an unhardened service, may
answer 200 with a page that says 404."""


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

    def identity(self) -> Identity:
        """Who this node is, from the identity document."""

    def interruption(self) -> str | None:
        """When the cloud takes this node away, as the service says it, or None."""

    def terminating(self) -> bool:
        """Whether the group that the node belongs to ends it, as far as this service tells."""

    def at_risk(self) -> str | None:
        """Since when a spot node is likely to be taken away, or None."""


class Tokened:
    """A service whose values take a token that is asked for first. Raises `OSError` while it can't be reached."""

    variable: str
    """The environment variable that has another endpoint than the cloud's, if any."""

    default: str
    token_header: str

    def __init__(self, endpoint: str | None = None) -> None:
        self.endpoint = endpoint or os.environ.get(self.variable, self.default)
        self._token = ""
        self._token_until = 0.0

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

    def _renew(self) -> None:
        request = urllib.request.Request(f"{self.endpoint}/latest/api/token", method="PUT")
        request.add_header(f"{self.token_header}-ttl-seconds", str(TOKEN_TTL_S))
        self._token = self._read(request)
        self._token_until = time.monotonic() + TOKEN_TTL_S / 2

    @staticmethod
    def _read(request: urllib.request.Request) -> str:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
        return content.decode()


class Ec2Metadata(Tokened):
    """Amazon's service, version 2 (EC2 user guide, "Use IMDSv2")."""

    variable = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
    default = "http://169.254.169.254"
    token_header = "X-aws-ec2-metadata-token"  # noqa: S105  a header's name

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
        return _told(self.get("meta-data/spot/instance-action"), "time")

    def terminating(self) -> bool:
        """See `Metadata.terminating` (Auto Scaling user guide, "Retrieve the target lifecycle state through instance
        metadata").
        """
        return self.get("meta-data/autoscaling/target-lifecycle-state") == "Terminated"

    def at_risk(self) -> str | None:
        """See `Metadata.at_risk` (EC2 user guide, "Rebalance recommendations")."""
        return _told(self.get("meta-data/events/recommendations/rebalance"), "noticeTime")


class EcsMetadata(Tokened):
    """Alibaba Cloud's service, in its security hardening mode (ECS user guide, "Instance metadata").

    It says neither when an instance was launched nor what a scaling group is about to do with it.
    """

    variable = "TRAINWRIGHT_ECS_METADATA"
    default = "http://100.100.100.200"
    token_header = "X-aliyun-ecs-metadata-token"  # noqa: S105  a header's name

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
        return _moment((self.get("meta-data/instance/spot/termination-time") or "").strip())

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


def _told(document: str | None, name: str) -> str | None:
    """The moment that a JSON document has by this name."""
    try:
        return _moment(json.loads(document or "{}")[name])
    except (ValueError, LookupError, TypeError):
        return None


def _moment(said: object) -> str | None:
    return said if isinstance(said, str) and TIME.fullmatch(said) else None


def open_metadata(cloud: str) -> Ec2Metadata | EcsMetadata:
    """The service of a cloud: `aws` or `alicloud`."""
    return EcsMetadata() if cloud == "alicloud" else Ec2Metadata()
