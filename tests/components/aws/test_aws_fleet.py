"""The launch template and the group."""

import base64
import json

import pulumi
import pytest

from components.aws import fleet
from components.cluster import InvalidArgs
from components.findings import Invalid
from components.plan import DRAIN_S
from trainer.grace import GRACE_S

P4D = {"nodes.type": "p4d.24xlarge", "job.batch": 32}
BLOCK = "cr-0123456789abcdef0"


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
    """Never more than desired run, for which a reservation has no room; those that boot so already stay."""
    group = mocked.cluster(stack()).one("Group").inputs
    preferences = {"minHealthyPercentage": 0, "maxHealthyPercentage": 100, "skipMatching": True}
    assert group["instanceRefresh"] == {"strategy": "Rolling", "preferences": preferences}
    assert "instanceRefresh" not in mocked.cluster(stack({"nodes.refresh": False})).one("Group").inputs


def test_b9_a_group_may_be_emptied_however_many_nodes_training_needs(mocked, stack):
    """Its least size would hold it against the breaker; `fleet.json` tells agents how many train."""
    records = mocked.cluster(stack({"nodes.min": 2}))
    assert records.one("Group").inputs["minSize"] == 0
    assert json.loads(records.one("BucketObjectv2", "c1-fleet").inputs["content"])["min"] == 2


def test_the_group_says_how_many_nodes_it_has(mocked, stack):
    assert set(mocked.cluster(stack()).one("Group").inputs["enabledMetrics"]) == set(fleet.METRICS)
    assert {"GroupDesiredCapacity", "GroupInServiceInstances"} <= set(fleet.METRICS)


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
        *(record.urn for record in records.all if record.type.endswith("gressRule")),
    }
    assert len(needed) == 8
    assert needed <= records.one("Group").dependencies


def test_the_group_spans_the_plans_subnets(mocked, stack):
    group = mocked.cluster(stack({"network.zones": ["us-west-2a", "us-west-2b"]})).one("Group").inputs
    assert group["vpcZoneIdentifiers"] == ["c1-private-a-id", "c1-private-b-id"]


def test_n7_every_one_of_several_interfaces_has_the_security_group(mocked, stack):
    template = mocked.cluster(stack(P4D)).one("LaunchTemplate").inputs
    assert not {"vpcSecurityGroupIds", "securityGroupNames"} & template.keys()
    assert len(template["networkInterfaces"]) == 5
    assert all(nic["securityGroups"] == ["c1-nodes-id"] for nic in template["networkInterfaces"])
    assert all(nic["deleteOnTermination"] == "true" for nic in template["networkInterfaces"])


def test_n1_no_interface_has_a_public_address_and_only_the_first_says_so(mocked, stack):
    """Of several interfaces none can have one; EC2 takes the word only of the first."""
    first, *others = mocked.cluster(stack(P4D)).one("LaunchTemplate").inputs["networkInterfaces"]
    assert first["associatePublicIpAddress"] == "false"
    assert not any("associatePublicIpAddress" in nic for nic in others)


def test_n3_the_template_has_the_plans_interfaces(mocked, stack):
    nics = mocked.cluster(stack(P4D)).one("LaunchTemplate").inputs["networkInterfaces"]
    assert [(nic["networkCardIndex"], nic["deviceIndex"], nic["interfaceType"]) for nic in nics] == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
        (3, 0, "efa-only"),
    ]


def test_over_tcp_a_node_has_one_plain_interface(mocked, stack):
    (interface,) = (
        mocked.cluster(stack(P4D | {"nodes.fabric": "tcp"})).one("LaunchTemplate").inputs["networkInterfaces"]
    )
    assert interface.keys() == {"deviceIndex", "deleteOnTermination", "securityGroups", "associatePublicIpAddress"}


def test_c10_nodes_with_efa_share_a_placement_group_that_goes_after_them(mocked, stack):
    records = mocked.cluster(stack(P4D))
    placement = records.one("PlacementGroup")
    assert placement.inputs["strategy"] == "cluster"
    assert records.one("Group").inputs["placementGroup"] == "c1-fabric-id"
    assert placement.urn in records.one("Group").dependencies


