"""Our own stacks, as their files declare them, keep every control; and each way to break one is caught by it alone."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi.runtime import rpc

from policies.control import Verdict, judge
from policies.controls import declared
from policies.resources import Resource, Stack
from policies.settings import Settings, parse
from policies.values import UNKNOWN
from tests.components.conftest import Records, bundle, mocked  # noqa: F401  fixtures

STACKS = {
    path.stem.removeprefix("Pulumi."): path for path in Path(__file__).parents[2].glob("stacks/Pulumi.prod-*.yaml")
}


def config_of(name: str, namespace: str) -> dict[str, Any]:
    config = yaml.safe_load(STACKS[name].read_text())["config"]
    return {key.partition(":")[2]: value for key, value in config.items() if key.startswith(f"{namespace}:")}


def values_of(name: str) -> dict[str, Any]:
    return config_of(name, "trainwright")


def settings_of(name: str) -> Settings:
    return parse(config_of(name, "policies"))


def seen(records: Records, region: str) -> Stack:
    """What policies see of what was registered."""
    return Stack(
        tuple(
            Resource(
                record.type,
                record.name,
                record.urn,
                _known(record.inputs),
                record.made_of,
                record.inputs.get("region") or region,
                record.protect,
            )
            for record in records.children()
        )
    )


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_known(item) for item in value]
    return UNKNOWN if value == rpc.UNKNOWN else value


def broken(stack: Stack, settings: Settings) -> dict[str, str]:
    """What breaks a control, by the control's id."""
    return {
        result.control.id: f"{result.resource.name}: {[(found.path, found.reason) for found in result.gravest]}"
        for result in judge(declared(settings), stack)
        if result.verdict in {Verdict.FAIL, Verdict.ERROR}
    }


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
def test_a_stack_of_ours_keeps_every_control(name, preview, mocked):  # noqa: F811
    values = values_of(name)
    stack = seen(mocked.cluster(values, name="c1", preview=preview), values["region"])
    assert broken(stack, settings_of(name)) == {}


# --- Each way to break a stack: what is changed, and the control that must catch it, alone

Change = Callable[[dict[str, Any]], None]


