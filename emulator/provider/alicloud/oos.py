"""OOS templates and executions. Of what a template may do, an execution here makes calls to ESS (`_CALLS`).

A template is kept as a parameter of Parameter Store.
"""

# ruff: noqa: ARG002 - all kinds answer the same calls

import json
import re
import time
from collections.abc import Callable
from typing import Any

from emulator import places
from emulator.provider.alicloud import configurations, ess
from emulator.provider.aws.api import Api, ApiError
from emulator.provider.aws.autoscaling import replace_instances
from emulator.provider.aws.kind import Kind, changed
from emulator.provider.wire import Props

_FOLDER = "/acs/oos/"
_ITEM = "ACS::TaskLoopItem"
_NAMED = re.compile(r"\{\{ *([\w.:]+) *\}\}")


class Template(Kind):
    """A template."""

    type = "alicloud:oos/template:Template"
    service = "ssm"
    replace_on = frozenset({"templateName"})

    def create(self, api: Api, props: Props) -> str:
        """Keeps it."""
        name = str(props["templateName"])
        api.call("ssm", "put_parameter", Name=_FOLDER + name, Value=props["content"], Type="String", Overwrite=True)
        return name

    def moving(self, old: Props, new: Props) -> frozenset[str]:
        """Each content is a version."""
        return frozenset({"templateVersion"}) if changed(old, new, ["content"]) else frozenset()

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Keeps the new one."""
        if old and self.moving(old, new):
            self.create(api, new)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its content and version."""
        found = api.call("ssm", "get_parameter", Name=_FOLDER + id_)["Parameter"]
        return {
            "templateName": id_,
            "templateId": places.made_id("t", id_),
            "content": found["Value"],
            "templateVersion": f"v{found['Version']}",
            "templateFormat": "JSON",
            "templateType": "Automation",
            "shareType": "Private",
        }

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Forgets it."""
        api.call("ssm", "delete_parameter", Name=_FOLDER + id_)


class Execution(Kind):
    """An execution: done when it is made, and never again."""

    type = "alicloud:oos/execution:Execution"
    service = "ssm"
    replace_on = frozenset(
        {"templateName", "templateVersion", "templateContent", "parameters", "mode", "loopMode", "safetyCheck"}
        | {"description", "parentExecutionId"}
    )

    def create(self, api: Api, props: Props) -> str:
        """Does what the template says, as far as this cloud can. One that finds nothing to do has failed, as there."""
        content = api.call("ssm", "get_parameter", Name=_FOLDER + props["templateName"])["Parameter"]["Value"]
        given = json.loads(props.get("parameters") or "{}")
        try:
            for task in json.loads(content).get("Tasks", []):
                _run(api, task, given)
            ended = "success"
        except ApiError:
            ended = "failed"
        return places.made_id(f"exec-{ended}", str(time.time_ns()))

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """How it ended, which its id has."""
        return {"executionId": id_, "status": id_.split("-")[1].capitalize(), "counters": "{}", "outputs": "{}"}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """What was done stays done."""


def _run(api: Api, task: dict[str, Any], given: dict[str, Any]) -> None:
    """Runs a task, whose outputs join what is given. Raises ApiError where it fails and no other may follow."""
    if (condition := task.get("When")) and len({_filled(one, given) for one in condition["Fn::Equals"]}) > 1:
        return
    items = _filled(task["Loop"]["Items"], given) if "Loop" in task else [None]
    for item in items:
        try:
            answer = _call(api, task["Properties"], {**given, _ITEM: item})
        except ApiError:
            if task.get("OnError") != "ACS::NEXT":
                raise
            continue
        for name, output in task.get("Outputs", {}).items():
            found = _selected(answer, output["ValueSelector"])
            given[f"{task['Name']}.{name}"] = found if output["Type"] == "List" else found[0]


def _call(api: Api, call: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """An API's answer; of what this cloud doesn't serve, an empty one."""
    served = _CALLS.get(call["API"]) if call["Service"] == "ESS" else None
    return served(api, _filled(call["Parameters"], given)) or {} if served else {}


def _refresh(api: Api, asked: dict[str, Any]) -> None:
    """Replaces the instances of a group, those aside that were launched from what it launches now."""
    group = ess.described(api, asked["ScalingGroupId"])
    older = [one["InstanceId"] for one in group["Instances"] if one["LifecycleState"] == "InService"]
    if asked.get("SkipMatching"):
        older = [instance for instance in older if not _matches(api, instance, group["LaunchTemplate"])]
    if not older:
        raise ApiError("StartInstanceRefresh", "InvalidInstance.NoInstanceNeedBeRefreshed", "all match")
    preferences = {"minHealthyPercentage": asked.get("MinHealthyPercentage", 80)}
    replace_instances(api, asked["ScalingGroupId"], older, preferences)


def _groups(api: Api, asked: dict[str, Any]) -> dict[str, Any]:
    state = "Inactive" if ess.waits(api, asked["ScalingGroupId1"]) else "Active"
    return {"ScalingGroups": {"ScalingGroup": [{"LifecycleState": state}]}}


def _configurations(api: Api, asked: dict[str, Any]) -> dict[str, Any]:
    found = [{"ScalingConfigurationId": id_} for id_ in configurations.of(api, asked["ScalingGroupId"])]
    return {"ScalingConfigurations": {"ScalingConfiguration": found}}


def _activate(api: Api, asked: dict[str, Any]) -> None:
    configurations.activate(api, asked["ScalingGroupId"], asked["ActiveScalingConfigurationId"])


def _enable(api: Api, asked: dict[str, Any]) -> None:
    """Raises ApiError where the group is enabled already (ESS API, EnableScalingGroup)."""
    if not ess.waits(api, asked["ScalingGroupId"]):
        raise ApiError("EnableScalingGroup", "IncorrectScalingGroupStatus", "it is Active")
    ess.enable(api, asked["ScalingGroupId"])


_CALLS: dict[str, Callable[[Api, dict[str, Any]], dict[str, Any] | None]] = {
    "DeleteScalingConfiguration": lambda api, asked: configurations.drop(api, asked["ScalingConfigurationId"]),
    "DescribeScalingConfigurations": _configurations,
    "DescribeScalingGroups": _groups,
    "EnableScalingGroup": _enable,
    "ModifyScalingConfiguration": lambda api, asked: configurations.complete(
        api, asked["ScalingConfigurationId"], asked["HttpTokens"]
    ),
    "ModifyScalingGroup": _activate,
    "StartInstanceRefresh": _refresh,
}


def _matches(api: Api, instance: str, template: dict[str, str]) -> bool:
    """Whether an instance was launched from what its group launches now: the server doesn't say from which version."""
    data = configurations.launched(api, template["LaunchTemplateName"], template["Version"])
    found = api.call("ec2", "describe_instances", InstanceIds=[instance])["Reservations"][0]["Instances"][0]
    held = api.call("ec2", "describe_instance_attribute", InstanceId=instance, Attribute="userData")
    launched = (found["ImageId"], found["InstanceType"], held.get("UserData", {}).get("Value"))
    return launched == (data.get("ImageId"), data.get("InstanceType"), data.get("UserData"))


def _filled(value: Any, given: dict[str, Any]) -> Any:
    """A value with what it names (`{{ name }}`) put in; OOS's own, `ACS::…`, stay where they aren't known."""
    match value:
        case dict():
            return {name: _filled(item, given) for name, item in value.items()}
        case list():
            return [_filled(item, given) for item in value]
        case str() if (alone := _NAMED.fullmatch(value)) and alone[1] in given:
            return given[alone[1]]
        case str():
            return _NAMED.sub(lambda found: str(given.get(found[1], found[0])), value)
    return value


def _selected(answer: Any, selector: str) -> list[Any]:
    """What a selector of names and `[]` takes of an answer: of jq's language, all that is asked here."""
    found = [answer]
    for name in selector.split("."):
        found = [one[name.removesuffix("[]")] for one in found]
        if name.endswith("[]"):
            found = [item for one in found for item in one]
    return found


KINDS: tuple[Kind, ...] = (Template(), Execution())
