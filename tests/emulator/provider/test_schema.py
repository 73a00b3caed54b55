"""The SDK as read from its text: complete, true to what importing gives, and strict about properties."""

import inspect
import re
from typing import Any

import pytest

from emulator.provider import schema
from emulator.provider.wire import ASSET, SIGNATURE, UNKNOWN

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"


def reasons(token: str, **props: Any) -> list[str]:
    return [failure.reason for failure in schema.check(schema.resource_type(token), props)]


@pytest.mark.parametrize("package", ["aws", "alicloud"])
def test_every_type_of_the_sdk_can_be_read(package: str) -> None:
    index = (schema.sdk_folder(package) / "__init__.py").read_text()
    tokens = re.findall(rf'"({package}:[^"]+)": "', index)
    assert len(tokens) > 1000
    empty = [token for token in tokens if not schema.resource_type(token).state]
    assert len(empty) < 3, "a type without any property is a rare thing: the reading has gone wrong"


def test_what_is_read_is_what_importing_would_give() -> None:
    from pulumi_aws.kms.key import KeyArgs

    declared = {p.python: p for p in schema.resource_type("aws:kms/key:Key").inputs.values()}
    signature = inspect.signature(KeyArgs.__init__).parameters
    assert list(declared) == list(signature)[1:]
    for name, known in declared.items():
        assert known.required == (signature[name].default is inspect.Parameter.empty)


def test_wire_names_are_the_sdks_own_also_for_deprecated_properties() -> None:
    inputs = schema.resource_type("aws:s3/bucket:Bucket").inputs
    assert {"forceDestroy", "serverSideEncryptionConfiguration", "accelerationStatus"} <= inputs.keys()


def test_outputs_are_what_only_the_cloud_sets() -> None:
    assert {"arn", "latestVersion", "tagsAll"} <= schema.resource_type(TEMPLATE).outputs
    subnet = schema.resource_type("aws:ec2/subnet:Subnet")
    assert "availabilityZone" in subnet.computed - subnet.outputs, "the cloud sets it where the program doesn't"


@pytest.mark.parametrize(
    ("props", "reason"),
    [
        ({"naem": "x"}, "there is no property 'naem'; did you mean name?"),
        (
            {"metadataOptions": {"http_tokns": "required"}},
            "there is no property 'metadataOptions.http_tokns'; did you mean http_tokens or httpTokens?",
        ),
        ({"vpcSecurityGroupIds": "sg-1"}, "'vpcSecurityGroupIds' must be a list, not the string \"sg-1\""),
        ({"vpcSecurityGroupIds": [1]}, "'vpcSecurityGroupIds[0]' must be a string, not the number 1"),
        ({"disableApiStop": "true"}, "'disableApiStop' must be true or false, not the string \"true\""),
        ({"ebsOptimized": True}, "'ebsOptimized' must be a string, not true"),
        ({"defaultVersion": 1.5}, "'defaultVersion' must be a whole number, not the number 1.5"),
        ({"metadataOptions": []}, "'metadataOptions' must be an object, not a list"),
        ({"tags": {"a": 1}}, "'tags.a' must be a string, not the number 1"),
        ({"tags": ["a"]}, "'tags' must be a map, not a list"),
    ],
)
def test_a_property_that_does_not_fit_is_named_with_the_fix(props: dict[str, Any], reason: str) -> None:
    assert reasons(TEMPLATE, **props) == [reason]


def test_a_missing_required_property_is_named_also_in_a_nested_object() -> None:
    assert reasons(GROUP, maxSize=1) == ["the required property 'minSize' is missing"]
    found = reasons(GROUP, maxSize=1, minSize=0, instanceRefresh={})
    assert found == ["the required property 'instanceRefresh.strategy' is missing"]


def test_unknowns_fit_everywhere() -> None:
    assert not reasons(GROUP, maxSize=UNKNOWN, minSize=UNKNOWN, launchTemplate=UNKNOWN, tags=[UNKNOWN])


def test_an_asset_fits_where_one_is_wanted_and_a_text_does_not() -> None:
    token = "aws:s3/bucketObjectv2:BucketObjectv2"
    assert not reasons(token, bucket="b", source={SIGNATURE: ASSET, "text": "x"})
    assert reasons(token, bucket="b", source="file") == [
        "'source' must be an asset (pulumi.FileAsset, pulumi.StringAsset) or archive, not the string \"file\""
    ]
    assert reasons(token, bucket={SIGNATURE: ASSET}) == ["'bucket' must be a string, not an asset"]


def test_an_enum_takes_its_plain_value() -> None:
    assert not reasons("aws:ec2/placementGroup:PlacementGroup", strategy="cluster")


def test_an_unknown_type_is_refused_with_the_nearest_right_one() -> None:
    with pytest.raises(schema.UnknownType, match="no type aws:kms/keys:Key; did you mean aws:kms/key:Key"):
        schema.resource_type("aws:kms/keys:Key")
