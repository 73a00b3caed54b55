"""What bears a cluster's tag on AWS. `alicloud` is its twin."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

import boto3

from cli import aws
from cli.account import Account
from cli.leftovers.kinds import BY_SIZE, BY_THE_HOUR, BY_THE_MONTH, Kind, Tagged
from cli.leftovers.kinds import tagged as read

KINDS = {
    "autoscaling:autoscalinggroup": Kind(
        "auto scaling group",
        "aws autoscaling delete-auto-scaling-group --force-delete --auto-scaling-group-name {id}",
        "launches nodes",
    ),
    "ec2:instance": Kind("instance", "aws ec2 terminate-instances --instance-ids {id}", BY_THE_HOUR),
    "ec2:capacity-reservation": Kind(
        "capacity reservation", "aws ec2 cancel-capacity-reservation --capacity-reservation-id {id}", BY_THE_HOUR
    ),
    "ec2:natgateway": Kind("NAT gateway", "aws ec2 delete-nat-gateway --nat-gateway-id {id}", BY_THE_HOUR),
    "ec2:elastic-ip": Kind("elastic IP address", "aws ec2 release-address --allocation-id {id}", BY_THE_HOUR),
    "ec2:vpc-endpoint": Kind("VPC endpoint", "aws ec2 delete-vpc-endpoints --vpc-endpoint-ids {id}", BY_THE_HOUR),
    "fsx:association": Kind(
        "data repository association", "aws fsx delete-data-repository-association --association-id {id}"
    ),
    "fsx:file-system": Kind("file system", "aws fsx delete-file-system --file-system-id {id}", BY_SIZE),
    "ec2:volume": Kind("volume", "aws ec2 delete-volume --volume-id {id}", BY_SIZE),
    "ec2:network-interface": Kind("network interface", "aws ec2 delete-network-interface --network-interface-id {id}"),
    "ec2:launch-template": Kind("launch template", "aws ec2 delete-launch-template --launch-template-id {id}"),
    "ec2:vpc-flow-log": Kind("flow log", "aws ec2 delete-flow-logs --flow-log-ids {id}"),
    "ec2:security-group": Kind("security group", "aws ec2 delete-security-group --group-id {id}"),
    "ec2:subnet": Kind("subnet", "aws ec2 delete-subnet --subnet-id {id}"),
    "ec2:route-table": Kind("route table", "aws ec2 delete-route-table --route-table-id {id}"),
    "ec2:internet-gateway": Kind(
        "internet gateway",
        "aws ec2 delete-internet-gateway --internet-gateway-id {id}  # detach-internet-gateway first",
    ),
    "ec2:vpc": Kind("VPC", "aws ec2 delete-vpc --vpc-id {id}"),
    "lambda:function": Kind("function", "aws lambda delete-function --function-name {id}"),
    "events:rule": Kind("event rule", "aws events delete-rule --name {id}  # remove-targets first"),
    "cloudwatch:alarm": Kind("alarm", "aws cloudwatch delete-alarms --alarm-names {id}", BY_THE_MONTH),
    "sns": Kind("topic", "aws sns delete-topic --topic-arn {arn}"),
    "sqs": Kind(
        "queue",
        "aws sqs delete-queue --queue-url "
        "$(aws sqs get-queue-url --queue-name {id} --query QueueUrl --output text --region {region})",
    ),
    "cloudtrail:trail": Kind("trail", "aws cloudtrail delete-trail --name {id}", BY_SIZE, kept=True),
    "logs:log-group": Kind("log group", "aws logs delete-log-group --log-group-name {id}", BY_SIZE, kept=True),
    "s3": Kind("bucket", "aws s3 rb s3://{id}  # once it holds nothing, old versions included", BY_SIZE, kept=True),
    "kms:key": Kind(
        "key",
        "aws kms schedule-key-deletion --key-id {id}  # what it encrypts is lost with it",
        BY_THE_MONTH,
        kept=True,
    ),
}
"""By service and type, in the order in which they can be removed."""

MOST_PAGES = 100
"""Of a list, 50 each or more."""

ENDED = ("terminated", "shutting-down", "deleting", "deleted", "cancelling", "cancelled", "expired")
"""States in which nothing is billed any more, nor left to be removed."""

DESCRIBED = ("autoscaling:autoscalinggroup", "ec2:instance", "ec2:volume", "ec2:network-interface")
"""What the tagging API tells too little of, or late: groups, instances, and what is attached to them."""

LINGERING = {
    "ec2:natgateway": ("describe_nat_gateways", "NatGateways", "NatGatewayId", "Filter"),
    "ec2:vpc-endpoint": ("describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId", "Filters"),
    "ec2:capacity-reservation": (
        "describe_capacity_reservations", "CapacityReservations", "CapacityReservationId", "Filters",
    ),
}  # fmt: skip
"""What stays listed with its tags for a while after it was deleted, and who tells: the action, where its answer has
what, and its parameter of filters. The tagging API returns what was "previously tagged" too (GetResources); EC2 tells
the state (EC2 API, `NatGateway`, `VpcEndpoint`, `CapacityReservation`)."""


def tagged(account: Account, key: str, value: str, _known: Collection[str]) -> list[Tagged]:
    """All that bears the tag in the account's region, but what is on its way out. Raises `Refused`."""
    with aws.refusals(f"what is tagged {key}={value}"):
        found = [read(one["ResourceARN"]) for one in _resources(account.region, key, value)]
        described = list(_described(account.region, key, value))
        kinds = {one.kind for one in found} & LINGERING.keys()
        there = {kind: _there(account.region, kind, key, value) for kind in kinds}
        found = [one for one in found if one.id in there.get(one.kind, {one.id})]
        rest = [one for one in found if one.kind not in DESCRIBED and not _leaving(account.region, one)]
    return [*rest, *described]


