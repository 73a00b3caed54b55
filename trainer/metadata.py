"""The instance metadata service of the cloud that a node runs on, with the standard library alone."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus

TIMEOUT_S = 2
TOKEN_TTL_S = 21600


@dataclass(frozen=True)
class Identity:
    """What the cloud says a node is. `launched` is the control plane's time, ISO 8601, so it orders nodes fairly."""

    node: str
    address: str
    launched: str
    type: str
    zone: str

    def __str__(self) -> str:
        return f"{self.node}, {self.type} in {self.zone}, {self.address}"


class Ec2Metadata:
    """Amazon's service, version 2 (EC2 user guide, "Use IMDSv2"). Raises `OSError` while it can't be reached."""

    def __init__(self, endpoint: str | None = None) -> None:
        default = "http://169.254.169.254"
        self.endpoint = endpoint or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", default)
        self._token = ""
        self._token_until = 0.0

    def identity(self) -> Identity:
        """Who this node is, from the identity document."""
        document = json.loads(self.get("dynamic/instance-identity/document") or "{}")
        return Identity(
            node=document["instanceId"],
            address=document["privateIp"],
            launched=document["pendingTime"],
            type=document["instanceType"],
            zone=document["availabilityZone"],
        )

    def interruption(self) -> str | None:
        """When this node is taken away, as the service says it, or None. Notice comes two minutes ahead at best."""
        notice = self.get("meta-data/spot/instance-action")
        return str(json.loads(notice)["time"]) if notice else None

    def terminating(self) -> bool:
        """Whether the auto scaling group ends this node (Auto Scaling user guide, "Retrieve the target lifecycle state
        through instance metadata").
        """
        return self.get("meta-data/autoscaling/target-lifecycle-state") == "Terminated"

    def at_risk(self) -> str | None:
        """Since when a spot node is likely to be taken away, or None (EC2 user guide, "Rebalance recommendations")."""
        notice = self.get("meta-data/events/recommendations/rebalance")
        return str(json.loads(notice)["noticeTime"]) if notice else None

    def get(self, path: str) -> str | None:
        """The value at a path below `/latest/`, or None where there is none."""
        if time.monotonic() >= self._token_until:
            self._renew()
        request = urllib.request.Request(
            f"{self.endpoint}/latest/{path}", headers={"X-aws-ec2-metadata-token": self._token}
        )
        try:
            return self._read(request)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            self._token_until = 0.0
            raise

    def _renew(self) -> None:
        request = urllib.request.Request(f"{self.endpoint}/latest/api/token", method="PUT")
        request.add_header("X-aws-ec2-metadata-token-ttl-seconds", str(TOKEN_TTL_S))
        self._token = self._read(request)
        self._token_until = time.monotonic() + TOKEN_TTL_S / 2

    @staticmethod
    def _read(request: urllib.request.Request) -> str:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
        return content.decode()
