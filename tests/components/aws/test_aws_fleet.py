"""The launch template and the group."""

import base64
import json

import pytest

from components.cluster import InvalidArgs


def _template(mocked, stack, **changes):
    return mocked.cluster(stack({key.replace("__", "."): value for key, value in changes.items()})).one(
        "LaunchTemplate"
    )


@pytest.mark.parametrize(("containers", "hops"), [(False, 1), (True, 2)])
def test_k3_metadata_needs_a_token_and_crosses_no_more_hops_than_it_must(mocked, stack, containers, hops):
    options = _template(mocked, stack, nodes__containers=containers).inputs["metadataOptions"]
    assert (options["httpEndpoint"], options["httpTokens"]) == ("enabled", "required")
    assert options["httpPutResponseHopLimit"] == hops


def test_nodes_offer_their_metadata_no_tags(mocked, stack):
    """With them there, EC2 refuses to launch a node whose tags have a space or a slash in a key."""
    assert "instanceMetadataTags" not in _template(mocked, stack).inputs["metadataOptions"]


@pytest.mark.parametrize("image", ["ami-0123456789abcdef0", "ssm:/aws/service/x/image"])
def test_the_disk_that_is_encrypted_is_the_one_that_the_image_boots_from(mocked, stack, image):
    """A mapping for another name adds a disk, and leaves the root one unencrypted without a word."""
    (disk,) = _template(mocked, stack, nodes__image=image).inputs["blockDeviceMappings"]
    assert disk["deviceName"] == f"/dev/root-of-{'ami-0fedcba9876543210' if 'ssm:' in image else image}"


def test_an_image_that_is_not_there_fails_the_preview_in_the_providers_words(mocked, stack):
    with pytest.raises(InvalidArgs, match=r"nodes\.image: ami-00000000 can't be looked up: .*returned no results"):
        mocked.cluster(stack({"nodes.image": "ami-00000000"}), preview=True)
    declared = {record.type for record in mocked.records.children()}
    assert declared == {"pulumi:providers:aws"}, "half a cluster would be left"


def test_the_root_disk_is_encrypted_with_the_clusters_key_and_goes_with_its_node(mocked, stack):
    (disk,) = _template(mocked, stack, nodes__disk_gb=50).inputs["blockDeviceMappings"]
    assert disk["ebs"] == {
        "encrypted": "true",
        "kmsKeyId": "arn:aws:kms:us-west-2:123456789012:key/key-1",
        "volumeSize": 50,
        "volumeType": "gp3",
        "deleteOnTermination": "true",
    }


def test_n7_security_groups_are_on_the_interface_and_nowhere_else(mocked, stack):
    """EC2 refuses a template that names an interface and, beside it, security groups (terraform-provider-aws#4570)."""
    template = _template(mocked, stack).inputs
    assert not {"vpcSecurityGroupIds", "securityGroupNames"} & template.keys()
    (interface,) = template["networkInterfaces"]
    assert interface["securityGroups"] == ["c1-nodes-id"]


def test_n1_no_node_has_a_public_address(mocked, stack):
    (interface,) = _template(mocked, stack).inputs["networkInterfaces"]
    assert (interface["deviceIndex"], interface["associatePublicIpAddress"]) == (0, "false")


def test_instances_volumes_and_interfaces_are_tagged(mocked, stack):
    specifications = _template(mocked, stack, tags={"team": "ml"}).inputs["tagSpecifications"]
    assert {item["resourceType"] for item in specifications} == {"instance", "volume", "network-interface"}
    for item in specifications:
        assert item["tags"] == {"team": "ml", "trainwright:cluster": "c1", "Name": "c1-node"}


def test_user_data_is_a_secret_and_tells_the_node_all_it_needs(mocked, stack, bundle):
    template = _template(mocked, stack)
    assert "userData" in template.secrets
    script = base64.b64decode(template.inputs["userData"]).decode()
    assert script.startswith("#!/usr/bin/env python3\n")
    line = next(line for line in script.splitlines() if line.startswith("CONFIG = "))
    config = json.loads(json.loads(line.removeprefix("CONFIG = json.loads(").removesuffix(")")))
    assert config.pop("job")["name"] == "gpt"
    assert config.pop("run").startswith("gpt-")
    assert config == {
        "cloud": "aws",
        "region": "us-west-2",
        "cluster": "c1",
        "bucket": "c1-data-1a2b3c4",
        "bundle": bundle.key,
        "sha256": bundle.sha256,
        "python": "python3",
        "deadline_s": 900,
        "workers": 1,
        "gpus": 0,
    }


def test_b9_a_node_that_shuts_itself_down_is_not_paid_for(mocked, stack):
    assert _template(mocked, stack).inputs["instanceInitiatedShutdownBehavior"] == "terminate"


@pytest.mark.parametrize(
    ("image", "given"),
    [("ami-01234567", "ami-01234567"), ("ssm:/aws/service/x/image", "resolve:ssm:/aws/service/x/image")],
)
def test_the_image_is_an_id_or_a_parameter(mocked, stack, image, given):
    assert _template(mocked, stack, nodes__image=image).inputs["imageId"] == given


def test_b13_the_group_names_a_version_by_number(mocked, stack):
    """`$Latest` hides a change of the template from the group, and no refresh starts (pulumi-aws#1577)."""
    group = mocked.cluster(stack()).one("Group").inputs
    assert group["launchTemplate"] == {"id": "c1-node-id", "version": "7"}


def test_no_healthy_node_is_ended_to_even_out_zones(mocked, stack):
    assert mocked.cluster(stack()).one("Group").inputs["suspendedProcesses"] == ["AZRebalance"]


def test_refresh_replaces_all_nodes_at_once_or_is_off(mocked, stack):
    group = mocked.cluster(stack()).one("Group").inputs
    assert group["instanceRefresh"] == {"strategy": "Rolling", "preferences": {"minHealthyPercentage": 0}}
    assert "instanceRefresh" not in mocked.cluster(stack({"nodes.refresh": False})).one("Group").inputs


def test_the_deployment_does_not_wait_for_capacity(mocked, stack):
    assert mocked.cluster(stack()).one("Group").inputs["waitForCapacityTimeout"] == "0"


def test_no_node_starts_before_all_that_it_counts_on(mocked, stack):
    records = mocked.cluster(stack())
    needed = {
        records.one("BucketObjectv2", "c1-bundle").urn,
        records.one("BucketObjectv2", "c1-fleet").urn,
        records.one("RolePolicy").urn,
        records.one("VpcEndpoint").urn,
        records.one("RouteTableAssociation").urn,
        *(record.urn for record in records.all if record.type.endswith("Rule")),
    }
    assert len(needed) == 8
    assert needed <= records.one("Group").dependencies


def test_the_group_spans_the_plans_subnets(mocked, stack):
    group = mocked.cluster(stack({"network.zones": ["us-west-2a", "us-west-2b"]})).one("Group").inputs
    assert group["vpcZoneIdentifiers"] == ["c1-private-a-id", "c1-private-b-id"]
