"""The warm tier on Alibaba Cloud: an Extreme NAS in the nodes' zone, encrypted, and open to them alone."""

import pulumi
import pytest

from components import nas
from components.alicloud import warm
from components.alicloud.network import Network
from components.checks import review
from components.spec import parse
from emulator.provider import schema
from tests.components.test_declared import _typed

WARM = {"nodes.fabric": "tcp", "storage.warm": {"size_gib": 4800, "throughput": 250}}
VSWITCH = "vsw-bp1s5fnvk4gn2tws0362a"
BROUGHT = {
    **WARM,
    "network": {
        "vpc": "vpc-bp1opxu1zkhn00g5lr2ts",
        "zones": ["ap-southeast-1a"],
        "subnets": [VSWITCH],
        "route_tables": ["vtb-bp145q7glnuzdvzu2pgsy"],
    },
}
KEY = "key-1"


@pytest.fixture
def declared(mocked, ali):
    """What the warm tier of a stack registers, and what others get of it."""

    def declare(changes=None, preview=False):
        plan, _ = review("c1", parse(ali({**WARM, **(changes or {})})))
        network = Network("vpc-1", [VSWITCH], pulumi.Output.from_input("sg-1"), [], [])
        made = []

        def program():
            key_id = pulumi.Output.from_input(KEY)
            made.append(warm.declare(plan, plan.spec.storage.warm, network, key_id, pulumi.ResourceOptions()))
            made[0].source.apply(sources.append)

        sources.clear()
        return mocked.declare(program, preview=preview), made[0]

    sources: list[str] = []
    declare.sources = sources
    return declare


def test_it_is_of_the_size_asked_in_the_nodes_zone_and_encrypted_with_the_data_key(declared):
    records, _ = declared()
    system = records.one("FileSystem", "c1-warm").inputs
    assert {name: value for name, value in system.items() if name not in {"tags", "description"}} == {
        "fileSystemType": "extreme",
        "protocolType": "NFS",
        "storageType": "advance",
        "capacity": 4800,
        "zoneId": "ap-southeast-1a",
        "encryptType": 2,
        "kmsKeyId": KEY,
    }
    assert system["tags"]["trainwright:cluster"] == "c1"


def test_no_vswitch_is_said_of_the_file_system_itself(declared):
    """Of Extreme NAS it is never read back: each `up` would destroy and make it anew (provider's `nas.FileSystem`)."""
    records, _ = declared()
    assert not {"vpcId", "vswitchId"} & records.one("FileSystem").inputs.keys()
    target = records.one("MountTarget").inputs
    assert (target["vpcId"], target["vswitchId"], target["networkType"]) == ("vpc-1", VSWITCH, "Vpc")
    assert target["fileSystemId"] == "c1-warm-id"


def test_nodes_are_told_what_to_mount(declared):
    declared()
    assert declared.sources == ["nfs:0a1b.ap-southeast-1.extreme.nas.aliyuncs.com:/share"]


def test_addresses_of_the_nodes_reach_it_and_no_other_does(declared):
    """The group that every account has lets in the whole VPC."""
    records, _ = declared()
    rule = records.one("AccessRule").inputs
    assert rule["sourceCidrIp"] == "10.0.0.0/17"
    assert (rule["rwAccessType"], rule["fileSystemType"]) == ("RDWR", "extreme")
    group = records.one("AccessGroup").inputs
    assert rule["accessGroupName"] == group["accessGroupName"] == records.one("MountTarget").inputs["accessGroupName"]
    assert group["accessGroupName"].startswith("c1-warm-")
    assert records.one("AccessRule").urn in records.one("MountTarget").dependencies


def test_in_a_network_that_was_there_it_is_the_vswitchs_own_addresses(declared):
    records, _ = declared(BROUGHT)
    assert records.one("AccessRule").inputs["sourceCidrIp"] == "10.9.0.0/24"
    assert records.one("SecurityGroupRule").inputs["cidrIp"] == "10.9.0.0/24"


def test_nodes_may_talk_to_it_and_it_begins_nothing(declared):
    """Without a rule nodes reach nothing but the bucket; replies pass by themselves."""
    records, _ = declared()
    rule = records.one("SecurityGroupRule").inputs
    assert (rule["type"], rule["policy"], rule["ipProtocol"]) == ("egress", "accept", "tcp")
    assert (rule["securityGroupId"], rule["cidrIp"]) == ("sg-1", "10.0.0.0/17")
    assert rule["priority"] == 1, "before the one that drops the rest"


def test_a_node_that_boots_finds_it_whole(declared):
    _, made = declared()
    assert {type(one).__name__ for one in made.ready} == {"MountTarget", "SecurityGroupRule"}


@pytest.mark.parametrize("production", [False, True])
def test_production_protects_it_and_lets_it_go_with_the_stack(declared, production):
    """Left in the account, it would be billed, and the vSwitch that it is in couldn't be deleted."""
    audit = {"production": production, "audit.enabled": production, "audit.emails": ["a@example.com"]}
    records, _ = declared(audit if production else {})
    for kind in ("FileSystem", "MountTarget"):
        assert (bool(records.one(kind).protect), bool(records.one(kind).retain_on_delete)) == (production, False)


ALLOWED = {
    "FileSystem": {
        "fileSystemType": {"standard", "extreme", "cpfs", "cpfsse"},
        "protocolType": {"NFS", "SMB", "cpfs"},
        "storageType": {"standard", "advance"},
        "encryptType": {0, 1, 2},
    },
    "AccessRule": {
        "rwAccessType": {"RDWR", "RDONLY"},
        "userAccessType": {"no_squash", "root_squash", "all_squash"},
        "fileSystemType": {"standard", "extreme"},
        "priority": set(range(101)),
    },
    "AccessGroup": {"fileSystemType": {"standard", "extreme"}, "accessGroupType": {"Vpc"}},
    "SecurityGroupRule": {"type": {"ingress", "egress"}, "policy": {"accept", "drop"}, "nicType": {"intranet"}},
}
"""What the provider's documents of these resources allow, of an extreme file system."""


@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
@pytest.mark.parametrize("changes", [{}, BROUGHT], ids=["plain", "brought"])
def test_every_argument_is_one_that_the_provider_takes(declared, changes, preview):
    records, _ = declared(changes, preview)
    for record in records.all:
        kind = record.type.split(":")[-1]
        assert schema.check(schema.resource_type(record.type), _typed(record.inputs)) == [], record.key
        for name, values in ALLOWED.get(kind, {}).items():
            assert record.inputs[name] in values, record.key
        assert not {"name", "type"} & record.inputs.keys() or kind == "SecurityGroupRule", "deprecated"
    assert nas.SMALLEST_GIB <= records.one("FileSystem").inputs["capacity"] <= nas.LARGEST_GIB


def test_a_preview_declares_the_same(declared):
    for changes in ({}, BROUGHT):
        known = {record.key for record in declared(changes)[0].all}
        assert {record.key for record in declared(changes, True)[0].all} == known
