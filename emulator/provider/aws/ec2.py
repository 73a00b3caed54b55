"""EC2 network objects. The real provider's replacements: pulumi_aws's upstream, `ForceNew` of each resource."""

# ruff: noqa: ARG002 - all kinds answer the same calls

from collections.abc import Mapping
from typing import Any, ClassVar

from emulator.provider import naming
from emulator.provider.aws.api import Api, tag_list
from emulator.provider.aws.kind import Kind, changed, gone, only, without
from emulator.provider.wire import Props


def retag(api: Api, id_: str, old: Props, new: Props) -> None:
    """Makes an EC2 object's tags those of the new properties."""
    before, after = old.get("tags") or {}, new.get("tags") or {}
    if removed := before.keys() - after.keys():
        api.call("ec2", "delete_tags", Resources=[id_], Tags=[{"Key": key} for key in sorted(removed)])
    if added := {key: value for key, value in after.items() if before.get(key) != value}:
        api.call("ec2", "create_tags", Resources=[id_], Tags=tag_list(added))


class Ec2Object(Kind):
    """An EC2 object whose operations are named after one noun: create_subnet, describe_subnets, delete_subnet."""

    service = "ec2"
    noun: ClassVar[str]
    key: ClassVar[str]

    @property
    def title(self) -> str:
        """The noun as answers spell it."""
        return "".join(word.capitalize() for word in self.noun.split("_"))

    def create(self, api: Api, props: Props) -> str:
        """create_<noun>."""
        answer = api.send("ec2", f"create_{self.noun}", self.sent(props), self.names)
        return str(answer.get(self.title, answer)[self.key])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Tags; subclasses add their settings."""
        retag(api, id_, old, new)

    def item(self, api: Api, id_: str) -> dict[str, Any]:
        """describe_<noun>s of this one."""
        items = api.call("ec2", f"describe_{self.noun}s", **{f"{self.key}s": [id_]})[f"{self.title}s"]
        if not items or str(items[0].get("State", "")).lower() == "deleted":
            raise gone(self.title, id_)
        found: dict[str, Any] = items[0]
        return found

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its members, tags, ARN."""
        item = self.item(api, id_)
        made = naming.arn("ec2", api.region, f"{self.noun.replace('_', '-')}/{id_}")
        return {"arn": made, "ownerId": naming.ACCOUNT} | self.state(item)

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """delete_<noun>."""
        api.call("ec2", f"delete_{self.noun}", **{self.key: id_})


class Vpc(Ec2Object):
    """A VPC with its DNS attributes."""

    type = "aws:ec2/vpc:Vpc"
    noun, key = "vpc", "VpcId"
    replace_on = frozenset({"cidrBlock", "ipv4IpamPoolId", "ipv4NetmaskLength"})
    settings = frozenset({"enableDnsHostnames", "enableDnsSupport", "enableNetworkAddressUsageMetrics"})
    names: ClassVar[Mapping[str, str]] = {"assignGeneratedIpv6CidrBlock": "AmazonProvidedIpv6CidrBlock"}

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Attributes, each by a call of its own, as the API wants it."""
        super().apply(api, id_, old, new)
        for name in sorted(self.settings):
            if new.get(name) is not None and new[name] != old.get(name):
                api.send("ec2", "modify_vpc_attribute", {"vpcId": id_, name: {"value": new[name]}})

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Members, attributes, and the ids of what AWS makes along with a VPC."""
        attributes = {}
        for name in ("enableDnsHostnames", "enableDnsSupport", "enableNetworkAddressUsageMetrics"):
            title = name[0].upper() + name[1:]
            answer = api.call("ec2", "describe_vpc_attribute", VpcId=id_, Attribute=name)
            attributes[name] = answer.get(title, {}).get("Value", False)
        table = _first(api, "route_table", "RouteTable", **{"vpc-id": id_, "association.main": "true"})
        group = _first(api, "security_group", "Group", **{"vpc-id": id_, "group-name": "default"})
        acl = _first(api, "network_acl", "NetworkAcl", **{"vpc-id": id_, "default": "true"})
        return (
            super().read(api, id_, props)
            | attributes
            | {
                "mainRouteTableId": table,
                "defaultRouteTableId": table,
                "defaultSecurityGroupId": group,
                "defaultNetworkAclId": acl,
            }
        )