def put(path: str, value: Any) -> Change:
    """Set what stands at a dotted path; None takes it away."""

    def change(props: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        place: Any = props
        for parent in parents:
            place = place[int(parent)] if isinstance(place, list) else place.setdefault(parent, {})
        if isinstance(place, list):
            place[int(last)] = value
        elif value is None:
            place.pop(last, None)
        else:
            place[last] = value

    return change


def statement(path: str, sid: str, **parts: Any) -> Change:
    """Change a statement of the policy document at a path; without parts, take it away."""

    def change(props: dict[str, Any]) -> None:
        document = json.loads(props[path])
        kept = [entry for entry in document["Statement"] if entry.get("Sid") != sid]
        (found,) = (entry for entry in document["Statement"] if entry.get("Sid") == sid)
        props[path] = json.dumps({**document, "Statement": [*kept, {**found, **parts}] if parts else kept})

    return change


def add(path: str, **parts: Any) -> Change:
    """Add a statement to the policy document at a path."""

    def change(props: dict[str, Any]) -> None:
        document = json.loads(props[path])
        props[path] = json.dumps({**document, "Statement": [*document["Statement"], parts]})

    return change


TEMPLATE = ("aws:ec2/launchTemplate:LaunchTemplate", "c1-node")
GROUP = ("aws:autoscaling/group:Group", "c1-nodes")
KEY = ("aws:kms/key:Key", "c1-data")
DATA = ("aws:s3/bucket:Bucket", "c1-data")
TRAIL = ("aws:cloudtrail/trail:Trail", "c1-audit")
ROLE_POLICY = ("aws:iam/rolePolicy:RolePolicy", "c1-node")
ROLE = ("aws:iam/role:Role", "c1-node")
POLICY = ("aws:s3/bucketPolicy:BucketPolicy", "c1-data")
LOG = ("aws:cloudwatch/logGroup:LogGroup", "c1-trail")
LUSTRE = ("aws:fsx/lustreFileSystem:LustreFileSystem", "c1-warm")
QUEUE = ("aws:sqs/queue:Queue", "c1-queue")
TOPIC = ("aws:sns/topic:Topic", "c1-alarms")
LIFECYCLE = ("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", "c1-data")
INTERNET = "0.0.0.0/0"

MUTATIONS: list[tuple[str, tuple[str, str], Change]] = [
    ("ENC-DISK-01", TEMPLATE, put("blockDeviceMappings.0.ebs.encrypted", "false")),
    ("ENC-DISK-02", TEMPLATE, put("blockDeviceMappings.0.ebs.kmsKeyId", None)),
    (
        "ENC-BUCKET-02",
        ("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration", "c1-data"),
        put("rules.0.applyServerSideEncryptionByDefault.kmsMasterKeyId", None),
    ),
    (
        "ENC-BUCKET-01",
        ("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration", "c1-data"),
        put("rules.0.applyServerSideEncryptionByDefault.sseAlgorithm", "AES256"),
    ),
    ("ENC-FILES-02", LUSTRE, put("kmsKeyId", None)),
    ("ENC-QUEUE-01", TOPIC, put("kmsMasterKeyId", None)),
    ("ENC-LOGS-01", LOG, put("kmsKeyId", None)),
    ("KEY-ROTATE-01", KEY, put("enableKeyRotation", None)),
    ("KEY-LOCKOUT-01", KEY, put("bypassPolicyLockoutSafetyCheck", True)),
    ("KEY-DELETE-01", KEY, put("deletionWindowInDays", 7)),
    ("KEY-ENABLED-01", KEY, put("isEnabled", False)),
    (
        "KEY-PUBLIC-01",
        KEY,
        add("policy", Effect="Allow", Principal={"AWS": "*"}, Action="kms:Decrypt", Resource="*"),
    ),
    ("TLS-BUCKET-01", POLICY, statement("policy", "OnlyTls", Effect="Allow", Principal={"AWS": "arn:aws:iam::1:root"})),
    ("TLS-BUCKET-02", POLICY, statement("policy", "OnlyNewTls")),
    ("TLS-QUEUE-01", ("aws:sns/topicPolicy:TopicPolicy", "c1-alarms"), statement("policy", "OnlyTls")),
    ("NET-PUBLIC-01", TEMPLATE, put("networkInterfaces.0.associatePublicIpAddress", "true")),
    ("NET-PUBLIC-02", ("aws:ec2/subnet:Subnet", "c1-private-b"), put("mapPublicIpOnLaunch", True)),
    ("NET-METADATA-01", TEMPLATE, put("metadataOptions.httpTokens", "optional")),
    ("NET-METADATA-02", TEMPLATE, put("metadataOptions.httpPutResponseHopLimit", 3)),
    ("NET-FLOW-01", ("aws:ec2/flowLog:FlowLog", "c1-flow"), put("trafficType", "ACCEPT")),
    (
        "NET-FABRIC-01",
        ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "c1-to-nodes"),
        put("ipProtocol", "tcp"),
    ),
    (
        "NET-INGRESS-02",
        ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "c1-endpoints-from-nodes"),
        lambda props: props.update(fromPort=22, toPort=22, cidrIpv4=INTERNET),
    ),
    (
        "NET-INGRESS-03",
        ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "c1-endpoints-from-nodes"),
        lambda props: props.update(fromPort=8888, toPort=8888, cidrIpv4=INTERNET),
    ),
    (
        "NET-EGRESS-01",
        ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "c1-to-endpoints"),
        lambda props: props.update(ipProtocol="-1", cidrIpv4=INTERNET),
    ),
    (
        "NET-DESCRIBED-01",
        ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "c1-to-endpoints"),
        put("description", None),
    ),
    (
        "NET-DEFAULT-01",
        ("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", "c1-default"),
        put("ingress", [{"protocol": "tcp", "fromPort": 443, "toPort": 443, "self": True, "description": "x"}]),
    ),
    ("IAM-ADMIN-01", ROLE_POLICY, add("policy", Effect="Allow", Action="*", Resource="*")),
    ("IAM-ADMIN-02", ROLE, put("managedPolicyArns", ["arn:aws:iam::aws:policy/AdministratorAccess"])),
    ("IAM-WILDCARD-01", ROLE_POLICY, add("policy", Effect="Allow", Action="ec2:*", Resource="*")),
    ("IAM-PASSROLE-01", ROLE_POLICY, add("policy", Effect="Allow", Action="iam:PassRole", Resource="*")),
    ("IAM-TRUST-01", ROLE, add("assumeRolePolicy", Effect="Allow", Principal="*", Action="sts:AssumeRole")),
    ("IAM-SECRET-01", TEMPLATE, put("userData", "export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE")),
    (
        "STO-PUBLIC-01",
        ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "c1-data"),
        put("restrictPublicBuckets", False),
    ),
    ("STO-PUBLIC-02", DATA, put("acl", "public-read")),
    ("STO-PUBLIC-03", POLICY, add("policy", Effect="Allow", Principal="*", Action="s3:GetObject", Resource="*")),
    (
        "STO-VERSION-01",
        ("aws:s3/bucketVersioning:BucketVersioning", "c1-data"),
        put("versioningConfiguration.status", "Suspended"),
    ),
    (
        "STO-LOCK-01",
        ("aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration", "c1-audit"),
        put("rule", None),
    ),
    (
        "STO-CLEAN-01",
        LIFECYCLE,
        lambda props: [rule.pop("abortIncompleteMultipartUpload", None) for rule in props["rules"]],
    ),
    (
        "STO-CLEAN-02",
        LIFECYCLE,
        lambda props: [rule.pop("noncurrentVersionExpiration", None) for rule in props["rules"]],
    ),
    ("AUD-TRAIL-01", TRAIL, put("isMultiRegionTrail", False)),
    ("AUD-TRAIL-02", TRAIL, put("enableLogging", False)),
    ("AUD-TRAIL-03", TRAIL, put("enableLogFileValidation", False)),
    ("AUD-TRAIL-04", TRAIL, put("includeGlobalServiceEvents", False)),
    ("AUD-TRAIL-05", TRAIL, put("cloudWatchLogsGroupArn", None)),
    ("AUD-RETENTION-01", LOG, put("retentionInDays", 30)),
    ("RES-REGION-01", DATA, put("region", "us-east-1")),
    ("RES-ZONE-01", ("aws:ec2/subnet:Subnet", "c1-private-b"), put("availabilityZone", "us-east-1b")),
    ("RES-KEY-01", KEY, put("multiRegion", True)),
    ("RSL-QUEUE-01", QUEUE, put("redrivePolicy", None)),
    ("RSL-FORCE-01", DATA, put("forceDestroy", True)),
    ("COST-BUDGET-01", ("aws:budgets/budget:Budget", "c1"), put("notifications", None)),
    ("COST-TAG-01", DATA, put("tags", {"team": "research", "trainwright:cluster": "c1"})),
    (
        "COST-SPOT-01",
        GROUP,
        put("mixedInstancesPolicy.instancesDistribution.onDemandPercentageAboveBaseCapacity", None),
    ),
    ("TRN-ZONE-01", GROUP, put("vpcZoneIdentifiers", ["subnet-1", "subnet-2"])),
    (
        "TRN-VERSION-01",
        GROUP,
        put("mixedInstancesPolicy.launchTemplate.launchTemplateSpecification.version", "$Latest"),
    ),
    ("TRN-DRAIN-01", ("aws:autoscaling/lifecycleHook:LifecycleHook", "c1-drain"), put("heartbeatTimeout", 30)),
    ("TRN-NIC-01", TEMPLATE, put("networkInterfaces.1.deviceIndex", 2)),
    ("TRN-NIC-02", TEMPLATE, put("vpcSecurityGroupIds", ["sg-1"])),
]
"""What is changed of `prod-us-west`, and the one control that breaks."""

