"""Whatever a cluster declares, the provider takes: mocks accept every property, the SDK's own signatures do not."""

import json

import pytest

from emulator.provider import schema
from tests.components.alicloud.policies import ELEMENTS

ANN = "arn:aws:iam::123456789012:user/ann"
ALL_ON = {
    "production": True,
    "tags": {"team": "ml"},
    "network.zones": ["us-west-2a", "us-west-2b"],
    "network.egress": "nat",
    "security.tls": "1.3",
    "security.trainers": [ANN],
    "security.operators": [ANN],
    "security.auditors": [ANN],
    "audit.enabled": True,
    "audit.lock": "compliance",
    "audit.budget_usd": 1000,
    "audit.emails": ["a@example.com"],
}
BROUGHT = {
    **ALL_ON,
    "network.cidr": None,
    "network.zones": ["us-west-2a"],
    "network.vpc": "vpc-0123456789abcdef0",
    "network.subnets": ["subnet-0123456789abcdef0"],
    "network.route_tables": ["rtb-0123456789abcdef0"],
}
P4D = {
    **ALL_ON,
    "nodes.type": "p4d.24xlarge",
    "network.zones": ["us-west-2a"],
    "network.egress": "endpoints",
    "job.batch": 64,
}
CLUSTERS = {
    "plain": {},
    "all on, nat": ALL_ON,
    "all on, endpoints": {**ALL_ON, "network.egress": "endpoints"},
    "all on, brought vpc": BROUGHT,
    "p4d on demand": P4D,
    "p4d, all tiers": {
        **P4D,
        "storage.warm": {"size_gib": 2400, "throughput": 500},
        "storage.cold": [{"prefix": "runs/gpt-0a1b2c3d/", "after_days": 30, "class": "archive"}],
    },
    "p4d scaled": {**P4D, "scaling": {"queue": True, "gpu_target": 80}},
    "p4d spot": {**P4D, "nodes.capacity": "spot"},
    "p4d mixed": {**P4D, "nodes.capacity": "mixed", "nodes.on_demand_base": 1},
    "p4d reserved": {**P4D, "nodes.capacity": "reserved", "nodes.reservation": "create"},
    "p4d block": {**P4D, "nodes.capacity": "capacity-block", "nodes.reservation": "cr-0123456789abcdef0"},
}

JIA = "acs:ram::1234567890123456:user/jia"
ALIBABA_ALL_ON = {
    **ALL_ON,
    "network.zones": ["ap-southeast-1a", "ap-southeast-1b"],
    "nodes.fabric": "tcp",
    "security.trainers": [JIA],
    "security.operators": [JIA],
    "security.auditors": [JIA],
    "audit.budget_usd": None,
}
ALIBABA_BROUGHT = {
    **ALIBABA_ALL_ON,
    "network.cidr": None,
    "network.zones": ["ap-southeast-1a"],
    "network.vpc": "vpc-t4nopxu1zkhn00g5lr2ts",
    "network.subnets": ["vsw-t4ns5fnvk4gn2tws0362a"],
    "network.route_tables": ["vtb-t4n145q7glnuzdvzu2pg"],
}
ERDMA = {
    **ALIBABA_ALL_ON,
    "nodes.type": "ecs.ebmgn8v.48xlarge",
    "nodes.fabric": "auto",
    "network.zones": ["ap-southeast-1a"],
    "network.egress": "endpoints",
    "job.batch": 64,
}
ALIBABA = {
    "plain": {"nodes.fabric": "tcp"},
    "plain, eRDMA": {},
    "all on, nat": ALIBABA_ALL_ON,
    "all on, endpoints": {**ALIBABA_ALL_ON, "network.egress": "endpoints"},
    "all on, governance": {**ALIBABA_ALL_ON, "audit.lock": "governance"},
    "all on, brought vpc": ALIBABA_BROUGHT,
    "eRDMA on demand": ERDMA,
    "eRDMA, all tiers, data nodes": {
        **ERDMA,
        "storage.warm": {"size_gib": 2400, "throughput": 125},
        "storage.cold": [{"prefix": "runs/gpt-0a1b2c3d/", "after_days": 180, "class": "archive"}],
        "data_nodes": {"type": "ecs.i4.32xlarge", "count": 2},
        "catalog.overrides": {
            name: {"encrypts_in_transit": True} for name in ("ecs.i4.32xlarge", "ecs.ebmgn8v.48xlarge")
        },
    },
    "eRDMA scaled": {
        **ERDMA,
        "scaling": {
            "queue": True,
            "gpu_target": 80,
            "idle_minutes": 30,
            "schedules": [{"cron": "0 7 * * MON-FRI", "nodes": 2}],
        },
    },
    "eRDMA spot": {**ERDMA, "nodes.capacity": "spot"},
    "eRDMA mixed": {**ERDMA, "nodes.capacity": "mixed", "nodes.on_demand_base": 1},
    "eRDMA reserved": {**ERDMA, "nodes.capacity": "reserved", "nodes.reservation": "create"},
    "spot of several types": {
        **ALIBABA_ALL_ON,
        "nodes.capacity": "spot",
        "nodes.alternatives": ["ecs.g8i.16xlarge"],
        "nodes.spot_strategy": "lowest-price",
    },
    "tdx": {**ERDMA, "nodes.type": "ecs.g8i.24xlarge", "nodes.confidential": "tdx"},
}

