"""What the command asks of a stack's cloud, its bucket among it: one interface, and each cloud's own kind of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from trainer.store import Store, StoreError

MOST_PAGES = 10
"""Of a list of folders, a thousand each."""


@dataclass(frozen=True)
class Group:
    """A fleet's group: when it was created (seconds since 1970; None where it is gone), and its live instances' ids."""

    created: float | None
    instances: frozenset[str]
    stopped: bool = False
    """Whether its launches are suspended, as the breaker of a governed fleet on AWS leaves them."""
    wanted: int | None = None
    """How many nodes it is to have; zero is also what a breaker leaves, or idleness, or a schedule."""


class Account(Protocol):
    """A person's account with a cloud, in a region. Every call may raise `Refused`, in words."""

    @property
    def region(self) -> str:
        """Where it is asked."""

    def signed_in(self) -> bool:
        """Whether there are credentials here; they aren't tried."""

    def environment(self) -> Mapping[str, str]:
        """Variables under which the engine's provider finds the same credentials."""

    def caller(self) -> str:
        """ARN of the user or the role's session whose credentials these are."""

    def group(self, name: str) -> Group:
        """The group of this name, as the outputs of its stack have it, as it is now."""

    def alarms(self, prefix: str) -> list[str]:
        """Names of the alarms that are on, of those whose names start so."""

    def resume(self, name: str, nodes: int) -> None:
        """Let the group of this name launch again: `nodes`, unless it wants some already."""

    def end_instances(self, name: str, instances: frozenset[str]) -> None:
        """End these instances of the group, which replaces them."""

    def send(self, url: str, body: str) -> None:
        """Put a message into the queue at this URL."""

    def store(self, bucket: str, prefix: str = "") -> Store:
        """A prefix in a bucket."""

    def folders(self, bucket: str, prefix: str) -> list[str]:
        """Names of what a bucket has right below a prefix, up to its next `/`; what they hold is not listed."""


def folders(client: Any, bucket: str, prefix: str) -> list[str]:
    """As `Account.folders`, by a client of S3's API, of whose errors it raises any."""
    listed: list[str] = []
    asked = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/"}
    for page in islice(client.get_paginator("list_objects_v2").paginate(**asked), MOST_PAGES):
        listed += [str(found["Prefix"])[len(prefix) : -1] for found in page.get("CommonPrefixes", ())]
    return listed


def advice(error: StoreError) -> str:
    """What to do about a bucket's error, if it is for want of credentials, rights or a way in; else nothing."""
    if str(error).startswith("oss://"):
        from cli import alicloud  # noqa: PLC0415

        told = getattr(error.__cause__, "response", {})
        return alicloud.advice(str(told.get("Error", {}).get("Code", "")))
    from cli import aws  # noqa: PLC0415

    return aws.advice(error.__cause__)


def account(cloud: str, region: str) -> Account:
    """The account with a cloud, by its name in the stack's file. Each cloud's client is loaded for its own stacks."""
    if cloud == "alicloud":
        from cli.alicloud import Alicloud  # noqa: PLC0415

        return Alicloud(region)
    from cli.aws import Aws  # noqa: PLC0415

    return Aws(region)
