"""The data key's policy, and what a node's role grants, judged as AWS would: by evaluating the documents."""

import json

import pytest

from components.aws.security import key_policy, node_policy, partition
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
    ("s3:DeleteObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json"),
    ("kms:Decrypt", KEY),
    ("kms:GenerateDataKey", KEY),
]
DENIED = [
    ("s3:PutObject", f"{BUCKET}/bundles/0.tar"),
    ("s3:PutObject", f"{BUCKET}/datasets/text/index.json"),
    ("s3:PutObject", f"{BUCKET}/fleet.json"),
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