@pytest.mark.parametrize(
    "changes",
    [
        {},
        P4D | {"nodes.fabric": "tcp"},
        P4D | {"nodes.capacity": "capacity-block", "nodes.reservation": BLOCK},
        P4D | {"catalog.overrides": {"p4d.24xlarge": {"cluster_placement": False}}},
    ],
    ids=["no EFA", "tcp", "capacity block", "a type that no group takes"],
)
def test_c1_c5_there_is_no_placement_group_where_none_is_wanted_or_borne(mocked, stack, changes):
    records = mocked.cluster(stack(changes))
    assert records.of("PlacementGroup") == []
    assert "placementGroup" not in records.one("Group").inputs


def test_on_demand_says_nothing_of_markets_and_reservations(mocked, stack):
    records = mocked.cluster(stack())
    wanted = {"instanceMarketOptions", "capacityReservationSpecification", "enclaveOptions", "cpuOptions"}
    assert not wanted & records.one("LaunchTemplate").inputs.keys()
    assert not {"mixedInstancesPolicy", "capacityRebalance"} & records.one("Group").inputs.keys()
    assert records.of("LifecycleHook") == records.of("CapacityReservation") == []


def test_spot_of_one_type_is_on_the_template_and_ends_with_its_instance(mocked, stack):
    """Placement groups take no node that stops, and a persistent request would need one."""
    records = mocked.cluster(stack({"nodes.capacity": "spot"}))
    assert records.one("LaunchTemplate").inputs["instanceMarketOptions"] == {
        "marketType": "spot",
        "spotOptions": {"spotInstanceType": "one-time", "instanceInterruptionBehavior": "terminate"},
    }
    group = records.one("Group").inputs
    assert group["launchTemplate"]["version"] == "7"
    assert "mixedInstancesPolicy" not in group


def test_spot_of_several_types_is_on_the_group_and_never_on_the_template_too(mocked, stack):
    """A group that mixes refuses a template that asks for spot itself (kops#7066)."""
    records = mocked.cluster(stack({"nodes.capacity": "spot", "nodes.alternatives": ["c6a.large"]}))
    assert "instanceMarketOptions" not in records.one("LaunchTemplate").inputs
    group = records.one("Group").inputs
    assert "launchTemplate" not in group
    distribution = group["mixedInstancesPolicy"]["instancesDistribution"]
    assert (distribution["onDemandBaseCapacity"], distribution["onDemandPercentageAboveBaseCapacity"]) == (0, 0)


def test_b13_a_mixed_group_names_a_version_by_number_and_its_types_in_order(mocked, stack):
    changes = {"nodes.capacity": "mixed", "nodes.on_demand_base": 1, "nodes.on_demand_share": 25}
    group = mocked.cluster(stack(changes | {"nodes.alternatives": ["c6a.large"]})).one("Group").inputs
    assert group["mixedInstancesPolicy"] == {
        "launchTemplate": {
            "launchTemplateSpecification": {"launchTemplateId": "c1-node-id", "version": "7"},
            "overrides": [{"instanceType": "m6a.large"}, {"instanceType": "c6a.large"}],
        },
        "instancesDistribution": {
            "onDemandAllocationStrategy": "prioritized",
            "onDemandBaseCapacity": 1,
            "onDemandPercentageAboveBaseCapacity": 25,
            "spotAllocationStrategy": "price-capacity-optimized",
        },
    }


@pytest.mark.parametrize("changes", [{"nodes.capacity": "spot"}, {"nodes.capacity": "mixed"}], ids=str)
def test_spot_nodes_at_risk_are_replaced_before_they_are_taken(mocked, stack, changes):
    assert mocked.cluster(stack(changes)).one("Group").inputs["capacityRebalance"] is True


def test_c3_a_reservation_that_is_there_is_named_by_the_template(mocked, stack):
    records = mocked.cluster(stack({"nodes.capacity": "reserved", "nodes.reservation": BLOCK}))
    target = {"capacityReservationTarget": {"capacityReservationId": BLOCK}}
    assert records.one("LaunchTemplate").inputs["capacityReservationSpecification"] == target
    assert records.of("CapacityReservation") == []


