"""The network: private vSwitches, no way in, and out only to the bucket."""

import ipaddress
import json

import pulumi
import pytest

from components import oss
from components.alicloud import network
from components.alicloud.network import endpoint_policy
from components.checks import review
from components.clouds import CLOUDS
from components.egress import endpoints
from components.findings import Invalid
from components.spec import parse
from emulator.provider import schema
from tests.components.alicloud.policies import allows
from tests.components.conftest import ALI_ACCOUNT
from tests.components.test_declared import _typed

BUCKET = "acs:oss:*:*:b"
THREE = {"network.zones": [f"ap-southeast-1{zone}" for zone in "abc"], "nodes.fabric": "tcp"}


@pytest.fixture
def declared(mocked, ali):
    """What the network of a stack registers, and what others get of it."""

    def declare(changes=None, preview=False):
        plan, _ = review("c1", parse(ali(changes or {})))
        made = []

        def program():
            bucket = pulumi.Output.from_input("c1-data")
            made.append(network.declare(plan, bucket, pulumi.ResourceOptions()))

        records = mocked.declare(program, preview=preview)
        return records, made[0]

    return declare


def _rules(records, **wanted):
    """Rules that are so, by their names, without what says nothing about traffic."""
    fixed = {"securityGroupId": "c1-nodes-id", "nicType": "intranet"}
    found = {}
    for record in records.of("SecurityGroupRule"):
        rule = {key: value for key, value in record.inputs.items() if key != "description"}
        assert rule.items() >= fixed.items()
        if rule.items() >= wanted.items():
            found[record.name] = {key: value for key, value in rule.items() if key not in {*fixed, *wanted}}
    return found


EVERYTHING = {"ipProtocol": "all", "portRange": "-1/-1"}


def test_n2_nothing_gives_out_public_addresses(declared):
    records, made = declared(THREE)
    switches = records.of("Switch")
    assert [record.inputs["zoneId"] for record in switches] == THREE["network.zones"]
    assert len(made.vswitch_ids) == 3
    assert not records.of("EipAddress")


def test_n12_nothing_has_ipv6_which_erdma_has_not(declared):
    for egress in ("bucket", "endpoints", "nat"):
        records, _ = declared({"network.egress": egress})
        assert records.one("Network").inputs["enableIpv6"] is False
        ipv6 = {"enableIpv6", "ipv6CidrBlock", "ipv6CidrBlockMask"}
        assert not any(ipv6 & record.inputs.keys() for record in records.of("Switch"))
        assert not any("Ipv6" in record.type for record in records.all)


def test_there_is_no_way_to_the_internet(declared):
    records, made = declared()
    kinds = {record.type.split(":")[-1] for record in records.all}
    assert not kinds & {"NatGateway", "Ipv4Gateway", "EipAddress", "RouteEntry", "SnatEntry"}
    assert made.gateway_ids == []


def test_n6_nodes_take_and_send_everything_among_themselves_by_group(declared):
    """eRDMA goes by its interface's rules; a basic group lets in its own, and the last rule drops what goes out."""
    records, _ = declared()
    both = {**EVERYTHING, "sourceSecurityGroupId": "c1-nodes-id", "policy": "accept", "priority": 1}
    assert _rules(records, **both) == {"c1-from-nodes": {"type": "ingress"}, "c1-to-nodes": {"type": "egress"}}
    group = records.one("SecurityGroup").inputs
    assert group["securityGroupType"] == "normal", "a rule of an advanced group can't name a group"
    assert group["innerAccessPolicy"] == "Accept"


def test_nothing_reaches_nodes_but_nodes(declared):
    for egress in ("bucket", "endpoints", "nat"):
        records, _ = declared({"network.egress": egress})
        assert _rules(records, type="ingress").keys() == {"c1-from-nodes"}


def test_what_no_rule_lets_out_is_dropped_last(declared):
    """A basic security group lets everything out until a rule says otherwise."""
    for egress in ("bucket", "endpoints", "nat"):
        records, _ = declared({"network.egress": egress})
        dropped = _rules(records, type="egress", policy="drop")
        assert dropped == {
            "c1-to-nowhere": {**EVERYTHING, "priority": 100, "cidrIp": "0.0.0.0/0"},
            "c1-to-nowhere-ipv6": {**EVERYTHING, "priority": 100, "ipv6CidrIp": "::/0"},
        }
        assert {rule["priority"] for rule in _rules(records, policy="accept").values()} == {1}, "before what drops"


