"""Whole Alibaba clusters, each resource made by the stand-in as it is declared: no engine, no nodes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from emulator import places
from emulator.provider import kinds
from tools.declared import declare

STACK: dict[str, Any] = {
    "cloud": "alicloud",
    "region": "ap-southeast-1",
    "tags": {"team": "ml"},
    "network": {"cidr": "10.0.0.0/16", "zones": ["ap-southeast-1b"], "egress": "endpoints"},
    "security": {"kms_instance": "kst-sgp00000000000000"},
    "job": {"name": "pretrain", "dataset": "corpus", "batch": 256},
}
GPU = "ecs.ebmgn8v.48xlarge"
FLEETS: dict[str, dict[str, Any]] = {
    "on demand, eRDMA": {"type": GPU},
    "on demand, a template": {"type": GPU, "fabric": "tcp"},
    "spot": {"type": GPU, "capacity": "spot"},
    "mixed, a template": {
        "type": GPU,
        "fabric": "tcp",
        "capacity": "mixed",
        "on_demand_base": 1,
        "on_demand_share": 50,
        "refresh": False,
    },
    "reserved": {"type": GPU, "capacity": "reserved", "reservation": "create"},
    "CPUs": {"type": "ecs.g8i.large", "fabric": "tcp"},
}
MADE = {
    "alicloud:ess/scalingGroup:ScalingGroup",
    "alicloud:ess/scalingConfiguration:ScalingConfiguration",
    "alicloud:ess/lifecycleHook:LifecycleHook",
    "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate",
    "alicloud:oss/bucket:Bucket",
    "alicloud:oss/bucketObject:BucketObject",
    "alicloud:ram/role:Role",
    "alicloud:vpc/network:Network",
    "alicloud:vpc/switch:Switch",
    "alicloud:oos/template:Template",
    "alicloud:oos/execution:Execution",
}
"""What a running node touches, or is ended by: the server must take it."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pulumi_alicloud.*")
@pytest.mark.parametrize("nodes", FLEETS.values(), ids=FLEETS.keys())
def test_the_server_takes_all_that_a_fleet_declares(
    deployment: Any, tmp_path: Any, monkeypatch: Any, nodes: Any
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    made: dict[str, list[Any]] = {}

    def make(token: str, name: str, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        one = deployment.create(token, inputs, name)
        made.setdefault(token, []).append(one)
        return one.id, one.state

    fleet = {"image": "m-t4n00000000000000000", "desired": 2, "max": 2, **nodes}
    declared = declare("c1", {**STACK, "nodes": fleet}, make)
    assert {one.type for one in declared.resources if one.type in MADE and not kinds.find(one.type)} == set()

    autoscaling, ec2, s3, iam = map(deployment.alibaba_client, ("autoscaling", "ec2", "s3", "iam"))
    (group,) = autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    (declared_group,) = made["alicloud:ess/scalingGroup:ScalingGroup"]
    assert group["AutoScalingGroupName"] == declared_group.id
    assert len(group["Instances"]) == 2, "the group has begun"

    template = group["LaunchTemplate"]
    answer = ec2.describe_launch_template_versions(
        LaunchTemplateId=template["LaunchTemplateId"], Versions=[template["Version"]]
    )
    data = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    assert data["InstanceType"] == nodes["type"]
    assert data["ImageId"] == fleet["image"]
    market = data.get("InstanceMarketOptions", {}).get("MarketType")
    assert market == ("spot" if nodes.get("capacity") in ("spot", "mixed") else None)
    assert data["MetadataOptions"]["HttpTokens"] == "required", "from the first moment, whatever the group is made of"

    profile = iam.get_instance_profile(InstanceProfileName=data["IamInstanceProfile"]["Name"])["InstanceProfile"]
    assert profile["Roles"]
    script = base64.b64decode(data["UserData"]).decode()
    told = re.search(r"^CONFIG = json\.loads\((.*)\)$", script, re.MULTILINE)
    assert told
    config = json.loads(json.loads(told[1]))
    assert s3.head_object(Bucket=config["bucket"], Key=config["bundle"])["ContentLength"] > 0
    tags = {tag["Key"] for tag in s3.get_bucket_tagging(Bucket=config["bucket"])["TagSet"]}
    assert {places.BUCKET_TAG, "team"} <= tags
    assert s3.get_bucket_versioning(Bucket=f"{config['bucket']}-claims").get("Status") is None

    hooks = autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=group["AutoScalingGroupName"])["LifecycleHooks"]
    assert [hook["LifecycleTransition"] for hook in hooks] == (
        ["autoscaling:EC2_INSTANCE_TERMINATING"] if nodes["type"] == GPU else []
    )


def test_what_is_made_twice_in_an_account_has_names_of_its_own(
    deployment: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    """Roles, templates and buckets of two clusters in one account don't meet."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))

    def make(token: str, name: str, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        one = deployment.create(token, inputs, name)
        return one.id, one.state

    for name in ("c1", "c2"):
        fleet = {"image": "m-t4n00000000000000000", "desired": 1, "max": 1, **FLEETS["on demand, a template"]}
        declare(name, {**STACK, "nodes": fleet}, make)
    assert len(deployment.alibaba_client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]) == 2
