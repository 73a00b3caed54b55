"""The data key's policy, and what a node's role grants, judged as AWS would: by evaluating the documents."""

import json

import pytest

from components.aws.security import evidence_key_policy, key_policy, node_policy, partition
from components.cluster import TrainingCluster
from tests.components.aws.policies import allows

BUCKET = "arn:aws:s3:::b"
KEY = "arn:aws:kms:us-west-2:123456789012:key/k"


ALLOWED = [
    ("s3:ListBucket", BUCKET),
    ("s3:GetObject", f"{BUCKET}/bundles/0.tar"),
    ("s3:GetObject", f"{BUCKET}/datasets/text/index.json"),
    ("s3:GetObject", f"{BUCKET}/fleet.json"),
    ("s3:GetObject", f"{BUCKET}/runs/r/control/generations/000001.json"),
    ("s3:PutObject", f"{BUCKET}/runs/r/control/members/i-1/beat"),
    ("s3:PutObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json"),
    ("s3:AbortMultipartUpload", f"{BUCKET}/runs/r/checkpoints/step-000000050/rank0"),
    ("s3:ListBucketMultipartUploads", BUCKET),
    ("s3:ListMultipartUploadParts", f"{BUCKET}/runs/r/checkpoints/step-000000050/rank0"),
    ("s3:DeleteObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json"),
    ("kms:Decrypt", KEY),
    ("kms:GenerateDataKey", KEY),
]
DENIED = [
    ("s3:PutObject", f"{BUCKET}/bundles/0.tar"),
    ("s3:PutObject", f"{BUCKET}/datasets/text/index.json"),
    ("s3:PutObject", f"{BUCKET}/fleet.json"),
    ("s3:PutObject", f"{BUCKET}/erasures/20261130T000000Z-0a1b2c.json"),
    ("s3:DeleteObject", f"{BUCKET}/runs/r/control/outcome.json"),
    ("s3:DeleteObject", f"{BUCKET}/runs/r/metrics/000001/000000.jsonl"),
    ("s3:DeleteObject", f"{BUCKET}/datasets/text/index.json"),
    ("s3:DeleteObjectVersion", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json"),
    ("s3:PutBucketPolicy", BUCKET),
    ("s3:DeleteBucket", BUCKET),
    ("s3:GetObject", "arn:aws:s3:::other/runs/r/x"),
    ("s3:ListBucket", "arn:aws:s3:::other"),
    ("s3:ListAllMyBuckets", "*"),
    ("kms:Decrypt", KEY.replace("/k", "/other")),
    ("kms:ScheduleKeyDeletion", KEY),
    ("kms:PutKeyPolicy", KEY),
    ("kms:CreateGrant", KEY),
    ("iam:PassRole", "arn:aws:iam::123456789012:role/admin"),
    ("sts:AssumeRole", "arn:aws:iam::123456789012:role/admin"),
    ("ec2:RunInstances", "*"),
]


@pytest.mark.parametrize(("action", "resource"), ALLOWED)
def test_a_node_may_do_what_it_has_to(action, resource):
    assert allows(node_policy(BUCKET, KEY), action, resource)


@pytest.mark.parametrize(("action", "resource"), DENIED)
def test_a_node_may_do_nothing_more(action, resource):
    assert not allows(node_policy(BUCKET, KEY), action, resource)


def test_a_node_adds_to_the_audit_record_and_changes_none_of_it():
    """Each page is put only if absent, which S3 tells the policy of; nodes delete in folders of checkpoints alone."""
    page = f"{BUCKET}/runs/r/audit/checkpoint-000000050-0a1b2c.json"
    policy = node_policy(BUCKET, KEY)
    assert allows(policy, "s3:PutObject", page, {"s3:if-none-match": "*"})
    assert not allows(policy, "s3:PutObject", page)
    assert not allows(policy, "s3:DeleteObject", page)
    for written_by_people in ("launch-0a1b2c.json", "retry-12.json"):
        assert not allows(
            policy, "s3:PutObject", f"{BUCKET}/runs/r/audit/{written_by_people}", {"s3:if-none-match": "*"}
        )


def test_an_absent_object_reads_as_absent_and_not_as_forbidden():
    """Without `s3:ListBucket`, S3 answers 403 where it would 404; a GET carries no `s3:prefix` to meet a condition."""
    assert allows(node_policy(BUCKET, KEY), "s3:ListBucket", BUCKET, context={})


ROLE = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
BY_AUTO_SCALING = {"kms:CallerAccount": "123456789012", "aws:PrincipalArn": ROLE}


def _by_anyone(document):
    """The statements that name no principal but everyone, so that their conditions alone decide."""
    statements = [s for s in document["Statement"] if s["Principal"] == {"AWS": "*"}]
    return {**document, "Statement": statements}


@pytest.mark.parametrize(
    "action", ["Encrypt", "Decrypt", "ReEncryptFrom", "GenerateDataKeyWithoutPlaintext", "DescribeKey"]
)
def test_k1_auto_scaling_may_use_the_key_or_nodes_with_encrypted_disks_die_at_launch(action):
    assert allows(_by_anyone(key_policy("us-west-2", "123456789012")), f"kms:{action}", KEY, BY_AUTO_SCALING)


def test_k1_auto_scaling_may_grant_the_key_to_aws_itself_only():
    policy = _by_anyone(key_policy("us-west-2", "123456789012"))
    assert allows(policy, "kms:CreateGrant", KEY, {**BY_AUTO_SCALING, "kms:GrantIsForAWSResource": "true"})
    assert not allows(policy, "kms:CreateGrant", KEY, BY_AUTO_SCALING)


@pytest.mark.parametrize(
    "context",
    [
        {},
        {**BY_AUTO_SCALING, "aws:PrincipalArn": ROLE.replace("AutoScaling", "Other")},
        {**BY_AUTO_SCALING, "kms:CallerAccount": "999999999999"},
    ],
)
def test_the_open_principal_lets_nobody_else_in(context):
    policy = _by_anyone(key_policy("us-west-2", "123456789012"))
    for action in ("kms:Decrypt", "kms:CreateGrant", "kms:GenerateDataKey"):
        assert not allows(policy, action, KEY, {**context, "kms:GrantIsForAWSResource": "true"})


def test_k2_no_statement_names_the_service_role_as_principal():
    """A key policy whose principal doesn't exist yet is refused; the role comes with an account's first group."""
    for statement in key_policy("us-west-2", "123456789012")["Statement"]:
        assert "aws-service-role" not in json.dumps(statement["Principal"])


def test_the_account_itself_keeps_the_key():
    first = key_policy("us-west-2", "123456789012")["Statement"][0]
    assert (first["Principal"], first["Action"]) == ({"AWS": "arn:aws:iam::123456789012:root"}, "kms:*")


@pytest.mark.parametrize(
    ("region", "expected"),
    [("us-west-2", "aws"), ("eu-central-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")],
)
def test_arns_lie_in_the_regions_partition(region, expected):
    assert partition(region) == expected
    assert f"arn:{expected}:iam::" in json.dumps(key_policy(region, "1"))


def test_key_rotates_and_is_named(mocked, stack):
    records = mocked.cluster(stack())
    assert records.one("Key").inputs["enableKeyRotation"] is True
    assert records.one("Alias").inputs["targetKeyId"] == "key-1"


def test_two_projects_of_one_stack_name_share_an_account(mocked, stack):
    """A fixed alias is taken by the first; without one the provider adds what makes it unique."""
    assert "name" not in mocked.cluster(stack()).one("Alias").inputs


def test_only_instances_take_the_nodes_role(mocked, stack):
    trust = json.loads(mocked.cluster(stack()).one("Role").inputs["assumeRolePolicy"])
    assert [(s["Effect"], s["Principal"], s["Action"]) for s in trust["Statement"]] == [
        ("Allow", {"Service": "ec2.amazonaws.com"}, "sts:AssumeRole")
    ]


def test_the_role_is_given_the_policy_of_this_bucket_and_this_key(mocked, stack):
    given = json.loads(mocked.cluster(stack()).one("RolePolicy").inputs["policy"])
    assert given == node_policy("arn:aws:s3:::c1-data-1a2b3c4", "arn:aws:kms:us-west-2:123456789012:key/key-1")


SIGNING = {
    "operator": {"kms:Sign": True, "kms:GetPublicKey": True, "kms:Verify": False},
    "auditor": {"kms:Sign": False, "kms:GetPublicKey": True, "kms:Verify": True},
    "trainer": {"kms:Sign": False, "kms:GetPublicKey": False, "kms:Verify": False},
    "node": {"kms:Sign": False, "kms:GetPublicKey": False, "kms:Verify": False},
}
AUDIT = {"audit.enabled": True, "audit.emails": ["a@example.com"]}


def _as(role, account="123456789012"):
    return {"kms:CallerAccount": account, "aws:PrincipalArn": f"arn:aws:iam::{account}:role/{role}"}


@pytest.mark.parametrize(
    ("role", "action"), [(role, action) for role, actions in SIGNING.items() for action in actions]
)
def test_operators_sign_evidence_auditors_check_it_and_nobody_else_does_either(role, action):
    policy = _by_anyone(evidence_key_policy("us-west-2", "123456789012", "c1"))
    assert allows(policy, action, KEY, _as(f"c1-{role}-1a2b3c4")) is SIGNING[role][action]


@pytest.mark.parametrize(
    "context",
    [
        {},
        _as("c2-operator-1a2b3c4"),
        _as("c1-operator-node-1a2b3c4"),
        _as("c1-operator-1a2b3c4", account="999999999999"),
    ],
)
def test_the_operators_of_another_cluster_or_account_sign_nothing(context):
    """A cluster named `c1-operator` has roles whose names begin as those of c1's operators do."""
    policy = _by_anyone(evidence_key_policy("us-west-2", "123456789012", "c1"))
    for action in ("kms:Sign", "kms:GetPublicKey", "kms:Verify"):
        assert not allows(policy, action, KEY, context)


@pytest.mark.parametrize("action", ["kms:ScheduleKeyDeletion", "kms:PutKeyPolicy", "kms:CreateGrant", "kms:DisableKey"])
def test_who_signs_evidence_does_not_govern_its_key(action):
    policy = evidence_key_policy("us-west-2", "123456789012", "c1")
    assert not allows(_by_anyone(policy), action, KEY, _as("c1-operator-1a2b3c4"))
    assert policy["Statement"][0]["Principal"] == {"AWS": "arn:aws:iam::123456789012:root"}


def test_evidence_is_signed_by_a_key_that_encrypts_nothing_and_cant_rotate(mocked, stack):
    """KMS refuses rotation of an asymmetric key, with the whole deployment."""
    key = mocked.cluster(stack(AUDIT)).one("Key", "c1-evidence").inputs
    assert (key["customerMasterKeySpec"], key["keyUsage"]) == ("ECC_NIST_P256", "SIGN_VERIFY")
    assert "enableKeyRotation" not in key
    assert json.loads(key["policy"]) == evidence_key_policy("us-west-2", "123456789012", "c1")


def test_what_erasing_needs_is_told_where_it_is_there(mocked, stack):
    """`trainwright erase` reads these: without them it signs nothing and looks past nodes that hold copies."""
    told = {}
    data = {"data_nodes": {"type": "i4i.32xlarge"}}
    for name, changes in (("plain", {}), ("audited", AUDIT), ("served", data)):
        values = stack(changes)
        mocked.declare(lambda name=name, values=values: told.update({name: TrainingCluster("c1", values).outputs()}))
    optional = {"dataGroup", "auditBucket", "evidenceKeyArn"}
    assert {name: optional & set(outputs) for name, outputs in told.items()} == {
        "plain": set(),
        "audited": {"auditBucket", "evidenceKeyArn"},
        "served": {"dataGroup"},
    }
