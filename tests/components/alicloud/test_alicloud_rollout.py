"""What nodes boot with reaches its group whole, and then its nodes."""

import json

import pulumi
import pytest

from components.alicloud import rollout
from components.plan import decide
from components.spec import parse

TCP = {"nodes.fabric": "tcp"}
ERDMA = {"network.egress": "endpoints"}
TWO = {**ERDMA, "nodes.type": "ecs.ebmgn8v.48xlarge", "job.batch": 64}
TDX = {**ERDMA, "nodes.confidential": "tdx"}
MIXED = {"nodes.capacity": "mixed", "nodes.on_demand_base": 1}
POOL = {**TCP, "network.egress": "nat", "nodes.capacity": "reserved", "nodes.reservation": "crp-bp1aaaaaaaaaaaaaaaaa"}
BOTH = pytest.mark.parametrize("changes", [TCP, ERDMA], ids=["template", "configuration"])
SECURITY_GROUP = "{{ securityGroup }}"


def _pool(ali, changes):
    return decide("c1", parse(ali(changes))).pool


def _tasks(content):
    return {task["Name"]: task for task in content["Tasks"]}


def _completion(ali, changes):
    """What the call to ESS gives the configuration."""
    given = dict(_tasks(rollout.completing(_pool(ali, changes)))["complete"]["Properties"]["Parameters"])
    assert given.pop("ScalingConfigurationId") == "{{ configuration }}"
    return given


def _execution(mocked, values, what):
    records = mocked.cluster(values)
    execution, template = (records.one(kind, f"c1-nodes-{what}") for kind in ("Execution", "Template"))
    return records, execution, json.loads(template.inputs["content"])


# --- what a configuration lacks ---


@pytest.mark.parametrize("changes", [ERDMA, TWO, TDX, POOL], ids=["eRDMA", "two ERIs", "TDX", "a private pool"])
def test_k3_metadata_needs_a_token_before_any_node_is_there(ali, changes):
    assert _completion(ali, changes)["HttpTokens"] == "required"


@pytest.mark.parametrize(("changes", "count"), [(ERDMA, 1), (TWO, 2)], ids=["one ERI", "two"])
def test_n13_exactly_one_interface_is_primary(ali, changes, count):
    interfaces = _completion(ali, changes)["NetworkInterfaces"]
    assert [nic["InstanceType"] for nic in interfaces] == ["Primary", *["Secondary"] * (count - 1)]
    assert all(nic["NetworkInterfaceTrafficMode"] == "HighPerformance" for nic in interfaces)


def test_n13_security_groups_are_on_the_interfaces_and_nowhere_else(ali):
    """ESS refuses a call with both, and clears the one by the other (ESS API, ModifyScalingConfiguration)."""
    given = _completion(ali, TWO)
    assert not {"SecurityGroupId", "SecurityGroupIds"} & given.keys()
    assert all(nic["SecurityGroupIds"] == [SECURITY_GROUP] for nic in given["NetworkInterfaces"])


def test_n12_no_eri_has_an_ipv6_address(ali):
    given = _completion(ali, TWO)
    assert "Ipv6AddressCount" not in given
    for nic in given["NetworkInterfaces"]:
        assert nic.keys() == {"InstanceType", "NetworkInterfaceTrafficMode", "SecurityGroupIds"}


def test_nodes_without_erdma_keep_the_security_group_that_they_were_declared_with(ali):
    assert _completion(ali, POOL) == {"HttpTokens": "required"}


def test_tdx_is_asked_for_where_the_file_does_and_nowhere_else(ali):
    name = "SecurityOptionsConfidentialComputingMode"
    assert _completion(ali, TDX)[name] == "TDX"
    assert name not in _completion(ali, ERDMA)


def test_no_name_of_a_parameter_has_a_dot(ali):
    """OOS leaves the dots of an API's names out (OOS user guide, "Tasks")."""
    for changes in (TWO, TDX):
        for content in (rollout.completing(_pool(ali, changes)), rollout.renewing(_pool(ali, changes))):
            for task in content["Tasks"]:
                assert not [name for name in task["Properties"]["Parameters"] if "." in name]


