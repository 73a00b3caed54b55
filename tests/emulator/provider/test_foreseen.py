"""Ids in previews: only where they are asked for, and such as policies are written with."""

import re
from collections.abc import Callable

import pytest

from emulator.provider import foreseen, schema
from emulator.provider.stand_in import StandIn
from emulator.provider.wire import UNKNOWN

BUCKET, KEY, ROLE = "aws:s3/bucket:Bucket", "aws:kms/key:Key", "aws:iam/role:Role"
QUEUE, TEMPLATE, SUBNET = "aws:sqs/queue:Queue", "aws:ec2/launchTemplate:LaunchTemplate", "aws:ec2/subnet:Subnet"


def urn(token: str, name: str = "x") -> str:
    return f"urn:pulumi:prod::project::{token}::{name}"


def previewed(token: str, **inputs: object):
    return foreseen.foreseen(schema.resource_type(token), urn(token), inputs, "cn-north-1")


def test_a_preview_that_people_read_shows_nothing_made_up(without_cloud: Callable[..., StandIn]) -> None:
    assert without_cloud().create(urn(BUCKET), {"bucket": "b"}, preview=True)[0] == ""


def test_a_preview_that_is_judged_knows_ids_and_arns(
    without_cloud: Callable[..., StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(foreseen.VARIABLE, "1")
    id_, state = without_cloud().create(urn(BUCKET), {"bucket": "b", "tags": {"a": "b"}}, preview=True)
    assert (id_, state["arn"], state["region"]) == ("b", "arn:aws:s3:::b", "us-west-2")
    assert state["tagsAll"] == {"a": "b"}


@pytest.mark.parametrize(
    ("token", "inputs", "id_", "arn"),
    [
        (BUCKET, {"bucket": "b"}, "b", r"arn:aws-cn:s3:::b"),
        (ROLE, {"name": "r"}, "r", r"arn:aws-cn:iam::\d{12}:role/r"),
        (KEY, {}, r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}", r"arn:aws-cn:kms:.*:key/.*"),
        (QUEUE, {"name": "q"}, r"https://sqs\.cn-north-1\.amazonaws\.com/\d{12}/q", r"arn:aws-cn:sqs:.*:\d{12}:q"),
        (SUBNET, {"vpcId": "vpc-1"}, r"subnet-[0-9a-f]{17}", r"arn:aws-cn:ec2:cn-north-1:\d{12}:subnet/subnet-.*"),
        ("alicloud:oss/bucket:Bucket", {"bucket": "b"}, "b", None),
        ("alicloud:oss/bucket:Bucket", {}, r"tf-oss-bucket-[0-9a-f]{26}", None),
        ("alicloud:oss/bucketAcl:BucketAcl", {"bucket": "b", "acl": "private"}, "b", None),
        ("alicloud:ram/role:Role", {"roleName": "r"}, "r", r"acs:ram::\d{12}:role/r"),
        ("alicloud:ram/policy:Policy", {"policyName": "p"}, "p", None),
        ("alicloud:kms/key:Key", {}, r"key-[0-9a-f]{20}", r"acs:kms:cn-north-1:\d{12}:key/key-.*"),
        ("alicloud:log/store:Store", {"projectName": "p", "logstoreName": "s"}, "p:s", None),
        ("alicloud:vpc/switch:Switch", {}, r"vsw-[0-9a-f]{20}", None),
        ("alicloud:ess/scalingGroup:ScalingGroup", {}, r"asg-[0-9a-f]{20}", None),
        ("alicloud:cms/monitorGroup:MonitorGroup", {}, r"[0-9]+", None),
    ],
)  # fmt: skip
def test_ids_have_the_clouds_own_form(token, inputs, id_, arn):
    found, state = previewed(token, **inputs)
    assert re.fullmatch(id_, found)
    if arn:
        assert re.fullmatch(arn, state["arn"])
    assert inputs.items() <= state.items()


def test_a_key_is_known_by_its_id_and_a_template_by_its_first_version():
    id_, key = previewed(KEY)
    assert key["keyId"] == id_
    assert id_ in key["arn"]
    assert previewed(TEMPLATE)[1]["latestVersion"] == 1
    assert previewed("alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate")[1]["latestVersionNumber"] == 1


def test_what_components_read_of_alibaba_clouds_types_is_known():
    bucket = previewed("alicloud:oss/bucket:Bucket")
    assert bucket[1]["bucket"] == bucket[0]
    assert previewed("alicloud:vpc/network:Network")[1]["routeTableId"].startswith("vtb-")
    assert previewed("alicloud:vpc/natGateway:NatGateway")[1]["snatTableIds"].startswith("stb-")
    assert previewed("alicloud:ecs/eipAddress:EipAddress")[1]["ipAddress"].startswith("198.51.100.")
    target = previewed("alicloud:nas/mountTarget:MountTarget", fileSystemId="extreme-1")
    assert target[0] == f"extreme-1:{target[1]['mountTargetDomain']}"
    assert target[1]["mountTargetDomain"].endswith(".cn-north-1.nas.aliyuncs.com")


def test_a_name_that_is_not_known_yet_is_no_part_of_an_id():
    id_, state = previewed(BUCKET, bucket=UNKNOWN)
    assert UNKNOWN not in id_
    assert UNKNOWN not in state["arn"]


def test_what_does_not_follow_from_the_inputs_stays_unknown():
    assert previewed("aws:ec2/vpcEndpoint:VpcEndpoint")[1]["dnsEntries"] == UNKNOWN


def test_two_previews_of_one_program_are_the_same():
    assert previewed(KEY) == previewed(KEY)
