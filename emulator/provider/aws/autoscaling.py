"""Auto scaling groups, their lifecycle hooks and scaling policies.

The API server behind has no instance refresh; an update plays it, by ending the group's older instances through the
API and waiting for the group to replace them.
"""

# ruff: noqa: ARG002 - all kinds answer the same calls

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from emulator.provider.aws.api import Api, ApiError
from emulator.provider.aws.kind import Kind, changed, gone, without
from emulator.provider.wire import Props

DEADLINE_S = 60.0

_LAUNCH = frozenset({"launchTemplate", "mixedInstancesPolicy", "launchConfiguration"})
_PROVIDERS = frozenset(
    {
        "forceDelete",
        "forceDeleteWarmPool",
        "waitForCapacityTimeout",
        "waitForElbCapacity",
        "minElbCapacity",
        "ignoreFailedScalingActivities",
        "instanceRefresh",
    }
)
# moto takes these at creation only, so that their state would lie after an update
_NOT_READ = ("defaultCooldown", "terminationPolicies", "capacityRebalance", "placementGroup", "status", "name")


class Group(Kind):
    """An auto scaling group."""

    type = "aws:autoscaling/group:Group"
    service = "autoscaling"
    replace_on = frozenset({"name", "namePrefix"})
    settings = frozenset(
        {
            "tags",
            "enabledMetrics",
            "metricsGranularity",
            "suspendedProcesses",
            "initialLifecycleHooks",
            "warmPool",
        }
    )
    names: ClassVar[Mapping[str, str]] = {
        "name": "AutoScalingGroupName",
        "autoscalingGroupName": "AutoScalingGroupName",
        "arn": "AutoScalingGroupARN",
        "vpcZoneIdentifiers": "VPCZoneIdentifier",
        "protectFromScaleIn": "NewInstancesProtectedFromScaleIn",
        "loadBalancers": "LoadBalancerNames",
        "launchConfiguration": "LaunchConfigurationName",
        "launchTemplate.id": "LaunchTemplateId",
        "launchTemplate.name": "LaunchTemplateName",
    }

    def sent(self, props: Props) -> Props:
        """Subnets as the API wants them: one text."""
        sent = without(super().sent(props), _PROVIDERS)
        if subnets := sent.get("vpcZoneIdentifiers"):
            sent["vpcZoneIdentifiers"] = ",".join(subnets)
        return sent

    def create(self, api: Api, props: Props) -> str:
        """Makes it with its tags, as its first instances start at once and inherit them."""
        name = str(props["name"])
        tags = {"tags": [_tag(name, tag) for tag in props["tags"]]} if props.get("tags") else {}
        api.send("autoscaling", "create_auto_scaling_group", {**self.sent(props), **tags}, self.names)
        return name

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """What differs; then new instances where the launch settings changed and a refresh is asked for."""
        older = [instance["InstanceId"] for instance in self.item(api, id_)["Instances"]]
        if old:
            self._retag(api, id_, old, new)
            before, after = self.sent(old), self.sent(new)
            change = {key: value for key, value in after.items() if value != before.get(key) and key != "name"}
            if change:
                api.send("autoscaling", "update_auto_scaling_group", {"name": id_, **change}, self.names)
        self._apply_settings(api, id_, old, new)
        refresh = new.get("instanceRefresh")
        if old and refresh and changed(old, new, _LAUNCH | {*map(_camel, refresh.get("triggers") or [])}):
            replace_instances(api, id_, older, refresh.get("preferences") or {})

    def item(self, api: Api, id_: str) -> dict[str, Any]:
        """The group as the API tells it."""
        groups = api.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[id_])
        if not groups["AutoScalingGroups"]:
            raise gone("auto scaling group", id_)
        found: dict[str, Any] = groups["AutoScalingGroups"][0]
        return found

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Sizes, subnets, health checks, tags."""
        item = self.item(api, id_)
        subnets = [subnet for subnet in item.get("VPCZoneIdentifier", "").split(",") if subnet]
        tags = [
            {"key": tag["Key"], "value": tag["Value"], "propagateAtLaunch": tag["PropagateAtLaunch"]}
            for tag in item.get("Tags", [])
        ]
        state = without(self.state(without(item, ["Tags"])), _NOT_READ)
        return state | {"name": id_, "vpcZoneIdentifiers": subnets} | ({"tags": tags} if tags else {})

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Empties it and waits until its instances are gone; `forceDelete` doesn't wait."""
        if protected := [i["InstanceId"] for i in self.item(api, id_)["Instances"] if i["ProtectedFromScaleIn"]]:
            api.call(
                "autoscaling",
                "set_instance_protection",
                AutoScalingGroupName=id_,
                InstanceIds=protected,
                ProtectedFromScaleIn=False,
            )
        if not props.get("forceDelete"):
            api.call(
                "autoscaling",
                "update_auto_scaling_group",
                AutoScalingGroupName=id_,
                MinSize=0,
                MaxSize=0,
                DesiredCapacity=0,
            )
            _wait("DeleteAutoScalingGroup", lambda: not self.item(api, id_)["Instances"], DEADLINE_S)
        api.call("autoscaling", "delete_auto_scaling_group", AutoScalingGroupName=id_, ForceDelete=True)

    def _retag(self, api: Api, id_: str, old: Props, new: Props) -> None:
        before, after = ({tag["key"]: _tag(id_, tag) for tag in props.get("tags") or []} for props in (old, new))
        if removed := [tag for key, tag in before.items() if key not in after]:
            api.call("autoscaling", "delete_tags", Tags=removed)
        if added := [tag for key, tag in after.items() if before.get(key) != tag]:
            api.call("autoscaling", "create_or_update_tags", Tags=added)

    def _apply_settings(self, api: Api, id_: str, old: Props, new: Props) -> None:
        group = {"autoscalingGroupName": id_}
        if changed(old, new, ["enabledMetrics"]) and new.get("enabledMetrics"):
            api.send(
                "autoscaling",
                "enable_metrics_collection",
                {**group, "metrics": new["enabledMetrics"], "granularity": new.get("metricsGranularity", "1Minute")},
            )
        before, after = (set(props.get("suspendedProcesses") or []) for props in (old, new))
        for verb, processes in (("resume", before - after), ("suspend", after - before)):
            if processes:
                props = {**group, "scalingProcesses": sorted(processes)}
                api.send("autoscaling", f"{verb}_processes", props)
        if not old:
            for hook in new.get("initialLifecycleHooks") or []:
                api.send("autoscaling", "put_lifecycle_hook", {**group, **hook}, {"name": "LifecycleHookName"})
        if changed(old, new, ["warmPool"]):
            if new.get("warmPool"):
                api.send("autoscaling", "put_warm_pool", {**group, **new["warmPool"]})
            else:
                api.send("autoscaling", "delete_warm_pool", group)