def test_a_configuration_is_replaced_when_only_its_completion_changes(mocked, ali):
    """Interfaces and security group are no changes that Pulumi sees: nodes would stay as they are."""
    said = {
        mocked.cluster(ali(changes)).one("ScalingConfiguration").inputs["instanceDescription"]
        for changes in (ERDMA, TDX, TWO)
    }
    assert len(said) == 3
    assert all(text.endswith(" in c1-nodes-id") and 2 <= len(text) <= 256 for text in said)


# --- the execution that completes it ---


def test_no_node_starts_before_its_configuration_is_whole(ali):
    """The group is enabled last, and what fails ends all: `OnError` is nowhere said."""
    tasks = rollout.completing(_pool(ali, TWO))["Tasks"]
    assert [task["Properties"]["API"] for task in tasks] == [
        "ModifyScalingConfiguration",
        "ModifyScalingGroup",
        "DescribeScalingGroups",
        "EnableScalingGroup",
    ]
    assert not [task for task in tasks if "OnError" in task]
    for task in (tasks[1], tasks[3]):
        assert task["Properties"]["Parameters"]["ActiveScalingConfigurationId"] == "{{ configuration }}"


def test_a_group_that_is_enabled_already_is_not_enabled_again(ali):
    """ESS refuses that, and the execution of each update but the first would fail."""
    tasks = _tasks(rollout.completing(_pool(ali, ERDMA)))
    assert tasks["enable"]["When"] == {"Fn::Equals": ["{{ look.state }}", "Inactive"]}
    selector = tasks["look"]["Outputs"]["state"]["ValueSelector"]
    assert selector == "ScalingGroups.ScalingGroup[].LifecycleState"
    assert not [name for name in tasks if name != "enable" and "When" in tasks[name]]


def test_each_configuration_is_completed_by_an_execution_of_its_own(mocked, ali):
    """An execution is never updated: another configuration starts another."""
    records, execution, content = _execution(mocked, ali(TWO), "rollout")
    given = json.loads(execution.inputs["parameters"])
    assert given == {"group": "c1-nodes-id", "configuration": "c1-node-id", "securityGroup": "c1-nodes-id"}
    assert given.keys() == content["Parameters"].keys()
    wanted = {records.one(kind, name).urn for kind, name in (("ScalingConfiguration", None), ("ScalingGroup", None))}
    assert wanted <= execution.dependencies
    assert execution.inputs["safetyCheck"] == "Skip", "nobody is there to confirm it"


@BOTH
def test_oos_has_no_permissions_but_those_of_whoever_updates(mocked, ali, changes):
    """Templates with a role name it; those of old had OOSServiceRole as their default."""
    templates = mocked.cluster(ali(changes)).of("Template")
    assert len(templates) == (1 if changes == TCP else 2)
    assert all(json.loads(template.inputs["content"])["RamRole"] == "" for template in templates)


def test_a_template_is_declared_whole(mocked, ali):
    assert [r.name for r in mocked.cluster(ali(TCP)).of("Execution")] == ["c1-nodes-refresh"]


@pytest.mark.parametrize("status", ["Failed", "Cancelled"])
def test_an_update_whose_configuration_is_not_whole_fails(status):
    """The provider takes such an execution for done, and there would be no nodes and no word of it."""
    with pytest.raises(rollout.Incomplete) as raised:
        rollout.whole("asc-1", "urn:x", status, "Forbidden.RAM")
    assert "asc-1 isn't whole" in str(raised.value)
    assert f"{status}: Forbidden.RAM" in str(raised.value)
    assert "pulumi up --replace 'urn:x'" in str(raised.value)


def test_a_configuration_that_is_whole_is_what_nodes_boot_with():
    assert rollout.whole("asc-1", "urn:x", "Success", None) == "asc-1"


