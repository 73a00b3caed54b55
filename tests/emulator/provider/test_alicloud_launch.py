"""What an Alibaba cluster's nodes are launched from: groups, templates and configurations go to the server's own."""

import json
from typing import Any

import pytest

from components.alicloud import rollout
from components.plan import Pool, decide
from components.spec import parse
from emulator import places
from emulator.provider.aws.api import ApiError

Deployment = Any
GROUP = "alicloud:ess/scalingGroup:ScalingGroup"
CONFIGURATION = "alicloud:ess/scalingConfiguration:ScalingConfiguration"
TEMPLATE = "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate"
ROLE = "alicloud:ram/role:Role"
BUCKET = "alicloud:oss/bucket:Bucket"
OBJECT = "alicloud:oss/bucketObject:BucketObject"
STARTED = {"imageId": "m-1", "instanceType": "ecs.g8i.large", "userData": "b25l", "active": True, "enable": True}
REFRESH = {
    "Service": "ESS",
    "API": "StartInstanceRefresh",
    "Parameters": {"ScalingGroupId": "{{ group }}", "MinHealthyPercentage": 0, "SkipMatching": True},
}


def described(d: Deployment, group: Any) -> dict[str, Any]:
    answer = d.alibaba_client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group.id])
    found: dict[str, Any] = answer["AutoScalingGroups"][0]
    return found


def instances(d: Deployment, group: Any) -> set[str]:
    return {instance["InstanceId"] for instance in described(d, group)["Instances"]}


def launched(d: Deployment, group: Any) -> dict[str, Any]:
    """What the group launches, as the server has it."""
    template = described(d, group)["LaunchTemplate"]
    answer = d.alibaba_client("ec2").describe_launch_template_versions(
        LaunchTemplateId=template["LaunchTemplateId"], Versions=[template["Version"]]
    )
    data: dict[str, Any] = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    return data


def template(d: Deployment, **more: Any) -> Any:
    return d.create(TEMPLATE, {"launchTemplateName": "node", "imageId": "m-1", "instanceType": "ecs.g8i.large", **more})


def of_template(d: Deployment, made: Any, **more: Any) -> Any:
    version = str(made.state["latestVersionNumber"])
    return d.scaling_group(launchTemplateId=made.id, launchTemplateVersion=version, **more)


def test_what_a_node_shows_of_a_template_reaches_the_server(deployment: Deployment) -> None:
    group = of_template(
        deployment,
        template(
            deployment,
            userData="b25l",
            ramRoleName="node",
            spotStrategy="SpotAsPriceGo",
            httpTokens="required",
            systemDisk={"encrypted": True, "kmsKeyId": "key-1"},
        ),
        tags={"team": "ml"},
    )
    found = described(deployment, group)
    assert [found[name] for name in ("MinSize", "MaxSize", "DesiredCapacity")] == [0, 5, 2]
    assert [(tag["Key"], tag["Value"], tag["PropagateAtLaunch"]) for tag in found["Tags"]] == [("team", "ml", True)]
    assert launched(deployment, group) == {
        "ImageId": "m-1",
        "InstanceType": "ecs.g8i.large",
        "UserData": "b25l",
        "IamInstanceProfile": {"Name": "node"},
        "InstanceMarketOptions": {"MarketType": "spot"},
        "MetadataOptions": {"HttpTokens": "required"},
    }
    ids = instances(deployment, group)
    reservations = deployment.alibaba_client("ec2").describe_instances(InstanceIds=[*ids])["Reservations"]
    addresses = [instance["PrivateIpAddress"] for item in reservations for instance in item["Instances"]]
    assert len(addresses) == 2
    assert all(address.startswith("127.11.1.") for address in addresses)


def test_a_group_without_a_template_starts_with_its_first_configuration_that_is_enabled(
    deployment: Deployment,
) -> None:
    group = deployment.scaling_group(minSize=1)
    assert (instances(deployment, group), group.state["desiredCapacity"]) == (set(), 2)
    deployment.update(group, desiredCapacity=3)
    idle = {"scalingGroupId": group.id, **STARTED, "enable": False}
    configuration = deployment.create(CONFIGURATION, idle)
    assert (instances(deployment, group), deployment.read(group)[2]["desiredCapacity"]) == (set(), 3)
    deployment.update(configuration, enable=True)
    assert len(instances(deployment, group)) == 3
    assert described(deployment, group)["MinSize"] == 1
    assert launched(deployment, group)["UserData"] == "b25l"
    deployment.update(group, desiredCapacity=1)
    assert len(instances(deployment, group)) == 1


