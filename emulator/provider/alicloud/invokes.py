"""The Alibaba Cloud provider's functions (`alicloud.get_…`)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from emulator import places
from emulator.provider import kinds, naming
from emulator.provider.aws.api import Api, ApiError
from emulator.provider.invokes import Function, UnknownFunction
from emulator.provider.wire import Props

_NETWORK, _SWITCH = "alicloud:vpc/network:Network", "alicloud:vpc/switch:Switch"


def _caller(_args: Props, _api: Api, _running: bool) -> Props:
    arn = f"acs:ram::{naming.ACCOUNT}:user/local"
    return {"id": naming.ACCOUNT, "accountId": naming.ACCOUNT, "arn": arn, "identityType": "RAMUser"}


def _account(_args: Props, _api: Api, _running: bool) -> Props:
    return {"id": naming.ACCOUNT}


def _regions(args: Props, api: Api, _running: bool) -> Props:
    region = str(args.get("name") or api.place)
    return {"ids": [region], "regions": [{"id": region, "regionId": region, "localName": region}]}


def _images(args: Props, api: Api, _running: bool) -> Props:
    """The image that is asked for by its id; else one that is made up from what is asked."""
    text = json.dumps(args, sort_keys=True)
    made = f"m-{hashlib.sha256(f'{api.place} {text}'.encode()).hexdigest()[:20]}"
    image = str(args.get("imageId") or made)
    found: Props = {
        "id": image,
        "imageId": image,
        "name": args.get("imageName") or image,
        "architecture": args.get("architecture") or "x86_64",
        "osType": "linux",
        "status": "Available",
        "state": "Available",
        "creationTime": "2026-01-01T00:00:00Z",
        "description": "",
        "diskDeviceMappings": [],
        "imageOwnerAlias": "self",
        "imageVersion": "",
        "isCopied": False,
        "isSelfShared": "",
        "isSubscribed": False,
        "isSupportIoOptimized": True,
        "osName": "Linux",
        "osNameEn": "Linux",
        "platform": "Aliyun",
        "productCode": "",
        "progress": "100%",
        "size": 20,
        "usage": "none",
    }
    return {"ids": [image], "images": [found]}


def _switches(args: Props, api: Api, running: bool) -> Props:
    """VSwitches by their ids, VPC, zone and tags."""
    wanted = {"vpcId": args.get("vpcId"), "zoneId": args.get("zoneId"), "cidrBlock": args.get("cidrBlock")}
    found = _found(_SWITCH, args, wanted, api, running)
    listed = [{**one, "name": one["id"], "vswitchName": one["id"], "isDefault": False} for one in found]
    return {"ids": [one["id"] for one in found], "names": [one["id"] for one in found], "vswitches": listed}


def _networks(args: Props, api: Api, running: bool) -> Props:
    """VPCs by their ids, network and tags."""
    found = _found(_NETWORK, args, {"cidrBlock": args.get("cidrBlock")}, api, running)
    listed = [{**one, "vpcId": one["id"], "vpcName": one["id"], "isDefault": False} for one in found]
    return {"ids": [one["id"] for one in found], "names": [one["id"] for one in found], "vpcs": listed}


def _found(
    token: str, args: Props, wanted: Mapping[str, str | None], api: Api, running: bool
) -> list[Mapping[str, Any]]:
    if not running:
        raise UnknownFunction("existing networks can't be looked up while no embedded cloud runs")
    noun, key, title = ("subnets", "SubnetId", "Subnets") if token == _SWITCH else ("vpcs", "VpcId", "Vpcs")
    kind = kinds.all_kinds("alicloud")[token]
    ids = args.get("ids") or [
        places.shown(item[key]) for item in api.call("ec2", f"describe_{noun}")[title] if not item.get("IsDefault")
    ]
    found: list[Mapping[str, Any]] = []
    for id_ in ids:
        try:
            state = kind.read(api, id_, {})
        except (ApiError, KeyError):  # gone, or none of Alibaba Cloud's
            continue
        tags = (args.get("tags") or {}).items() <= state["tags"].items()
        if tags and all(value in (None, state.get(name)) for name, value in wanted.items()):
            found.append({"id": id_, **state})
    return found


FUNCTIONS: dict[str, Function] = {
    "alicloud:index/getAccount:getAccount": _account,
    "alicloud:index/getCallerIdentity:getCallerIdentity": _caller,
    "alicloud:index/getRegions:getRegions": _regions,
    "alicloud:ecs/getImages:getImages": _images,
    "alicloud:vpc/getNetworks:getNetworks": _networks,
    "alicloud:vpc/getSwitches:getSwitches": _switches,
}
