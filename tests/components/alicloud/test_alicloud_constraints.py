"""Every argument of every resource on Alibaba Cloud is one that a provider takes: its values, and what goes with what.

`test_declared.py` holds names and types; this holds what docstrings and `constraints.csv` say beyond them.
"""

import copy
from pathlib import Path

import pytest

from cli.workspace import stack_values
from tests.components.alicloud.constraints import (
    VALUES,
    arguments,
    documented,
    known,
    short,
    stated,
    violations,
)
from tests.components.test_declared import ALIBABA, _typed

STACKS = ("prod-ap-singapore", "prod-cn-hangzhou")
CHECKOUT = Path(__file__).parents[3]

UNCONSTRAINED = {
    "cms.AlarmContactGroup",
    "cms.MonitorGroup",
    "oss.BucketArchiveDirectRead",
    "oss.BucketPublicAccessBlock",
    "vpc.RouteTableAttachment",
}
"""Resources of which nothing is said but that an argument is a name, an id, true or false."""

FREE = {
    *("accessGroupName", "alarmContactGroupName", "eventBusName", "flowLogName", "gatewayEndpointName", "logStoreName"),
    *("logstore", "monitorGroupName", "project", "projectName", "ramRoleName", "roleName", "ruleName", "templateName"),
    *("allocationId", "cmkKeyId", "fileSystemId", "imageId", "instanceId", "keyId", "regionId", "resourceId"),
    *("routeTableId", "routeTables", "scalingGroupId", "securityGroupId", "snatTableId", "targetId", "vpcId"),
    *("arn", "bucket", "contacts", "deadLetterTargetQueue", "loggingRole", "policyName", "targetBucket", "vswitchId"),
    *("describe", "description", "metric", "resourceKey", "token", "value"),
    *("destinationCidrblock", "snatIp", "prefix", "period", "statistics", "threshold", "times", "trailRegion"),
    *("maxReceiveCount", "metricIntervalLowerBound", "metricIntervalUpperBound", "scalingAdjustment"),
    *("tags", "templateTags", "dimensions"),
}
"""Arguments whose values neither source bounds: names and ids of other resources, words, measures."""

WRONG = [
    ("alicloud:oss/bucketAcl:BucketAcl", {"acl": "private"}, {"acl": "public"}),
    ("alicloud:kms/key:Key", {"pendingWindowInDays": 30}, {"pendingWindowInDays": 3}),
    ("alicloud:kms/key:Key", {"rotationInterval": "365d"}, {"rotationInterval": "1 year"}),
    ("alicloud:kms/key:Key", {}, {"automaticRotation": "Enabled"}),
    ("alicloud:oss/bucket:Bucket", {}, {"lifecycleRules": [{"id": "nothing", "enabled": True}]}),
    (
        "alicloud:oss/bucket:Bucket",
        {"lifecycleRules": [{"id": "a", "expirations": [{"days": 1}]}]},
        {"lifecycleRules": [{"id": "a", "expirations": [{"days": 1, "expiredObjectDeleteMarker": True}]}]},
    ),
    (
        "alicloud:oss/bucket:Bucket",
        {"lifecycleRules": [{"id": "a", "transitions": [{"days": 1, "storageClass": "IA"}]}]},
        {"lifecycleRules": [{"id": "a", "transitions": [{"days": 1, "storageClass": "GLACIER"}]}]},
    ),
    (
        "alicloud:oss/bucketObject:BucketObject",
        {"key": "a", "content": "b"},
        {"key": "a", "content": "b", "source": "c"},
    ),
    ("alicloud:oss/bucketObject:BucketObject", {"key": "a", "content": "b"}, {"key": "a"}),
    ("alicloud:ram/policy:Policy", {"policyDocument": "{}"}, {"policyDocument": "{"}),
    ("alicloud:ram/policy:Policy", {"description": "a"}, {"description": "a" * 1025}),
    (
        "alicloud:vpc/switch:Switch",
        {"vpcId": "a", "zoneId": "b", "cidrBlock": "10.0.0.0/24"},
        {"vpcId": "a", "zoneId": "b", "cidrBlock": "10.0.0.0/30"},
    ),
    ("alicloud:ess/scalingGroup:ScalingGroup", {"vswitchIds": ["a"]}, {"vswitchIds": []}),
    (
        "alicloud:ess/scalingGroup:ScalingGroup",
        {"vswitchIds": ["a"], "spotAllocationStrategy": "priority", "multiAzPolicy": "COMPOSABLE"},
        {"vswitchIds": ["a"], "spotAllocationStrategy": "priority", "multiAzPolicy": "PRIORITY"},
    ),
    (
        "alicloud:ess/scalingConfiguration:ScalingConfiguration",
        {"instanceType": "ecs.a", "securityGroupId": "a"},
        {"instanceType": "ecs.a", "networkInterfaces": [{"instanceType": "Primary"}]},
    ),
    (
        "alicloud:ess/scalingConfiguration:ScalingConfiguration",
        {"instanceType": "ecs.a", "securityGroupIds": ["a"], "networkInterfaces": [{"instanceType": "Primary"}]},
        {"instanceType": "ecs.a", "securityGroupIds": ["a"], "networkInterfaces": [{"instanceType": "Secondary"}] * 2},
    ),
    ("alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate", {"httpEndpoint": "enabled"}, {"httpTokens": "required"}),
    (
        "alicloud:ecs/securityGroupRule:SecurityGroupRule",
        {"ipProtocol": "tcp", "portRange": "443/443", "cidrIp": "10.0.0.0/8"},
        {"ipProtocol": "tcp", "portRange": "-1/-1", "cidrIp": "10.0.0.0/8"},
    ),
]
"""Of a resource: inputs that are right, and some of which exactly one thing is wrong."""


