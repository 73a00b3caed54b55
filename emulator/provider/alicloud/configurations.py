"""Scaling configurations of ESS: each is a version of its group's own template (ess.py)."""

from typing import Any

from emulator import places
from emulator.provider.alicloud import ess, launch
from emulator.provider.aws.api import Api, ApiError
from emulator.provider.aws.kind import Kind, gone
from emulator.provider.wire import Props


class Configuration(Kind):
    """A scaling configuration: what its group launches, once it is active."""

    type = "alicloud:ess/scalingConfiguration:ScalingConfiguration"
    service = "autoscaling"
    replace_on = frozenset({"scalingGroupId", "securityEnhancementStrategy", "password", "kmsEncryptedPassword"})

    def create(self, api: Api, props: Props) -> str:
        """Makes it, as a version of the group's template, whose number its id has."""
        group = str(props["scalingGroupId"])
        number = self._version(api, props)
        _keep(api, group, {**_kept(api, group), str(number): number})
        return f"asc-{number}-{group.removeprefix('asg-')}"

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Has the group launch it, if it is to be active; the group starts with the first that is enabled.

        The server edits no version: an edited configuration is another one, under the same id.
        """
        group = str(new["scalingGroupId"])
        if old:
            _keep(api, group, {**_kept(api, group), _number(id_): self._version(api, new)})
        if new.get("active"):
            activate(api, group, id_)
            if new.get("enable"):
                ess.enable(api, group)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Whether the group has it. Raises ApiError where it is gone."""
        if _number(id_) not in _kept(api, str(props["scalingGroupId"])):
            raise gone("scaling configuration", id_)
        return {}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it; the last one of a group only by force, and then the group with it, as the provider does."""
        group = str(props["scalingGroupId"])
        left = {number: version for number, version in _kept(api, group).items() if number != _number(id_)}
        if left:
            _keep(api, group, left)
        elif props.get("forceDelete"):
            ess.Group().delete(api, group, {})
        else:
            raise ApiError(
                "DeleteScalingConfiguration",
                "IncorrectScalingConfigurationLifecycleState",
                f"{id_} is the last configuration of {group}: set forceDelete, which deletes the group with it",
            )

    @staticmethod
    def _version(api: Api, props: Props) -> int:
        kind = props.get("instanceType") or next(iter(props.get("instanceTypes") or []), None)
        kind = kind or next((one["instanceType"] for one in props.get("instanceTypeOverrides") or []), None)
        made = api.call(
            "ec2",
            "create_launch_template_version",
            LaunchTemplateName=props["scalingGroupId"],
            LaunchTemplateData=launch.data(props, "roleName", kind),
        )
        return int(made["LaunchTemplateVersion"]["VersionNumber"])


def of(api: Api, group: str) -> list[str]:
    """The ids of a group's configurations."""
    return [f"asc-{number}-{group.removeprefix('asg-')}" for number in _kept(api, group)]


def complete(api: Api, id_: str, tokens: str) -> None:
    """Has a configuration say whether metadata needs tokens: all that the server has of what ESS alone can add.

    The server edits no version: what is edited becomes another one.
    """
    group = f"asg-{id_.split('-')[2]}"
    made = api.call(
        "ec2",
        "create_launch_template_version",
        LaunchTemplateName=group,
        LaunchTemplateData={
            **launched(api, group, _version_of(api, group, id_)),
            "MetadataOptions": {"HttpTokens": tokens},
        },
    )
    number = int(made["LaunchTemplateVersion"]["VersionNumber"])
    _keep(api, group, {**_kept(api, group), _number(id_): number})


def activate(api: Api, group: str, id_: str) -> None:
    """Has a group launch a configuration. Raises ApiError where it has none such."""
    template = {"LaunchTemplateName": group, "Version": str(_version_of(api, group, id_))}
    api.call("autoscaling", "update_auto_scaling_group", AutoScalingGroupName=group, LaunchTemplate=template)


def drop(api: Api, id_: str) -> None:
    """Deletes a configuration. Raises ApiError where its group launches it (ESS API, DeleteScalingConfiguration).

    ESS keeps those, too, that instances were launched from, which the server doesn't know.
    """
    group = f"asg-{id_.split('-')[2]}"
    if ess.described(api, group)["LaunchTemplate"]["Version"] == str(_version_of(api, group, id_)):
        raise ApiError("DeleteScalingConfiguration", "IncorrectScalingConfigurationLifecycleState", f"{id_} is active")
    _keep(api, group, {number: version for number, version in _kept(api, group).items() if number != _number(id_)})


def launched(api: Api, template: str, version: int | str) -> dict[str, Any]:
    """What a version of a template launches."""
    found = api.call("ec2", "describe_launch_template_versions", LaunchTemplateName=template, Versions=[str(version)])
    data: dict[str, Any] = found["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    return data


def _number(configuration: str) -> str:
    return configuration.split("-")[1]


def _version_of(api: Api, group: str, configuration: str) -> int:
    """The version that a configuration is by now. Raises ApiError where it is gone."""
    found = _kept(api, group).get(_number(configuration))
    if found is None:
        raise gone("scaling configuration", configuration)
    return found


def _kept(api: Api, group: str) -> dict[str, int]:
    """A group's configurations by their numbers, and what version each is: the server deletes none of a template."""
    found: dict[str, int] = ess.noted(ess.described(api, group), places.CONFIGURATIONS_TAG) or {}
    return found


def _keep(api: Api, group: str, kept: dict[str, int]) -> None:
    note = ess.note(group, places.CONFIGURATIONS_TAG, kept)
    api.call("autoscaling", "create_or_update_tags", Tags=[note])


KINDS: tuple[Kind, ...] = (Configuration(),)
