"""The group and what it launches: a launch template, or a scaling configuration."""

import base64
import json

import pulumi
import pytest

from components.alicloud import fleet
from components.cluster import InvalidArgs
from components.findings import Invalid

TCP = {"nodes.fabric": "tcp"}
ERDMA = {"network.egress": "endpoints"}
TWO = {**ERDMA, "nodes.type": "ecs.ebmgn8v.48xlarge", "job.batch": 64}
MIXED = {**TCP, "nodes.capacity": "mixed", "nodes.on_demand_base": 1, "nodes.on_demand_share": 25}
OTHERS = {"nodes.alternatives": ["ecs.g8i.16xlarge"]}
POOL = "crp-bp1aaaaaaaaaaaaaaaaa"
BOTH = pytest.mark.parametrize("changes", [TCP, ERDMA], ids=["template", "configuration"])


def _source(records):
    """What the group of nodes launches, whichever of the two it is."""
    (source,) = [r for r in records.all if r.name == "c1-node" and r.type.startswith(("alicloud:ecs", "alicloud:ess"))]
    return source


def _group(records):
    return records.one("ScalingGroup", "c1-nodes")


# --- the image ---


def _find(mocked, image):
    found = []

    def look():
        try:
            found.append(fleet.find_image(image, pulumi.InvokeOptions(), "data_nodes.image"))
        except Invalid as invalid:
            found.append(str(invalid))

    mocked.declare(look)
    return found[0]


def test_an_image_is_itself_or_the_newest_of_its_family(mocked, ali):
    assert _find(mocked, "m-t4n0123456789abcdefgh") == "m-t4n0123456789abcdefgh"
    assert _find(mocked, "family:trainwright") == "m-newest-of-trainwright"
    assert _source(mocked.cluster(ali({**TCP, "nodes.image": "family:gpu"}))).inputs["imageId"] == "m-newest-of-gpu"


def test_an_image_that_is_not_there_names_its_place_in_the_file(mocked):
    assert _find(mocked, "m-t4n00000000000000000") == (
        "data_nodes.image: m-t4n00000000000000000 can't be looked up: the region has no such image. Choose another"
    )


def test_an_image_that_is_not_there_fails_the_preview_and_leaves_no_half_of_a_cluster(mocked, ali):
    with pytest.raises(InvalidArgs, match=r"nodes\.image: m-t4n00000000000000000 can't be looked up"):
        mocked.cluster(ali({"nodes.image": "m-t4n00000000000000000"}), preview=True)
    assert {record.type for record in mocked.records.children()} == {"pulumi:providers:alicloud"}


# --- what either source says ---


@BOTH
def test_n1_no_node_has_a_public_address(mocked, ali, changes):
    assert _source(mocked.cluster(ali(changes))).inputs["internetMaxBandwidthOut"] == 0


@BOTH
def test_b14_user_data_is_base64_and_a_secret(mocked, ali, changes, bundle):
    """The provider sends as it is what happens to decode, and encodes the rest."""
    source = _source(mocked.cluster(ali(changes)))
    assert "userData" in source.secrets
    script = base64.b64decode(source.inputs["userData"], validate=True).decode()
    assert script.startswith("#!/usr/bin/env python3\n")
    line = next(line for line in script.splitlines() if line.startswith("CONFIG = "))
    config = json.loads(json.loads(line.removeprefix("CONFIG = json.loads(").removesuffix(")")))
    assert config["cloud"] == "alicloud"
    assert config["region"] == "ap-southeast-1"
    assert config["bucket"] == "c1-data-1a2b3c4"
    assert (config["bundle"], config["sha256"]) == (bundle.key, bundle.sha256)
    assert "" not in config.values(), "what there is none of isn't told"


@BOTH
def test_the_root_disk_is_encrypted_with_the_clusters_key(mocked, ali, changes):
    inputs = _source(mocked.cluster(ali({**changes, "nodes.disk_gb": 50}))).inputs
    disk = inputs.get("systemDisk") or {
        "category": inputs["systemDiskCategory"],
        "performanceLevel": inputs["systemDiskPerformanceLevel"],
        "size": inputs["systemDiskSize"],
        "encrypted": inputs["systemDiskEncrypted"],
        "kmsKeyId": inputs["systemDiskKmsKeyId"],
    }
    disk.pop("deleteWithInstance", None)
    assert disk == {
        "category": "cloud_essd",
        "performanceLevel": "PL1",
        "size": 50,
        "encrypted": True,
        "kmsKeyId": "c1-data-id",
    }