@pytest.fixture(scope="module")
def clusters():
    """What each cluster declares, kept from one test of this module to the next."""
    return {}


@pytest.fixture
def declared(mocked, ali, clusters):
    """All that a wide set of clusters declares on Alibaba Cloud: those of `test_declared.py` and the stacks of ours."""
    if not clusters:
        values = {name: ali(changes) for name, changes in ALIBABA.items()}
        values |= {stack: stack_values(CHECKOUT / f"stacks/Pulumi.{stack}.yaml") for stack in STACKS}
        clusters |= {
            name: [record for record in mocked.cluster(wanted).all if record.type.startswith("alicloud:")]
            for name, wanted in values.items()
        }
    return clusters


@pytest.fixture
def types(declared):
    """The types of all that is declared."""
    return sorted({record.type for records in declared.values() for record in records})


def _leaves(value, path=""):
    """Paths of the plain values in some inputs, with those values; what a user names himself is left out."""
    for name, item in value.items():
        full = f"{path}{name}"
        items = item if isinstance(item, list) else [item]
        for one in items:
            if isinstance(one, dict) and name not in FREE:
                yield from _leaves(one, f"{full}.")
            else:
                yield full, one


def test_every_value_is_one_that_a_provider_takes(declared):
    found = {
        f"{name}: {record.name}: {said}"
        for name, records in declared.items()
        for record in records
        for said in violations(record.type, _typed(record.inputs))
    }
    assert sorted(found) == []


def test_a_resource_without_known_constraints_is_listed_as_such(types):
    """A new resource can't slip in: look up what its arguments take, or say that nothing is said of them."""
    assert {short(kind) for kind in types if not known(kind)} == UNCONSTRAINED


def test_an_argument_without_known_constraints_is_listed_as_such(declared):
    """A new argument can't, either."""
    bare = set()
    for record in (record for records in declared.values() for record in records):
        constraints = known(record.type)
        named = {one.path for one in constraints} | {
            f"{one.path.rpartition('.')[0]}.{name}".lstrip(".")
            for one in constraints
            if one.rule not in VALUES
            for name in one.value.partition("=")[0].replace(" | ", "/").split("/")
        }
        for path, value in _leaves(record.inputs):
            if not isinstance(value, bool) and path not in named and path.rpartition(".")[2] not in FREE:
                bare.add((short(record.type), path))
    assert sorted(bare) == []