TAGLESS_BY_CHOICE = {"BucketObjectv2"}
"""An object takes ten tags, a user may have set fifty."""

RAM_LIMITS = {
    "Policy": ("policyDocument", 6_144),
    "Role": ("assumeRolePolicyDocument", 2_048),
    "Key": ("policy", 32_768),
    "BucketPolicy": ("policy", 16_384),
    "GatewayEndpoint": ("policyDocument", 20_480),
}
"""Where policies are, and the characters that are taken: RAM user guide, "Limits"; KMS API, SetKeyPolicy; OSS user
guide, "Bucket policies"; VPC API, CreateVpcGatewayEndpoint."""


@pytest.fixture(
    params=[
        *(pytest.param(("stack", changes), id=name) for name, changes in CLUSTERS.items()),
        *(pytest.param(("ali", changes), id=f"alibaba, {name}") for name, changes in ALIBABA.items()),
    ]
)
def values(request):
    """Values of one stack after another, on one cloud and the other."""
    base, changes = request.param
    return request.getfixturevalue(base)(changes)


def _typed(value):
    """The value with whole numbers as such: the wire knows one kind of number, and a provider reads it by its value."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _typed(item) for key, item in value.items()}
        case list():
            return [_typed(item) for item in value]
    return value


def _declared(records):
    return [record for record in records.all if record.type.startswith(("aws:", "alicloud:"))]


@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
def test_every_property_is_one_that_the_provider_has_and_of_its_type(mocked, values, preview):
    failures = []
    for record in _declared(mocked.cluster(values, preview=preview)):
        for failure in schema.check(schema.resource_type(record.type), _typed(record.inputs)):
            failures.append(f"{record.type} {record.name}: {failure.reason}")
    assert failures == []


def test_a_wrong_property_would_be_noticed(mocked, stack):
    """The check above reads what is registered: a misspelt, mistyped or missing property is a failure."""
    trail = mocked.cluster(stack(ALL_ON)).one("Trail")
    kind, inputs = schema.resource_type(trail.type), _typed(trail.inputs)
    assert schema.check(kind, inputs) == []
    assert schema.check(kind, {**inputs, "isMultiRegionTrial": True})
    assert schema.check(kind, {**inputs, "enableLogging": "yes"})
    assert schema.check(kind, {name: value for name, value in inputs.items() if name != "s3BucketName"})


def test_a_preview_declares_the_same(mocked, values):
    """Nothing hangs on a value that isn't known yet."""
    known = {record.key for record in mocked.cluster(values).all}
    assert {record.key for record in mocked.cluster(values, preview=True).all} == known


def test_whatever_can_carry_tags_carries_the_clusters_and_the_users(mocked, values):
    wanted = {"trainwright:cluster": "c1", **values.get("tags", {})}
    for record in _declared(mocked.cluster(values)):
        kind = record.type.split(":")[-1]
        if kind == "Group":
            tags = {tag["key"]: tag["value"] for tag in record.inputs["tags"]}
        elif "tags" not in schema.resource_type(record.type).inputs or kind in TAGLESS_BY_CHOICE:
            continue
        else:
            tags = record.inputs.get("tags", {})
        assert wanted.items() <= tags.items(), record.key


@pytest.mark.parametrize("changes", CLUSTERS.values(), ids=CLUSTERS.keys())
def test_every_policy_is_one_and_fits(mocked, stack, changes):
    """IAM takes 10,240 characters in a role's policy and 2,048 in its trust, KMS 32 KiB, S3 20 KiB, SQS 8 KiB."""
    limits = {
        "RolePolicy": 10_240,
        "Key": 32_768,
        "BucketPolicy": 20_480,
        "TopicPolicy": 30_720,
        "QueuePolicy": 8_192,
        "VpcEndpoint": 20_480,
    }
    for record in _declared(mocked.cluster(stack(changes))):
        kind = record.type.split(":")[-1]
        if text := record.inputs.get("policy"):
            assert len(text) <= limits[kind], record.key
            sids = [statement.get("Sid") for statement in json.loads(text)["Statement"]]
            assert len(set(sids)) == len(sids), record.key
            assert all(sid and sid.isalnum() for sid in sids), f"{record.key}: IAM takes letters and digits alone"
        if trust := record.inputs.get("assumeRolePolicy"):
            assert len(trust) <= 2_048, record.key


@pytest.mark.parametrize("changes", ALIBABA.values(), ids=ALIBABA.keys())
def test_every_policy_on_alibaba_cloud_is_one_and_fits(mocked, ali, changes):
    for record in _declared(mocked.cluster(ali(changes))):
        name, limit = RAM_LIMITS.get(record.type.split(":")[-1], ("", 0))
        if text := record.inputs.get(name):
            document = json.loads(text)
            assert len(text) <= limit, record.key
            assert document["Version"] == "1", record.key
            for statement in document["Statement"]:
                assert statement.keys() <= ELEMENTS, f"{record.key}: RAM refuses {statement.keys() - ELEMENTS}"
                assert statement["Effect"] in {"Allow", "Deny"}, record.key
