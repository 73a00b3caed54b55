"""Each way to break our stacks on Alibaba Cloud, and the one control that must catch it."""

import json
from typing import Any

from tests.policies.own_stacks import INTERNET, Change, Mutation, add, altered, changed, gone, put, statement

CONFIGURATION = ("alicloud:ess/scalingConfiguration:ScalingConfiguration", "c1-node")
TEMPLATE = ("alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate", "c1-node")
GROUP = ("alicloud:ess/scalingGroup:ScalingGroup", "c1-nodes")
KEY = ("alicloud:kms/key:Key", "c1-data")
DATA = ("alicloud:oss/bucket:Bucket", "c1-data")
FLEET = ("alicloud:oss/bucketObject:BucketObject", "c1-fleet")
POLICY = ("alicloud:oss/bucketPolicy:BucketPolicy", "c1-data")
TRAIL = ("alicloud:actiontrail/trail:Trail", "c1-audit")
STORE = ("alicloud:log/store:Store", "c1-flow")
ROLE = ("alicloud:ram/role:Role", "c1-node")
ROLE_POLICY = ("alicloud:ram/policy:Policy", "c1-node")
FILES = ("alicloud:nas/fileSystem:FileSystem", "c1-warm")
QUEUE = ("alicloud:message/serviceQueue:ServiceQueue", "c1-queue")
RULE = "alicloud:ecs/securityGroupRule:SecurityGroupRule"
FLOW = ("alicloud:vpc/flowLog:FlowLog", "c1-flow")
ROLLOUT = ("alicloud:oos/template:Template", "c1-nodes-rollout")
EXECUTION = ("alicloud:oos/execution:Execution", "c1-nodes-rollout")
HOOK = ("alicloud:ess/lifecycleHook:LifecycleHook", "c1-drain")
RESERVATION = ("alicloud:ecs/capacityReservation:CapacityReservation", "c1-nodes")


def internet(port: int) -> dict[str, str | None]:
    """A rule that lets the internet in to a port."""
    return {
        "ipProtocol": "tcp",
        "portRange": f"{port}/{port}",
        "cidrIp": INTERNET,
        "sourceSecurityGroupId": None,
    }


def completed(**parameters: str | None) -> Change:
    """Change what an execution of the template completes a configuration by."""

    def change(props: dict[str, Any]) -> None:
        content = json.loads(props["content"])
        (task,) = (task for task in content["Tasks"] if task["Name"] == "complete")
        task["Properties"]["Parameters"].update(parameters)
        props["content"] = json.dumps(content)

    return altered(change)


