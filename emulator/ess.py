"""ESS's own API, as far as nodes and the `trainwright` command call it, over the auto scaling groups that stand behind.

ESS API reference, versions 2022-02-22 and 2014-08-28, of which the older has lists within an object of their singular
name, and parameters that are lists by their singular names. A group's id is the server's name of it. An instance that a
hook holds is held by a scaling activity of its own here.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from moto.autoscaling.models import (
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
    autoscaling_backends,
)

from emulator import ACCOUNT_ID, hooks, places

Parameters = Mapping[str, str]
Answer = dict[str, Any]

OLDER, NEWER = "2014-08-28", "2022-02-22"
"""The API's versions."""

_PAGE = 10
_STATES = {"InService": "InService", "Pending": "Pending", "Standby": "Standby", hooks.WAITING: "Removing:Wait"}


class Refusal(Exception):
    """An API refuses a call: its HTTP status, its code, its message."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        self.code = code
        self.status = status
        super().__init__(message)


def numbered(given: Parameters, *names: str) -> list[str]:
    """The values of a parameter that is a list, under either of its names: `InstanceIds.1`, `InstanceIds.2`, …"""
    found = {}
    for key, value in given.items():
        name, _, number = key.rpartition(".")
        if name in names and number.isdigit():
            found[int(number)] = value
    return [found[number] for number in sorted(found)]


def nested(answer: Any) -> Any:
    """An answer in the older version's form."""
    if not isinstance(answer, dict):
        return answer
    return {
        name: {_singular(name): [nested(item) for item in value]} if isinstance(value, list) else nested(value)
        for name, value in answer.items()
    }


def _singular(name: str) -> str:
    for plural, singular in (("ies", "y"), ("sses", "ss"), ("s", "")):
        if name.endswith(plural):
            return name.removesuffix(plural) + singular
    return name


def timestamp(moment: object) -> str:
    """A time of the server's, which is UTC, in the form of Alibaba Cloud's APIs, to the second."""
    return f"{datetime.fromisoformat(str(moment)).replace(tzinfo=None):%Y-%m-%dT%H:%M:%SZ}"


def _groups(given: Parameters) -> Answer:
    wanted = numbered(given, "ScalingGroupIds", "ScalingGroupId")
    found = [_group_shown(group) for group in _backend().autoscaling_groups.values() if group.name in wanted]
    return {"ScalingGroups": found, **_paged(found)}


def _instances(given: Parameters) -> Answer:
    wanted = numbered(given, "InstanceIds", "InstanceId")
    groups = [_group(given)] if given.get("ScalingGroupId") else [*_backend().autoscaling_groups.values()]
    found = [
        _instance_shown(state)
        for group in groups
        for state in group.instance_states
        if not wanted or state.instance_id in wanted
    ]
    size, page = int(given.get("PageSize", _PAGE)), int(given.get("PageNumber", 1))
    shown = found[(page - 1) * size : page * size]
    return {"ScalingInstances": shown, **_paged(found, page, size)}


def _activities(given: Parameters) -> Answer:
    group = _group(given)
    held = [] if given.get("StatusCode") not in (None, "InProgress") else _held(group)
    found = [
        {
            "ScalingActivityId": _activity(state),
            "ScalingGroupId": group.name,
            "StatusCode": "InProgress",
            "StartTime": timestamp(datetime.now(UTC)),
            "Cause": "The group ends an instance",
        }
        for state in held
    ]
    return {"ScalingActivities": found, **_paged(found)}


def _hooks(given: Parameters) -> Answer:
    group = _group(given)
    found = [
        {
            "LifecycleHookId": places.made_id("ash", group.name, hook.name),
            "LifecycleHookName": hook.name,
            "ScalingGroupId": group.name,
            "LifecycleTransition": "SCALE_IN" if hook.lifecycle_transition == hooks.TERMINATING else "SCALE_OUT",
            "HeartbeatTimeout": hook.heartbeat_timeout,
            "DefaultResult": hook.default_result,
        }
        for hook in group.autoscaling_backend.describe_lifecycle_hooks(group.name)
    ]
    return {"LifecycleHooks": found, **_paged(found)}


def _actions(given: Parameters) -> Answer:
    found = [
        {
            "LifecycleHookId": hook,
            "LifecycleActionToken": token,
            "LifecycleActionStatus": "Pending",
            "LifecycleActionResult": "CONTINUE",
            "InstanceIds": [state.instance_id],
        }
        for state, hook, token in _pending()
        if _activity(state) == given.get("ScalingActivityId")
    ]
    if given.get("LifecycleActionStatus") not in (None, "Pending"):
        found = []
    return {"LifecycleActions": found, "MaxResults": 50, "TotalCount": len(found)}


def _complete(given: Parameters) -> Answer:
    for state, hook, token in _pending():
        if (hook, token) == (given.get("LifecycleHookId"), given.get("LifecycleActionToken")):
            group = state.auto_scaling_group
            holding = hooks.terminating(group)
            assert holding is not None
            hooks.complete(group.autoscaling_backend, group.name, holding.name, state.instance_id)
            return {}
    raise Refusal("InvalidLifecycleActionToken.NotFound", "The specified lifecycle action does not exist.", 404)