def _ways(records):
    """Where nodes get to beyond themselves, by protocol and ports."""
    accepted = _rules(records, type="egress", policy="accept", priority=1)
    return {(rule["cidrIp"], rule["ipProtocol"], rule["portRange"]) for rule in accepted.values() if "cidrIp" in rule}


OF_A_NODE = {
    ("100.100.2.136/30", "udp", "53/53"),
    ("100.100.2.136/30", "tcp", "53/53"),
    ("100.100.100.200/32", "tcp", "80/80"),
    ("100.64.0.0/10", "udp", "123/123"),
}
OF_THE_BUCKET = {
    (f"{network}/24", "tcp", "443/443") for network in ("100.118.219.0", "100.99.213.0", "100.99.116.0", "100.99.117.0")
}


def test_beyond_themselves_nodes_reach_only_the_bucket_and_what_each_node_needs(declared):
    records, _ = declared()
    assert _ways(records) == OF_A_NODE | OF_THE_BUCKET


@pytest.mark.parametrize(("egress", "where"), [("endpoints", "100.64.0.0/10"), ("nat", "0.0.0.0/0")])
def test_another_way_out_is_https_and_no_more(declared, egress, where):
    records, _ = declared({"network.egress": egress})
    assert _ways(records) == OF_A_NODE | OF_THE_BUCKET | {(where, "tcp", "443/443")}


@pytest.mark.parametrize("region", sorted(oss.ADDRESSES))
def test_each_region_has_addresses_of_buckets_among_the_clouds_own(region):
    found = [ipaddress.IPv4Network(where) for where in oss.ADDRESSES[region]]
    assert found
    assert all(where.subnet_of(ipaddress.IPv4Network(oss.SERVICE_NETWORK)) for where in found)


def test_no_two_regions_share_addresses():
    every = [ipaddress.IPv4Network(where) for networks in oss.ADDRESSES.values() for where in networks]
    assert not any(a.overlaps(b) for i, a in enumerate(every) for b in every[:i])


def test_b8_the_buckets_endpoint_is_in_every_vswitchs_routes(declared):
    """Else nodes would reach OSS all the same, by the VPC's own routes, and anyone's bucket there."""
    records, _ = declared(THREE)
    endpoint = records.one("GatewayEndpoint").inputs
    assert endpoint["serviceName"] == "com.aliyun.ap-southeast-1.oss"
    assert endpoint["routeTables"] == ["c1-vpc-routes"]
    assert not records.of("RouteTableAttachment"), "all vSwitches are in the VPC's own routes"


@pytest.mark.parametrize(
    ("action", "resource", "allowed"),
    [
        ("oss:GetObject", f"{BUCKET}/bundles/0.tar", True),
        ("oss:PutObject", f"{BUCKET}/runs/r/control/members/i-1/beat", True),
        ("oss:PutObject", f"{BUCKET}-claims/runs/r/control/generations/000001.json", True),
        ("oss:DeleteObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json", True),
        ("oss:ListObjects", BUCKET, True),
        ("oss:PutObject", "acs:oss:*:*:anyones/stolen", False),
        ("oss:PutObject", f"{BUCKET}-of-another/stolen", False),
        ("oss:GetObject", "acs:oss:*:*:anyones/payload", False),
        ("oss:ListObjects", "acs:oss:*:*:anyones", False),
        ("oss:ListObjects", f"{BUCKET}2", False),
        ("oss:ListBuckets", "*", False),
        ("oss:PutBucket", "acs:oss:*:*:new", False),
        ("ots:PutRow", f"{BUCKET}/x", False),
    ],
)
def test_the_endpoint_leads_to_no_bucket_but_the_clusters(action, resource, allowed):
    """Whatever credentials a node comes by, its data can't be carried off to a bucket of someone else's."""
    assert allows(endpoint_policy("b"), action, resource) is allowed


