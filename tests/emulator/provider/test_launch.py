"""Launch templates, groups, keys, buckets and roles: every property arrives, and changes do as on AWS."""

import base64
import json
from typing import Any

import pytest

from emulator.provider.aws import autoscaling
from emulator.provider.aws.api import ApiError

Deployment = Any
TEMPLATE: dict[str, Any] = {
    "name": "gpu",
    "description": "first",
    "imageId": "ami-0123456789abcdef0",
    "instanceType": "p4d.24xlarge",
    "keyName": "ssh",
    "kernelId": "aki-1",
    "ramDiskId": "ari-1",
    "ebsOptimized": "true",
    "disableApiStop": True,
    "disableApiTermination": False,
    "instanceInitiatedShutdownBehavior": "terminate",
    "userData": base64.b64encode(b"#!/bin/sh\n").decode(),
    "metadataOptions": {
        "httpTokens": "required",
        "httpEndpoint": "enabled",
        "httpPutResponseHopLimit": 1,
        "instanceMetadataTags": "enabled",
        "httpProtocolIpv6": "disabled",
    },
    "blockDeviceMappings": [
        {
            "deviceName": "/dev/xvda",
            "ebs": {
                "encrypted": "true",
                "kmsKeyId": "arn:aws:kms:us-west-2:123456789012:key/k",
                "volumeSize": 200,
                "volumeType": "gp3",
                "iops": 3000,
                "throughput": 250,
                "deleteOnTermination": "true",
            },
        },
        {"deviceName": "/dev/sdb", "virtualName": "ephemeral0"},
    ],
    "networkInterfaces": [
        {
            "deviceIndex": 0,
            "networkCardIndex": 0,
            "interfaceType": "efa",
            "subnetId": "subnet-1",
            "securityGroups": ["sg-1", "sg-2"],
            "deleteOnTermination": "true",
            "associatePublicIpAddress": "false",
        },
        {
            "deviceIndex": 1,
            "networkCardIndex": 1,
            "interfaceType": "efa-only",
            "ipv4Addresses": ["10.0.0.5"],
            "ipv4AddressCount": 2,
        },
    ],
    "iamInstanceProfile": {"arn": "arn:aws:iam::123456789012:instance-profile/node"},
    "instanceMarketOptions": {
        "marketType": "spot",
        "spotOptions": {"maxPrice": "1.5", "instanceInterruptionBehavior": "terminate"},
    },
    "capacityReservationSpecification": {"capacityReservationTarget": {"capacityReservationId": "cr-1"}},
    "cpuOptions": {"coreCount": 48, "threadsPerCore": 1},
    "placement": {"groupName": "cluster", "tenancy": "default"},
    "monitoring": {"enabled": True},
    "enclaveOptions": {"enabled": False},
    "hibernationOptions": {"configured": False},
    "privateDnsNameOptions": {"hostnameType": "ip-name", "enableResourceNameDnsARecord": True},
    "maintenanceOptions": {"autoRecovery": "disabled"},
    "licenseSpecifications": [{"licenseConfigurationArn": "arn:license"}],
    "tagSpecifications": [{"resourceType": "volume", "tags": {"Owner": "me"}}],
}
RENAMED = {
    "securitygroups": "groups",
    "ipv4addresses": "privateipaddresses",
    "ipv4addresscount": "secondaryprivateipaddresscount",
    "launchtemplateid": "launchtemplateid",
}


def leaves(value: Any, path: str = "") -> dict[str, str]:
    """Every scalar by its path, with names and values as both sides spell them alike."""
    if isinstance(value, dict) and value.keys() == {"Key", "Value"}:
        return {f"{path}.{value['Key'].lower()}": value["Value"].lower()}
    if isinstance(value, dict):
        found = {}
        for key, item in value.items():
            name = RENAMED.get(key.lower(), key.lower())
            found |= leaves(item, path if name in ("privateipaddress", "") else f"{path}.{name}")
        return found
    if isinstance(value, list):
        tags = value and isinstance(value[0], dict) and value[0].keys() == {"Key", "Value"}
        merged: dict[str, str] = {}
        for i, item in enumerate(value):
            merged |= leaves(item, path if tags else f"{path}[{i}]")
        return merged
    return {path: str(value).lower()}


def versions(deployment: Deployment, id_: str) -> list[dict[str, Any]]:
    answer = deployment.client("ec2").describe_launch_template_versions(LaunchTemplateId=id_)
    return sorted(answer["LaunchTemplateVersions"], key=lambda version: version["VersionNumber"])