def test_the_execution_of_a_cluster_is_judged_and_what_follows_hangs_on_it(mocked, ali, monkeypatch):
    """No node is replaced, and no configuration taken away, where the new one isn't launched."""
    values = ali(ERDMA)
    monkeypatch.setattr(rollout, "ENDED_BADLY", frozenset({None}))  # what mocks answer
    with pytest.raises(rollout.Incomplete, match="c1-node-id isn't whole"):
        mocked.declare(lambda: _cluster(values))
    assert [r.name for r in mocked.records.of("Execution")] == ["c1-nodes-rollout"]


def _cluster(values):
    from components.cluster import TrainingCluster

    return TrainingCluster("c1", values, pulumi.ResourceOptions())


# --- the execution that renews nodes ---


@BOTH
def test_a_refresh_replaces_all_nodes_at_once_and_those_that_boot_so_already_stay(ali, changes):
    """Never more than desired run, for which a reservation has no room."""
    tasks = rollout.renewing(_pool(ali, changes))["Tasks"]
    assert tasks[-1]["Properties"] == {
        "Service": "ESS",
        "API": "StartInstanceRefresh",
        "Parameters": {
            "RegionId": "{{ ACS::RegionId }}",
            "ScalingGroupId": "{{ group }}",
            "MinHealthyPercentage": 0,
            "MaxHealthyPercentage": 100,
            "SkipMatching": True,
        },
    }


@pytest.mark.parametrize(
    ("changes", "booted"), [(TCP, "c1-node-id:7"), (ERDMA, "c1-node-id")], ids=["template", "configuration"]
)
def test_a_refresh_starts_once_the_group_has_what_nodes_are_to_boot_with(mocked, ali, changes, booted):
    """An execution is never updated: another version, or another configuration, starts another."""
    records, execution, content = _execution(mocked, ali(changes), "refresh")
    assert json.loads(execution.inputs["parameters"]) == {"group": "c1-nodes-id", "booted": booted}
    assert content["Parameters"].keys() == {"group", "booted"}
    before = [records.one("ScalingGroup")]
    before += [records.one("Execution", "c1-nodes-rollout")] if changes == ERDMA else [records.one("EcsLaunchTemplate")]
    assert {record.urn for record in before} <= execution.dependencies
    assert execution.inputs["safetyCheck"] == "Skip", "nobody is there to confirm it"


def test_configurations_of_before_go_once_they_are_unused_before_there_are_ten(ali):
    """ESS keeps those in use, which keeps nothing else from going on."""
    tasks = _tasks(rollout.renewing(_pool(ali, ERDMA)))
    assert list(tasks) == ["list", "tidy", "refresh"]
    assert tasks["tidy"]["Properties"]["Parameters"] == {"ScalingConfigurationId": "{{ ACS::TaskLoopItem }}"}
    assert tasks["tidy"]["Loop"]["Items"] == "{{ list.ids }}"
    assert tasks["tidy"]["Loop"]["RateControl"]["MaxErrors"] == "100%"
    assert tasks["tidy"]["OnError"] == "ACS::NEXT"
    assert tasks["list"]["Properties"]["Parameters"]["ScalingGroupId"] == "{{ group }}"


@pytest.mark.parametrize("changes", [{"nodes.refresh": False}, MIXED], ids=["unwanted", "mixed"])
def test_no_node_is_replaced_where_that_is_unwanted_or_impossible(mocked, ali, changes):
    """ESS refreshes groups of the priority policy alone."""
    assert mocked.cluster(ali({**TCP, **changes})).of("Execution") == []
    assert list(_tasks(rollout.renewing(_pool(ali, {**ERDMA, **changes})))) == ["list", "tidy"]


def test_a_first_update_never_waits_for_a_refresh_that_has_nothing_to_do(mocked, ali):
    """`ess.InstanceRefresh` fails then, after five minutes, and again at each update with a fleet at zero."""
    assert mocked.cluster(ali(TCP)).of("InstanceRefresh") == []
