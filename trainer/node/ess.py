"""The scaling group of a node on Alibaba Cloud, which only its API tells of (Auto Scaling API reference, 2022-02-22).

Instance metadata doesn't say that a group ends a node, and a hook is completed by a token of the scaling activity that
it holds up. So a thread asks, now and then, and only where there is a hook: without one, nothing waits for an answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainer.alicloud import ApiError
from trainer.console import say

EVERY_S = 5.0
"""Between looks. To save may take nearly all of the time that a hook holds a node; an account's calls are counted."""

PAGE = 50
"""The most that a page has ("DescribeLifecycleActions", `MaxResults`; elsewhere `PageSize`)."""

MOST_PAGES = 20
"""Of actions: one for each instance that an activity may end at a time ("Limits": 1,000)."""

REMOVING = ("Removing", "Removing:Wait")
"""States of an instance that its group ends ("DescribeScalingInstances", `LifecycleState`)."""


class Calls(Protocol):
    """`trainer.alicloud.Api`, as far as it is needed here."""

    def call(self, service: str, action: str, **parameters: str | int) -> dict[str, Any]:
        """See `trainer.alicloud.Api.call`."""


@dataclass
class Ess:
    """One node's group. `hook` as `lifecycle.Lifecycle` has it."""

    api: Calls
    node: str
    hook: str
    _ending: bool = False
    _due: float = 0.0
    _said: str = ""
    _look: threading.Thread | None = field(default=None, repr=False)

    def ends(self) -> bool:
        """See `lifecycle.Group.ends`: as of the last look, and what was once seen stays so."""
        looking = self._look is not None and self._look.is_alive()
        if self.hook and not self._ending and not looking and time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_S
            self._look = threading.Thread(target=self.look, name="ess", daemon=True)
            self._look.start()
        return self._ending

    def look(self) -> None:
        """Ask now. That there is no answer is said once."""
        try:
            self._ending = any(state in REMOVING for _, state in self._groups())
            self._said = ""
        except (ApiError, KeyError, TypeError) as error:
            said = f"whether its group ends this node can't be asked: {error}"
            if said != self._said:
                say(said)
            self._said = said

    def release(self, hook: str) -> None:
        """See `lifecycle.Group.release`. Raises `ApiError` too where nothing waits for the node, as it does in time."""
        done = 0
        for group, _ in list(self._groups()):
            named = {
                found["LifecycleHookId"]
                for found in self._all("DescribeLifecycleHooks", "LifecycleHooks", ScalingGroupId=group)
                if found["LifecycleHookName"] == hook
            }
            for token, of in list(self._waiting(group)):  # as completing them changes the list
                if of in named:
                    self.api.call(
                        "ess",
                        "CompleteLifecycleAction",
                        LifecycleHookId=of,
                        LifecycleActionToken=token,
                        LifecycleActionResult="CONTINUE",
                    )
                    done += 1
        if not done:
            raise ApiError(f"no action of the hook {hook!r} waits for this node yet")

    def capacity(self) -> int:
        """How many nodes its group is to have, those on their way among them. Raises `ApiError`, `LookupError`."""
        group = next(iter(self._groups()))[0]
        (found,) = self._all("DescribeScalingGroups", "ScalingGroups", **{"ScalingGroupIds.1": group})
        return int(found["DesiredCapacity"])

    def _groups(self) -> Iterator[tuple[str, str]]:
        """Id of the node's group, and the node's state in it; nothing where it is in none."""
        asked = {"InstanceIds.1": self.node}
        for found in self._all("DescribeScalingInstances", "ScalingInstances", **asked):
            if found["InstanceId"] == self.node:
                yield found["ScalingGroupId"], found["LifecycleState"]

    def _waiting(self, group: str) -> Iterator[tuple[str, str]]:
        """Token and hook of each action that holds up the group's present activity for this node."""
        present: dict[str, str | int] = {"ScalingGroupId": group, "StatusCode": "InProgress", "PageSize": PAGE}
        for activity in self._all("DescribeScalingActivities", "ScalingActivities", **present):
            of = {"ScalingActivityId": str(activity["ScalingActivityId"]), "LifecycleActionStatus": "Pending"}
            for action in self._all("DescribeLifecycleActions", "LifecycleActions", **of, MaxResults=PAGE):
                if self.node in action["InstanceIds"]:
                    yield action["LifecycleActionToken"], action["LifecycleHookId"]

    def _all(self, action: str, field_: str, **parameters: str | int) -> Iterator[Mapping[str, Any]]:
        """What an action lists; where it tells of more by a token, as one of them does, that too."""
        more: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            answer = self.api.call("ess", action, **parameters, **more)
            yield from answer.get(field_) or []
            if not (token := answer.get("NextToken")):
                return
            more = {"NextToken": token}