def test_a_new_configuration_is_launched_once_it_is_active_and_the_old_one_can_go(deployment: Deployment) -> None:
    group = deployment.scaling_group()
    old = deployment.create(CONFIGURATION, {"scalingGroupId": group.id, **STARTED})
    before = instances(deployment, group)
    new = deployment.create(CONFIGURATION, {"scalingGroupId": group.id, **STARTED, "userData": "dHdv"}, name="y")
    assert old.id != new.id
    deployment.delete(old)
    assert deployment.read(old) == ("", {}, {})
    assert launched(deployment, group)["UserData"] == "dHdv"
    assert instances(deployment, group) == before, "running nodes stay"


@pytest.mark.parametrize("force", [False, True])
def test_the_last_configuration_goes_by_force_alone_and_takes_its_group_with_it(
    deployment: Deployment, force: bool
) -> None:
    """As the provider does (resource_alicloud_ess_scaling_configuration.go)."""
    group = deployment.scaling_group()
    last = deployment.create(CONFIGURATION, {"scalingGroupId": group.id, **STARTED, "forceDelete": force})
    if force:
        deployment.delete(last)
        assert deployment.read(group) == ("", {}, {})
        return
    with pytest.raises(ApiError, match=r"is the last configuration of asg-.*: set forceDelete"):
        deployment.delete(last)
    assert len(instances(deployment, group)) == 2


def test_an_execution_replaces_the_nodes_that_were_launched_from_something_older(deployment: Deployment) -> None:
    made = template(deployment, userData="b25l")
    group = of_template(deployment, made)
    content = json.dumps({"Tasks": [{"Name": "refresh", "Action": "ACS::ExecuteAPI", "Properties": REFRESH}]})
    oos = deployment.create("alicloud:oos/template:Template", {"templateName": "refresh", "content": content})

    def execute(name: str) -> str:
        given = {"templateName": oos.id, "parameters": json.dumps({"group": group.id, "booted": name})}
        return str(deployment.create("alicloud:oos/execution:Execution", given, name=name).state["status"])

    older = instances(deployment, group)
    assert (execute("first"), instances(deployment, group)) == ("Failed", older), "none is older"
    deployment.update(made, userData="dHdv")
    deployment.update(group, launchTemplateVersion="2")
    assert instances(deployment, group) == older
    assert execute("second") == "Success"
    newer = instances(deployment, group)
    assert len(newer) == 2
    assert not newer & older


def erdma() -> Pool:
    """Nodes whose group has a configuration, which is declared without what makes it whole."""
    file = {
        "cloud": "alicloud",
        "region": "cn-hangzhou",
        "network": {"cidr": "10.0.0.0/16", "zones": ["cn-hangzhou-i"], "egress": "endpoints"},
        "nodes": {"type": "ecs.g8i.24xlarge", "image": "m-bp1aaaaaaaaaaaaaaaaa"},
        "security": {"kms_instance": "kst-hzz00000000000000000"},
        "job": {"name": "gpt", "dataset": "text"},
    }
    return decide("c1", parse(file)).pool


def roll_out(d: Deployment, group: Any, name: str, user_data: str) -> tuple[Any, list[str]]:
    """A configuration and what its executions do, as a cluster declares them: it, and how they ended."""
    declared = {"imageId": "m-1", "instanceType": "ecs.g8i.large", "userData": user_data}
    made = d.create(CONFIGURATION, {"scalingGroupId": group.id, **declared}, name=name)
    steps = [
        ("rollout", rollout.completing(erdma()), {"configuration": made.id, "securityGroup": "sg-1"}),
        ("refresh", rollout.renewing(erdma()), {"booted": made.id}),
    ]
    ends = []
    for what, content, given in steps:
        template = {"templateName": f"{name}-{what}", "content": json.dumps(content)}
        oos = d.create("alicloud:oos/template:Template", template, name=f"{name}-{what}")
        asked = {"templateName": oos.id, "parameters": json.dumps({"group": group.id, **given})}
        ends.append(d.create("alicloud:oos/execution:Execution", asked, name=f"{name}-{what}").state["status"])
    return made, ends


def test_a_configuration_is_launched_once_an_execution_has_made_it_whole(deployment: Deployment) -> None:
    group = deployment.scaling_group()
    _, ends = roll_out(deployment, group, "one", "b25l")
    assert ends == ["Success", "Failed"], "no node is older than the first"
    assert len(instances(deployment, group)) == 2
    assert launched(deployment, group)["MetadataOptions"] == {"HttpTokens": "required"}


def test_another_configuration_rolls_the_nodes_of_a_group_that_is_enabled_already(deployment: Deployment) -> None:
    group = deployment.scaling_group()
    first, _ = roll_out(deployment, group, "one", "b25l")
    older = instances(deployment, group)
    second, ends = roll_out(deployment, group, "two", "dHdv")
    assert ends == ["Success", "Success"]
    assert launched(deployment, group)["UserData"] == "dHdv"
    newer = instances(deployment, group)
    assert len(newer) == 2
    assert not newer & older
    assert deployment.read(first) == ("", {}, {}), "what is unused is gone"
    assert deployment.read(second)[0] == second.id, "what is active stays"


