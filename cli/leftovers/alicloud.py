"""What bears a cluster's tag on Alibaba Cloud. `aws` is its twin."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from cli.account import Account
from cli.alicloud import Alicloud, refusals
from cli.leftovers.kinds import BY_SIZE, BY_THE_HOUR, BY_THE_MONTH, Kind, Tagged
from cli.leftovers.kinds import tagged as read

KINDS = {
    "ess:scalinggroup": Kind(
        "scaling group", "aliyun ess DeleteScalingGroup --ForceDelete true --ScalingGroupId {id}", "launches nodes"
    ),
    "ecs:instance": Kind("instance", "aliyun ecs DeleteInstance --Force true --InstanceId {id}", BY_THE_HOUR),
    "vpc:natgateway": Kind("NAT gateway", "aliyun vpc DeleteNatGateway --NatGatewayId {id}", BY_THE_HOUR),
    "vpc:eip": Kind("elastic IP address", "aliyun vpc ReleaseEipAddress --AllocationId {id}", BY_THE_HOUR),
    "nas:filesystem": Kind(
        "file system", "aliyun nas DeleteFileSystem --FileSystemId {id}  # DeleteMountTarget first", BY_SIZE
    ),
    "ecs:disk": Kind("disk", "aliyun ecs DeleteDisk --DiskId {id}", BY_SIZE),
    "ecs:eni": Kind("network interface", "aliyun ecs DeleteNetworkInterface --NetworkInterfaceId {id}"),
    "ecs:launchtemplate": Kind("launch template", "aliyun ecs DeleteLaunchTemplate --LaunchTemplateId {id}"),
    "ecs:securitygroup": Kind("security group", "aliyun ecs DeleteSecurityGroup --SecurityGroupId {id}"),
    "vpc:vswitch": Kind("vSwitch", "aliyun vpc DeleteVSwitch --VSwitchId {id}"),
    "vpc:vpc": Kind("VPC", "aliyun vpc DeleteVpc --VpcId {id}"),
    "oss:bucket": Kind(
        "bucket",
        "aliyun oss rm --bucket oss://{id}  # once it holds nothing, old versions included",
        BY_SIZE,
        kept=True,
    ),
    "log:project": Kind("log project", "", BY_SIZE, kept=True),
    "kms:key": Kind(
        "key",
        "aliyun kms ScheduleKeyDeletion --PendingWindowInDays 30 --KeyId {id}  # what it encrypts is lost with it",
        BY_THE_MONTH,
        kept=True,
    ),
}
"""By service and type, in the order in which they can be removed."""

MOST_PAGES = 100
PAGE = 1000
"""The most that a page may have (Tag API, ListTagResources)."""

AT_ONCE = 100
"""Ids that a call takes, and answers in a page (ECS API, each action of `ECS`)."""

ECS = {
    "ecs:instance": ("DescribeInstances", "InstanceIds", "Instances", "Instance", "InstanceId"),
    "ecs:disk": ("DescribeDisks", "DiskIds", "Disks", "Disk", "DiskId"),
    "ecs:eni": (
        "DescribeNetworkInterfaces", "NetworkInterfaceId", "NetworkInterfaceSets", "NetworkInterfaceSet",
        "NetworkInterfaceId",
    ),
}  # fmt: skip
"""Who tells what a thing of ECS is attached to: the action, its parameter of ids, then where its answer has what."""

GROUP = "asg-"
"""What ids of scaling groups begin with."""


def tagged(account: Account, key: str, value: str, known: Collection[str]) -> list[Tagged]:
    """All that bears the tag in the account's region, but what is on its way out. Raises `Refused`.

    An instance is its group's by what ESS says of groups that are tagged, or known.
    """
    assert isinstance(account, Alicloud)
    with refusals(f"what is tagged {key}={value}"):
        found = [read(arn) for arn in _listed(account, {key: value})]
        groups = {one.id for one in found if one.kind == "ess:scalinggroup"}
        groups |= {name for name in known if name.startswith(GROUP)}
        of = {instance: group for group in sorted(groups) for instance, _ in account.instances(group)}
        rest = [one for one in found if one.kind not in ECS and not _leaving(account, one)]
        return rest + [one for kind in ECS for one in _attached(account, kind, found, of)]


def _listed(account: Alicloud, tags: Mapping[str, str]) -> Iterator[str]:
    """ARNs, as the Tag service lists them (Tag API 2018-08-28, ListTagResources)."""
    asked: dict[str, str | int] = {"Tags": json.dumps(tags), "PageSize": PAGE}
    for _ in range(MOST_PAGES):
        told = account.call("tag", "ListTagResources", **asked)
        yield from (str(one["ResourceARN"]) for one in told["TagResources"])
        if not told.get("NextToken"):
            return
        asked["NextToken"] = str(told["NextToken"])


def _attached(account: Alicloud, kind: str, found: Sequence[Tagged], of: Mapping[str, str]) -> Iterator[Tagged]:
    """Those of a kind that there still are, each with the group or the instance that it belongs to."""
    action, parameter, outer, inner, name = ECS[kind]
    ours = {one.id: one for one in found if one.kind == kind}
    ids = sorted(ours)
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        asked: dict[str, Any] = {parameter: json.dumps(some)}
        if parameter == name:  # this one takes no JSON
            asked = {f"{parameter}.{number}": one for number, one in enumerate(some, 1)}
        for one in account.call("ecs", action, PageSize=AT_ONCE, **asked)[outer][inner]:
            holder = of.get(one[name], "") if kind == "ecs:instance" else str(one.get("InstanceId") or "")
            yield Tagged(ours[one[name]].arn, kind, one[name], holder, str(one.get("InstanceType") or ""))


def _leaving(account: Alicloud, one: Tagged) -> bool:
    """Whether a key is being deleted: it stays listed until then (KMS API, DescribeKey)."""
    if one.kind != "kms:key":
        return False
    return str(account.call("kms", "DescribeKey", KeyId=one.id)["KeyMetadata"]["KeyState"]) == "PendingDeletion"