def test_what_is_listed_as_free_is_declared_somewhere(declared):
    """The list of free arguments holds nothing that nobody declares."""
    last = {
        path.rpartition(".")[2]
        for records in declared.values()
        for record in records
        for path, _ in _leaves(record.inputs)
    }
    assert sorted(FREE - last) == []


@pytest.mark.parametrize(("kind", "right", "wrong"), WRONG)
def test_a_wrong_value_is_noticed(kind, right, wrong):
    """A canary: values outside their set or range, arguments that conflict, a companion that is missing."""
    assert list(violations(kind, right)) == []
    assert len(list(violations(kind, wrong))) >= 1


def test_every_argument_of_a_cluster_would_be_noticed_outside_its_set(declared):
    """Each constraint on a value that the clusters meet is at work: another value in its place is a failure."""
    dull, tried = [], set()
    for record in (record for records in declared.values() for record in records):
        for one in known(record.type):
            key = (one.resource, one.argument, one.rule)
            if one.rule in {"one of", "between", "json"} and key not in tried and one.argument == one.path:
                inputs = copy.deepcopy(_typed(record.inputs))
                if _spoil(inputs, one.path.split("."), -1 if one.rule == "between" else "{wrong"):
                    tried.add(key)
                    if not any(one.rule in said for said in violations(record.type, inputs)):
                        dull.append(key)
    assert dull == [("ess.ScalingRule", "adjustmentValue", "between")], "of which -1 is a value"
    assert len(tried) > 80


def _spoil(node, path, value):
    """Put a value in the place of what stands at the path; whether anything does."""
    if path[0] not in node:
        return False
    if len(path) > 1:
        inner = node[path[0]]
        return sum(_spoil(item, path[1:], value) for item in (inner if isinstance(inner, list) else [inner])) > 0
    node[path[0]] = [value] if isinstance(node[path[0]], list) else value
    return True


def test_every_row_of_the_table_is_about_an_argument_that_there_is(types):
    """A row with a misspelt resource, argument or companion would check nothing."""
    tokens = {short(kind): kind for kind in types}
    wrong = []
    for one in stated():
        if one.resource not in tokens:
            wrong.append(f"{one.resource} is declared nowhere")
            continue
        paths = arguments(tokens[one.resource])
        parent = one.path.rpartition(".")[0]
        beside = [] if one.rule in VALUES else one.value.replace(" | ", "/").split("/")
        if one.rule in {"needs", "not with"} and "=" in one.value:
            beside = [one.value]
        names = [one.path, *(f"{parent}.{name}".lstrip(".") for name in (b.partition("=")[0] for b in beside))]
        for name in filter(None, (n.partition("~")[0] for n in names)):
            if name not in paths and name.rpartition(".")[2] not in paths:
                wrong.append(f"{one.resource} has no {name}")
    assert wrong == []


def test_every_row_has_a_source():
    assert [one for one in stated() if not one.source] == []


def test_docstrings_are_read(types):
    """The sentences that the SDK has most of its constraints in; a new SDK that writes them otherwise is noticed."""
    read = {(one.resource, one.argument, one.rule, one.value) for kind in types for one in documented(kind)}
    assert {
        ("actiontrail.Trail", "eventRw", "one of", "Read | Write | All"),
        ("vpc.FlowLog", "aggregationInterval", "one of", "1 | 5 | 10"),
        ("ecs.EipAssociation", "mode", "one of", "NAT | MULTI_BINDED | BINDED"),
        ("cms.Alarm", "silenceTime", "between", "300..86400"),
        ("ram.Role", "description", "length", "1..1024"),
        ("ess.ScalingConfiguration", "securityGroupId", "not with", "securityGroupIds"),
        ("message.ServiceQueue", "sseType=KMS", "needs", "kmsKeyId"),
        ("ess.ScalingGroup", "allocationStrategy", "needs", "multiAzPolicy=COMPOSABLE"),
    } <= read
    assert len(read) > 180