@BOTH
def test_nobody_logs_in_and_no_disk_is_added(mocked, ali, changes):
    inputs = _source(mocked.cluster(ali(changes))).inputs
    assert (
        not {"password", "passwordInherit", "keyName", "keyPairName", "dataDisks", "kmsEncryptedPassword"}
        & inputs.keys()
    )


@BOTH
def test_instances_are_tagged_and_named(mocked, ali, changes):
    inputs = _source(mocked.cluster(ali({**changes, "tags": {"team": "ml"}}))).inputs
    assert inputs["tags"] == {"team": "ml", "trainwright:cluster": "c1"}
    assert inputs["instanceName"] == "c1-node"


@BOTH
def test_nodes_have_the_nodes_role(mocked, ali, changes):
    records = mocked.cluster(ali(changes))
    inputs = _source(records).inputs
    role = records.one("RolePolicyAttachment", "c1-node").inputs["roleName"]
    assert inputs.get("ramRoleName", inputs.get("roleName")) == role


# --- a launch template ---


@pytest.mark.parametrize(("containers", "hops"), [(False, 1), (True, 2)])
def test_k3_metadata_needs_a_token_and_crosses_no_more_hops_than_it_must(mocked, ali, containers, hops):
    template = mocked.cluster(ali({**TCP, "nodes.containers": containers})).one("EcsLaunchTemplate").inputs
    assert (template["httpEndpoint"], template["httpTokens"]) == ("enabled", "required")
    assert template["httpPutResponseHopLimit"] == hops


def test_b13_the_group_names_a_version_by_number(mocked, ali):
    """`Latest` hides a change of the template from the group."""
    group = _group(mocked.cluster(ali(TCP))).inputs
    assert (group["launchTemplateId"], group["launchTemplateVersion"]) == ("c1-node-id", "7")


def test_a_template_has_a_name_of_its_own(mocked, ali):
    """ECS demands one, and Pulumi makes none up where `name` is deprecated."""
    name = mocked.cluster(ali(TCP)).one("EcsLaunchTemplate").inputs["launchTemplateName"]
    assert name.startswith("c1-node-")
    assert name != mocked.cluster(ali(TCP), name="c2").one("EcsLaunchTemplate").inputs["launchTemplateName"]


# --- a scaling configuration ---


@pytest.mark.parametrize("changes", [ERDMA, TWO], ids=["one ERI", "two"])
def test_a_configuration_is_declared_with_a_security_group_and_no_interfaces(mocked, ali, changes):
    """The provider creates none without the one, and ESS none with both (facts: N13)."""
    configuration = mocked.cluster(ali(changes)).one("ScalingConfiguration").inputs
    assert configuration["securityGroupId"] == "c1-nodes-id"
    assert not {"securityGroupIds", "networkInterfaces"} & configuration.keys()


def test_a_configuration_starts_no_node_by_itself(mocked, ali):
    """It isn't whole when it is made: what completes it has its group launch it."""
    records = mocked.cluster(ali(ERDMA))
    configuration = records.one("ScalingConfiguration").inputs
    assert not {"active", "enable", "substitute"} & configuration.keys()
    assert configuration["scalingGroupId"] == "c1-nodes-id"
    assert records.of("EcsLaunchTemplate") == []
    assert not {"launchTemplateId", "launchTemplateVersion"} & _group(records).inputs.keys()


def test_a_configuration_is_replaced_and_never_edited(mocked, ali):
    """ESS tells nodes that are out of date by the id of what they were launched from."""
    assert mocked.cluster(ali(ERDMA)).one("ScalingConfiguration").replace_on_changes == ("*",)


def test_what_a_configuration_shows_once_it_is_whole_is_no_change_of_it(mocked, ali):
    """`pulumi up --refresh` reads interfaces and no security group: undone, no node would have eRDMA."""
    configuration = mocked.cluster(ali(ERDMA)).one("ScalingConfiguration")
    assert set(configuration.ignore_changes) == {"securityGroupId", "networkInterfaces"}


def test_a_configuration_that_nodes_were_launched_from_is_left_to_its_group(mocked, ali):
    """ESS deletes none that nodes were launched from, so that each update would end in an error."""
    assert mocked.cluster(ali(ERDMA)).one("ScalingConfiguration").retain_on_delete


def test_a_group_never_goes_over_from_one_source_to_the_other(mocked, ali):
    """Its last configuration, deleted then, would take it along."""
    for changes in (TCP, ERDMA):
        assert _group(mocked.cluster(ali(changes))).replace_on_changes == ("launchTemplateId",)


# --- the group ---


