"""EC2 launch templates: each change of what they hold is a new version."""

from collections.abc import Mapping
from typing import ClassVar

from emulator.provider.aws.api import Api, tag_map
from emulator.provider.aws.ec2 import Ec2Object
from emulator.provider.aws.kind import OWN, Kind, tags_state, without
from emulator.provider.wire import Props

_OF_TEMPLATE = frozenset({"name", "description", "defaultVersion", "updateDefaultVersion"})


class LaunchTemplate(Ec2Object):
    """A launch template and its versions."""

    type = "aws:ec2/launchTemplate:LaunchTemplate"
    noun, key = "launch_template", "LaunchTemplateId"
    replace_on = frozenset({"name", "namePrefix"})
    names: ClassVar[Mapping[str, str]] = {
        "name": "LaunchTemplateName",
        "description": "VersionDescription",
        "latestVersion": "LatestVersionNumber",
        "defaultVersion": "DefaultVersionNumber",
        "launchTemplateData.vpcSecurityGroupIds": "SecurityGroupIds",
        "launchTemplateData.securityGroupNames": "SecurityGroups",
        "launchTemplateData.networkInterfaces.securityGroups": "Groups",
        "launchTemplateData.networkInterfaces.ipv4Addresses": "PrivateIpAddresses",
        "launchTemplateData.networkInterfaces.ipv4AddressCount": "SecondaryPrivateIpAddressCount",
    }

    def sent(self, props: Props) -> Props:
        """The template's own properties, and the version's."""
        own = {key: props[key] for key in ("name", "description") if props.get(key)}
        return {**own, "launchTemplateData": without(props, OWN | _OF_TEMPLATE)}

    def moving(self, old: Props, new: Props) -> frozenset[str]:
        """A new version, unless only tags or the default version change."""
        if self.sent(old) == self.sent(new):
            return frozenset()
        default = {"defaultVersion"} if new.get("updateDefaultVersion") else set()
        return frozenset({"latestVersion"} | default)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its members; tags by their own listing, as moto's description keeps those of its creation."""
        wanted = [{"Name": "resource-id", "Values": [id_]}]
        tags = tag_map(api.call("ec2", "describe_tags", Filters=wanted)["Tags"])
        return without(super().read(api, id_, props), ["ownerId"]) | tags_state(tags)

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """A new version where the content differs; the default version where it is to move."""
        super().apply(api, id_, old, new)
        default = new.get("defaultVersion") if new.get("defaultVersion") != old.get("defaultVersion") else None
        if old and self.moving(old, new):
            version = {"launchTemplateId": id_, **without(self.sent(new), ["name"])}
            made = api.send("ec2", "create_launch_template_version", version, self.names)
            if new.get("updateDefaultVersion"):
                default = made["LaunchTemplateVersion"]["VersionNumber"]
        if default:
            api.call("ec2", "modify_launch_template", LaunchTemplateId=id_, DefaultVersion=str(default))


KINDS: tuple[Kind, ...] = (LaunchTemplate(),)