def test_every_property_of_a_launch_template_reaches_the_api(deployment: Deployment) -> None:
    one = deployment.create("aws:ec2/launchTemplate:LaunchTemplate", {**TEMPLATE, "tags": {"a": "b"}})
    version = versions(deployment, one.id)[0]
    given = {key: value for key, value in TEMPLATE.items() if key not in ("name", "description")}
    assert leaves(given).items() <= leaves(version["LaunchTemplateData"]).items()
    assert (version["LaunchTemplateName"], version["VersionDescription"]) == ("gpu", "first")


def test_security_groups_of_a_template_reach_the_api(deployment: Deployment) -> None:
    one = deployment.template(vpcSecurityGroupIds=["sg-1"], securityGroupNames=["default"])
    data = versions(deployment, one.id)[0]["LaunchTemplateData"]
    assert (data["SecurityGroupIds"], data["SecurityGroups"]) == (["sg-1"], ["default"])


def test_a_change_makes_a_version_and_tags_alone_make_none(deployment: Deployment) -> None:
    one = deployment.template()
    assert one.state["latestVersion"] == one.state["defaultVersion"] == 1
    deployment.update(one, userData="dHdv")
    assert (one.state["latestVersion"], one.state["defaultVersion"]) == (2, 1)
    deployment.update(one, tags={"a": "b"})
    assert one.state["latestVersion"] == 2
    deployment.update(one, userData="dGhyZWU=", updateDefaultVersion=True)
    assert (one.state["latestVersion"], one.state["defaultVersion"]) == (3, 3)
    held = [version["LaunchTemplateData"] for version in versions(deployment, one.id)]
    assert [data["UserData"] for data in held] == ["b25l", "dHdv", "dGhyZWU="]
    assert {data["InstanceType"] for data in held} == {"m6a.large"}