def test_the_endpoint_has_the_policy_of_this_bucket_for_everybody(declared):
    records, _ = declared()
    policy = json.loads(records.one("GatewayEndpoint").inputs["policyDocument"])
    assert policy == endpoint_policy("c1-data")
    assert [statement["Principal"] for statement in policy["Statement"]] == [["*"]]


def test_with_nat_nodes_stay_private_and_each_zone_has_its_own_gateway(declared):
    records, made = declared({**THREE, "network.egress": "nat"})
    tables = {r.inputs["vswitchId"]: r.inputs["routeTableId"] for r in records.of("RouteTableAttachment")}
    routes = {r.inputs["routeTableId"]: r.inputs for r in records.of("RouteEntry")}
    for zone in "abc":
        own = f"c1-nat-{zone}"
        out = routes[tables[f"c1-private-{zone}-id"]]
        assert (out["destinationCidrblock"], out["nexthopType"], out["nexthopId"]) == (
            *("0.0.0.0/0", "NatGateway"),
            f"{own}-id",
        )
        gateway = records.one("NatGateway", own).inputs
        assert (gateway["vswitchId"], gateway["natType"]) == (f"c1-public-{zone}-id", "Enhanced")
        assert records.one("Switch", f"c1-public-{zone}").inputs["zoneId"] == f"ap-southeast-1{zone}"
        bound = records.one("EipAssociation", own).inputs
        assert (bound["allocationId"], bound["instanceId"], bound["instanceType"]) == (f"{own}-id", f"{own}-id", "Nat")
        entry = records.one("SnatEntry", own)
        assert (entry.inputs["sourceVswitchId"], entry.inputs["snatTableId"]) == (
            f"c1-private-{zone}-id",
            f"{own}-table",
        )
        assert records.one("EipAssociation", own).urn in entry.dependencies, "an entry needs its address bound"
        assert "sourceCidr" not in entry.inputs, "the provider refuses both"
    assert len({gateway["vswitchId"] for gateway in (r.inputs for r in records.of("NatGateway"))}) == 3
    assert len(made.gateway_ids) == 3


def test_with_nat_the_bucket_is_still_reached_by_its_endpoint_from_every_zone(declared):
    """By NAT it would cost for each byte, and be any bucket."""
    records, _ = declared({**THREE, "network.egress": "nat"})
    tables = records.one("GatewayEndpoint").inputs["routeTables"]
    assert tables == [f"c1-private-{zone}-id" for zone in "abc"]


def test_nodes_wait_for_their_ways_out(declared):
    for egress in ("bucket", "endpoints", "nat"):
        records, made = declared({"network.egress": egress})
        names = {resource._name for resource in made.ready}
        assert names >= {record.name for record in records.of("SecurityGroupRule")}
        assert "c1-oss" in names
        if egress == "nat":
            kinds = {type(resource).__name__ for resource in made.ready}
            assert kinds >= {"SnatEntry", "RouteEntry", "RouteTableAttachment"}


BROUGHT = {
    "network.cidr": None,
    "network.vpc": "vpc-bp1opxu1zkhn00g5lr2ts",
    "network.subnets": ["vsw-bp1s5fnvk4gn2tws0362a"],
    "network.route_tables": ["vtb-bp145q7glnuzdvzu2pgsy"],
}


@pytest.mark.parametrize("egress", ["bucket", "endpoints", "nat"])
def test_a_vpc_that_is_brought_is_used_and_nothing_of_it_is_declared(declared, egress):
    records, made = declared({**BROUGHT, "network.egress": egress})
    kinds = {record.type.split(":")[-1] for record in records.all}
    assert kinds == {"GatewayEndpoint", "SecurityGroup", "SecurityGroupRule"}
    assert records.one("SecurityGroup").inputs["vpcId"] == "vpc-bp1opxu1zkhn00g5lr2ts"
    assert records.one("GatewayEndpoint").inputs["routeTables"] == ["vtb-bp145q7glnuzdvzu2pgsy"]
    assert made.vswitch_ids == ["vsw-bp1s5fnvk4gn2tws0362a"]


PROTOCOLS = {"tcp", "udp", "icmp", "icmpv6", "gre", "all"}