def test_c3_a_reservation_that_is_made_fits_the_fleet_and_is_for_nobody_else(mocked, stack):
    reserved = {"nodes.capacity": "reserved", "nodes.reservation": "create"}
    records = mocked.cluster(stack(P4D | reserved))
    made = dict(records.one("CapacityReservation").inputs)
    assert made.pop("tags")["trainwright:cluster"] == "c1"
    assert made == {
        "instanceType": "p4d.24xlarge",
        "instancePlatform": "Linux/UNIX",
        "availabilityZone": "us-west-2a",
        "instanceCount": 4,
        "instanceMatchCriteria": "targeted",
        "endDateType": "unlimited",
        "placementGroupArn": "arn:aws:mock::123456789012:c1-fabric",
    }
    target = {"capacityReservationTarget": {"capacityReservationId": "c1-nodes-id"}}
    assert records.one("LaunchTemplate").inputs["capacityReservationSpecification"] == target
    assert "instanceMarketOptions" not in records.one("LaunchTemplate").inputs


def test_c1_c2_a_capacity_block_is_a_market_of_its_own_without_options_of_others(mocked, stack):
    """A block's id without its market is refused (terraform-aws-ec2-instance#383)."""
    records = mocked.cluster(stack(P4D | {"nodes.capacity": "capacity-block", "nodes.reservation": BLOCK}))
    template, group = records.one("LaunchTemplate").inputs, records.one("Group").inputs
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    target = {"capacityReservationTarget": {"capacityReservationId": BLOCK}}
    assert template["capacityReservationSpecification"] == target
    assert not {"mixedInstancesPolicy", "capacityRebalance", "placementGroup"} & group.keys()


@pytest.mark.parametrize("changes", [{"nodes.capacity": "spot"}, P4D], ids=["spot", "GPUs"])
def test_a_node_that_is_to_go_gets_time_and_no_more(mocked, stack, changes):
    """Nobody may ever answer the hook, so its time is short, and at its end the node goes."""
    records = mocked.cluster(stack(changes))
    hook = records.one("LifecycleHook").inputs
    assert hook == {
        "name": "drain",
        "autoscalingGroupName": "c1-nodes",
        "lifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "heartbeatTimeout": DRAIN_S,
        "defaultResult": "CONTINUE",
    }
    assert 30 <= DRAIN_S <= 120, "EC2 takes spot nodes after two minutes, and no hook is shorter than half of one"


def test_a_node_has_time_for_the_agents_own_grace():
    assert GRACE_S <= DRAIN_S


def test_enclaves_and_encrypted_memory_are_asked_for_on_the_template(mocked, stack):
    enclaves = {"nodes.type": "m6a.4xlarge", "nodes.confidential": "nitro-enclaves"}
    assert mocked.cluster(stack(enclaves)).one("LaunchTemplate").inputs["enclaveOptions"] == {"enabled": True}
    encrypted = {"nodes.image": "ami-00000002", "nodes.confidential": "sev-snp"}
    assert mocked.cluster(stack(encrypted)).one("LaunchTemplate").inputs["cpuOptions"] == {"amdSevSnp": "enabled"}


@pytest.mark.parametrize(
    ("image", "guard", "fault"),
    [
        ("ami-00000001", "nitro-tpm", ""),
        ("ami-00000001", "sev-snp", ""),
        ("ami-00000002", "sev-snp", ""),
        ("ami-00000003", "nitro-enclaves", ""),
        ("ami-00000003", "none", ""),
        ("ami-00000002", "nitro-tpm", "ami-00000002 wasn't registered with NitroTPM, which nitro-tpm needs"),
        ("ami-00000003", "nitro-tpm", "ami-00000003 doesn't boot by UEFI, which nitro-tpm needs"),
        ("ami-00000004", "sev-snp", "ami-00000004 doesn't boot by UEFI, which sev-snp needs"),
    ],
)
def test_an_image_that_cannot_be_guarded_is_refused_before_anything_is_declared(mocked, image, guard, fault):
    """EC2 would launch it all the same, without a TPM."""
    found = []

    def look():
        try:
            modes = ("legacy-bios", "uefi")
            found.append(fleet.find_root_device(image, pulumi.InvokeOptions(), guard, modes))
        except Invalid as invalid:
            found.append(str(invalid))

    mocked.declare(look)
    assert found == ([f"nodes.image: {fault}. Choose another"] if fault else [f"/dev/root-of-{image}"])


def test_an_image_that_states_no_mode_boots_by_uefi_on_types_that_know_no_other():
    assert fleet.unguarded("", "v2.0", "nitro-tpm", ("uefi",)) == ""
    assert fleet.unguarded("", "v2.0", "nitro-tpm", ("legacy-bios", "uefi")) != ""
