"""Every handled type, from its creation to its deletion, against a real API server."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from emulator.provider import kinds

Deployment = Any
TRUST = json.dumps({
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    ],
})  # fmt: skip


def allow(action: str) -> str:
    statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, indent=1)


@dataclass(frozen=True)
class Case:
    """One type: its first inputs (which may make what it stands on), and what an update changes."""

    token: str
    inputs: Callable[[Deployment], dict[str, Any]]
    changes: Callable[[Deployment], dict[str, Any]] = field(default=lambda _: {})
    stays: bool = False


def vpc(d: Deployment) -> str:
    return str(d.network()[0].id)


def subnet(d: Deployment) -> str:
    return str(d.network()[1].id)


def bucket(d: Deployment) -> str:
    return str(d.create("aws:s3/bucket:Bucket", {"forceDestroy": True}, name="of").id)


def role(d: Deployment) -> str:
    return str(d.create("aws:iam/role:Role", {"assumeRolePolicy": TRUST}, name="of").id)


def key(d: Deployment) -> str:
    return str(d.create("aws:kms/key:Key", {}, name="of").id)


def table(d: Deployment) -> str:
    return str(d.create("aws:ec2/routeTable:RouteTable", {"vpcId": vpc(d)}, name="of").id)


def gateway(d: Deployment) -> str:
    return str(d.create("aws:ec2/internetGateway:InternetGateway", {}, name="of").id)


def security_group(d: Deployment) -> str:
    return str(d.create("aws:ec2/securityGroup:SecurityGroup", {"vpcId": vpc(d)}, name="of").id)


def group(d: Deployment) -> str:
    return str(d.group(d.template()).id)


OLD_TAGS = {"tags": {"Owner": "me", "Gone": "soon"}}
NEW_TAGS = {"tags": {"Owner": "you", "New": "x"}}
RULE = {"ipProtocol": "tcp", "fromPort": 443, "toPort": 443, "cidrIpv4": "10.0.0.0/8", "description": "TLS"}
CASES = [
    Case(
        "aws:ec2/vpc:Vpc",
        lambda d: {"cidrBlock": "127.9.0.0/16", "enableDnsHostnames": True, **OLD_TAGS},
        lambda d: {"enableDnsHostnames": False, "enableDnsSupport": False, **NEW_TAGS},
    ),
    Case(
        "aws:ec2/subnet:Subnet",
        lambda d: {"vpcId": vpc(d), "cidrBlock": "127.10.2.0/24", "mapPublicIpOnLaunch": False, **OLD_TAGS},
        lambda d: {"mapPublicIpOnLaunch": True, **NEW_TAGS},
    ),
    Case(
        "aws:ec2/internetGateway:InternetGateway",
        lambda d: {"vpcId": vpc(d), **OLD_TAGS},
        lambda d: {"vpcId": vpc(d), **NEW_TAGS},
    ),
    Case("aws:ec2/eip:Eip", lambda d: {"domain": "vpc", **OLD_TAGS}, lambda d: NEW_TAGS),
    Case(
        "aws:ec2/natGateway:NatGateway",
        lambda d: {"subnetId": subnet(d), "allocationId": d.create("aws:ec2/eip:Eip", {}).id, **OLD_TAGS},
        lambda d: NEW_TAGS,
    ),
    Case(
        "aws:ec2/routeTable:RouteTable",
        lambda d: {"vpcId": vpc(d), "routes": [{"cidrBlock": "0.0.0.0/0", "gatewayId": gateway(d)}], **OLD_TAGS},
        lambda d: {"routes": [{"cidrBlock": "10.0.0.0/8", "gatewayId": gateway(d)}], **NEW_TAGS},
    ),
    Case(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        lambda d: {"routeTableId": table(d), "subnetId": subnet(d)},
    ),
    Case(
        "aws:ec2/route:Route",
        lambda d: {"routeTableId": table(d), "destinationCidrBlock": "0.0.0.0/0", "gatewayId": gateway(d)},
        lambda d: {"gatewayId": gateway(d)},
    ),
    Case(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        lambda d: {
            "vpcId": vpc(d),
            "serviceName": "com.amazonaws.us-west-2.s3",
            "routeTableIds": [table(d)],
            **OLD_TAGS,
        },
        lambda d: NEW_TAGS,
    ),
    Case(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        lambda d: {
            "vpcId": vpc(d),
            "serviceName": "com.amazonaws.us-west-2.ssm",
            "vpcEndpointType": "Interface",
            "subnetIds": [subnet(d)],
            "securityGroupIds": [security_group(d)],
            "privateDnsEnabled": True,
        },
    ),
    Case(
        "aws:ec2/securityGroup:SecurityGroup",
        lambda d: {
            "vpcId": vpc(d),
            "ingress": [{"protocol": "-1", "fromPort": 0, "toPort": 0, "self": True}],
            "egress": [{"protocol": "tcp", "fromPort": 443, "toPort": 443, "cidrBlocks": ["0.0.0.0/0"]}],
            **OLD_TAGS,
        },
        lambda d: {
            "ingress": [{"protocol": "tcp", "fromPort": 22, "toPort": 22, "securityGroups": [security_group(d)]}],
            **NEW_TAGS,
        },
    ),
    Case(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        lambda d: {"vpcId": vpc(d), **OLD_TAGS},
        lambda d: NEW_TAGS,
        stays=True,
    ),
    Case(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        lambda d: {"securityGroupId": security_group(d), **RULE, **OLD_TAGS},
        lambda d: NEW_TAGS,
    ),
    Case(
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        lambda d: {"securityGroupId": (sg := security_group(d)), "ipProtocol": "-1", "referencedSecurityGroupId": sg},
    ),
    Case(
        "aws:ec2/launchTemplate:LaunchTemplate",
        lambda d: {"imageId": "ami-1", "userData": "b25l", "description": "first", **OLD_TAGS},
        lambda d: {"userData": "dHdv", "updateDefaultVersion": True, "description": "second", **NEW_TAGS},
    ),
    Case(
        "aws:autoscaling/group:Group",
        lambda d: {
            "minSize": 0,
            "maxSize": 3,
            "desiredCapacity": 2,
            "healthCheckGracePeriod": 10,
            "launchTemplate": {"id": d.template().id, "version": "1"},
            "vpcZoneIdentifiers": [subnet(d)],
            "suspendedProcesses": ["AZRebalance"],
            "enabledMetrics": ["GroupDesiredCapacity"],
            "tags": [{"key": "Owner", "value": "me", "propagateAtLaunch": True}],
        },
        lambda d: {
            "desiredCapacity": 1,
            "maxSize": 4,
            "suspendedProcesses": [],
            "tags": [{"key": "New", "value": "x", "propagateAtLaunch": False}],
        },
    ),
    Case(
        "aws:autoscaling/lifecycleHook:LifecycleHook",
        lambda d: {
            "autoscalingGroupName": group(d),
            "lifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
            "heartbeatTimeout": 60,
        },
        lambda d: {"heartbeatTimeout": 90},
    ),
    Case(
        "aws:autoscaling/policy:Policy",
        lambda d: {"autoscalingGroupName": group(d), "adjustmentType": "ChangeInCapacity", "scalingAdjustment": 1},
        lambda d: {"scalingAdjustment": 2},
    ),
    Case(
        "aws:kms/key:Key",
        lambda d: {
            "description": "one",
            "enableKeyRotation": True,
            "deletionWindowInDays": 7,
            "policy": allow("kms:*"),
            **OLD_TAGS,
        },
        lambda d: {
            "description": "two",
            "enableKeyRotation": False,
            "isEnabled": False,
            "policy": allow("kms:Encrypt"),
            **NEW_TAGS,
        },
    ),
    Case("aws:kms/alias:Alias", lambda d: {"targetKeyId": key(d)}, lambda d: {"targetKeyId": key(d)}),
    Case("aws:s3/bucket:Bucket", lambda d: {"forceDestroy": True, **OLD_TAGS}, lambda d: NEW_TAGS),
    Case(
        "aws:s3/bucketVersioning:BucketVersioning",
        lambda d: {"bucket": bucket(d), "versioningConfiguration": {"status": "Enabled"}},
        lambda d: {"versioningConfiguration": {"status": "Suspended"}},
        stays=True,
    ),
    Case(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        lambda d: {
            "bucket": bucket(d),
            "rules": [
                {
                    "applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": key(d)},
                    "bucketKeyEnabled": True,
                }
            ],
        },
        lambda d: {"rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}}]},
    ),
    Case(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        lambda d: {"bucket": bucket(d), "blockPublicAcls": True, "restrictPublicBuckets": False},
        lambda d: {"restrictPublicBuckets": True},
    ),
    Case(
        "aws:s3/bucketPolicy:BucketPolicy",
        lambda d: {"bucket": bucket(d), "policy": allow("s3:GetObject")},
        lambda d: {"policy": allow("s3:ListBucket")},
    ),
    Case(
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        lambda d: {"bucket": bucket(d), "rule": {"objectOwnership": "BucketOwnerEnforced"}},
        lambda d: {"rule": {"objectOwnership": "ObjectWriter"}},
    ),
    Case(
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        lambda d: {
            "bucket": bucket(d),
            "rules": [
                {
                    "id": "cold",
                    "status": "Enabled",
                    "filter": {"prefix": "runs/"},
                    "transitions": [{"days": 30, "storageClass": "GLACIER"}],
                    "expiration": {"days": 90},
                    "noncurrentVersionExpiration": {"noncurrentDays": 7},
                    "abortIncompleteMultipartUpload": {"daysAfterInitiation": 1},
                }
            ],
        },
        lambda d: {"rules": [{"id": "all", "status": "Enabled", "expiration": {"days": 3}}]},
    ),
    Case(
        "aws:s3/bucketObjectv2:BucketObjectv2",
        lambda d: {"bucket": bucket(d), "key": "a/b", "content": "one", "contentType": "text/plain", **OLD_TAGS},
        lambda d: {"content": "two", **NEW_TAGS},
    ),
    Case(
        "aws:s3/bucketObject:BucketObject",
        lambda d: {"bucket": bucket(d), "contentBase64": "b25l"},
        lambda d: {"contentBase64": "dHdv"},
    ),
    Case(
        "aws:iam/role:Role",
        lambda d: {
            "assumeRolePolicy": TRUST,
            "description": "one",
            "maxSessionDuration": 7200,
            "inlinePolicies": [{"name": "inline", "policy": allow("s3:GetObject")}],
            **OLD_TAGS,
        },
        lambda d: {"description": "two", "inlinePolicies": [], **NEW_TAGS},
    ),
    Case(
        "aws:iam/policy:Policy",
        lambda d: {"policy": allow("s3:GetObject"), **OLD_TAGS},
        lambda d: {"policy": allow("s3:PutObject"), **NEW_TAGS},
    ),
    Case(
        "aws:iam/rolePolicy:RolePolicy",
        lambda d: {"role": role(d), "policy": allow("s3:GetObject")},
        lambda d: {"policy": allow("s3:PutObject")},
    ),
    Case(
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        lambda d: {"role": role(d), "policyArn": d.create("aws:iam/policy:Policy", {"policy": allow("s3:*")}).id},
    ),
    Case("aws:iam/instanceProfile:InstanceProfile", lambda d: {"role": role(d), **OLD_TAGS}, lambda d: NEW_TAGS),
    Case(
        "aws:ssm/parameter:Parameter",
        lambda d: {"type": "SecureString", "value": "one", "keyId": key(d), **OLD_TAGS},
        lambda d: {"value": "two", **NEW_TAGS},
    ),
    Case(
        "aws:cloudwatch/logGroup:LogGroup",
        lambda d: {"retentionInDays": 7, **OLD_TAGS},
        lambda d: {"retentionInDays": 14, **NEW_TAGS},
    ),
    Case(
        "aws:sqs/queue:Queue",
        lambda d: {"visibilityTimeoutSeconds": 60, "sqsManagedSseEnabled": True, **OLD_TAGS},
        lambda d: {"visibilityTimeoutSeconds": 90, **NEW_TAGS},
    ),
]


def scaling_group(d: Deployment) -> str:
    return str(d.scaling_group().id)


def trusted(service: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"Service": [service]}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "1", "Statement": [statement]})


CONFIGURATION = {"imageId": "m-1", "instanceType": "ecs.g8i.large", "userData": "b25l", "forceDelete": True}
STARTED = {**CONFIGURATION, "active": True, "enable": True}
REFRESH = {
    "FormatVersion": "OOS-2019-06-01",
    "Tasks": [
        {
            "Name": "refresh",
            "Action": "ACS::ExecuteAPI",
            "Properties": {
                "Service": "ESS",
                "API": "StartInstanceRefresh",
                "Parameters": {"ScalingGroupId": "{{ group }}", "MinHealthyPercentage": 0, "SkipMatching": True},
            },
        }
    ],
}


def oos_template(d: Deployment) -> str:
    inputs = {"templateName": "refresh", "content": json.dumps(REFRESH)}
    return str(d.create("alicloud:oos/template:Template", inputs, name="of").id)


ALIBABA_CASES = [
    Case(
        "alicloud:oss/bucket:Bucket",
        lambda d: {"forceDestroy": True, "versioning": {"status": "Enabled"}, **OLD_TAGS},
        lambda d: {"versioning": {"status": "Suspended"}, **NEW_TAGS},
    ),
    Case(
        "alicloud:oss/bucketVersioning:BucketVersioning",
        lambda d: {"bucket": d.create("alicloud:oss/bucket:Bucket", {}, name="of").id, "status": "Enabled"},
        lambda d: {"status": "Suspended"},
        stays=True,
    ),
    Case(
        "alicloud:oss/bucketObject:BucketObject",
        lambda d: {"bucket": d.create("alicloud:oss/bucket:Bucket", {}, name="of").id, "key": "a/b", "content": "one"},
        lambda d: {"content": "three"},
    ),
    Case(
        "alicloud:vpc/network:Network",
        lambda d: {"cidrBlock": "127.9.0.0/16", "vpcName": "x", **OLD_TAGS},
        lambda d: {"vpcName": "y", **NEW_TAGS},
    ),
    Case(
        "alicloud:vpc/switch:Switch",
        lambda d: {
            "vpcId": d.create("alicloud:vpc/network:Network", {"cidrBlock": "127.9.0.0/16"}, name="of").id,
            "cidrBlock": "127.9.1.0/24",
            "zoneId": "cn-hangzhou-i",
            **OLD_TAGS,
        },
        lambda d: NEW_TAGS,
    ),
    Case(
        "alicloud:ram/role:Role",
        lambda d: {"roleName": "node", "assumeRolePolicyDocument": trusted("ecs.aliyuncs.com"), **OLD_TAGS},
        lambda d: {"assumeRolePolicyDocument": trusted("oos.aliyuncs.com"), **NEW_TAGS},
    ),
    Case(
        "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate",
        lambda d: {"launchTemplateName": "node", "imageId": "m-1", "userData": "b25l", "templateTags": {"a": "b"}},
        lambda d: {"userData": "dHdv"},
    ),
    Case(
        "alicloud:ess/scalingGroup:ScalingGroup",
        lambda d: d.scaling_group(**OLD_TAGS).inputs,
        lambda d: {"desiredCapacity": 3, "maxSize": 6, **NEW_TAGS},
    ),
    Case(
        "alicloud:ess/scalingConfiguration:ScalingConfiguration",
        lambda d: {"scalingGroupId": scaling_group(d), **STARTED},
        lambda d: {"userData": "dHdv"},
    ),
    Case(
        "alicloud:ess/lifecycleHook:LifecycleHook",
        lambda d: {"scalingGroupId": scaling_group(d), "lifecycleTransition": "SCALE_IN", "heartbeatTimeout": 120},
        lambda d: {"heartbeatTimeout": 240, "defaultResult": "ABANDON"},
    ),
    Case(
        "alicloud:ess/suspendProcess:SuspendProcess",
        lambda d: {"scalingGroupId": scaling_group(d), "process": "ScaleOut"},
    ),
    Case(
        "alicloud:message/serviceQueue:ServiceQueue",
        lambda d: {"queueName": "work", "visibilityTimeout": 60, "enableSse": True},
        lambda d: {"visibilityTimeout": 90, "messageRetentionPeriod": 3600},
    ),
    Case(
        "alicloud:oos/template:Template",
        lambda d: {"templateName": "refresh", "content": json.dumps(REFRESH)},
        lambda d: {"content": json.dumps({**REFRESH, "Tasks": []})},
    ),
    Case(
        "alicloud:oos/execution:Execution",
        lambda d: {"templateName": oos_template(d), "parameters": json.dumps({"group": scaling_group(d)})},
        stays=True,
    ),
]


@pytest.mark.parametrize(("package", "cases"), [("aws", CASES), ("alicloud", ALIBABA_CASES)])
def test_every_handled_type_has_a_case(package: str, cases: list[Case]) -> None:
    assert {case.token for case in cases} == kinds.all_kinds(package).keys()


@pytest.mark.parametrize("case", CASES + ALIBABA_CASES, ids=lambda case: str(case.token.rpartition(":")[2]))
def test_a_resource_lives_from_creation_to_deletion(deployment: Deployment, case: Case) -> None:
    one = deployment.create(case.token, case.inputs(deployment))
    assert one.id
    assert one.inputs.items() <= one.state.items()
    assert deployment.read(one) == (one.id, one.inputs, one.state), "a refresh would report a change"

    changes = case.changes(deployment)
    new = {**one.inputs, **changes}
    assert not deployment.stand_in.diff(one.urn, one.inputs, new).replaces
    deployment.update(one, **changes)
    assert one.inputs.items() <= one.state.items()
    assert deployment.read(one) == (one.id, one.inputs, one.state), "a refresh would report a change"
    assert not deployment.stand_in.diff(one.urn, one.inputs, one.inputs).changes

    deployment.delete(one)
    deployment.delete(one)
    if not case.stays:
        assert deployment.read(one) == ("", {}, {}), "deleted, yet a refresh still finds it"


def test_older_names_of_the_s3_types_are_handled_alike() -> None:
    token = "aws:s3/bucketVersioningV2:BucketVersioningV2"
    assert kinds.find(token) is kinds.find(token.replace("V2", ""))
