"""EC2 security groups and their rules, inline and as resources of their own."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from emulator.provider import naming
from emulator.provider.aws.api import Api
from emulator.provider.aws.ec2 import Ec2Object, retag
from emulator.provider.aws.kind import Kind, changed, gone, without
from emulator.provider.wire import Props


class SecurityGroup(Ec2Object):
    """A security group; it starts without AWS's default rule that lets everything out, as the real provider's does."""

    type = "aws:ec2/securityGroup:SecurityGroup"
    noun, key = "security_group", "GroupId"
    replace_on = frozenset({"name", "namePrefix", "description", "vpcId"})
    settings = frozenset({"ingress", "egress"})
    names: ClassVar[Mapping[str, str]] = {"name": "GroupName", "arn": "SecurityGroupArn"}

    def create(self, api: Api, props: Props) -> str:
        """Without any rule."""
        sent = {"description": "Managed by Pulumi", **without(props, ["revokeRulesOnDelete"])}
        id_ = super().create(api, sent)
        _clear(api, id_)
        return id_

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Inline rules are taken out and put in again."""
        super().apply(api, id_, old, new)
        for way in ("ingress", "egress"):
            if changed(old, new, [way]):
                for verb, props in (("revoke", old), ("authorize", new)):
                    if rules := [_permission(id_, rule) for rule in props.get(way) or []]:
                        api.call("ec2", f"{verb}_security_group_{way}", GroupId=id_, IpPermissions=rules)

    def item(self, api: Api, id_: str) -> dict[str, Any]:
        """The group."""
        found: dict[str, Any] = api.call("ec2", "describe_security_groups", GroupIds=[id_])["SecurityGroups"][0]
        return found


class DefaultSecurityGroup(SecurityGroup):
    """A VPC's default group, taken over rather than made: it loses all rules but the ones given here."""

    type = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
    replace_on = frozenset({"vpcId"})

    def create(self, api: Api, props: Props) -> str:
        """Finds it and clears it."""
        place = {"vpc-id": props["vpcId"]} if props.get("vpcId") else {}
        filters = [{"Name": k, "Values": [v]} for k, v in {"group-name": "default", **place}.items()]
        id_ = str(api.call("ec2", "describe_security_groups", Filters=filters)["SecurityGroups"][0]["GroupId"])
        _clear(api, id_)
        return id_

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """AWS keeps it as long as its VPC."""


class _Rule(Kind):
    service = "ec2"
    way: ClassVar[str]
    replace_on = frozenset(
        {
            "securityGroupId",
            "ipProtocol",
            "fromPort",
            "toPort",
            "cidrIpv4",
            "cidrIpv6",
            "prefixListId",
            "referencedSecurityGroupId",
            "description",
        }
    )
    names: ClassVar[Mapping[str, str]] = {"securityGroupId": "GroupId"}

    def create(self, api: Api, props: Props) -> str:
        """Authorizes it."""
        permission = self._permission(props)
        answer = api.call(
            "ec2", f"authorize_security_group_{self.way}", GroupId=props["securityGroupId"], IpPermissions=[permission]
        )
        if props.get("prefixListId"):  # moto takes such a rule into the group, but gives it no id
            return f"sgr-{hashlib.sha256(json.dumps([props['securityGroupId'], permission]).encode()).hexdigest()[:17]}"
        return str(answer["SecurityGroupRules"][0]["SecurityGroupRuleId"])

    @staticmethod
    def _permission(props: Props) -> dict[str, Any]:
        note = {"Description": props["description"]} if props.get("description") else {}
        permission: dict[str, Any] = {
            "IpProtocol": props["ipProtocol"],
            "FromPort": props.get("fromPort", -1),
            "ToPort": props.get("toPort", -1),
        }
        for name, members, member in (
            ("cidrIpv4", "IpRanges", "CidrIp"),
            ("cidrIpv6", "Ipv6Ranges", "CidrIpv6"),
            ("prefixListId", "PrefixListIds", "PrefixListId"),
            ("referencedSecurityGroupId", "UserIdGroupPairs", "GroupId"),
        ):
            if props.get(name):
                permission[members] = [{member: props[name], **note}]
        return permission

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Tags."""
        retag(api, id_, old, new)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """The rule by its id."""
        if props.get("prefixListId"):
            return self._read_prefix_list(api, id_, props)
        rules = api.call("ec2", "describe_security_group_rules", SecurityGroupRuleIds=[id_])["SecurityGroupRules"]
        if not rules:
            raise gone("security group rule", id_)
        referenced = rules[0].get("ReferencedGroupInfo", {}).get("GroupId")
        made = naming.arn("ec2", api.region, f"security-group-rule/{id_}")
        ours = {"arn": made, "securityGroupRuleId": id_}
        return self.state(rules[0]) | ours | ({"referencedSecurityGroupId": referenced} if referenced else {})

    def _read_prefix_list(self, api: Api, id_: str, props: Props) -> Props:
        group = api.call("ec2", "describe_security_groups", GroupIds=[props["securityGroupId"]])["SecurityGroups"][0]
        permissions = group["IpPermissions" if self.way == "ingress" else "IpPermissionsEgress"]
        listed = {entry["PrefixListId"] for permission in permissions for entry in permission.get("PrefixListIds", [])}
        if props["prefixListId"] not in listed:
            raise gone("security group rule", id_)
        made = naming.arn("ec2", api.region, f"security-group-rule/{id_}")
        return {**props, "arn": made, "securityGroupRuleId": id_}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Revokes it."""
        if props.get("prefixListId"):
            group, permission = props["securityGroupId"], self._permission(props)
            api.call("ec2", f"revoke_security_group_{self.way}", GroupId=group, IpPermissions=[permission])
            return
        api.call(
            "ec2",
            f"revoke_security_group_{self.way}",
            GroupId=props["securityGroupId"],
            SecurityGroupRuleIds=[id_],
        )


class IngressRule(_Rule):
    """One rule that lets traffic in."""

    type = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    way = "ingress"


class EgressRule(_Rule):
    """One rule that lets traffic out."""

    type = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
    way = "egress"


def _clear(api: Api, id_: str) -> None:
    group = api.call("ec2", "describe_security_groups", GroupIds=[id_])["SecurityGroups"][0]
    for way, member in (("ingress", "IpPermissions"), ("egress", "IpPermissionsEgress")):
        if group.get(member):
            api.call("ec2", f"revoke_security_group_{way}", GroupId=id_, IpPermissions=group[member])


def _permission(own: str, rule: Props) -> dict[str, Any]:
    note = {"Description": rule["description"]} if rule.get("description") else {}
    groups = [*(rule.get("securityGroups") or []), *([own] if rule.get("self") else [])]
    lists = {
        "IpRanges": [{"CidrIp": cidr, **note} for cidr in rule.get("cidrBlocks") or []],
        "Ipv6Ranges": [{"CidrIpv6": cidr, **note} for cidr in rule.get("ipv6CidrBlocks") or []],
        "PrefixListIds": [{"PrefixListId": list_, **note} for list_ in rule.get("prefixListIds") or []],
        "UserIdGroupPairs": [{"GroupId": group, **note} for group in groups],
    }
    return {
        "IpProtocol": rule["protocol"],
        "FromPort": rule["fromPort"],
        "ToPort": rule["toPort"],
        **{name: items for name, items in lists.items() if items},
    }


KINDS: tuple[Kind, ...] = (SecurityGroup(), DefaultSecurityGroup(), IngressRule(), EgressRule())
