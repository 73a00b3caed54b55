"""Keys, and what a node's role grants, judged as RAM would: by evaluating the documents."""

import json

import pulumi
import pytest

from components.alicloud import security
from components.alicloud.security import (
    beside,
    data_node_policy,
    key_policy,
    node_policy,
    service_trust,
    unique,
)
from components.checks import review
from components.findings import Invalid
from components.spec import parse
from emulator.provider import schema
from tests.components.alicloud.policies import allows, denies, of
from tests.components.conftest import ALI_ACCOUNT
from tests.components.test_declared import _typed

BUCKET = "acs:oss:*:*:b"
CLAIMS = f"{BUCKET}-claims"
KEY = "acs:kms:*:*:key/k"

ALLOWED = [
    ("oss:ListObjects", BUCKET),
    ("oss:ListObjects", CLAIMS),
    ("oss:GetObject", f"{BUCKET}/bundles/0.tar"),
    ("oss:GetObject", f"{BUCKET}/datasets/text/index.json"),
    ("oss:GetObject", f"{BUCKET}/fleet.json"),
    ("oss:GetObject", f"{BUCKET}/data/nodes/i-1"),
    ("oss:GetObject", f"{BUCKET}/runs/r/control/generations/000001.json"),
    ("oss:GetObject", f"{CLAIMS}/runs/r/control/generations/000001.json"),
    ("oss:PutObject", f"{BUCKET}/runs/r/control/members/i-1/beat"),
    ("oss:PutObject", f"{CLAIMS}/runs/r/control/generations/000001.json"),
    ("oss:PutObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json"),
    ("oss:PutObject", f"{BUCKET}/runs/r/audit/checkpoint-000000050-0a1b2c.json"),
    ("oss:AbortMultipartUpload", f"{BUCKET}/runs/r/checkpoints/step-000000050/rank0"),
    ("oss:ListMultipartUploads", BUCKET),
    ("oss:ListParts", f"{BUCKET}/runs/r/checkpoints/step-000000050/rank0"),
    ("oss:DeleteObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json"),
    ("oss:DeleteObject", f"{CLAIMS}/runs/r/checkpoints/step-000000050/manifest.json"),
    ("kms:Decrypt", KEY),
    ("kms:GenerateDataKey", KEY),
]
DENIED = [
    *(("oss:PutObject", f"{where}/bundles/0.tar") for where in (BUCKET, CLAIMS)),
    *(("oss:PutObject", f"{where}/queue/000001.json") for where in (BUCKET, CLAIMS)),
    ("oss:PutObject", f"{BUCKET}/datasets/text/index.json"),
    ("oss:PutObject", f"{BUCKET}/fleet.json"),
    ("oss:PutObject", f"{BUCKET}/erasures/20261130T000000Z-0a1b2c.json"),
    ("oss:DeleteObject", f"{BUCKET}/runs/r/control/outcome.json"),
    ("oss:DeleteObject", f"{CLAIMS}/runs/r/control/outcome.json"),
    ("oss:DeleteObject", f"{BUCKET}/runs/r/metrics/000001/000000.jsonl"),
    ("oss:DeleteObject", f"{BUCKET}/runs/r/audit/checkpoint-000000050-0a1b2c.json"),
    ("oss:DeleteObject", f"{CLAIMS}/runs/r/audit/checkpoint-000000050-0a1b2c.json"),
    ("oss:DeleteObject", f"{BUCKET}/datasets/text/index.json"),
    ("oss:DeleteObjectVersion", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json"),
    ("oss:PutBucketPolicy", BUCKET),
    ("oss:PutBucketOverwriteConfig", CLAIMS),
    ("oss:DeleteBucket", BUCKET),
    ("oss:GetObject", "acs:oss:*:*:other/runs/r/x"),
    ("oss:GetObject", f"{BUCKET}2/runs/r/x"),
    ("oss:ListObjects", "acs:oss:*:*:other"),
    ("oss:ListBuckets", "*"),
    ("kms:Decrypt", "acs:kms:*:*:key/other"),
    ("kms:Encrypt", KEY),
    ("kms:ScheduleKeyDeletion", KEY),
    ("kms:SetKeyPolicy", KEY),
    ("ram:PassRole", f"acs:ram:*:{ALI_ACCOUNT}:role/admin"),
    ("sts:AssumeRole", f"acs:ram:*:{ALI_ACCOUNT}:role/admin"),
    ("ecs:RunInstances", "*"),
    ("ess:ModifyScalingGroup", "*"),
    ("ecs:ModifyInstanceMetadataOptions", f"acs:ecs:ap-southeast-1:{ALI_ACCOUNT}:instance/i-1"),
]


@pytest.mark.parametrize(("action", "resource"), ALLOWED)
def test_a_node_may_do_what_it_has_to(action, resource):
    assert allows(node_policy("b", "k"), action, resource)


@pytest.mark.parametrize(("action", "resource"), DENIED)
def test_a_node_may_do_nothing_more(action, resource):
    assert not allows(node_policy("b", "k"), action, resource)


@pytest.mark.parametrize("page", ["launch-0a1b2c.json", "retry-12.json"])
@pytest.mark.parametrize("where", [BUCKET, CLAIMS])
def test_a_node_says_nothing_of_who_declared_or_retried_whatever_else_it_is_granted(page, where):
    """Whoever claims a page is who wrote it; a node that came first would keep people's own out of the record."""
    assert denies(node_policy("b", "k"), "oss:PutObject", f"{where}/runs/r/audit/{page}")


@pytest.mark.parametrize("egress", ["bucket", "endpoints", "nat"])
def test_no_node_can_open_the_metadata_of_another(declared, egress):
    """Tokens are enforced before a node starts (`rollout.py`); RAM can't say "itself", so that none may change them."""
    records = declared(_nodes, {"network.egress": egress})
    assert [record.name for record in records.of("Policy")] == ["c1-node"]
    assert "Metadata" not in records.one("Policy").inputs["policyDocument"]


DATA = [
    ("oss:ListObjects", BUCKET, True),
    ("oss:GetObject", f"{BUCKET}/bundles/0.tar", True),
    ("oss:GetObject", f"{BUCKET}/datasets/text/shard-00000.bin", True),
    ("oss:PutObject", f"{BUCKET}/data/nodes/i-1", True),
    ("oss:DeleteObject", f"{BUCKET}/data/nodes/i-1", True),
    ("kms:Decrypt", KEY, True),
    ("oss:GetObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json", False),
    ("oss:GetObject", f"{CLAIMS}/runs/r/control/outcome.json", False),
    ("oss:GetObject", f"{BUCKET}/fleet.json", False),
    ("oss:PutObject", f"{BUCKET}/runs/r/control/members/i-1/beat", False),
    ("oss:PutObject", f"{BUCKET}/datasets/text/index.json", False),
    ("oss:DeleteObject", f"{BUCKET}/datasets/text/index.json", False),
    ("kms:Decrypt", "acs:kms:*:*:key/other", False),
]


@pytest.mark.parametrize(("action", "resource", "allowed"), DATA)
def test_a_data_node_reads_datasets_says_where_it_is_and_has_no_part_in_runs(action, resource, allowed):
    assert allows(data_node_policy("b", "k"), action, resource) is allowed


@pytest.mark.parametrize("policy", [node_policy("b" * 63, "k" * 40), data_node_policy("b" * 63, "k" * 40)])
def test_a_policy_is_no_longer_than_ram_takes(policy):
    """6,144 characters (provider's `ram.Policy`, `policy_document`), with the longest name of a bucket."""
    assert len(json.dumps(policy)) <= 6144


@pytest.fixture
def declared(mocked, ali):
    """What a function of `security` registers for a stack."""

    def declare(make, changes=None, preview=False):
        plan, _ = review("c1", parse(ali(changes or {})))
        return mocked.declare(lambda: make(plan, pulumi.ResourceOptions()), preview=preview)

    return declare


PRODUCTION = {"production": True, "audit.enabled": True, "audit.emails": ["a@example.com"], "nodes.fabric": "tcp"}


def test_keys_rotate_and_are_named_in_the_instance(declared):
    for make in (security.declare_key, security.declare_logs_key):
        records = declared(make)
        key = records.one("Key").inputs
        assert (key["automaticRotation"], key["rotationInterval"]) == ("Enabled", "365d")
        assert key["dkmsInstanceId"] == "kst-sgp0123456789abcdef"
        assert (key["keySpec"], key["keyUsage"]) == ("Aliyun_AES_256", "ENCRYPT/DECRYPT")
        alias = records.one("Alias").inputs
        assert alias["keyId"] == f"{records.one('Key').name}-id"
        assert alias["aliasName"].startswith(f"alias/{records.one('Key').name}-")


def test_evidence_is_signed_by_a_key_that_encrypts_nothing_and_cant_rotate(declared):
    """KMS refuses rotation of an asymmetric key, with the whole deployment."""
    key = declared(security.declare_evidence_key).one("Key").inputs
    assert (key["keySpec"], key["keyUsage"]) == ("EC_P256", "SIGN/VERIFY")
    assert not {"automaticRotation", "rotationInterval"} & key.keys()


@pytest.mark.parametrize(
    "make", [security.declare_key, security.declare_logs_key, security.declare_evidence_key], ids=lambda f: f.__name__
)
def test_in_production_keys_are_protected_by_pulumi_and_by_kms(declared, make):
    kept = declared(make, PRODUCTION).one("Key")
    assert kept.protect is kept.retain_on_delete is True
    assert (kept.inputs["deletionProtection"], kept.inputs["pendingWindowInDays"]) == ("Enabled", 30)
    assert kept.inputs["deletionProtectionDescription"]
    other = declared(make).one("Key")
    assert other.protect is other.retain_on_delete is False
    assert "deletionProtection" not in other.inputs
    assert other.inputs["pendingWindowInDays"] == 7


def test_a_keys_policy_lets_nobody_in_but_the_account_itself(declared):
    """`acs:ram::<id>:*` would let every user and role of the account in, as KMS takes either policy's word."""
    policy = key_policy(ALI_ACCOUNT)
    assert [s["Principal"] for s in policy["Statement"]] == [{"RAM": [f"acs:ram::{ALI_ACCOUNT}:root"]}]
    assert allows(of(policy, {"RAM": [f"acs:ram::{ALI_ACCOUNT}:root"]}), "kms:SetKeyPolicy", "*")
    for statement in policy["Statement"]:
        assert statement["Resource"] == ["*"], "what KMS takes alone (KMS API, SetKeyPolicy)"
        assert all(action.startswith("kms:") for action in statement["Action"])
    for make in (security.declare_key, security.declare_logs_key, security.declare_evidence_key):
        assert json.loads(declared(make).one("Key").inputs["policy"]) == policy


def test_k2_no_key_names_a_role_that_may_not_be_there():
    """ECS comes by a role that the account authorizes once; a policy with a principal that is not there is refused."""
    assert "AliyunECSDiskEncryptDefaultRole" not in json.dumps(key_policy(ALI_ACCOUNT))
    assert ":role/" not in json.dumps(key_policy(ALI_ACCOUNT))


def _nodes(plan, child):
    bucket, key = pulumi.Output.from_input("b"), pulumi.Output.from_input("k")
    security.declare_identity(plan, bucket, key, child)


def test_only_instances_take_the_nodes_role(declared):
    role = declared(_nodes).one("Role").inputs
    (statement,) = json.loads(role["assumeRolePolicyDocument"])["Statement"]
    assert statement == {
        "Effect": "Allow",
        "Principal": {"Service": ["ecs.aliyuncs.com"]},
        "Action": "sts:AssumeRole",
    }


def test_a_service_takes_its_role_under_its_condition_only():
    condition = {"StringEquals": {"acs:SourceAccount": ALI_ACCOUNT}}
    (statement,) = service_trust("log.aliyuncs.com", condition)["Statement"]
    assert statement["Condition"] == condition
    assert "Condition" not in service_trust("log.aliyuncs.com")["Statement"][0]


def test_the_role_has_the_policy_of_this_bucket_and_this_key(declared):
    records = declared(_nodes)
    policy, attached, role = records.one("Policy"), records.one("RolePolicyAttachment"), records.one("Role")
    assert json.loads(policy.inputs["policyDocument"]) == node_policy("b", "k")
    assert attached.inputs == {
        "policyName": policy.inputs["policyName"],
        "policyType": "Custom",
        "roleName": role.inputs["roleName"],
    }


def test_nodes_wait_for_their_rights(declared):
    made = []

    def identity(plan, child):
        output = pulumi.Output.from_input("x")
        made.append(security.declare_identity(plan, output, output, child))

    declared(identity)
    assert {type(resource).__name__ for resource in made[0].ready} == {"Policy", "RolePolicyAttachment"}


def test_a_policy_can_change_more_often_than_ram_keeps_versions_and_goes_with_the_stack(declared):
    """RAM keeps five versions of a policy, and refuses a sixth, and the deletion of a policy that has versions."""
    policy = declared(_nodes).one("Policy").inputs
    assert policy["rotateStrategy"] == "DeleteOldestNonDefaultVersionWhenLimitExceeded"
    assert policy["force"] is True


def test_two_projects_of_one_stack_name_share_an_account(declared, monkeypatch):
    """RAM has one role of a name, and the provider adds nothing to it: it passes by what is deprecated."""

    def names(project):
        monkeypatch.setattr(pulumi, "get_project", lambda: project)
        records = declared(_nodes)
        return records.one("Role").inputs["roleName"], records.one("Policy").inputs["policyName"]

    first, other = names("one"), names("two")
    assert first == names("one"), "the same program has the same names again"
    assert not set(first) & set(other)
    for name in (*first, *other):
        assert len(name) == len("c1-node-0123456")
        assert name.startswith("c1-node-")


def test_another_account_has_other_names(mocked, monkeypatch):
    """What is named once in all of the cloud, as an SLS project, is another's otherwise."""
    said = []

    def program():
        unique("c1-logs", pulumi.ResourceOptions()).apply(said.append)

    mocked.declare(program)
    monkeypatch.setattr("tests.components.conftest.ALI_ACCOUNT", "9999999999999999")
    monkeypatch.setattr(security, "account", lambda _: pulumi.Output.from_input("9999999999999999"))
    mocked.declare(program)
    assert len(set(said)) == 2


def test_without_a_kms_instance_a_cluster_is_refused_with_what_to_name(ali, stack):
    with pytest.raises(Invalid, match=r"security\.kms_instance: is missing: .* Name one of the software kind"):
        review("c1", parse(ali({"security.kms_instance": None})))
    with pytest.raises(Invalid, match=r"security\.kms_instance: says nothing on AWS. Take it away"):
        review("c1", parse(stack({"security.kms_instance": "kst-sgp0123456789abcdef"})))
    with pytest.raises(Invalid, match=r"security\.kms_instance: 'kst' is not of the right form"):
        parse(ali({"security.kms_instance": "kst"}))


def test_what_is_named_beside_something_is_named_anew_with_it(mocked):
    said = []

    def program():
        for other in ("tf-oss-bucket-1", "tf-oss-bucket-2", "tf-oss-bucket-1"):
            beside("c1-logs", pulumi.Output.from_input(other)).apply(said.append)

    mocked.declare(program)
    first, other, again = said
    assert first == again != other
    assert all(name.startswith("c1-logs-") and len(name) == len("c1-logs-0123456") for name in said)


VALUES = {
    "keySpec": {"Aliyun_AES_256", "EC_P256"},
    "keyUsage": {"ENCRYPT/DECRYPT", "SIGN/VERIFY"},
    "automaticRotation": {"Enabled", "Disabled"},
    "deletionProtection": {"Enabled", "Disabled"},
}
"""What the provider says of `kms.Key` that a value may be, as far as we use it."""


@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
@pytest.mark.parametrize("changes", [{}, PRODUCTION], ids=["plain", "production"])
def test_every_argument_is_one_that_the_provider_documents(declared, changes, preview):
    def everything(plan, child):
        for make in (security.declare_key, security.declare_logs_key, security.declare_evidence_key):
            make(plan, child)
        _nodes(plan, child)

    for record in declared(everything, changes, preview).all:
        kind = schema.resource_type(record.type)
        assert schema.check(kind, _typed(record.inputs)) == [], record.key
        if "tags" in kind.inputs:
            assert record.inputs["tags"] == {"trainwright:cluster": "c1"}, record.key
        for name, values in VALUES.items():
            assert record.inputs.get(name) in {None, *values}, record.key
        if record.type.endswith(":Key"):
            assert 7 <= record.inputs["pendingWindowInDays"] <= 366
            assert (record.inputs.get("automaticRotation") == "Enabled") == ("rotationInterval" in record.inputs)
            described = record.inputs.keys() & {"deletionProtection", "deletionProtectionDescription"}
            assert len(described) in {0, 2}, "the second says something beside the first only"
