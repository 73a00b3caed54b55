"""Whether a node is to go, and the word to its group that it is done and may be ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from trainer.console import say
from trainer.grace import GRACE_S
from trainer.metadata import Metadata

PATIENCE = Config(connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 2})
"""Seconds to connect and for each read, and how often a call is tried in all."""

ATTENDING_S = 5.0
"""Seconds between looks of a node that has nothing else to do."""

LAST_S = 10.0
"""Seconds before a machine is taken away by which its workers have ended, so that what they wrote is told."""

EARLIEST_S = 600.0
"""No notice comes so many seconds ahead (AWS's two minutes, Alibaba Cloud's five): then a clock is far off."""


def left(when: str, now: datetime, most_s: float) -> float:
    """Seconds for workers, of a node that goes at `when` (ISO 8601, in UTC); `GRACE_S` where one of the two is wrong.

    The node's clock may be slow by what `preflight` lets pass: no notice leaves more than the cloud's `most_s`.
    """
    try:
        seconds = (datetime.fromisoformat(when) - now).total_seconds()
    except (ValueError, TypeError):
        return GRACE_S
    return max(LAST_S, min(seconds, most_s) - LAST_S) if 0 < seconds < EARLIEST_S else GRACE_S


class Group(Protocol):
    """The group that a node belongs to."""

    def ends(self) -> bool:
        """Whether it ends this node. Blocks for no longer than one exchange with the metadata service."""

    def release(self, hook: str) -> None:
        """Tell it that the node is done, where it waits for that. Raises `OSError`, or boto3's errors."""


@dataclass
class AutoScaling:
    """AWS's."""

    metadata: Metadata
    node: str
    region: str

    def ends(self) -> bool:
        """See `Group.ends`."""
        return self.metadata.terminating()

    def release(self, hook: str) -> None:
        """See `Group.release`."""
        client = boto3.client("autoscaling", region_name=self.region, config=PATIENCE)
        for found in client.describe_auto_scaling_instances(InstanceIds=[self.node])["AutoScalingInstances"]:
            client.complete_lifecycle_action(
                LifecycleHookName=hook,
                AutoScalingGroupName=found["AutoScalingGroupName"],
                LifecycleActionResult="CONTINUE",
                InstanceId=self.node,
            )


@dataclass
class Lifecycle:
    """One node's. `hook` is the group's, by name, that holds the node until it is done; nothing where there is none.

    No call blocks for longer than one exchange with the metadata service; `notice` and `settle` raise what it raises.
    """

    metadata: Metadata
    node: str
    region: str
    hook: str
    group: InitVar[Group | None] = None
    """The node's, which is AWS's unless told."""
    leaving: Callable[[], None] = lambda: None
    """What is done last, before the group is told; it may be called again, and raises nothing."""

    _at_risk: bool = False
    _said: str = ""
    _done: threading.Event = field(default_factory=threading.Event)
    _saying: threading.Thread | None = None
    _group: Group = field(init=False)

    def __post_init__(self, group: Group | None) -> None:
        self._group = group or AutoScaling(self.metadata, self.node, self.region)

    def notice(self) -> tuple[str, float] | None:
        """Why the node is to go, and how many seconds its workers may take to save; or None.

        Advice that a spot node is at risk is none: its group launches another first and then ends this one, which is
        noticed here (Auto Scaling user guide, "Capacity Rebalancing"). To stop at once would only idle GPUs.
        """
        if when := self.metadata.interruption():
            seconds = left(when, datetime.now(UTC), self.metadata.notice_s)
            return f"the cloud takes this node away at {when}", seconds
        if self._group.ends():
            return "its group ends this node", GRACE_S
        if not self._at_risk and (since := self.metadata.at_risk()):
            self._at_risk = True
            say(f"the cloud may take this node away soon (as of {since}): it goes on until its group has another")
        return None

    def settle(self) -> None:
        """For a node that is done: tell its group so, if that waits for it. Goes on in a thread of its own."""
        busy = self._saying is not None and self._saying.is_alive()
        if not self.hook or self._done.is_set() or busy or not self._group.ends():
            return
        self._saying = threading.Thread(target=self._complete, name="lifecycle", daemon=True)
        self._saying.start()

    def attend(self, seconds: float) -> None:
        """For a node whose run has ended: stay for so long, and tell the group as soon as that ends the node."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            self.close()
            time.sleep(min(ATTENDING_S, left))

    def close(self, limit_s: float = 10.0) -> None:
        """For an agent that ends: tell the group now, if that waits for the node, within a limit of time."""
        with suppress(OSError, HTTPException):
            self.settle()
        if self._saying:
            self._saying.join(limit_s)

    def _complete(self) -> None:
        """Tell the group. It may not wait yet, or not answer: then the next call tries again, or its time ends it."""
        self.leaving()
        try:
            self._group.release(self.hook)
        except (BotoCoreError, ClientError, OSError) as error:
            self._say(f"the group can't be told yet that this node is done: {error}")
            return
        self._done.set()
        self._say("done: the group may end this node")

    def _say(self, what: str) -> None:
        if what != self._said:
            say(what)
        self._said = what