def _pages(service: str, region: str, action: str, items: str, **asked: Any) -> Iterator[dict[str, Any]]:
    pages = _client(service, region).get_paginator(action).paginate(**asked)
    for page in islice(pages, MOST_PAGES):
        yield from page[items]


def _client(service: str, region: str) -> Any:
    return boto3.client(service, region_name=region, config=aws.PATIENCE)  # type: ignore[call-overload]


def _resources(region: str, key: str, value: str) -> Iterator[dict[str, Any]]:
    """Resource Groups Tagging API, GetResources: of the services that it knows, all in a region that have the tag."""
    filters = [{"Key": key, "Values": [value]}]
    return _pages("resourcegroupstaggingapi", region, "get_resources", "ResourceTagMappingList", TagFilters=filters)


def _described(region: str, key: str, value: str) -> Iterator[Tagged]:
    """All of the kinds that are `DESCRIBED`."""
    filters = [{"Name": f"tag:{key}", "Values": [value]}]
    for group in _pages("autoscaling", region, "describe_auto_scaling_groups", "AutoScalingGroups", Filters=filters):
        name = str(group["AutoScalingGroupName"])
        yield Tagged(str(group["AutoScalingGroupARN"]), "autoscaling:autoscalinggroup", name)
    for reservation in _pages("ec2", region, "describe_instances", "Reservations", Filters=filters):
        for instance in reservation["Instances"]:
            if instance["State"]["Name"] not in ENDED:
                tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
                of = tags.get("aws:autoscaling:groupName", "")
                yield _of_ec2("instance", instance["InstanceId"], of, instance["InstanceType"])
    for volume in _pages("ec2", region, "describe_volumes", "Volumes", Filters=filters):
        yield _of_ec2("volume", volume["VolumeId"], *(held["InstanceId"] for held in volume["Attachments"][:1]))
    for nic in _pages("ec2", region, "describe_network_interfaces", "NetworkInterfaces", Filters=filters):
        of = (nic.get("Attachment") or {}).get("InstanceId", "")
        yield _of_ec2("network-interface", nic["NetworkInterfaceId"], of)


def _of_ec2(kind: str, id_: str, of: str = "", type_: str = "") -> Tagged:
    """Its ARN is left out: those calls don't tell it, and its id is enough everywhere."""
    return Tagged(id_, f"ec2:{kind}", id_, of, type_)


def _there(region: str, kind: str, key: str, value: str) -> set[str]:
    """The ids of a kind that is `LINGERING` which haven't ended."""
    action, items, name, parameter = LINGERING[kind]
    every = _pages("ec2", region, action, items, **{parameter: [{"Name": f"tag:{key}", "Values": [value]}]})
    return {str(one[name]) for one in every if str(one["State"]).lower() not in ENDED}


def _leaving(region: str, one: Tagged) -> bool:
    """Whether a key is being deleted: it stays listed until then."""
    if one.kind != "kms:key":
        return False
    state = _client("kms", region).describe_key(KeyId=one.id)["KeyMetadata"]["KeyState"]
    return str(state).startswith("Pending")
