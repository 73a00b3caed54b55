"""VPCs and vSwitches, which are EC2's VPCs and subnets."""

# ruff: noqa: ARG002 - all kinds answer the same calls

from typing import Any, ClassVar

from emulator import places
from emulator.provider.aws import ec2
from emulator.provider.aws.api import Api, tag_list, tag_map
from emulator.provider.aws.kind import Kind
from emulator.provider.wire import Props


class _Object(Kind):
    """What the server has as an EC2 object of a kind."""

    service = "ec2"
    behind: ClassVar[ec2.Ec2Object]

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Tags."""
        ec2.retag(api, places.served(id_), old, new)

    def item(self, api: Api, id_: str) -> dict[str, Any]:
        """The object. Raises ApiError where it is gone."""
        return self.behind.item(api, places.served(id_))

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its network and tags."""
        item = self.item(api, id_)
        tags = places.own_tags(tag_map(item.get("Tags")))
        return {"cidrBlock": item["CidrBlock"], "status": "Available", "regionId": api.place, "tags": tags}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it."""
        self.behind.delete(api, places.served(id_), props)


class Network(_Object):
    """A VPC, with the route table that comes along with it."""

    type = "alicloud:vpc/network:Network"
    behind = ec2.Vpc()
    replace_on = frozenset({"cidrBlock", "isDefault", "userCidrs", "ipv6CidrBlock"})

    def create(self, api: Api, props: Props) -> str:
        """Makes it. The server takes /16 at most, which is what one without a block gets of the API's own, a /12."""
        block = props.get("cidrBlock") or "172.16.0.0/16"
        return str(api.call("ec2", "create_vpc", CidrBlock=block)["Vpc"]["VpcId"])

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Also the ids of its router and route table."""
        state = super().read(api, id_, props)
        wanted = [{"Name": "vpc-id", "Values": [id_]}, {"Name": "association.main", "Values": ["true"]}]
        (table,) = api.call("ec2", "describe_route_tables", Filters=wanted)["RouteTables"]
        shown = places.shown(table["RouteTableId"])
        own = {"routeTableId": shown, "routerTableId": shown, "routerId": places.made_id("vrt", id_)}
        return state | own


class Switch(_Object):
    """A vSwitch; its zone is a tag, as the server has no such zone."""

    type = "alicloud:vpc/switch:Switch"
    behind = ec2.Subnet()
    replace_on = frozenset({"vpcId", "cidrBlock", "zoneId", "availabilityZone", "isDefault"})

    def create(self, api: Api, props: Props) -> str:
        """Makes it."""
        zone = {places.ZONE_TAG: props.get("zoneId") or props["availabilityZone"]}
        made = api.call(
            "ec2",
            "create_subnet",
            VpcId=props["vpcId"],
            CidrBlock=props["cidrBlock"],
            AvailabilityZone=f"{api.region}a",
            TagSpecifications=[{"ResourceType": "subnet", "Tags": tag_list(zone)}],
        )
        return places.shown(made["Subnet"]["SubnetId"])

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Also its VPC and zone."""
        item = self.item(api, id_)
        zone = tag_map(item["Tags"])[places.ZONE_TAG]
        return super().read(api, id_, props) | {"vpcId": item["VpcId"], "zoneId": zone, "availabilityZone": zone}


KINDS: tuple[Kind, ...] = (Network(), Switch())
