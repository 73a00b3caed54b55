"""The AWS provider's functions (`aws.get_…`)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from emulator.provider import kinds, naming
from emulator.provider.aws.api import Api, ApiError, tag_map
from emulator.provider.invokes import Function, UnknownFunction
from emulator.provider.wire import Props

# Zones open to every account where they aren't a, b, c; source: moto's copy of describe_availability_zones.
_ZONES = {
    "ap-northeast-1": "acd",
    "ap-northeast-2": "abcd",
    "ca-central-1": "abd",
    "us-east-1": "abcdef",
    "us-west-1": "ab",
    "us-west-2": "abcd",
    "cn-north-1": "ab",
}
_FREE_FILTERS = {"opt-in-status": "opt-in-not-required", "zone-type": "availability-zone"}


def _caller(_args: Props, api: Api, _running: bool) -> Props:
    user = naming.arn("iam", api.region, "user/local", regional=False)
    return {"id": naming.ACCOUNT, "accountId": naming.ACCOUNT, "arn": user, "userId": "AIDALOCAL000000000000"}


def _region(args: Props, api: Api, _running: bool) -> Props:
    region = str(args.get("name") or api.region)
    return {
        "id": region,
        "name": region,
        "region": region,
        "description": region,
        "endpoint": f"ec2.{region}.{_suffix(region)}",
    }


def _partition(_args: Props, api: Api, _running: bool) -> Props:
    suffix = _suffix(api.region)
    reverse = ".".join(reversed(suffix.split(".")))
    partition = naming.partition(api.region)
    return {"id": partition, "partition": partition, "dnsSuffix": suffix, "reverseDnsPrefix": reverse}


def _zones(args: Props, api: Api, _running: bool) -> Props:
    names = [f"{api.region}{letter}" for letter in _ZONES.get(api.region, "abc")]
    for wanted in args.get("filters") or []:
        if wanted["name"] == "zone-name":
            names = [name for name in names if name in wanted["values"]]
        elif _FREE_FILTERS.get(wanted["name"]) not in wanted["values"]:
            raise UnknownFunction(f"getAvailabilityZones can't filter by {wanted['name']} = {wanted['values']} here")
    names = [name for name in names if name not in (args.get("excludeNames") or [])]
    area, *side, number = api.region.split("-")
    short = area + "".join(word[0] if len(word) < 6 else _compass(word) for word in side) + number
    ids = [f"{short}-az{ord(name[-1]) - ord('a') + 1}" for name in names]
    return {"names": names, "zoneIds": ids, "groupNames": [api.region]}


def _compass(word: str) -> str:
    return {"central": "c"}.get(word, "".join(part[0] for part in ("north", "south", "east", "west") if part in word))


def policy_document(args: Props) -> Props:
    """getPolicyDocument: a policy from statements, those of the sources first, the overriding ones last."""
    statements: list[Props] = []
    for text in args.get("sourcePolicyDocuments") or []:
        statements += _listed(json.loads(text).get("Statement", []))
    statements += [_statement(statement) for statement in args.get("statements") or []]
    for text in args.get("overridePolicyDocuments") or []:
        for over in _listed(json.loads(text).get("Statement", [])):
            statements = [s for s in statements if not over.get("Sid") or s.get("Sid") != over["Sid"]] + [over]
    document: Props = {"Version": args.get("version") or "2012-10-17"}
    if args.get("policyId"):
        document["Id"] = args["policyId"]
    document["Statement"] = statements
    minified = json.dumps(document, separators=(",", ":"))
    return {
        "id": str(int(hashlib.sha256(minified.encode()).hexdigest()[:8], 16)),
        "json": json.dumps(document, indent=2),
        "minifiedJson": minified,
    }


def _statement(given: Mapping[str, Any]) -> Props:
    made: Props = {"Sid": given["sid"]} if given.get("sid") else {}
    made["Effect"] = given.get("effect") or "Allow"
    for name in ("actions", "notActions", "resources", "notResources"):
        if given.get(name):
            made[name[0].upper() + name[1:-1]] = _single(given[name])
    for name, member in (("principals", "Principal"), ("notPrincipals", "NotPrincipal")):
        who: Props = {}
        for principal in given.get(name) or []:
            who.setdefault(principal["type"], []).extend(principal["identifiers"])
        if who:
            made[member] = "*" if who == {"*": ["*"]} else {kind: _single(ids) for kind, ids in who.items()}
    for condition in given.get("conditions") or []:
        test = made.setdefault("Condition", {}).setdefault(condition["test"], {})
        test[condition["variable"]] = _single(condition["values"])
    return made


def _single(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else sorted(values)


def _listed(value: Any) -> list[Props]:
    return value if isinstance(value, list) else [value]


def _parameter(args: Props, api: Api, running: bool) -> Props:
    name = str(args["name"])
    made = {"name": name, "type": "String", "version": 1, "arn": naming.arn("ssm", api.region, f"parameter{name}")}
    if running:
        try:
            found = api.call("ssm", "get_parameter", Name=name, WithDecryption=args.get("withDecryption", True))
        except ApiError as error:
            if not (error.gone and name.startswith("/aws/service/")):
                raise
        else:
            parameter = found["Parameter"]
            value = parameter["Value"]
            return {**made, "id": name, "value": value, "insecureValue": value, "type": parameter["Type"]}
    elif not name.startswith("/aws/service/"):
        raise UnknownFunction(f"the parameter {name} can't be looked up while no embedded cloud runs")
    image = _image_id(name, api.region)
    return {**made, "id": name, "value": image, "insecureValue": image}


def _ami(args: Props, api: Api, running: bool) -> Props:
    filters = [{"Name": f["name"], "Values": f["values"]} for f in args.get("filters") or []]
    images: list[Mapping[str, Any]] = []
    if running:
        owners = {"Owners": args["owners"]} if args.get("owners") else {}
        images = api.call("ec2", "describe_images", Filters=filters, **owners)["Images"]
    image = max(images, key=lambda found: str(found.get("CreationDate", "")), default={})
    asked = [value for f in filters if f["Name"] == "image-id" for value in f["Values"]]
    made_up = asked[0] if asked else _image_id(json.dumps(args, sort_keys=True), api.region)
    id_ = str(image.get("ImageId") or made_up)
    return {
        "id": id_,
        "imageId": id_,
        "arn": naming.arn("ec2", api.region, f"image/{id_}", account=False),
        "name": image.get("Name", id_),
        "architecture": image.get("Architecture", "x86_64"),
        "rootDeviceName": image.get("RootDeviceName", "/dev/xvda"),
        "rootDeviceType": image.get("RootDeviceType", "ebs"),
        "state": "available",
        "creationDate": image.get("CreationDate", ""),
        "ownerId": image.get("OwnerId", naming.ACCOUNT),
        "description": image.get("Description", ""),
        "blockDeviceMappings": [],
        "productCodes": [],
        "tags": tag_map(image.get("Tags")),
        "region": api.region,
    }


def _subnets(args: Props, api: Api, running: bool) -> list[Mapping[str, Any]]:
    return _found("subnet", "SubnetId", args, api, running)


def _found(noun: str, key: str, args: Props, api: Api, running: bool) -> list[Mapping[str, Any]]:
    """Network objects by id, VPC, tags and filters."""
    if not running:
        raise UnknownFunction(f"an existing {noun} can't be looked up while no embedded cloud runs")
    filters = [{"Name": f["name"], "Values": f["values"]} for f in args.get("filters") or []]
    filters += [{"Name": f"tag:{tag}", "Values": [value]} for tag, value in (args.get("tags") or {}).items()]
    for arg, name in (("vpcId", "vpc-id"), ("cidrBlock", "cidr-block"), ("availabilityZone", "availability-zone")):
        if args.get(arg):
            filters.append({"Name": name, "Values": [args[arg]]})
    ids = {f"{key}s": [args["id"]]} if args.get("id") else {}
    found: list[Mapping[str, Any]] = api.call("ec2", f"describe_{noun}s", Filters=filters, **ids)[f"{key[:-2]}s"]
    return found


def _one(noun: str, key: str, token: str) -> Function:
    def get(args: Props, api: Api, running: bool) -> Props:
        found = _found(noun, key, args, api, running)
        if len(found) != 1:
            raise UnknownFunction(f"{len(found)} {noun}s fit, not one: {json.dumps(args, sort_keys=True)}")
        kind = kinds.all_kinds("aws")[token]
        id_ = str(found[0][key])
        return kind.read(api, id_, {}) | {"id": id_, "state": "available", "region": api.region}

    return get


def _subnet_ids(args: Props, api: Api, running: bool) -> Props:
    return {"ids": [subnet["SubnetId"] for subnet in _subnets(args, api, running)]}


def _image_id(text: str, region: str) -> str:
    return f"ami-{hashlib.sha256(f'{region} {text}'.encode()).hexdigest()[:17]}"


def _suffix(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


FUNCTIONS: dict[str, Function] = {
    "aws:index/getCallerIdentity:getCallerIdentity": _caller,
    "aws:index/getRegion:getRegion": _region,
    "aws:index/getPartition:getPartition": _partition,
    "aws:index/getAvailabilityZones:getAvailabilityZones": _zones,
    "aws:iam/getPolicyDocument:getPolicyDocument": lambda args, _api, _running: policy_document(args),
    "aws:ssm/getParameter:getParameter": _parameter,
    "aws:ec2/getAmi:getAmi": _ami,
    "aws:ec2/getSubnet:getSubnet": _one("subnet", "SubnetId", "aws:ec2/subnet:Subnet"),
    "aws:ec2/getSubnets:getSubnets": _subnet_ids,
    "aws:ec2/getVpc:getVpc": _one("vpc", "VpcId", "aws:ec2/vpc:Vpc"),
}
