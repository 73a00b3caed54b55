"""The bucket: encrypted, versioned, closed to the public, over TLS only, and all that before anything is put in."""

import json

import pytest

from components.aws.storage import FLEET_KEY, bucket_policy
from trainer import layout

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
    lifecycle = records.one("BucketLifecycleConfiguration")
    (rule,) = lifecycle.inputs["rules"]
    assert rule["status"] == "Enabled"
    assert rule["noncurrentVersionExpiration"] == {"noncurrentDays": 3}
    assert rule["abortIncompleteMultipartUpload"] == {"daysAfterInitiation": 1}
    assert "expiration" not in rule, "a checkpoint must never expire"
    assert records.one("BucketVersioning").urn in lifecycle.dependencies


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


def test_components_and_trainer_agree_on_where_the_fleets_sizes_lie():
    assert FLEET_KEY == layout.FLEET