ELSEWHERE = {"TLS-BUCKET-02": "prod-eu-frankfurt"}
"""Controls that are broken in another stack: the first asks for no TLS of 1.3."""

BROKEN_OTHERWISE = {
    "KEY-DELETE-01": "by what Pulumi protects, in a test below",
    "RSL-PROTECT-01": "by what Pulumi protects, in a test below",
    "NET-INGRESS-01": "everything is SSH and Jupyter too",
    "AUD-ACCESS-01": "what the trail records is made of the bucket, whatever it says",
    "COST-IDLE-01": "what ends a fleet that fails to boot scales it too, whatever its least size",
}
"""Controls on what our stacks declare that no change of one property breaks alone, and why."""

_declared: dict[str, Stack] = {}


@pytest.mark.parametrize(("caught", "target", "change"), MUTATIONS, ids=[mutation[0] for mutation in MUTATIONS])
def test_a_broken_stack_is_caught_by_exactly_the_control_it_breaks(caught, target, change, mocked):  # noqa: F811
    name = ELSEWHERE.get(caught, "prod-us-west")
    if name not in _declared:
        values = values_of(name)
        _declared[name] = seen(mocked.cluster(values, name="c1"), values["region"])
    found = [resource for resource in _declared[name].resources if (resource.type, resource.name) == target]
    assert len(found) == 1, f"{target} isn't declared"
    props = copy.deepcopy(dict(found[0].props))
    change(props)
    mutant = replace(found[0], props=props, region=props.get("region") or found[0].region)
    stack = Stack(tuple(mutant if resource is found[0] else resource for resource in _declared[name].resources))
    assert list(broken(stack, settings_of(name))) == [caught]


@pytest.mark.parametrize(
    ("caught", "target"), [("KEY-DELETE-01", KEY), ("RSL-PROTECT-01", DATA)], ids=["KEY-DELETE-01", "RSL-PROTECT-01"]
)
def test_what_is_no_longer_protected_is_caught(caught, target, mocked):  # noqa: F811
    values = values_of("prod-us-west")
    stack = seen(mocked.cluster(values, name="c1"), values["region"])
    bare = [
        replace(resource, protect=False) if (resource.type, resource.name) == target else resource
        for resource in stack.resources
    ]
    assert list(broken(Stack(tuple(bare)), settings_of("prod-us-west"))) == [caught]


def test_every_control_on_what_a_stack_of_ours_declares_has_a_way_to_break_it(mocked):  # noqa: F811
    values = values_of("prod-us-west")
    stack = seen(mocked.cluster(values, name="c1"), values["region"])
    judged = {
        result.control.id
        for result in judge(declared(settings_of("prod-us-west")), stack)
        if result.verdict is Verdict.PASS
    }
    assert judged - {caught for caught, _, _ in MUTATIONS} - set(BROKEN_OTHERWISE) == set()
