"""What the Tag service and ECS tell of tagged things, over the server's own that stand behind.

Tag API 2018-08-28, ListTagResources; ECS API 2014-05-26, DescribeInstances, DescribeDisks, DescribeNetworkInterfaces.
"""

import json
from collections.abc import Callable, Iterator, Mapping

from moto.autoscaling.models import autoscaling_backends
from moto.ec2.models import ec2_backends
from moto.resourcegroupstaggingapi.models import resourcegroupstaggingapi_backends

from emulator import ACCOUNT_ID, places
from emulator.ess import Answer, Parameters, Refusal, numbered

_KINDS = {
    "ec2:instance": "ecs:instance",
    "ec2:network-interface": "ecs:eni",
    "ec2:security-group": "ecs:securitygroup",
    "ec2:subnet": "vpc:vswitch",
    "ec2:volume": "ecs:disk",
    "ec2:vpc": "vpc:vpc",
    "s3:": "oss:bucket",
}
"""Of the server's kinds of things, those that are Alibaba Cloud's too, and what they are called there."""


def _resources(given: Parameters) -> Answer:
    try:
        tags = {str(key): str(value) for key, value in json.loads(given.get("Tags") or "{}").items()}
    except (ValueError, AttributeError):
        raise Refusal("InvalidParameter.Tags", "The specified value of parameter Tags is not valid.") from None
    size, start = int(given.get("PageSize", 50)), int(given.get("NextToken") or 0)
    found = [
        {"ResourceARN": arn, "Tags": [{"Key": key, "Value": value, "Category": "Custom"} for key, value in own.items()]}
        for arn, own in sorted(_all(given.get("RegionId", places.REGION)))
        if tags.items() <= own.items()
    ]
    more = start + size < len(found)
    return {"TagResources": found[start : start + size], "NextToken": str(start + size) if more else ""}


def _all(region: str) -> Iterator[tuple[str, dict[str, str]]]:
    """ARNs, in Alibaba Cloud's form, and tags that a user gave."""
    token, first = None, True
    while first or token:
        tagging = resourcegroupstaggingapi_backends[ACCOUNT_ID][places.REGION]
        token, resources = tagging.get_resources(token, 1000, 100_000)
        first = False
        for one in resources:
            *_, service, _, _, resource = one.arn.split(":", 5)
            kind, _, name = resource.rpartition("/")
            if called := _KINDS.get(f"{service}:{kind}"):
                yield _arn(called, region, places.shown(name)), places.own_tags(dict(one.tags))
    for group in list(autoscaling_backends[ACCOUNT_ID][places.REGION].autoscaling_groups.values()):
        tags = {str(tag["Key"]): str(tag.get("Value") or "") for tag in group.tags}
        yield _arn("ess:scalinggroup", region, group.name), places.own_tags(tags)


def _arn(kind: str, region: str, name: str) -> str:
    service, _, type_ = kind.partition(":")
    return f"arn:acs:{service}:{region}:{ACCOUNT_ID}:{type_}/{name}"


def _instances(given: Parameters) -> Answer:
    wanted = json.loads(given.get("InstanceIds") or "[]")
    found = [
        {"InstanceId": one.id, "InstanceType": one.instance_type, "Status": "Running"}
        for reservation in ec2_backends[ACCOUNT_ID][places.REGION].all_reservations()
        for one in reservation.instances
        if one.id in wanted and one.state == "running"
    ]
    return {"Instances": {"Instance": found}, "TotalCount": len(found)}


def _disks(given: Parameters) -> Answer:
    wanted = json.loads(given.get("DiskIds") or "[]")
    found = [
        {"DiskId": one.id, "Size": one.size, "InstanceId": one.attachment.instance.id if one.attachment else ""}
        for one in ec2_backends[ACCOUNT_ID][places.REGION].volumes.values()
        if one.id in wanted
    ]
    return {"Disks": {"Disk": found}, "TotalCount": len(found)}


def _interfaces(given: Parameters) -> Answer:
    wanted = numbered(given, "NetworkInterfaceId")
    found = [
        {"NetworkInterfaceId": one.id, "InstanceId": getattr(one.instance, "id", None) or ""}
        for one in ec2_backends[ACCOUNT_ID][places.REGION].enis.values()
        if one.id in wanted
    ]
    return {"NetworkInterfaceSets": {"NetworkInterfaceSet": found}, "TotalCount": len(found)}


ACTIONS: Mapping[str, dict[str, Callable[[Parameters], Answer]]] = {
    "2018-08-28": {"ListTagResources": _resources},
    "2014-05-26": {
        "DescribeDisks": _disks,
        "DescribeInstances": _instances,
        "DescribeNetworkInterfaces": _interfaces,
    },
}
"""By version and name."""
