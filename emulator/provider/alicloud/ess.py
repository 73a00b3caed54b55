"""Scaling groups of ESS, which are EC2's auto scaling groups, with what ends their nodes.

A group that is given no launch template waits for its first scaling configuration (configurations.py): until then it
launches a template of its own, none of it.
"""

# ruff: noqa: ARG002 - all kinds answer the same calls

import json
import time
from typing import Any, ClassVar

from emulator import places
from emulator.provider.aws.api import Api, tag_map
from emulator.provider.aws.kind import Kind, changed, gone
from emulator.provider.wire import Props

TRANSITIONS = {
    "SCALE_IN": "autoscaling:EC2_INSTANCE_TERMINATING",
    "SCALE_OUT": "autoscaling:EC2_INSTANCE_LAUNCHING",
}
RESULTS = {"CONTINUE": "CONTINUE", "ABANDON": "ABANDON", "ROLLBACK": "ABANDON"}

NONE = {"MinSize": 0, "DesiredCapacity": 0}
_EMPTY = {"ImageId": "m-none", "InstanceType": "ecs.none.none"}


class Group(Kind):
    """A scaling group; its id names the server's group."""

    type = "alicloud:ess/scalingGroup:ScalingGroup"
    service = "autoscaling"
    replace_on = frozenset({"instanceId", "containerGroupId", "multiAzPolicy", "groupType"})

    def create(self, api: Api, props: Props) -> str:
        """Makes it; instances start at once if it knows what of."""
        id_ = places.made_id("asg", str(time.time_ns()), str(props.get("scalingGroupName")))
        waits = not props.get("launchTemplateId")
        sizes = _sizes(props)
        tags = _tags(id_, props)
        if waits:
            tags.append(note(id_, places.WAITING_TAG, sizes))
            sizes |= NONE
            api.call("ec2", "create_launch_template", LaunchTemplateName=id_, LaunchTemplateData=_EMPTY)
        template = {"LaunchTemplateName": id_, "Version": "1"} if waits else _template(props)
        api.call(
            "autoscaling",
            "create_auto_scaling_group",
            AutoScalingGroupName=id_,
            LaunchTemplate=template,
            VPCZoneIdentifier=_subnets(props),
            NewInstancesProtectedFromScaleIn=False,
            Tags=tags,
            **sizes,
        )
        return id_

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """What differs. Instances that run stay as they were launched."""
        if not old:
            return
        _retag(api, id_, old, new)
        change: dict[str, Any] = {}
        if changed(old, new, ["minSize", "maxSize", "desiredCapacity"]):
            change |= _resized(api, id_, _sizes(new), stated=changed(old, new, ["desiredCapacity"]))
        if changed(old, new, ["launchTemplateId", "launchTemplateVersion"]) and new.get("launchTemplateId"):
            change["LaunchTemplate"] = _template(new)
        if changed(old, new, ["vswitchIds", "vswitchId"]):
            change["VPCZoneIdentifier"] = _subnets(new)
        if change:
            api.call("autoscaling", "update_auto_scaling_group", AutoScalingGroupName=id_, **change)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its sizes, vSwitches and tags."""
        found = described(api, id_)
        sizes = {**found, **(noted(found, places.WAITING_TAG) or {})}
        subnets = [places.shown(subnet) for subnet in found["VPCZoneIdentifier"].split(",")]
        return {
            "minSize": sizes["MinSize"],
            "maxSize": sizes["MaxSize"],
            "desiredCapacity": sizes["DesiredCapacity"],
            "vswitchIds": subnets,
            "tags": places.own_tags(tag_map(found["Tags"])),
        }

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it with its instances, for which no hook is waited for, and its own template."""
        own = described(api, id_)["LaunchTemplate"]["LaunchTemplateName"] == id_
        api.call("autoscaling", "delete_auto_scaling_group", AutoScalingGroupName=id_, ForceDelete=True)
        if own:
            api.call("ec2", "delete_launch_template", LaunchTemplateName=id_)


