"""EC2 route tables, their associations, and routes."""

# ruff: noqa: ARG002 - all kinds answer the same calls

import zlib
from collections.abc import Mapping
from typing import ClassVar

from emulator.provider.aws.api import Api
from emulator.provider.aws.ec2 import Ec2Object
from emulator.provider.aws.kind import Kind, changed, gone, only, without
from emulator.provider.wire import Props

_INLINE: Mapping[str, str] = {
    "cidrBlock": "DestinationCidrBlock",
    "ipv6CidrBlock": "DestinationIpv6CidrBlock",
    "destinationPrefixListId": "DestinationPrefixListId",
    "egressOnlyGatewayId": "EgressOnlyInternetGatewayId",
}
_DESTINATIONS = ("destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId")


class RouteTable(Ec2Object):
    """A route table with the routes written in it."""

    type = "aws:ec2/routeTable:RouteTable"
    noun, key = "route_table", "RouteTableId"
    replace_on = frozenset({"vpcId"})
    settings = frozenset({"routes", "propagatingVgws"})

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Routes are taken out and put in again."""
        super().apply(api, id_, old, new)
        if changed(old, new, ["routes"]):
            for route in old.get("routes") or []:
                destination = only(route, ("cidrBlock", "ipv6CidrBlock", "destinationPrefixListId"))
                api.send("ec2", "delete_route", {"routeTableId": id_, **destination}, _INLINE)
            for route in new.get("routes") or []:
                api.send("ec2", "create_route", {"routeTableId": id_, **route}, _INLINE)


class RouteTableAssociation(Kind):
    """A subnet's or gateway's tie to a route table."""

    type = "aws:ec2/routeTableAssociation:RouteTableAssociation"
    service = "ec2"
    replace_on = frozenset({"routeTableId", "subnetId", "gatewayId"})
    replace_first = True

    def create(self, api: Api, props: Props) -> str:
        """Ties them."""
        return str(api.send("ec2", "associate_route_table", self.sent(props))["AssociationId"])

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Found in its route table."""
        wanted = [{"Name": "association.route-table-association-id", "Values": [id_]}]
        for table in api.call("ec2", "describe_route_tables", Filters=wanted)["RouteTables"]:
            for tie in table["Associations"]:
                if tie["RouteTableAssociationId"] == id_:
                    return self.state(tie)
        raise gone("route table association", id_)

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Unties them."""
        api.call("ec2", "disassociate_route_table", AssociationId=id_)


class Route(Kind):
    """One route of a route table."""

    type = "aws:ec2/route:Route"
    service = "ec2"
    replace_on = frozenset({"routeTableId", *_DESTINATIONS})
    replace_first = True
    names: ClassVar[Mapping[str, str]] = {"egressOnlyGatewayId": "EgressOnlyInternetGatewayId"}

    def create(self, api: Api, props: Props) -> str:
        """The id is the real provider's: the table and a checksum of the destination."""
        api.send("ec2", "create_route", self.sent(props), self.names)
        destination = next(iter(only(props, _DESTINATIONS).values()))
        return f"r-{props['routeTableId']}{zlib.crc32(destination.encode())}"

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Sends it elsewhere."""
        if old and without(old, ["region"]) != without(new, ["region"]):
            api.send("ec2", "replace_route", self.sent(new), self.names)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Found in its table by its destination."""
        name, destination = next(iter(only(props, _DESTINATIONS).items()))
        table = api.call("ec2", "describe_route_tables", RouteTableIds=[props["routeTableId"]])["RouteTables"][0]
        for route in table["Routes"]:
            if route.get(name[0].upper() + name[1:]) == destination:
                return self.state(route)
        raise gone("route", id_)

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Takes it out."""
        api.send("ec2", "delete_route", only(props, ("routeTableId", *_DESTINATIONS)))


KINDS: tuple[Kind, ...] = (RouteTable(), RouteTableAssociation(), Route())