MUTATIONS: dict[str, list[Mutation]] = {
    "prod-ap-singapore": [
        ("ENC-DISK-01", CONFIGURATION, put("systemDiskEncrypted", False)),
        ("ENC-DISK-02", CONFIGURATION, put("systemDiskKmsKeyId", None)),
        ("ENC-BUCKET-01", DATA, put("serverSideEncryptionRule.sseAlgorithm", "AES256")),
        ("ENC-BUCKET-01", FLEET, put("serverSideEncryption", None)),
        ("ENC-BUCKET-02", FLEET, put("kmsKeyId", None)),
        ("ENC-BUCKET-02", DATA, put("serverSideEncryptionRule.kmsMasterKeyId", None)),
        ("ENC-FILES-01", FILES, put("encryptType", 0)),
        ("ENC-FILES-02", FILES, put("encryptType", 1)),
        ("ENC-QUEUE-01", QUEUE, put("enableSse", False)),
        ("ENC-LOGS-01", STORE, put("encryptConf.enable", False)),
        ("KEY-ROTATE-01", KEY, put("automaticRotation", None)),
        (
            "KEY-PUBLIC-01",
            KEY,
            add("policy", Effect="Allow", Principal={"RAM": ["*"]}, Action=["kms:Decrypt"], Resource=["*"]),
        ),
        ("KEY-DELETE-01", KEY, put("deletionProtection", None)),
        ("KEY-DELETE-01", KEY, put("pendingWindowInDays", 7)),
        ("KEY-ENABLED-01", KEY, put("status", "Disabled")),
        ("TLS-BUCKET-01", POLICY, statement("policy", 0)),
        (
            "TLS-BUCKET-02",
            ("alicloud:oss/bucketHttpsConfig:BucketHttpsConfig", "c1-data"),
            put("tlsVersions", ["TLSv1.2", "TLSv1.3"]),
        ),
        ("NET-PUBLIC-01", CONFIGURATION, put("internetMaxBandwidthOut", 10)),
        ("NET-INGRESS-02", (RULE, "c1-from-nodes"), altered(lambda props: props.update(internet(22)))),
        ("NET-INGRESS-03", (RULE, "c1-from-nodes"), altered(lambda props: props.update(internet(8888)))),
        ("NET-INGRESS-03", ("alicloud:nas/accessRule:AccessRule", "c1-warm"), put("sourceCidrIp", INTERNET)),
        ("NET-EGRESS-01", (RULE, "c1-to-nowhere"), gone),
        ("NET-DESCRIBED-01", (RULE, "c1-to-nodes"), put("description", None)),
        ("NET-FLOW-01", FLOW, put("trafficType", "Allow")),
        ("IAM-ADMIN-01", ROLE_POLICY, add("policyDocument", Effect="Allow", Action="*", Resource="*")),
        (
            "IAM-ADMIN-02",
            ("alicloud:ram/rolePolicyAttachment:RolePolicyAttachment", "c1-node"),
            put("policyName", "AdministratorAccess"),
        ),
        ("IAM-WILDCARD-01", ROLE_POLICY, add("policyDocument", Effect="Allow", Action="ecs:*", Resource="*")),
        ("IAM-PASSROLE-01", ROLE_POLICY, add("policyDocument", Effect="Allow", Action="ram:PassRole", Resource="*")),
        (
            "IAM-TRUST-01",
            ROLE,
            add("assumeRolePolicyDocument", Effect="Allow", Principal={"RAM": ["*"]}, Action="sts:AssumeRole"),
        ),
        ("IAM-SECRET-01", CONFIGURATION, put("userData", "export ALIBABA_CLOUD_ACCESS_KEY_ID=LTAI5tExampleExample")),
        (
            "STO-PUBLIC-01",
            ("alicloud:oss/bucketPublicAccessBlock:BucketPublicAccessBlock", "c1-data"),
            put("blockPublicAccess", False),
        ),
        ("STO-PUBLIC-02", FLEET, put("acl", "public-read")),
        ("STO-PUBLIC-02", ("alicloud:oss/bucketAcl:BucketAcl", "c1-data"), put("acl", "public-read")),
        (
            "STO-PUBLIC-03",
            POLICY,
            add("policy", Effect="Allow", Principal=["*"], Action=["oss:GetObject"], Resource=["*"]),
        ),
        ("STO-VERSION-01", DATA, put("versioning.status", "Suspended")),
        ("STO-LOCK-01", ("alicloud:oss/bucketPolicy:BucketPolicy", "c1-audit"), statement("policy", 1)),
        (
            "STO-CLEAN-01",
            DATA,
            altered(lambda props: [rule.pop("abortMultipartUploads", None) for rule in props["lifecycleRules"]]),
        ),
        (
            "STO-CLEAN-02",
            DATA,
            altered(lambda props: [rule.pop("noncurrentVersionExpirations", None) for rule in props["lifecycleRules"]]),
        ),
        ("AUD-TRAIL-01", TRAIL, put("trailRegion", "ap-southeast-1")),
        ("AUD-TRAIL-02", TRAIL, put("eventRw", "Write")),
        ("AUD-TRAIL-05", TRAIL, put("slsProjectArn", None)),
        ("AUD-RETENTION-01", STORE, put("retentionPeriod", 30)),
        ("AUD-ACCESS-01", ("alicloud:oss/bucketLogging:BucketLogging", "c1-access"), gone),
        ("AUD-PUBLIC-01", STORE, put("enableWebTracking", True)),
        ("RES-REGION-01", DATA, changed(region="cn-hangzhou")),
        ("RES-ZONE-01", ("alicloud:vpc/switch:Switch", "c1-private-c"), put("zoneId", "cn-hangzhou-h")),
        ("RSL-PROTECT-01", DATA, changed(protect=False)),
        ("RSL-FORCE-01", DATA, put("forceDestroy", True)),
        ("RSL-DELETE-01", GROUP, put("groupDeletionProtection", False)),
        ("RSL-REDUNDANCY-01", DATA, put("redundancyType", "LRS")),
        ("RSL-QUEUE-01", QUEUE, put("dlqPolicy.enabled", False)),
        ("COST-TAG-01", DATA, put("tags", {"team": "research"})),
        ("NET-METADATA-01", ROLLOUT, completed(HttpTokens="optional")),
        ("NET-METADATA-01", ROLLOUT, completed(HttpTokens=None)),
        ("NET-METADATA-01", EXECUTION, gone),
        ("NET-METADATA-01", CONFIGURATION, put("active", True)),
        ("COST-SPOT-01", GROUP, put("capacityOptionsOnDemandPercentageAboveBaseCapacity", None)),
        ("TRN-DRAIN-01", HOOK, put("heartbeatTimeout", 30)),
        ("TRN-DRAIN-01", HOOK, gone),
    ],
    # Nodes that are launched from a template.
    "singapore-by-template": [
        ("ENC-DISK-01", TEMPLATE, put("systemDisk.encrypted", False)),
        ("NET-PUBLIC-01", TEMPLATE, put("internetMaxBandwidthOut", 10)),
        ("NET-METADATA-01", TEMPLATE, put("httpTokens", "optional")),
        ("NET-METADATA-02", TEMPLATE, put("httpPutResponseHopLimit", 3)),
        ("IAM-SECRET-01", TEMPLATE, put("userData", "export ALIBABA_CLOUD_ACCESS_KEY_ID=LTAI5tExampleExample")),
        ("TRN-VERSION-01", GROUP, put("launchTemplateVersion", "Latest")),
        ("COST-TAG-01", TEMPLATE, put("tags", {"team": "research"})),
    ],
    # The first has no reservation.
    "prod-cn-hangzhou": [
        ("TRN-BLOCK-02", CONFIGURATION, put("resourcePoolOptionsPrivatePoolIds", None)),
        ("COST-RESERVED-01", RESERVATION, put("endTimeType", None)),
        ("RES-ZONE-01", RESERVATION, put("zoneIds.0", "cn-beijing-i")),
    ],
}

BROKEN_OTHERWISE = {
    "NET-INGRESS-01": "everything is SSH and Jupyter too",
    "COST-IDLE-01": "what ends a fleet that fails to boot scales it too, whatever its least size",
}
"""Controls on what our stacks declare that no change of one resource breaks alone, and why."""
