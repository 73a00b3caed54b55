"""Exported states of any program: read as what the engine would have shown, secrets and all, or refused in words."""

import json
from typing import Any

import pytest

from policies.control import Verdict, judge
from policies.controls import declared
from policies.settings import Settings
from policies.state import SECRET, SIGNATURE, NoState, read
from policies.values import UNKNOWN

PREFIX = "urn:pulumi:prod::mine::"
PROVIDER = f"{PREFIX}pulumi:providers:aws::eu"
BUCKET, POLICY, TEMPLATE = (
    "aws:s3/bucket:Bucket",
    "aws:s3/bucketPolicy:BucketPolicy",
    "aws:ec2/launchTemplate:LaunchTemplate",
)
OPEN = {"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*"}}


def entry(kind: str, name: str, inputs: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    base = {"urn": f"{PREFIX}{kind}::{name}", "custom": True, "type": kind, "inputs": inputs or {}}
    return {**base, "provider": f"{PROVIDER}::0a1b-id", **more}


def state(*entries: dict[str, Any]) -> str:
    """As `pulumi stack export` writes it (pulumi, sdk/go/common/apitype/core.go: `UntypedDeployment`)."""
    stack = {"urn": f"{PREFIX}pulumi:pulumi:Stack::mine-prod", "type": "pulumi:pulumi:Stack"}
    provider = {
        "urn": PROVIDER,
        "custom": True,
        "id": "0a1b-id",
        "type": "pulumi:providers:aws",
        "inputs": {"region": "eu-central-1"},
    }
    return json.dumps({"version": 3, "deployment": {"manifest": {}, "resources": [stack, provider, *entries]}})


def secret(**how: str) -> dict[str, str]:
    return {SIGNATURE: SECRET, **how}


def verdicts(text: str, control: str) -> dict[str, Verdict]:
    controls = [one for one in declared(Settings(regions=("eu-central-1",))) if one.id == control]
    return {result.resource.name: result.verdict for result in judge(controls, read(text))}


def test_resources_come_with_region_protection_and_links():
    stack = read(
        state(
            entry(BUCKET, "data", {"bucket": "b"}, id="b", protect=True, outputs={"arn": "arn:aws:s3:::b"}),
            entry(POLICY, "data", {"policy": "{}"}, propertyDependencies={"bucket": [f"{PREFIX}{BUCKET}::data"]}),
        )
    )
    bucket, policy = stack.resources
    assert (bucket.name, bucket.region, bucket.protect) == ("data", "eu-central-1", True)
    assert bucket.names == {"b", "arn:aws:s3:::b"}
    assert policy.links == {"bucket": frozenset({bucket.urn})}
    assert [pointer.sure for pointer in stack.pointing(bucket, (POLICY,), "bucket")] == [True]


def test_a_resource_of_another_region_is_told_from_its_provider():
    """AWS' resources have a region of their own since version 7 of the provider."""
    (bucket,) = read(state(entry(BUCKET, "data", {"region": "us-east-1"}))).resources
    assert bucket.region == "us-east-1"
    assert verdicts(state(entry(BUCKET, "data", {"region": "us-east-1"})), "RES-REGION-01") == {"data": Verdict.FAIL}


def test_what_is_made_by_hand_points_by_the_name_that_the_cloud_gave():
    text = state(
        entry(BUCKET, "data", id="data-7f3", outputs={"bucket": "data-7f3"}),
        entry(POLICY, "data", {"bucket": "data-7f3", "policy": json.dumps(OPEN)}),
    )
    assert verdicts(text, "STO-PUBLIC-03") == {"data": Verdict.FAIL}


def test_an_encrypted_secret_is_unknown_and_never_passes():
    text = state(entry(TEMPLATE, "node", {"userData": secret(ciphertext="v1:abc")}))
    assert read(text).resources[0].at("userData") is UNKNOWN
    assert verdicts(text, "IAM-SECRET-01") == {"node": Verdict.UNKNOWN}


def test_a_secret_that_was_exported_in_plain_text_is_judged():
    """`pulumi stack export --show-secrets` writes the value as JSON."""
    text = state(entry(TEMPLATE, "node", {"userData": secret(plaintext=json.dumps("KEY=AKIAIOSFODNN7EXAMPLE"))}))
    assert verdicts(text, "IAM-SECRET-01") == {"node": Verdict.FAIL}


def test_secrets_deep_within_leave_the_rest_known():
    device = {"ebs": {"encrypted": "false", "kmsKeyId": secret(ciphertext="v1:abc")}}
    text = state(entry(TEMPLATE, "node", {"blockDeviceMappings": [device]}))
    assert verdicts(text, "ENC-DISK-01") == {"node": Verdict.FAIL}


def test_what_is_only_looked_up_is_not_judged():
    assert read(state(entry(BUCKET, "theirs", external=True))).resources == ()


def test_the_stack_and_providers_are_no_resources_and_components_no_harm():
    text = state({"urn": f"{PREFIX}my:index:Thing::x", "type": "my:index:Thing"}, entry(BUCKET, "data"))
    assert [resource.type for resource in read(text).resources] == ["my:index:Thing", BUCKET]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        '{"deployment": null}',
        '{"deployment": []}',
        '{"deployment": {"resources": [1]}}',
        '{"deployment": {"resources": {"a": 1}}}',
        '{"deployment": {"resources": [{"type": "aws:s3/bucket:Bucket"}]}}',
        state(entry(BUCKET, "x", {"acl": {SIGNATURE: SECRET, "plaintext": "no JSON"}})),
    ],
)
def test_what_is_no_state_is_refused_in_words(text):
    with pytest.raises(NoState, match="is no state as `pulumi stack export` writes it"):
        read(text)


def test_a_state_without_resources_is_a_stack_without_any():
    assert read('{"version": 3, "deployment": {"manifest": {}}}').resources == ()