class LifecycleHook(Kind):
    """A lifecycle hook of a group."""

    type = "aws:autoscaling/lifecycleHook:LifecycleHook"
    service = "autoscaling"
    replace_on = frozenset({"name", "autoscalingGroupName"})
    names: ClassVar[Mapping[str, str]] = {"name": "LifecycleHookName"}

    def create(self, api: Api, props: Props) -> str:
        """Puts it."""
        api.send("autoscaling", "put_lifecycle_hook", self.sent(props), self.names)
        return str(props["name"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Puts it again."""
        if old:
            self.create(api, new)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """The hook by its name."""
        hooks = api.call(
            "autoscaling",
            "describe_lifecycle_hooks",
            AutoScalingGroupName=props["autoscalingGroupName"],
            LifecycleHookNames=[id_],
        )["LifecycleHooks"]
        if not hooks:
            raise gone("lifecycle hook", id_)
        return self.state(hooks[0])

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it."""
        api.call(
            "autoscaling",
            "delete_lifecycle_hook",
            AutoScalingGroupName=props["autoscalingGroupName"],
            LifecycleHookName=id_,
        )


class Policy(Kind):
    """A scaling policy of a group."""

    type = "aws:autoscaling/policy:Policy"
    service = "autoscaling"
    replace_on = frozenset({"name", "autoscalingGroupName"})
    names: ClassVar[Mapping[str, str]] = {"name": "PolicyName", "arn": "PolicyARN"}

    def create(self, api: Api, props: Props) -> str:
        """Puts it."""
        api.send("autoscaling", "put_scaling_policy", self.sent(props), self.names)
        return str(props["name"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Puts it again."""
        if old:
            self.create(api, new)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """The policy by its name."""
        policies = api.call(
            "autoscaling",
            "describe_policies",
            AutoScalingGroupName=props["autoscalingGroupName"],
            PolicyNames=[id_],
        )["ScalingPolicies"]
        if not policies:
            raise gone("scaling policy", id_)
        return {"arn": policies[0]["PolicyARN"], "name": id_}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it."""
        api.call("autoscaling", "delete_policy", AutoScalingGroupName=props["autoscalingGroupName"], PolicyName=id_)


def _tag(group: str, tag: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ResourceId": group,
        "ResourceType": "auto-scaling-group",
        "Key": tag["key"],
        "Value": tag["value"],
        "PropagateAtLaunch": tag["propagateAtLaunch"],
    }


def _camel(trigger: str) -> str:
    head, *rest = trigger.split("_")
    return {"tag": "tags"}.get(trigger, head + "".join(word.capitalize() for word in rest))


def replace_instances(api: Api, name: str, older: list[str], preferences: Mapping[str, Any]) -> None:
    """Replaces these instances: all at once where no share has to stay healthy, else one after the other."""
    at_once = preferences.get("minHealthyPercentage") == 0
    end = time.monotonic() + DEADLINE_S
    for batch in [older] if at_once else [[instance] for instance in older]:
        for instance in _serving(api, name).intersection(batch):  # the fleet may have shrunk meanwhile
            api.call(
                "autoscaling",
                "terminate_instance_in_auto_scaling_group",
                InstanceId=instance,
                ShouldDecrementDesiredCapacity=False,
            )
        _wait("StartInstanceRefresh", partial(_replaced, api, name, batch), end - time.monotonic())


def _replaced(api: Api, name: str, ended: list[str]) -> bool:
    serving = _serving(api, name)
    return not serving & set(ended) and len(serving) >= _group(api, name)["DesiredCapacity"]


def _serving(api: Api, name: str) -> set[str]:
    return {i["InstanceId"] for i in _group(api, name)["Instances"] if i["LifecycleState"] == "InService"}


def _group(api: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = api.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[name])
    group: dict[str, Any] = found["AutoScalingGroups"][0]
    return group


def _wait(operation: str, done: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise ApiError(operation, "Timeout", f"instances were not replaced or gone within {DEADLINE_S:.0f} s")
        time.sleep(0.1)


KINDS: tuple[Kind, ...] = (Group(), LifecycleHook(), Policy())
