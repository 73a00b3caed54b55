"""Ways out: public subnets beside nodes' own, and what needs one."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.checks import review
from components.egress import endpoints, needs, public_subnets
from components.findings import Finding, Invalid
from components.plan import decide
from components.spec import parse

OPERATOR = "arn:aws:iam::123456789012:role/ops"


@given(st.integers(16, 27), st.integers(1, 3))
def test_public_subnets_lie_beside_nodes_own_or_are_refused(prefix, count):
    zones = [f"us-west-2{letter}" for letter in "abc"[:count]]
    values = {
        "region": "us-west-2",
        "network": {"cidr": f"10.0.0.0/{prefix}", "zones": zones},
        "nodes": {"type": "m6a.large", "image": "ami-0123456789abcdef0"},
        "job": {"name": "gpt", "dataset": "text"},
    }
    try:
        plan = decide("c1", parse(values))
    except Invalid:
        return
    public = public_subnets(plan)
    if isinstance(public, Finding):
        assert count == 3, "one or two gateways always fit"
        assert prefix in {25, 26}, "three fit into the fourth block of a /24, a /26"
        return
    network = ipaddress.IPv4Network(plan.spec.network.cidr)
    blocks = [ipaddress.IPv4Network(subnet.cidr) for subnet in (*public, *plan.subnets)]
    assert [subnet.zone for subnet in public] == zones
    assert all(block.subnet_of(network) for block in blocks)
    assert not any(a.overlaps(b) for a in blocks for b in blocks if a is not b)


def _refused(stack, changes):
    with pytest.raises(Invalid) as raised:
        review("c1", parse(stack(changes)))
    return str(raised.value)


def test_b8_sessions_without_a_way_to_session_manager_are_refused_with_what_to_set(stack):
    """Else nodes wait, for ever, for an answer that can't come (parallelcluster-node#702)."""
    assert _refused(stack, {"security.operators": [OPERATOR]}) == (
        "network.egress: nodes reach the bucket alone, but security.operators needs Session Manager "
        "(ssm, ssmmessages, ec2messages). Set it to endpoints or nat"
    )


def test_b8_the_record_of_sessions_needs_its_way_too(stack):
    changes = {"security.operators": [OPERATOR], "audit.enabled": True, "audit.emails": ["a@example.com"]}
    assert "audit.enabled needs the record of operators' sessions (logs)" in _refused(stack, changes)


@pytest.mark.parametrize("egress", ["endpoints", "nat"])
def test_b8_with_a_way_out_both_pass(stack, egress):
    changes = {"security.operators": [OPERATOR], "audit.enabled": True, "audit.emails": ["a@example.com"]}
    assert review("c1", parse(stack({**changes, "network.egress": egress})))[1] == []


def test_b8_every_service_that_is_asked_for_has_an_endpoint(stack):
    changes = {"security.operators": [OPERATOR], "audit.enabled": True}
    for scaling in ({}, {"queue": True}):
        spec = parse(stack({**changes, "scaling": scaling}))
        asked = {service for need in needs(spec) for service in need.services}
        assert asked
        assert asked <= set(endpoints(spec))


def test_only_a_cluster_with_a_queue_pays_for_a_way_to_it(stack):
    assert "sqs" not in endpoints(parse(stack({"scaling": {}})))
    assert endpoints(parse(stack({"scaling": {"queue": True}})))[-1] == "sqs"


def test_the_addresses_of_endpoints_are_counted_beside_nodes(stack):
    changes = {"network.cidr": "10.0.0.0/27", "nodes.max": 4}
    review("c1", parse(stack(changes)))
    assert _refused(stack, {**changes, "network.egress": "endpoints"}) == (
        "network.cidr: 10.0.0.0/27 leaves 11 addresses in us-west-2a, too few for 4 nodes and 9 endpoints. "
        "Take a larger network, such as 10.0.0.0/16, or lower nodes.max"
    )


def test_a_network_without_room_for_gateways_is_refused(stack):
    zones = ["us-west-2a", "us-west-2b", "us-west-2c"]
    text = _refused(stack, {"network.cidr": "10.0.0.0/26", "network.zones": zones, "network.egress": "nat"})
    assert text.startswith("network.cidr: 10.0.0.0/26 leaves no room beside nodes' subnets for those of 3 NAT gateways")


BROUGHT = {
    "network.cidr": None,
    "network.vpc": "vpc-0123456789abcdef0",
    "network.subnets": ["subnet-0123456789abcdef0"],
    "network.route_tables": ["rtb-0123456789abcdef0"],
}


def test_a_vpc_that_is_brought_is_taken_with_a_word_on_what_could_not_be_checked(stack):
    _, (warning,) = review("c1", parse(stack(BROUGHT)))
    assert str(warning).startswith("network.vpc: what vpc-0123456789abcdef0 is like can't be seen from here. Make sure")
    for said in ("no public addresses", "room for nodes.max nodes", "network.zones", "DNS support"):
        assert said in str(warning)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"network.cidr": "10.0.0.0/16"}, "network.cidr: vpc-0123456789abcdef0 has its own network already"),
        ({"network.subnets": None}, "network.subnets: 0 subnets don't go with 1 zones"),
        ({"network.subnets": ["subnet-01234567", "subnet-89abcdef"]}, "network.subnets: 2 subnets don't go with 1"),
        ({"network.route_tables": None}, "network.route_tables: without them nodes don't reach the bucket"),
        ({"network.route_tables": ["rtb-01234567"] * 2}, "network.route_tables: lists one twice"),
        ({"network.vpc": None}, "network.subnets: says nothing without network.vpc"),
        ({"network.vpc": "vpc-x"}, "network.vpc: 'vpc-x' is not of the right form"),
        ({"network.subnets": ["sub"]}, "network.subnets.0: 'sub' is not of the right form"),
    ],
    ids=str,
)
def test_half_of_a_vpc_is_refused(stack, changes, line):
    assert _refused(stack, {**BROUGHT, **changes}).startswith(line)