@BOTH
def test_b9_a_group_may_be_emptied_however_many_nodes_training_needs(mocked, ali, changes):
    """Its least size would hold it against the breaker; `fleet.json` tells agents how many train."""
    group = _group(mocked.cluster(ali({**changes, "nodes.min": 2}))).inputs
    assert (group["minSize"], group["desiredCapacity"], group["maxSize"]) == (0, 2, 4)


@BOTH
def test_b9_a_node_that_shuts_itself_down_is_not_paid_for(mocked, ali, changes):
    """It isn't Running, so that the health check has ESS release it; a group that recycles would keep it, stopped."""
    group = _group(mocked.cluster(ali(changes))).inputs
    assert (group["healthCheckType"], group["scalingPolicy"]) == ("ECS", "release")


def test_a_node_that_hangs_in_its_shutdown_does_not_stay(mocked, ali):
    assert 30 <= _group(mocked.cluster(ali(TCP))).inputs["stopInstanceTimeout"] == fleet.STOP_S <= 240


def test_of_nodes_that_are_alike_the_one_that_leads_goes_last(mocked, ali):
    assert _group(mocked.cluster(ali(TCP))).inputs["removalPolicies"] == [
        "OldestScalingConfiguration",
        "NewestInstance",
    ]


@pytest.mark.parametrize("production", [False, True])
def test_a_group_in_production_is_not_deleted_by_mistake(mocked, ali, production):
    changes = {**TCP, "production": production, "audit.enabled": True, "audit.emails": ["a@example.com"]}
    assert _group(mocked.cluster(ali(changes))).inputs["groupDeletionProtection"] is production


@BOTH
def test_no_node_starts_before_all_that_it_counts_on(mocked, ali, changes):
    records = mocked.cluster(ali(changes))
    needed = {
        records.one("BucketObject", "c1-bundle").urn,
        records.one("BucketObject", "c1-fleet").urn,
        records.one("RolePolicyAttachment", "c1-node").urn,
        *(record.urn for record in records.of("SecurityGroupRule")),
    }
    starts = _group(records) if changes == TCP else records.one("Execution", "c1-nodes-rollout")
    assert needed <= starts.dependencies


def test_the_group_spans_the_plans_vswitches(mocked, ali):
    zones = ["ap-southeast-1a", "ap-southeast-1b"]
    group = _group(mocked.cluster(ali({**TCP, "network.zones": zones}))).inputs
    assert group["vswitchIds"] == ["c1-private-a-id", "c1-private-b-id"]


@pytest.mark.parametrize(
    ("changes", "ignored"),
    [
        ({}, ()),
        ({"scaling": {"schedules": [{"cron": "0 7 * * MON-FRI", "nodes": 2}]}}, ("desiredCapacity",)),
    ],
    ids=["the file", "a schedule"],
)
def test_an_update_does_not_undo_the_size_that_scaling_has_set(mocked, ali, changes, ignored):
    values = ali({**TCP, "network.egress": "nat", **changes})
    assert _group(mocked.cluster(values)).ignore_changes == ignored


def test_alarms_leave_a_group_alone_while_its_last_nodes_boot(mocked, ali):
    """Step rules have no cooldown of their own: each minute of a boot would add nodes again."""
    scaled = {**TCP, "network.egress": "nat", "scaling": {"queue": True, "warmup_seconds": 900}}
    assert _group(mocked.cluster(ali(scaled))).inputs["defaultCooldown"] == 900


# --- how nodes are bought ---


@BOTH
def test_on_demand_says_nothing_of_spot_and_reservations(mocked, ali, changes):
    records = mocked.cluster(ali(changes))
    inputs = _source(records).inputs
    assert inputs["spotStrategy"] == "NoSpot"
    assert not {"spotDuration", "spotPriceLimits", "resourcePoolOptionsStrategy"} & inputs.keys()
    group = _group(records).inputs
    assert group["multiAzPolicy"] == "PRIORITY"
    assert not {name for name in group if name.startswith(("capacityOptions", "spot", "allocation"))}
    assert records.of("CapacityReservation") == []


@pytest.mark.parametrize(("hours", "template", "configuration"), [(None, "1", 1), (0, "0", 0)])
def test_spot_of_one_type_pays_the_price_of_the_hour(mocked, ali, hours, template, configuration):
    """Each source has its own type for the hours in which a node isn't taken back."""
    spot = {"nodes.capacity": "spot", "nodes.spot_hours": hours}
    for changes, wanted in ((TCP, template), (ERDMA, configuration)):
        records = mocked.cluster(ali({**changes, **spot}))
        inputs = _source(records).inputs
        assert (inputs["spotStrategy"], inputs["spotDuration"]) == ("SpotAsPriceGo", wanted)
        assert _group(records).inputs["multiAzPolicy"] == "PRIORITY"