class LifecycleHook(Kind):
    """A lifecycle hook of a group; its id follows from the group's and its name, by which the server has it."""

    type = "alicloud:ess/lifecycleHook:LifecycleHook"
    service = "autoscaling"
    replace_on = frozenset({"scalingGroupId", "name"})

    def create(self, api: Api, props: Props) -> str:
        """Puts it; ESS waits for 600 seconds and continues, unless told otherwise (ESS API, CreateLifecycleHook)."""
        api.call(
            "autoscaling",
            "put_lifecycle_hook",
            AutoScalingGroupName=props["scalingGroupId"],
            LifecycleHookName=props["name"],
            LifecycleTransition=TRANSITIONS[props["lifecycleTransition"]],
            HeartbeatTimeout=props.get("heartbeatTimeout") or 600,
            DefaultResult=RESULTS[props.get("defaultResult") or "CONTINUE"],
        )
        return places.made_id("ash", props["scalingGroupId"], props["name"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Puts it again."""
        if old:
            self.create(api, new)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its time. Raises ApiError where it is gone."""
        group, name = props["scalingGroupId"], props["name"]
        described(api, group)
        hooks = api.call(
            "autoscaling", "describe_lifecycle_hooks", AutoScalingGroupName=group, LifecycleHookNames=[name]
        )["LifecycleHooks"]
        if not hooks:
            raise gone("lifecycle hook", id_)
        return {"name": name, "heartbeatTimeout": hooks[0]["HeartbeatTimeout"]}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it."""
        group = props["scalingGroupId"]
        api.call("autoscaling", "delete_lifecycle_hook", AutoScalingGroupName=group, LifecycleHookName=props["name"])


class SuspendedProcess(Kind):
    """A process of a group that is suspended for as long as this is there."""

    type = "alicloud:ess/suspendProcess:SuspendProcess"
    service = "autoscaling"
    replace_on = frozenset({"scalingGroupId", "process"})
    verbs: ClassVar[tuple[str, str]] = ("suspend_processes", "resume_processes")

    def create(self, api: Api, props: Props) -> str:
        """Suspends it, under ESS's own name: the server keeps any."""
        self._call(api, props, self.verbs[0])
        return f"{props['scalingGroupId']}:{props['process']}"

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Whether it is suspended. Raises ApiError where it isn't."""
        group, _, process = id_.partition(":")
        if process not in {one["ProcessName"] for one in described(api, group)["SuspendedProcesses"]}:
            raise gone("suspended process", id_)
        return {"scalingGroupId": group, "process": process}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Resumes it."""
        self._call(api, props, self.verbs[1])

    def _call(self, api: Api, props: Props, verb: str) -> None:
        group, process = props["scalingGroupId"], props["process"]
        api.call("autoscaling", verb, AutoScalingGroupName=group, ScalingProcesses=[process])


def enable(api: Api, group: str) -> None:
    """Has a group that waits begin; one that runs goes on."""
    waiting = noted(described(api, group), places.WAITING_TAG)
    if waiting is not None:
        api.call("autoscaling", "delete_tags", Tags=[note(group, places.WAITING_TAG, None)])
        api.call("autoscaling", "update_auto_scaling_group", AutoScalingGroupName=group, **waiting)


def waits(api: Api, group: str) -> bool:
    """Whether a group is disabled yet."""
    return noted(described(api, group), places.WAITING_TAG) is not None


def described(api: Api, id_: str) -> dict[str, Any]:
    """The server's group. Raises ApiError where it is gone."""
    groups = api.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[id_])
    if not groups["AutoScalingGroups"]:
        raise gone("scaling group", id_)
    found: dict[str, Any] = groups["AutoScalingGroups"][0]
    return found


def _sizes(props: Props) -> dict[str, int]:
    desired = props.get("desiredCapacity")
    return {
        "MinSize": int(props["minSize"]),
        "MaxSize": int(props["maxSize"]),
        "DesiredCapacity": int(props["minSize"] if desired is None else desired),
    }


def _resized(api: Api, id_: str, sizes: dict[str, int], *, stated: bool) -> dict[str, int]:
    """What of new sizes the server's group gets now: one that waits is told how many nodes it starts with."""
    if noted(described(api, id_), places.WAITING_TAG) is not None:
        api.call("autoscaling", "create_or_update_tags", Tags=[note(id_, places.WAITING_TAG, sizes)])
        return {"MaxSize": sizes["MaxSize"]}
    return sizes if stated else {name: size for name, size in sizes.items() if name != "DesiredCapacity"}


def _subnets(props: Props) -> str:
    vswitches = props.get("vswitchIds") or [props["vswitchId"]]
    return ",".join(places.served(vswitch) for vswitch in vswitches)


def _template(props: Props) -> dict[str, str]:
    version = str(props.get("launchTemplateVersion") or "Default")
    return {
        "LaunchTemplateId": props["launchTemplateId"],
        "Version": f"${version}" if version in ("Default", "Latest") else version,
    }


def noted(group: dict[str, Any], key: str) -> Any:
    """What a group's tag keeps for us; None where there is none."""
    return next((json.loads(tag["Value"]) for tag in group["Tags"] if tag["Key"] == key), None)


def note(group: str, key: str, value: Any) -> dict[str, Any]:
    """A tag of a group that keeps something for us."""
    return {**_tag(group, key, json.dumps(value)), "PropagateAtLaunch": False}


def _tag(group: str, key: str, value: str) -> dict[str, Any]:
    return {
        "ResourceId": group,
        "ResourceType": "auto-scaling-group",
        "Key": key,
        "Value": value,
        "PropagateAtLaunch": True,
    }


def _tags(group: str, props: Props) -> list[dict[str, Any]]:
    return [_tag(group, key, value) for key, value in (props.get("tags") or {}).items()]


def _retag(api: Api, id_: str, old: Props, new: Props) -> None:
    before, after = _tags(id_, old), _tags(id_, new)
    if removed := [tag for tag in before if tag["Key"] not in (new.get("tags") or {})]:
        api.call("autoscaling", "delete_tags", Tags=removed)
    if added := [tag for tag in after if tag not in before]:
        api.call("autoscaling", "create_or_update_tags", Tags=added)


KINDS: tuple[Kind, ...] = (Group(), LifecycleHook(), SuspendedProcess())
