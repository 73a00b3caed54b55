"""What is left of clusters, asked by the very clients of `trainwright leftovers`, over both clouds' APIs here."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from cli.alicloud import Alicloud
from cli.aws import Aws
from cli.leftovers import TAG, alicloud, aws, unknown
from emulator import places
from trainer import alicloud as of_trainer

World = Any
REGION = "us-west-2"


class Fixed:
    """A caller with a key that means nothing here."""

    def credentials(self) -> of_trainer.Credentials:
        return of_trainer.Credentials("k", "s")


@pytest.fixture
def server(world: World) -> Any:
    """Makes clients of the region where things of Alibaba Cloud are."""
    session: Any = boto3.Session(aws_access_key_id="k", aws_secret_access_key="s", region_name=places.REGION)
    return lambda service: session.client(service, endpoint_url=world.cloud.endpoint)


def spec(kind: str, cluster: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": TAG, "Value": cluster}]}]


def test_on_aws_nodes_of_a_known_group_are_known_and_a_loose_volume_is_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ENDPOINT_URL", world.cloud.endpoint), ("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s")):
        monkeypatch.setenv(f"AWS_{name}", value)
    group = world.group(None, nodes=2, tags={TAG: "left-aws"})
    ec2 = world.client("ec2")
    loose = ec2.create_volume(AvailabilityZone=f"{REGION}b", Size=5, TagSpecifications=spec("volume", "left-aws"))
    found = aws.tagged(Aws(REGION), TAG, "left-aws", {group})
    assert len([one for one in found if one.kind == "ec2:instance"]) == 2
    assert [one.id for one in unknown(found, {group})] == [loose["VolumeId"]]
    assert {one.kind for one in unknown(found, ())} == {"autoscaling:autoscalinggroup", "ec2:instance", "ec2:volume"}


def test_on_alibaba_cloud_too_under_its_own_names(world: World, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(of_trainer.ENDPOINT, f"{world.cloud.endpoint}{places.PATH}")
    ec2, autoscaling = server("ec2"), server("autoscaling")
    vpc = ec2.create_vpc(CidrBlock="127.12.0.0/16", TagSpecifications=spec("vpc", "left-ali"))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="127.12.1.0/24", TagSpecifications=spec("subnet", "left-ali"))
    subnet = subnet["Subnet"]["SubnetId"]
    ec2.create_launch_template(
        LaunchTemplateName="asg-left", LaunchTemplateData={"ImageId": "m-1", "InstanceType": "ecs.g8i.large"}
    )
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="asg-left", MinSize=0, MaxSize=1, DesiredCapacity=1, VPCZoneIdentifier=subnet,
        LaunchTemplate={"LaunchTemplateName": "asg-left", "Version": "1"},
        Tags=[{"Key": TAG, "Value": "left-ali", "PropagateAtLaunch": True},
              {"Key": places.WAITING_TAG, "Value": "x", "PropagateAtLaunch": False}],
    )  # fmt: skip
    nic = ec2.create_network_interface(SubnetId=subnet, TagSpecifications=spec("network-interface", "left-ali"))
    disk = ec2.create_volume(AvailabilityZone=f"{places.REGION}a", Size=5, TagSpecifications=spec("volume", "left-ali"))
    ec2.create_volume(AvailabilityZone=f"{places.REGION}a", Size=5, TagSpecifications=spec("volume", "another"))
    try:
        account = Alicloud("cn-hangzhou", Fixed())
        monkeypatch.setattr(alicloud, "PAGE", 2)
        found = alicloud.tagged(account, TAG, "left-ali", {"asg-left"})
        known = {"asg-left", vpc, places.shown(subnet)}
        assert {(one.kind, one.id) for one in unknown(found, known)} == {
            ("ecs:eni", nic["NetworkInterface"]["NetworkInterfaceId"]), ("ecs:disk", disk["VolumeId"]),
        }  # fmt: skip
        (node,) = [one for one in found if one.kind == "ecs:instance"]
        assert (node.of, node.type) == ("asg-left", "ecs.g8i.large")
        assert all(one.arn.startswith("arn:acs:") and ":cn-hangzhou:" in one.arn for one in found)
    finally:
        autoscaling.delete_auto_scaling_group(AutoScalingGroupName="asg-left", ForceDelete=True)