@pytest.mark.parametrize("changes", [{"nodes.capacity": "spot"}, MIXED], ids=["spot", "mixed"])
def test_a_group_asks_for_nothing_that_only_one_that_goes_by_cost_can_have(mocked, ali, changes):
    """The SDK has these four as valid for COST_OPTIMIZED alone, which ESS refreshes none of (`ess.ScalingGroup`)."""
    group = _group(mocked.cluster(ali({**TCP, **changes}))).inputs
    assert (
        not {
            "onDemandBaseCapacity",
            "onDemandPercentageAboveBaseCapacity",
            "spotInstancePools",
            "spotInstanceRemedy",
            "compensateWithOnDemand",
            "capacityOptionsCompensateWithOnDemand",
        }
        & group.keys()
    )


def test_a_group_that_mixes_says_how_much_is_on_demand(mocked, ali):
    """ESS would make all of it on demand that nothing is said of."""
    records = mocked.cluster(ali(MIXED))
    group = _group(records).inputs
    assert group["multiAzPolicy"] == "COMPOSABLE"
    assert group["capacityOptionsOnDemandBaseCapacity"] == 1
    assert group["capacityOptionsOnDemandPercentageAboveBaseCapacity"] == 25
    assert group["allocationStrategy"] == group["spotAllocationStrategy"] == "priority"
    assert _source(records).inputs["spotStrategy"] == "SpotAsPriceGo"


def test_c12_other_types_are_those_that_the_file_names(mocked, ali):
    spot = {"nodes.capacity": "spot", "nodes.spot_strategy": "lowest-price", **OTHERS}
    names = ["ecs.g8i.24xlarge", "ecs.g8i.16xlarge"]
    records = mocked.cluster(ali({**TCP, **spot}))
    group = _group(records).inputs
    assert group["launchTemplateOverrides"] == [{"instanceType": name} for name in names]
    assert group["capacityOptionsOnDemandPercentageAboveBaseCapacity"] == 0
    assert group["spotAllocationStrategy"] == "lowestPrice"
    records = mocked.cluster(ali({**ERDMA, **spot}))
    configuration = records.one("ScalingConfiguration").inputs
    assert configuration["instanceTypes"] == names
    assert "instanceType" not in configuration, "the provider takes one of the two"
    assert "launchTemplateOverrides" not in _group(records).inputs


def test_c3_a_private_pool_that_is_there_is_the_only_one_that_nodes_come_from(mocked, ali):
    records = mocked.cluster(ali({**ERDMA, "nodes.capacity": "reserved", "nodes.reservation": POOL}))
    configuration = records.one("ScalingConfiguration").inputs
    assert configuration["resourcePoolOptionsStrategy"] == "PrivatePoolOnly"
    assert configuration["resourcePoolOptionsPrivatePoolIds"] == [POOL]
    assert records.of("CapacityReservation") == []


def test_c3_a_reservation_that_is_made_fits_the_fleet_and_is_for_nobody_else(mocked, ali):
    reserved = {"nodes.capacity": "reserved", "nodes.reservation": "create"}
    records = mocked.cluster(ali({**ERDMA, **reserved}))
    made = dict(records.one("CapacityReservation").inputs)
    assert made.pop("tags") == {"trainwright:cluster": "c1"}
    assert made == {
        "instanceType": "ecs.g8i.24xlarge",
        "instanceAmount": 4,
        "zoneIds": ["ap-southeast-1a"],
        "platform": "linux",
        "matchCriteria": "Target",
        "endTimeType": "Unlimited",
    }
    assert records.one("ScalingConfiguration").inputs["resourcePoolOptionsPrivatePoolIds"] == ["c1-nodes-id"]


# --- data nodes ---


def test_data_nodes_are_a_group_of_their_own_as_hardened_as_the_others(mocked, ali):
    data = {"data_nodes": {"type": "ecs.i4.8xlarge", "count": 2}}
    records = mocked.cluster(ali({**ERDMA, **data}))
    template = records.one("EcsLaunchTemplate", "c1-data-node")
    assert template.inputs["httpTokens"] == "required"
    assert template.inputs["systemDisk"]["encrypted"] is True
    assert "userData" in template.secrets
    group = records.one("ScalingGroup", "c1-data-nodes").inputs
    assert (group["desiredCapacity"], group["maxSize"]) == (2, 2)
    assert group["launchTemplateId"] == "c1-data-node-id"
    assert records.one("Execution", "c1-data-nodes-refresh")
    assert len(records.of("LifecycleHook")) == 1, "they hold nothing that must be saved first"