@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
@pytest.mark.parametrize("changes", [{}, BROUGHT, {**THREE, "network.egress": "nat"}], ids=["bucket", "brought", "nat"])
def test_every_argument_is_one_that_the_provider_documents(declared, changes, preview):
    """Names and types by the SDK's signatures; values and conflicts by its words on `ecs.SecurityGroupRule`."""
    records, _ = declared(changes, preview)
    for record in records.all:
        kind = schema.resource_type(record.type)
        assert schema.check(kind, _typed(record.inputs)) == [], record.key
        if "tags" in kind.inputs:
            assert record.inputs["tags"]["trainwright:cluster"] == "c1", record.key
    for record in records.of("SecurityGroupRule"):
        rule = record.inputs
        assert rule["ipProtocol"] in PROTOCOLS
        assert 1 <= rule["priority"] <= 100
        where = {"cidrIp", "ipv6CidrIp", "sourceSecurityGroupId", "prefixListId"} & rule.keys()
        assert preview or len(where) == 1, record.name
        assert (rule["portRange"] == "-1/-1") == (rule["ipProtocol"] not in {"tcp", "udp"}), record.name


def _warnings(values):
    return [str(finding) for finding in review("c1", parse(values))[1]]


def _refused(values):
    with pytest.raises(Invalid) as raised:
        review("c1", parse(values))
    return str(raised.value)


def test_a_region_where_the_bucket_has_no_endpoint_is_refused(ali):
    """There, every node would reach every bucket by the VPC's own routes."""
    changes = {"region": "ap-southeast-7", "network.zones": ["ap-southeast-7a"]}
    assert "region: OSS has no gateway endpoint in ap-southeast-7" in _refused(ali(changes))
    assert set(oss.ADDRESSES) <= CLOUDS["alicloud"].regions


def test_a_network_that_hides_the_clouds_services_is_refused(ali):
    text = _refused(ali({"network.cidr": "100.100.0.0/16"}))
    assert "network.cidr: 100.100.0.0/16 lies where Alibaba Cloud's services are, in 100.64.0.0/10. Use" in text


@pytest.mark.parametrize(
    ("egress", "said"),
    [("endpoints", "services take requests of any account"), ("nat", "nodes reach the public addresses of OSS too")],
)
def test_what_a_way_out_lets_out_more_than_on_aws_is_said(ali, stack, egress, said):
    lines = [line for line in _warnings(ali({"network.egress": egress})) if line.startswith("network.egress")]
    assert len([line for line in lines if f"on Alibaba Cloud {said}" in line]) == 1
    assert not [line for line in _warnings(ali({"nodes.fabric": "tcp"})) if said in line]
    assert _warnings(stack({"network.egress": egress})) == []


def test_b8_what_asks_for_a_service_needs_a_way_out_named_as_the_cloud_names_it(ali):
    changes = {"nodes.fabric": "tcp", "security.operators": [f"acs:ram::{ALI_ACCOUNT}:role/ops"]}
    asked = _refused(ali(changes))
    assert "security.operators needs Session Manager (Cloud Assistant). Set it to endpoints or nat" in asked
    text = _refused(ali({"nodes.fabric": "tcp", "scaling": {"queue": True}}))
    assert "scaling needs a way for nodes' metrics to CloudMonitor (CloudMonitor)" in text
    assert "scaling.queue needs a way for the count of what waits (SMQ)" in text


def test_no_address_is_set_aside_for_endpoints_that_are_not_there(ali):
    assert endpoints(parse(ali({"network.egress": "endpoints", "scaling": {"queue": True}}))) == ()


@pytest.mark.parametrize("egress", ["bucket", "endpoints", "nat"])
def test_what_to_see_to_in_a_vpc_that_is_brought_is_said_in_the_clouds_own_terms(ali, egress):
    lines = _warnings(ali({**BROUGHT, "nodes.fabric": "tcp", "network.egress": egress}))
    (line,) = [line for line in lines if line.startswith("network.vpc")]
    assert "no gateway endpoint of OSS is in it, and that no route of yours leads into 100.64.0.0/10" in line
    assert ("NAT gateway" in line) == (egress == "nat")
    assert "S3" not in line
    assert "DNS" not in line
