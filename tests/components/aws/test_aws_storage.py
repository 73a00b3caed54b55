"""The bucket: encrypted, versioned, closed to the public, over TLS only, and all that before anything is put in."""

import json

import pytest

from components.aws.storage import CHECKPOINT_BYTES, HEARTBEAT_BYTES, bucket_policy, lifecycle
from tests.components.aws.policies import denies

ARN = "arn:aws:s3:::b"


def refuses_plain_http(document, arn):
    """Semantic reading of a TLS-only policy (aws-guard-rules#218, #243): denies everyone everything without TLS."""
    for statement in document["Statement"]:
        condition = statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")
        if (
            statement["Effect"] == "Deny"
            and statement["Principal"] in ("*", {"AWS": "*"})
            and statement["Action"] in ("s3:*", "*")
            and str(condition).lower() == "false"
            and {arn, f"{arn}/*"} <= set(statement["Resource"])
        ):
            return True
    return False


def test_k4_without_tls_nothing_reaches_bucket_or_objects():
    assert refuses_plain_http(bucket_policy(ARN), ARN)


@pytest.mark.parametrize(
    ("tls", "context", "denied"),
    [
        ("1.2", {"aws:SecureTransport": "true", "s3:TlsVersion": "1.2"}, False),
        ("1.3", {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3"}, False),
        ("1.3", {"aws:SecureTransport": "true", "s3:TlsVersion": "1.2"}, True),
        ("1.3", {"s3:TlsVersion": "1.2", "aws:PrincipalIsAWSService": "false"}, True),
        ("1.3", {"s3:TlsVersion": "1.2", "aws:PrincipalIsAWSService": "true"}, False),
        ("1.3", {"aws:SecureTransport": "false"}, True),
    ],
)
def test_k4_tls_is_as_new_as_asked_but_for_awss_own_services(tls, context, denied):
    for action, resource in (("s3:GetObject", f"{ARN}/runs/r/x"), ("s3:ListBucket", ARN)):
        assert denies(bucket_policy(ARN, tls), action, resource, context) is denied


@pytest.mark.parametrize("given", ["1.3", 1.3])
def test_new_tls_is_asked_for_by_the_stacks_file(mocked, stack, given):
    """YAML reads 1.3 as a number."""
    policy = json.loads(mocked.cluster(stack({"security.tls": given})).one("BucketPolicy").inputs["policy"])
    assert policy == bucket_policy("arn:aws:s3:::c1-data-1a2b3c4", "1.3")
    assert refuses_plain_http(policy, "arn:aws:s3:::c1-data-1a2b3c4")


@pytest.mark.parametrize(
    "change",
    [
        {"Effect": "Allow", "Condition": {"Bool": {"aws:SecureTransport": "true"}}},
        {"Resource": [f"{ARN}/*"]},
        {"Principal": {"AWS": "arn:aws:iam::1:root"}},
        {"Action": "s3:GetObject"},
    ],
)
def test_k4_near_misses_do_not_count(change):
    document = bucket_policy(ARN)
    assert not refuses_plain_http({"Statement": [{**document["Statement"][0], **change}]}, ARN)


def test_the_buckets_own_arn_is_in_its_policy(mocked, stack):
    policy = json.loads(mocked.cluster(stack()).one("BucketPolicy").inputs["policy"])
    assert refuses_plain_http(policy, "arn:aws:s3:::c1-data-1a2b3c4")


def test_objects_are_encrypted_with_the_clusters_key_at_one_call_for_many(mocked, stack):
    (rule,) = mocked.cluster(stack()).one("BucketServerSideEncryptionConfiguration").inputs["rules"]
    assert rule["applyServerSideEncryptionByDefault"] == {
        "sseAlgorithm": "aws:kms",
        "kmsMasterKeyId": "arn:aws:kms:us-west-2:123456789012:key/key-1",
    }
    assert rule["bucketKeyEnabled"] is True


def test_public_access_is_blocked_in_all_four_ways(mocked, stack):
    block = mocked.cluster(stack()).one("BucketPublicAccessBlock").inputs
    names = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert [block[name] for name in names] == [True] * 4


def test_access_lists_are_off_and_versions_are_kept_for_the_days_asked(mocked, stack):
    records = mocked.cluster(stack({"storage.noncurrent_days": 3}))
    assert records.one("BucketOwnershipControls").inputs["rule"] == {"objectOwnership": "BucketOwnerEnforced"}
    assert records.one("BucketVersioning").inputs["versioningConfiguration"] == {"status": "Enabled"}
    configuration = records.one("BucketLifecycleConfiguration")
    everything = configuration.inputs["rules"][0]
    assert (everything["filter"], everything["status"]) == ({}, "Enabled")
    assert everything["noncurrentVersionExpiration"] == {"noncurrentDays": 3}
    assert everything["abortIncompleteMultipartUpload"] == {"daysAfterInitiation": 1}
    assert records.one("BucketVersioning").urn in configuration.dependencies


def _days(key, size, noncurrent_days=7):
    """After how many days a replaced or deleted version goes: the shortest of the rules that fit it."""

    def fits(rule):
        limits = rule["filter"].get("and", {})
        return (
            key.startswith(limits.get("prefix", ""))
            and size > limits.get("object_size_greater_than", -1)
            and size < limits.get("object_size_less_than", size + 1)
        )

    rules = [rule for rule in lifecycle(noncurrent_days) if fits(rule)]
    return min(rule["noncurrent_version_expiration"]["noncurrent_days"] for rule in rules)


@pytest.mark.parametrize(
    ("key", "size", "days"),
    [
        ("runs/r/checkpoints/step-000000050/rank0", 5 << 30, 1),
        ("runs/r/control/members/i-1/beat", 20, 1),
        ("runs/r/checkpoints/step-000000050/manifest.json", 2_000, 7),
        ("runs/r/control/outcome.json", 200, 7),
        ("datasets/text/shard-00000.bin", 5 << 30, 7),
        ("bundles/0.tar", 5 << 20, 7),
        ("fleet.json", 40, 7),
    ],
)
def test_retired_checkpoints_are_not_paid_for_a_week_and_nothing_else_goes_early(key, size, days):
    assert HEARTBEAT_BYTES < CHECKPOINT_BYTES
    assert _days(key, size) == days


def test_nothing_current_ever_expires():
    for rule in lifecycle(7):
        assert rule.get("expiration", {}).keys() <= {"expired_object_delete_marker"}, "a checkpoint must never expire"


def test_the_rules_are_such_as_s3_takes():
    """S3 refuses sizes beside delete markers (aws-cli#8239), and in `and` fewer than two conditions."""
    rules = lifecycle(7)
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert [rule["id"] for rule in rules if "expiration" in rule] == ["forget-what-was-replaced"]
    for rule in rules:
        if conditions := rule["filter"].get("and"):
            assert len(conditions) >= 2
            assert not {"expiration", "abort_incomplete_multipart_upload"} & rule.keys()


def test_nothing_is_put_in_before_the_bucket_is_closed_and_encrypted(mocked, stack):
    """An object put in earlier would stay encrypted with S3's own key, or be public for a moment."""
    records = mocked.cluster(stack())
    governs = {
        records.one(kind).urn
        for kind in (
            "BucketPublicAccessBlock",
            "BucketServerSideEncryptionConfiguration",
            "BucketVersioning",
            "BucketPolicy",
        )
    }
    for record in records.of("BucketObjectv2"):
        assert governs <= record.dependencies


def test_the_bundle_lies_at_the_key_that_user_data_names(mocked, stack, bundle):
    record = mocked.cluster(stack()).one("BucketObjectv2", "c1-bundle")
    assert record.inputs["key"] == bundle.key == f"bundles/{bundle.sha256}.tar"
    assert record.inputs["source"]["path"] == str(bundle.path)