def test_every_property_of_a_group_reaches_the_api(deployment: Deployment) -> None:
    template = deployment.template()
    group = deployment.group(
        template,
        desiredCapacity=3,
        launchTemplate=None,
        mixedInstancesPolicy={
            "launchTemplate": {
                "launchTemplateSpecification": {"launchTemplateId": template.id, "version": "1"},
                "overrides": [{"instanceType": "p4d.24xlarge", "weightedCapacity": "1"}],
            },
            "instancesDistribution": {
                "onDemandBaseCapacity": 1,
                "onDemandPercentageAboveBaseCapacity": 0,
                "spotAllocationStrategy": "price-capacity-optimized",
            },
        },
        healthCheckType="EC2",
        healthCheckGracePeriod=60,
        defaultCooldown=10,
        protectFromScaleIn=True,
        capacityRebalance=True,
        terminationPolicies=["OldestInstance"],
        initialLifecycleHooks=[{"name": "drain", "lifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING"}],
        tags=[{"key": "run", "value": "x", "propagateAtLaunch": True}],
    )
    found = deployment.described(group)
    policy = found["MixedInstancesPolicy"]
    assert policy["LaunchTemplate"]["LaunchTemplateSpecification"]["LaunchTemplateId"] == template.id
    assert policy["LaunchTemplate"]["Overrides"] == [{"InstanceType": "p4d.24xlarge", "WeightedCapacity": "1"}]
    assert policy["InstancesDistribution"]["OnDemandBaseCapacity"] == 1
    assert policy["InstancesDistribution"]["SpotAllocationStrategy"] == "price-capacity-optimized"
    assert [found[name] for name in ("MinSize", "MaxSize", "DesiredCapacity")] == [0, 5, 3]
    assert (found["HealthCheckType"], found["HealthCheckGracePeriod"], found["DefaultCooldown"]) == ("EC2", 60, 10)
    assert found["VPCZoneIdentifier"] == group.inputs["vpcZoneIdentifiers"][0]
    assert found["NewInstancesProtectedFromScaleIn"]
    assert found["CapacityRebalance"]
    assert found["TerminationPolicies"] == ["OldestInstance"]
    assert [(tag["Key"], tag["Value"], tag["PropagateAtLaunch"]) for tag in found["Tags"]] == [("run", "x", True)]
    hooks = deployment.client("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName=group.id)
    assert [hook["LifecycleHookName"] for hook in hooks["LifecycleHooks"]] == ["drain"]


def test_a_group_scales_out_and_in(deployment: Deployment) -> None:
    group = deployment.group(deployment.template())
    first = deployment.instances(group)
    deployment.update(group, desiredCapacity=3)
    assert set(first) < set(deployment.instances(group))
    deployment.update(group, desiredCapacity=1)
    assert len(deployment.instances(group)) == 1


@pytest.mark.parametrize("healthy", [0, 90])
def test_a_refresh_replaces_every_older_instance_by_one_of_the_new_version(
    deployment: Deployment, healthy: int
) -> None:
    template = deployment.template()
    refresh = {"strategy": "Rolling", "preferences": {"minHealthyPercentage": healthy}}
    group = deployment.group(template, instanceRefresh=refresh)
    older = deployment.instances(group)
    deployment.update(template, userData="dHdv")
    deployment.update(group, launchTemplate={"id": template.id, "version": "2"})
    newer = deployment.instances(group)
    assert len(newer) == 2
    assert not set(older) & set(newer)
    ec2 = deployment.client("ec2")
    for instance in newer:
        held = ec2.describe_instance_attribute(InstanceId=instance, Attribute="userData")
        assert held["UserData"]["Value"] == "dHdv"


def test_without_a_refresh_running_instances_stay(deployment: Deployment) -> None:
    template = deployment.template()
    group = deployment.group(template)
    older = deployment.instances(group)
    deployment.update(template, userData="dHdv")
    deployment.update(group, launchTemplate={"id": template.id, "version": "2"})
    assert deployment.instances(group) == older


def test_a_refresh_that_does_not_end_is_given_up(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    template = deployment.template()
    group = deployment.group(template, instanceRefresh={"strategy": "Rolling"})
    deployment.update(template, userData="dHdv")
    monkeypatch.setattr(autoscaling, "DEADLINE_S", 0.2)
    monkeypatch.setattr(autoscaling, "_replaced", lambda *_: False)
    with pytest.raises(ApiError, match="StartInstanceRefresh: Timeout"):
        deployment.update(group, launchTemplate={"id": template.id, "version": "2"})


@pytest.mark.parametrize("more", [{}, {"forceDelete": True}])
def test_deleting_a_group_ends_its_instances_protected_or_not(deployment: Deployment, more: dict[str, Any]) -> None:
    group = deployment.group(deployment.template(), protectFromScaleIn=True, **more)
    instances = deployment.instances(group)
    deployment.delete(group)
    reservations = deployment.client("ec2").describe_instances(InstanceIds=instances)["Reservations"]
    states = {one["State"]["Name"] for reservation in reservations for one in reservation["Instances"]}
    assert states <= {"terminated", "shutting-down"}


def test_every_property_of_a_key_reaches_the_api(deployment: Deployment) -> None:
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    key = deployment.create(
        "aws:kms/key:Key",
        {
            "description": "d",
            "policy": policy,
            "enableKeyRotation": True,
            "multiRegion": True,
            "keyUsage": "ENCRYPT_DECRYPT",
            "customerMasterKeySpec": "SYMMETRIC_DEFAULT",
            "isEnabled": True,
            "deletionWindowInDays": 7,
            "tags": {"a": "b"},
        },
    )
    kms = deployment.client("kms")
    data = kms.describe_key(KeyId=key.id)["KeyMetadata"]
    assert (data["Description"], data["MultiRegion"], data["KeySpec"]) == ("d", True, "SYMMETRIC_DEFAULT")
    assert kms.get_key_policy(KeyId=key.id, PolicyName="default")["Policy"] == policy
    assert kms.get_key_rotation_status(KeyId=key.id)["KeyRotationEnabled"]
    assert kms.list_resource_tags(KeyId=key.id)["Tags"] == [{"TagKey": "a", "TagValue": "b"}]
    deployment.delete(key)
    assert kms.describe_key(KeyId=key.id)["KeyMetadata"]["KeyState"] == "PendingDeletion"


def test_every_property_of_a_role_reaches_the_api(deployment: Deployment) -> None:
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    policy = json.dumps({
        "Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]
    })  # fmt: skip
    managed = deployment.create("aws:iam/policy:Policy", {"policy": policy, "path": "/team/"})
    deployment.create(
        "aws:iam/role:Role",
        {
            "name": "node",
            "path": "/team/",
            "description": "d",
            "assumeRolePolicy": trust,
            "maxSessionDuration": 7200,
            "permissionsBoundary": managed.id,
            "inlinePolicies": [{"name": "inline", "policy": policy}],
            "managedPolicyArns": [managed.id],
            "tags": {"a": "b"},
        },
    )
    iam = deployment.client("iam")
    role = iam.get_role(RoleName="node")["Role"]
    assert (role["Path"], role["Description"], role["MaxSessionDuration"]) == ("/team/", "d", 7200)
    assert role["AssumeRolePolicyDocument"] == json.loads(trust)
    assert role["PermissionsBoundary"]["PermissionsBoundaryArn"] == managed.id
    assert role["Tags"] == [{"Key": "a", "Value": "b"}]
    assert iam.get_role_policy(RoleName="node", PolicyName="inline")["PolicyDocument"] == json.loads(policy)
    attached = iam.list_attached_role_policies(RoleName="node")["AttachedPolicies"]
    assert [one["PolicyArn"] for one in attached] == [managed.id]
