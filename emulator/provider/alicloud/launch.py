"""What instances are launched from: a launch template, or a group's scaling configuration, as EC2's template."""

# ruff: noqa: ARG002 - all kinds answer the same calls

from typing import Any

from emulator.provider.aws.api import Api, tag_list, tag_map
from emulator.provider.aws.kind import Kind, gone
from emulator.provider.wire import Props

VERSIONED_ELSEWHERE = frozenset(
    {"launchTemplateName", "name", "templateTags", "templateResourceGroupId", "defaultVersionNumber"}
    | {"updateDefaultVersionNumber", "tags"}
)
"""Of a template itself, not of its versions. `tags` go to instances, which get the group's here."""


def data(props: Props, role: str, kind: str | None) -> dict[str, Any]:
    """Data of an EC2 launch template: what a node shows of how it was launched. Disks, networks and all else it lacks.

    `role` is the name of the property that has the role's, `kind` the instance type.
    """
    spot = (props.get("spotStrategy") or "NoSpot") != "NoSpot"
    given = {
        "ImageId": props.get("imageId"),
        "InstanceType": kind,
        "UserData": props.get("userData"),
        "IamInstanceProfile": {"Name": props[role]} if props.get(role) else None,
        "InstanceMarketOptions": {"MarketType": "spot"} if spot else None,
        "MetadataOptions": {"HttpTokens": props.get("httpTokens") or "optional"},
    }
    return {name: value for name, value in given.items() if value is not None}


class LaunchTemplate(Kind):
    """A launch template; each change of what it launches is a version."""

    type = "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate"
    service = "ec2"
    replace_on = frozenset(
        {"launchTemplateName", "name", "autoRenew", "autoRenewPeriod", "period", "periodUnit"}
        | {"templateResourceGroupId"}
    )

    def create(self, api: Api, props: Props) -> str:
        """Makes it."""
        name = props.get("launchTemplateName") or props["name"]
        made = api.call("ec2", "create_launch_template", LaunchTemplateName=name, LaunchTemplateData=_data(props))
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def moving(self, old: Props, new: Props) -> frozenset[str]:
        """A new version, unless nothing of it changes."""
        if _version(old) == _version(new):
            return frozenset()
        return frozenset({"latestVersionNumber"})

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """A new version, and which is the default."""
        default = new.get("defaultVersionNumber") if new.get("defaultVersionNumber") != 1 or old else None
        if old and self.moving(old, new):
            made = api.call(
                "ec2", "create_launch_template_version", LaunchTemplateId=id_, LaunchTemplateData=_data(new)
            )
            if new.get("updateDefaultVersionNumber"):
                default = made["LaunchTemplateVersion"]["VersionNumber"]
        if default:
            api.call("ec2", "modify_launch_template", LaunchTemplateId=id_, DefaultVersion=str(default))
        if tags := new.get("templateTags"):
            api.call("ec2", "create_tags", Resources=[id_], Tags=tag_list(tags))

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its name and the numbers of its versions."""
        found = api.call("ec2", "describe_launch_templates", LaunchTemplateIds=[id_])["LaunchTemplates"]
        if not found:
            raise gone("launch template", id_)
        (template,) = found
        wanted = [{"Name": "resource-id", "Values": [id_]}]
        tags = tag_map(api.call("ec2", "describe_tags", Filters=wanted)["Tags"])
        return {
            "launchTemplateName": template["LaunchTemplateName"],
            "latestVersionNumber": template["LatestVersionNumber"],
            "defaultVersionNumber": template["DefaultVersionNumber"],
            **({"templateTags": tags} if tags else {}),
        }

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it."""
        api.call("ec2", "delete_launch_template", LaunchTemplateId=id_)


def _data(props: Props) -> dict[str, Any]:
    return data(props, "ramRoleName", props.get("instanceType"))


def _version(props: Props) -> Props:
    return {name: value for name, value in props.items() if name not in VERSIONED_ELSEWHERE}


KINDS: tuple[Kind, ...] = (LaunchTemplate(),)