class Subnet(Ec2Object):
    """A subnet with its launch settings."""

    type = "aws:ec2/subnet:Subnet"
    noun, key = "subnet", "SubnetId"
    replace_on = frozenset({"vpcId", "cidrBlock", "availabilityZone", "availabilityZoneId", "ipv6Native", "outpostArn"})
    settings = frozenset(
        {
            "mapPublicIpOnLaunch",
            "assignIpv6AddressOnCreation",
            "enableDns64",
            "enableResourceNameDnsARecordOnLaunch",
            "enableResourceNameDnsAaaaRecordOnLaunch",
        }
    )
    names: ClassVar[Mapping[str, str]] = {"arn": "SubnetArn"}

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Attributes, each by a call of its own."""
        super().apply(api, id_, old, new)
        for name in sorted(self.settings):
            if new.get(name) is not None and new[name] != old.get(name):
                api.send("ec2", "modify_subnet_attribute", {"subnetId": id_, name: {"value": new[name]}})


class InternetGateway(Ec2Object):
    """An internet gateway and the VPC that it serves."""

    type = "aws:ec2/internetGateway:InternetGateway"
    noun, key = "internet_gateway", "InternetGatewayId"
    settings = frozenset({"vpcId"})

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Attaches it."""
        super().apply(api, id_, old, new)
        if changed(old, new, self.settings):
            if old.get("vpcId"):
                api.call("ec2", "detach_internet_gateway", InternetGatewayId=id_, VpcId=old["vpcId"])
            if new.get("vpcId"):
                api.call("ec2", "attach_internet_gateway", InternetGatewayId=id_, VpcId=new["vpcId"])

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """The VPC it is attached to."""
        attached = self.item(api, id_).get("Attachments") or [{}]
        return super().read(api, id_, props) | {"vpcId": attached[0].get("VpcId", "")}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Detaches it first, as the API demands."""
        for attached in self.item(api, id_).get("Attachments") or []:
            api.call("ec2", "detach_internet_gateway", InternetGatewayId=id_, VpcId=attached["VpcId"])
        super().delete(api, id_, props)


class Eip(Ec2Object):
    """An elastic address."""

    type = "aws:ec2/eip:Eip"
    replace_on = frozenset({"domain", "publicIpv4Pool", "networkBorderGroup", "address", "customerOwnedIpv4Pool"})
    settings = frozenset({"instance", "networkInterface", "associateWithPrivateIp"})
    noun, key = "address", "AllocationId"

    def create(self, api: Api, props: Props) -> str:
        """Always in a VPC: EC2-Classic is gone."""
        answer = api.send("ec2", "allocate_address", {"domain": "vpc", **self.sent(props)})
        return str(answer["AllocationId"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """What holds the address."""
        super().apply(api, id_, old, new)
        if changed(old, new, self.settings) and (new.get("instance") or new.get("networkInterface")):
            names = {
                "instance": "InstanceId",
                "networkInterface": "NetworkInterfaceId",
                "associateWithPrivateIp": "PrivateIpAddress",
            }
            holder = {"allocationId": id_, "allowReassociation": True, **only(new, self.settings)}
            api.send("ec2", "associate_address", holder, names)

    def item(self, api: Api, id_: str) -> dict[str, Any]:
        """The address."""
        found: dict[str, Any] = api.call("ec2", "describe_addresses", AllocationIds=[id_])["Addresses"][0]
        return found

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its members."""
        made = naming.arn("ec2", api.region, f"elastic-ip/{id_}")
        return self.state(self.item(api, id_)) | {"arn": made}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Releases it."""
        api.call("ec2", "release_address", AllocationId=id_)


class NatGateway(Ec2Object):
    """A NAT gateway."""

    type = "aws:ec2/natGateway:NatGateway"
    noun, key = "nat_gateway", "NatGatewayId"
    replace_on = frozenset({"allocationId", "connectivityType", "privateIp", "subnetId", "vpcId", "availabilityMode"})

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Members and those of its first address."""
        address = (self.item(api, id_).get("NatGatewayAddresses") or [{}])[0]
        return without(super().read(api, id_, props), ["arn", "ownerId"]) | self.state(address)


class VpcEndpoint(Ec2Object):
    """A gateway or interface endpoint."""

    type = "aws:ec2/vpcEndpoint:VpcEndpoint"
    noun, key = "vpc_endpoint", "VpcEndpointId"
    replace_on = frozenset({"vpcId", "serviceName", "vpcEndpointType", "serviceRegion"})
    names: ClassVar[Mapping[str, str]] = {"policy": "PolicyDocument"}

    def create(self, api: Api, props: Props) -> str:
        """A gateway endpoint unless said otherwise."""
        return super().create(api, {"vpcEndpointType": "Gateway", **without(props, ["autoAccept"])})

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Policy, names, and what it is tied to, by what comes and goes."""
        super().apply(api, id_, old, new)
        if not old:
            return
        change: Props = {k: new[k] for k in ("policy", "privateDnsEnabled") if k in new and new[k] != old.get(k)}
        for name in ("routeTableIds", "subnetIds", "securityGroupIds"):
            before, after = set(old.get(name) or []), set(new.get(name) or [])
            title = name[0].upper() + name[1:]
            change |= {f"Add{title}": sorted(after - before)} if after - before else {}
            change |= {f"Remove{title}": sorted(before - after)} if before - after else {}
        if change:
            api.send("ec2", "modify_vpc_endpoint", {"vpcEndpointId": id_, **change}, self.names)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Members; security groups by their ids; a gateway's prefix list, which has the service's name."""
        item = self.item(api, id_)
        groups = [group["GroupId"] for group in item.get("Groups") or []]
        state = super().read(api, id_, props) | {"securityGroupIds": groups, "state": item["State"].lower()}
        if item["VpcEndpointType"] == "Gateway":
            lists = api.call("ec2", "describe_managed_prefix_lists")["PrefixLists"]
            state["prefixListId"] = next(
                entry["PrefixListId"] for entry in lists if entry["PrefixListName"] == item["ServiceName"]
            )
        return state

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it; this operation takes a list."""
        api.call("ec2", "delete_vpc_endpoints", VpcEndpointIds=[id_])


def _first(api: Api, noun: str, title: str, **filters: str) -> str:
    """Id of the first object that the filters leave."""
    wanted = [{"Name": name, "Values": [value]} for name, value in filters.items()]
    answer = api.call("ec2", f"describe_{noun}s", Filters=wanted)
    items = next(value for value in answer.values() if isinstance(value, list))
    return str(items[0][f"{title}Id"]) if items else ""


KINDS: tuple[Kind, ...] = (Vpc(), Subnet(), InternetGateway(), Eip(), NatGateway(), VpcEndpoint())
