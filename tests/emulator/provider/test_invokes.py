"""Functions: the right answers without a cloud, real look-ups with one, a clear refusal of the rest."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from emulator.provider.aws import invokes
from emulator.provider.invokes import UnknownFunction
from emulator.provider.stand_in import StandIn

Deployment = Any


def test_the_callers_account_is_the_embedded_clouds(without_cloud: Callable[..., StandIn]) -> None:
    answer = without_cloud().invoke("aws:index/getCallerIdentity:getCallerIdentity", {})
    assert answer["accountId"] == "123456789012"
    assert answer["arn"].startswith("arn:aws:iam::123456789012:")


def test_china_is_a_partition_of_its_own(without_cloud: Callable[..., StandIn]) -> None:
    answer = without_cloud().invoke("aws:index/getPartition:getPartition", {"region": "cn-north-1"})
    assert (answer["partition"], answer["dnsSuffix"]) == ("aws-cn", "amazonaws.com.cn")


@pytest.mark.parametrize("region", ["us-west-2", "us-east-1", "ap-northeast-1"])
def test_zones_are_those_of_the_api(deployment: Deployment, region: str) -> None:
    token = "aws:index/getAvailabilityZones:getAvailabilityZones"
    opted = [{"name": "opt-in-status", "values": ["opt-in-not-required"]}]
    answer = deployment.stand_in.invoke(token, {"region": region, "filters": opted})
    client = deployment.stand_in.api({"region": region}).client("ec2")
    zones = client.describe_availability_zones()["AvailabilityZones"]
    assert answer["names"] == [zone["ZoneName"] for zone in zones]
    assert {zone_id.partition("-")[0] for zone_id in answer["zoneIds"]} == {
        zone["ZoneId"].partition("-")[0] for zone in zones
    }


def test_a_policy_document_is_rendered_as_aws_reads_it() -> None:
    statement = {
        "sid": "Read",
        "actions": ["s3:GetObject", "s3:ListBucket"],
        "resources": ["arn:aws:s3:::b"],
        "principals": [{"type": "Service", "identifiers": ["ec2.amazonaws.com"]}],
        "conditions": [{"test": "Bool", "variable": "aws:SecureTransport", "values": ["true"]}],
    }
    anyone = {"effect": "Deny", "actions": ["s3:*"], "principals": [{"type": "*", "identifiers": ["*"]}]}
    answer = invokes.policy_document({"statements": [statement, anyone]})
    assert (
        json.loads(answer["json"])
        == json.loads(answer["minifiedJson"])
        == {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Sid": "Read",
                    "Effect": "Allow",
                    "Action": ["s3:GetObject", "s3:ListBucket"],
                    "Resource": "arn:aws:s3:::b",
                    "Principal": {"Service": "ec2.amazonaws.com"},
                    "Condition": {"Bool": {"aws:SecureTransport": "true"}},
                },
                {"Effect": "Deny", "Action": "s3:*", "Principal": "*"},
            ],
        }
    )


def test_an_overriding_document_replaces_statements_of_its_sid() -> None:
    base = json.dumps({"Statement": [{"Sid": "A", "Effect": "Allow"}, {"Sid": "B", "Effect": "Allow"}]})
    over = json.dumps({"Statement": {"Sid": "A", "Effect": "Deny"}})
    answer = invokes.policy_document({"sourcePolicyDocuments": [base], "overridePolicyDocuments": [over]})
    effects = {s["Sid"]: s["Effect"] for s in json.loads(answer["json"])["Statement"]}
    assert effects == {"A": "Deny", "B": "Allow"}


def test_an_existing_network_is_looked_up(deployment: Deployment) -> None:
    vpc, subnet = deployment.network()
    found = deployment.stand_in.invoke("aws:ec2/getSubnet:getSubnet", {"id": subnet.id})
    assert (found["vpcId"], found["cidrBlock"], found["availabilityZone"]) == (
        vpc.id,
        "127.10.1.0/24",
        "us-west-2a",
    )
    by_vpc = {"filters": [{"name": "vpc-id", "values": [vpc.id]}]}
    assert deployment.stand_in.invoke("aws:ec2/getSubnets:getSubnets", by_vpc)["ids"] == [subnet.id]
    assert deployment.stand_in.invoke("aws:ec2/getVpc:getVpc", {"id": vpc.id})["cidrBlock"] == "127.10.0.0/16"


def test_a_parameter_is_read_and_a_public_image_made_up(
    deployment: Deployment, without_cloud: Callable[..., StandIn]
) -> None:
    token = "aws:ssm/getParameter:getParameter"
    deployment.create("aws:ssm/parameter:Parameter", {"name": "/mine", "type": "String", "value": "v"})
    assert deployment.stand_in.invoke(token, {"name": "/mine"})["value"] == "v"
    public = {"name": "/aws/service/deeplearning/ami/x86_64/base/latest/ami-id"}
    image = deployment.stand_in.invoke(token, public)["value"]
    assert image.startswith("ami-")
    assert without_cloud().invoke(token, public)["value"] == image
    with pytest.raises(UnknownFunction, match="/mine can't be looked up"):
        without_cloud().invoke(token, {"name": "/mine"})


def test_an_image_is_the_same_each_time(deployment: Deployment) -> None:
    args = {"mostRecent": True, "owners": ["amazon"], "filters": [{"name": "name", "values": ["Deep Learning*"]}]}
    first = deployment.stand_in.invoke("aws:ec2/getAmi:getAmi", args)
    assert first["id"].startswith("ami-")
    assert first == deployment.stand_in.invoke("aws:ec2/getAmi:getAmi", args)


def test_an_image_asked_for_by_its_id_is_that_image_and_names_its_root_disk(
    deployment: Deployment, without_cloud: Callable[..., StandIn]
) -> None:
    wanted = {"includeDeprecated": True, "filters": [{"name": "image-id", "values": ["ami-00000000000000000"]}]}
    for stand_in in (deployment.stand_in, without_cloud()):
        answer = stand_in.invoke("aws:ec2/getAmi:getAmi", wanted)
        assert (answer["id"], answer["rootDeviceName"]) == ("ami-00000000000000000", "/dev/xvda")
    ec2 = deployment.stand_in.api({}).client("ec2")
    ec2.register_image(Name="own", RootDeviceName="/dev/sdb", Architecture="x86_64")
    known = ec2.describe_images()["Images"][0]
    found = {"filters": [{"name": "image-id", "values": [known["ImageId"]]}]}
    answer = deployment.stand_in.invoke("aws:ec2/getAmi:getAmi", found)
    assert (answer["id"], answer["rootDeviceName"]) == (known["ImageId"], known["RootDeviceName"])


def test_an_unknown_function_is_named_with_the_known_ones(without_cloud: Callable[..., StandIn]) -> None:
    with pytest.raises(UnknownFunction, match=r"no function aws:sqs/getQueue:getQueue; it has getAmi, "):
        without_cloud().invoke("aws:sqs/getQueue:getQueue", {})


@pytest.fixture
def alibaba(without_cloud):
    """The function's answers in Alibaba Cloud's region, while no cloud runs."""
    return without_cloud("alicloud").invoke


def test_who_asks_alibaba_cloud_and_where(alibaba) -> None:
    caller = alibaba("alicloud:index/getCallerIdentity:getCallerIdentity", {})
    assert (caller["accountId"], caller["arn"]) == ("123456789012", "acs:ram::123456789012:user/local")
    assert alibaba("alicloud:index/getAccount:getAccount", {})["id"] == "123456789012"
    assert alibaba("alicloud:index/getRegions:getRegions", {"current": True})["ids"] == ["us-west-2"]


def test_an_image_is_the_one_that_is_named_or_always_the_same_of_a_family(alibaba) -> None:
    images = "alicloud:ecs/getImages:getImages"
    assert alibaba(images, {"imageId": "m-1"})["images"][0]["imageId"] == "m-1"
    family = {"imageFamily": "acs:alibaba_cloud_linux_3", "mostRecent": True}
    (image,) = alibaba(images, family)["images"]
    assert image["imageId"].startswith("m-")
    assert alibaba(images, family)["ids"] == [image["id"]]


@pytest.mark.parametrize("token", ["alicloud:vpc/getSwitches:getSwitches", "alicloud:vpc/getNetworks:getNetworks"])
def test_networks_that_are_there_are_not_made_up(alibaba, token: str) -> None:
    with pytest.raises(UnknownFunction, match="can't be looked up while no embedded cloud runs"):
        alibaba(token, {"ids": ["vsw-1"]})


def test_a_function_of_alibaba_cloud_that_is_not_there_is_refused(alibaba) -> None:
    with pytest.raises(UnknownFunction, match=r"no function alicloud:x/getY:getY; it has getAccount, getCaller"):
        alibaba("alicloud:x/getY:getY", {})
