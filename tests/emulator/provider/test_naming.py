"""Chosen names: unique, stable, within limits; made-up ids and ARNs of the right form."""

import re

import pytest

from emulator.provider import naming, schema

BUCKET = schema.resource_type("aws:s3/bucket:Bucket")
ROLE = schema.resource_type("aws:iam/role:Role")


def urn(kind: schema.ResourceType, name: str = "Data", stack: str = "local") -> str:
    return f"urn:pulumi:{stack}::project::{kind.token}::{name}"


def test_a_name_keeps_the_one_chosen_before_whatever_the_seed() -> None:
    first = naming.auto_named(ROLE, urn(ROLE), {}, {}, b"1")
    assert naming.is_auto_name(urn(ROLE), first["name"])
    assert first["name"].startswith("Data-")
    assert naming.auto_named(ROLE, urn(ROLE), first, {}, b"2") == first


def test_a_replacement_gets_another_name() -> None:
    assert naming.auto_named(ROLE, urn(ROLE), {}, {}, b"1") != naming.auto_named(ROLE, urn(ROLE), {}, {}, b"2")


def test_a_given_name_stays_and_a_dropped_one_is_not_kept() -> None:
    assert naming.auto_named(ROLE, urn(ROLE), {}, {"name": "mine"}, b"")["name"] == "mine"
    assert naming.auto_named(ROLE, urn(ROLE), {"name": "mine"}, {}, b"")["name"] != "mine"


def test_a_bucket_is_named_in_lower_case_and_an_alias_as_one() -> None:
    assert naming.auto_named(BUCKET, urn(BUCKET), {}, {}, b"")["bucket"].startswith("data-")
    alias = schema.resource_type("aws:kms/alias:Alias")
    assert naming.auto_named(alias, urn(alias), {}, {"targetKeyId": "k"}, b"")["name"].startswith("alias/Data-")


def test_a_prefix_makes_the_name_when_the_resource_is_made() -> None:
    given = naming.auto_named(ROLE, urn(ROLE), {}, {"namePrefix": "pre-"}, b"")
    assert "name" not in given
    assert naming.prefixed(ROLE, given)["name"].startswith("pre-")


def test_a_name_too_long_for_its_suffix_is_refused() -> None:
    with pytest.raises(naming.NameTooLong, match="longer than the 64 characters"):
        naming.auto_named(ROLE, urn(ROLE, "x" * 60), {}, {}, b"")


def test_a_name_that_is_deprecated_is_none_that_the_provider_makes() -> None:
    """pulumi-terraform-bridge, `applyDefaults`: no default for a deprecated property."""
    hook = schema.resource_type("alicloud:ess/lifecycleHook:LifecycleHook")
    assert naming.naming_property(hook) == "name"
    network = schema.resource_type("alicloud:vpc/network:Network")
    assert naming.naming_property(network) is None
    assert naming.auto_named(network, urn(network), {}, {}, b"") == {}


def test_a_bucket_of_oss_is_named_as_it_is_made() -> None:
    bucket = schema.resource_type("alicloud:oss/bucket:Bucket")
    given = naming.auto_named(bucket, urn(bucket), {}, {}, b"")
    assert given == {}
    made = naming.prefixed(bucket, given)["bucket"]
    assert re.fullmatch("tf-oss-bucket-[0-9a-f]{26}", made)
    assert naming.prefixed(bucket, {"bucket": "mine"}) == {"bucket": "mine"}


def test_what_is_made_up_follows_from_the_urn() -> None:
    flow = schema.resource_type("aws:ec2/flowLog:FlowLog")
    id_, outputs = naming.made_up(flow, urn(flow), {}, "cn-north-1")
    assert (id_, outputs) == naming.made_up(flow, urn(flow), {}, "cn-north-1")
    assert id_ != naming.made_up(flow, urn(flow, "other"), {}, "cn-north-1")[0]
    assert id_.startswith("fl-")
    assert outputs["arn"] == f"arn:aws-cn:ec2:cn-north-1:{naming.ACCOUNT}:fl/{id_}"


def test_a_file_system_has_what_it_is_mounted_from() -> None:
    """SageMaker API, `ClusterFsxLustreConfig`: the forms of FSx's DNS and mount names."""
    system = schema.resource_type("aws:fsx/lustreFileSystem:LustreFileSystem")
    id_, outputs = naming.made_up(system, urn(system), {}, "us-west-2")
    assert re.fullmatch(r"fs-[0-9a-f]{17}", id_)
    assert outputs["dnsName"] == f"{id_}.fsx.us-west-2.amazonaws.com"
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,8}", outputs["mountName"])


def test_the_stack_and_name_are_read_from_the_urn() -> None:
    assert naming.urn_stack(urn(ROLE, stack="prod-us")) == "prod-us"
    assert naming.urn_name(urn(ROLE, "a-b")) == "a-b"