def test_an_execution_that_can_not_complete_a_configuration_starts_nothing(deployment: Deployment) -> None:
    group = deployment.scaling_group()
    content = json.dumps(rollout.completing(erdma()))
    oos = deployment.create("alicloud:oos/template:Template", {"templateName": "rollout", "content": content})
    given = {"group": group.id, "configuration": f"asc-7-{group.id.removeprefix('asg-')}", "securityGroup": "sg-1"}
    asked = {"templateName": oos.id, "parameters": json.dumps(given)}
    assert deployment.create("alicloud:oos/execution:Execution", asked).state["status"] == "Failed"
    assert instances(deployment, group) == set()


def test_a_role_is_for_instances_only_where_it_trusts_them(deployment: Deployment) -> None:
    trust = {"Effect": "Allow", "Principal": {"Service": ["ecs.aliyuncs.com"]}, "Action": "sts:AssumeRole"}
    given = {"roleName": "node", "assumeRolePolicyDocument": json.dumps({"Version": "1", "Statement": [trust]})}
    role = deployment.create(ROLE, given)
    assert role.state["arn"] == "acs:ram::123456789012:role/node"
    iam = deployment.alibaba_client("iam")
    profile = iam.get_instance_profile(InstanceProfileName="node")["InstanceProfile"]
    assert [held["RoleName"] for held in profile["Roles"]] == ["node"]
    deployment.update(role, assumeRolePolicyDocument=json.dumps({"Version": "1", "Statement": []}))
    assert iam.list_instance_profiles()["InstanceProfiles"] == []
    deployment.delete(role)
    deployment.create(ROLE, {**given, "assumeRolePolicyDocument": json.dumps({"Version": "1", "Statement": []})})
    assert iam.list_instance_profiles()["InstanceProfiles"] == []


def test_a_bucket_of_oss_is_named_by_its_provider_and_known_by_its_tag(deployment: Deployment, tmp_path: Any) -> None:
    bucket = deployment.create(BUCKET, {"tags": {"team": "ml"}})
    assert bucket.id.startswith("tf-oss-bucket-")
    assert bucket.id == bucket.state["bucket"]
    assert bucket.state["intranetEndpoint"] == "oss-cn-hangzhou-internal.aliyuncs.com"
    s3 = deployment.alibaba_client("s3")
    tags = {tag["Key"]: tag["Value"] for tag in s3.get_bucket_tagging(Bucket=bucket.id)["TagSet"]}
    assert tags == {"team": "ml", places.BUCKET_TAG: "cn-hangzhou"}
    (tmp_path / "bundle").write_bytes(b"\0bundle")
    put = {"bucket": bucket.id, "key": "bundles/b", "source": str(tmp_path / "bundle")}
    stored = deployment.create(OBJECT, put)
    assert (stored.id, stored.state["contentLength"]) == ("bundles/b", "7")
    assert s3.get_object(Bucket=bucket.id, Key="bundles/b")["Body"].read() == b"\0bundle"
    with pytest.raises(ApiError, match=r"UnreadableSource: 'bundles/c': .*No such file"):
        deployment.create(OBJECT, {**put, "key": "bundles/c", "source": str(tmp_path / "none")}, name="c")


def test_a_vswitch_keeps_its_own_zone_in_a_region_that_the_server_lacks(deployment: Deployment) -> None:
    group = deployment.scaling_group()
    (vswitch,) = group.inputs["vswitchIds"]
    assert vswitch.startswith("vsw-")
    answer = deployment.alibaba.invoke("alicloud:vpc/getSwitches:getSwitches", {"ids": [vswitch]})
    (shown,) = answer["vswitches"]
    assert (shown["zoneId"], shown["cidrBlock"]) == ("cn-hangzhou-i", "127.11.1.0/24")
    (network,) = deployment.alibaba.invoke("alicloud:vpc/getNetworks:getNetworks", {})["vpcs"]
    assert network["id"] == shown["vpcId"]


@pytest.mark.parametrize("token", [ROLE, TEMPLATE, "alicloud:ram/policy:Policy"])
def test_what_the_provider_does_not_name_must_be_named(deployment: Deployment, token: str) -> None:
    """pulumi-terraform-bridge makes no name for a `name` that is deprecated, and the API demands one."""
    given = {"policyDocument": "{}"} if token.endswith("Policy") else {}
    _, failures = deployment.alibaba.check(deployment.urn(token), {}, given, b"seed")
    (failure,) = failures
    assert failure.reason.endswith("Name' is missing: the cloud demands a name, and the provider makes none here")