def _remove(given: Parameters) -> Answer:
    group = _group(given)
    known = {state.instance_id for state in group.instance_states if state.lifecycle_state != hooks.WAITING}
    wanted = numbered(given, "InstanceIds", "InstanceId")
    unknown = [instance for instance in wanted if instance not in known]
    if unknown and given.get("IgnoreInvalidInstance") != "true":
        raise Refusal("InvalidInstanceId.NotFound", f"The instances {unknown} are not in the group.", 404)
    decrease = given.get("DecreaseDesiredCapacity", "true") == "true"
    for instance in wanted:
        if instance in known:
            group.autoscaling_backend.terminate_instance(instance, decrease)
    return {"ScalingActivityId": places.made_id("asa", group.name, *wanted)}


def _suspend(given: Parameters) -> Answer:
    group = _group(given)
    group.autoscaling_backend.suspend_processes(group.name, numbered(given, "Processes", "Process"))
    return {}


def _resume(given: Parameters) -> Answer:
    group = _group(given)
    group.autoscaling_backend.resume_processes(group.name, numbered(given, "Processes", "Process"))
    return {}


def _modify(given: Parameters) -> Answer:
    group = _group(given)
    if "MinSize" in given:
        group.min_size = int(given["MinSize"])
    if "MaxSize" in given:
        group.max_size = int(given["MaxSize"])
    if "DesiredCapacity" in given:
        desired = int(given["DesiredCapacity"])
        if not (group.min_size or 0) <= desired <= (group.max_size or 0):
            raise Refusal("InvalidDesiredCapacity", "The desired capacity is not within the group's sizes.")
        group.autoscaling_backend.set_desired_capacity(group.name, desired)
    return {}


def _older(action: Callable[[Parameters], Answer]) -> Callable[[Parameters], Answer]:
    def answer(given: Parameters) -> Answer:
        shown: Answer = nested(action(given))
        return shown

    return answer


_ACTIONS: dict[str, Callable[[Parameters], Answer]] = {
    "CompleteLifecycleAction": _complete,
    "DescribeLifecycleActions": _actions,
    "DescribeLifecycleHooks": _hooks,
    "DescribeScalingActivities": _activities,
    "DescribeScalingGroups": _groups,
    "DescribeScalingInstances": _instances,
    "ModifyScalingGroup": _modify,
    "RemoveInstances": _remove,
    "ResumeProcesses": _resume,
    "SuspendProcesses": _suspend,
}

ACTIONS: dict[str, dict[str, Callable[[Parameters], Answer]]] = {
    NEWER: _ACTIONS,
    OLDER: {name: _older(action) for name, action in _ACTIONS.items()},
}
"""By version and name."""


def _backend() -> AutoScalingBackend:
    backend: AutoScalingBackend = autoscaling_backends[ACCOUNT_ID][places.REGION]
    return backend


def _group(given: Parameters) -> FakeAutoScalingGroup:
    name = given.get("ScalingGroupId", "")
    group = _backend().autoscaling_groups.get(name)
    if group is None:
        raise Refusal("InvalidScalingGroupId.NotFound", f"The scaling group {name} does not exist.", 404)
    return group


def _held(group: FakeAutoScalingGroup) -> list[InstanceState]:
    return [state for state in group.instance_states if state.lifecycle_state == hooks.WAITING]


def _pending() -> list[tuple[InstanceState, str, str]]:
    """Every instance that a hook holds, with the hook's id and the action's token."""
    found = []
    for group in list(_backend().autoscaling_groups.values()):
        if hook := hooks.terminating(group):
            id_ = places.made_id("ash", group.name, hook.name)
            found += [(state, id_, places.made_id("token", id_, state.instance_id)) for state in _held(group)]
    return found


def _activity(state: InstanceState) -> str:
    return places.made_id("asa", state.auto_scaling_group_name, state.instance_id)


def _group_shown(group: FakeAutoScalingGroup) -> Answer:
    return {
        "ScalingGroupId": group.name,
        "ScalingGroupName": group.name,
        "MinSize": group.min_size,
        "MaxSize": group.max_size,
        "DesiredCapacity": group.desired_capacity,
        "CreationTime": timestamp(group.created_time),
        "LifecycleState": "Active",
        "TotalCapacity": len(group.instance_states),
        "ActiveCapacity": len(group.active_instances()),
        "SuspendedProcesses": [process["ProcessName"] for process in group.suspended_processes],
    }


def _instance_shown(state: InstanceState) -> Answer:
    instance = state.instance
    subnet = instance.ec2_backend.get_subnet(instance.subnet_id)
    tags = {tag["key"]: tag["value"] for tag in subnet.get_tags()}
    return {
        "InstanceId": state.instance_id,
        "ScalingGroupId": state.auto_scaling_group_name,
        "LifecycleState": _STATES.get(state.lifecycle_state, state.lifecycle_state),
        "HealthStatus": "Healthy",
        "CreationType": "AutoCreated",
        "CreationTime": timestamp(instance.launch_time),
        "ZoneId": tags.get(places.ZONE_TAG, ""),
        "PrivateIpAddress": instance.private_ip,
    }


def _paged(found: list[Any], page: int = 1, size: int = _PAGE) -> Answer:
    return {"TotalCount": len(found), "PageNumber": page, "PageSize": size}
