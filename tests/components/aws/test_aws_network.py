"""The network: private subnets, no way in, and out only to the bucket."""

import json

import pytest

from components.aws.network import endpoint_policy
from tests.components.aws.policies import allows

BUCKET = "arn:aws:s3:::b"


def _rule(records, name):
    """A rule without what says nothing about traffic."""
    kind = "SecurityGroupIngressRule" if "from" in name else "SecurityGroupEgressRule"
    inputs = records.one(kind, name).inputs
    return {key: value for key, value in inputs.items() if key not in {"description", "tags"}}


def test_n2_subnets_give_out_no_public_addresses(mocked, stack):
    records = mocked.cluster(stack({"network.zones": ["us-west-2a", "us-west-2b"]}))
    assert [record.inputs["mapPublicIpOnLaunch"] for record in records.of("Subnet")] == [False, False]


def test_there_is_no_way_to_the_internet(mocked, stack):
    kinds = {record.type.split(":")[-1] for record in mocked.cluster(stack()).all}
    assert not kinds & {"InternetGateway", "NatGateway", "EgressOnlyInternetGateway", "Route", "Eip"}


def test_n6_nodes_take_and_send_everything_among_themselves_by_group(mocked, stack):
    """EFA traffic is covered by self-references alone, in both directions (aws-ofi-nccl#663)."""
    records = mocked.cluster(stack())
    both = {"securityGroupId": "c1-nodes-id", "referencedSecurityGroupId": "c1-nodes-id", "ipProtocol": "-1"}
    assert _rule(records, "c1-from-nodes") == both
    assert _rule(records, "c1-to-nodes") == both


def test_beyond_themselves_nodes_reach_only_the_bucket_and_nothing_reaches_them(mocked, stack):
    records = mocked.cluster(stack())
    assert [record.name for record in records.of("SecurityGroupIngressRule")] == ["c1-from-nodes"]
    assert {record.name for record in records.of("SecurityGroupEgressRule")} == {"c1-to-nodes", "c1-to-bucket"}
    assert _rule(records, "c1-to-bucket") == {
        "securityGroupId": "c1-nodes-id",
        "prefixListId": "pl-s3",
        "ipProtocol": "tcp",
        "fromPort": 443,
        "toPort": 443,
    }
    group = records.one("SecurityGroup").inputs
    assert not {"ingress", "egress"} & group.keys(), "rules inline and rules apart undo each other"


def test_the_vpcs_default_group_is_emptied(mocked, stack):
    default = mocked.cluster(stack()).one("DefaultSecurityGroup").inputs
    assert default["vpcId"] == "c1-vpc-id"
    assert not {"ingress", "egress"} & default.keys()


def test_b8_the_buckets_endpoint_is_in_every_subnets_routes(mocked, stack):
    """Without it a node of a private subnet hangs in its boot (parallelcluster-node#702)."""
    records = mocked.cluster(stack({"network.zones": ["us-west-2a", "us-west-2b"]}))
    endpoint = records.one("VpcEndpoint").inputs
    assert endpoint["serviceName"] == "com.amazonaws.us-west-2.s3"
    assert endpoint["routeTableIds"] == ["c1-private-id"]
    routed = {
        r.inputs["subnetId"] for r in records.of("RouteTableAssociation") if r.inputs["routeTableId"] == "c1-private-id"
    }
    assert routed == {"c1-private-a-id", "c1-private-b-id"}


@pytest.mark.parametrize(
    ("action", "resource", "allowed"),
    [
        ("s3:GetObject", f"{BUCKET}/bundles/0.tar", True),
        ("s3:PutObject", f"{BUCKET}/runs/r/control/members/i-1/beat", True),
        ("s3:DeleteObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json", True),
        ("s3:AbortMultipartUpload", f"{BUCKET}/runs/r/checkpoints/step-000000050/rank0", True),
        ("s3:ListBucket", BUCKET, True),
        ("s3:PutObject", "arn:aws:s3:::anyones/stolen", False),
        ("s3:PutObject", f"{BUCKET}-of-another/stolen", False),
        ("s3:GetObject", "arn:aws:s3:::anyones/payload", False),
        ("s3:ListBucket", "arn:aws:s3:::anyones", False),
        ("s3:ListBucket", f"{BUCKET}2", False),
        ("s3:ListAllMyBuckets", "*", False),
        ("s3:CreateBucket", "arn:aws:s3:::new", False),
        ("dynamodb:PutItem", f"{BUCKET}/x", False),
    ],
)
def test_the_endpoint_leads_to_no_bucket_but_the_clusters(action, resource, allowed):
    """Whatever credentials a node comes by, its data can't be carried off to a bucket of someone else's."""
    assert allows(endpoint_policy(BUCKET), action, resource) is allowed


def test_the_endpoint_has_the_policy_of_this_bucket(mocked, stack):
    policy = json.loads(mocked.cluster(stack()).one("VpcEndpoint").inputs["policy"])
    assert policy == endpoint_policy("arn:aws:s3:::c1-data-1a2b3c4")


THREE = {"network.zones": ["us-west-2a", "us-west-2b", "us-west-2c"]}


def _endpoints(records):
    return [record for record in records.of("VpcEndpoint") if record.inputs["vpcEndpointType"] == "Interface"]


def test_b8_each_service_has_its_endpoint_in_every_subnet_under_its_own_name(mocked, stack):
    records = mocked.cluster(stack({**THREE, "network.egress": "endpoints"}))
    made = _endpoints(records)
    assert {record.inputs["serviceName"] for record in made} == {
        f"com.amazonaws.us-west-2.{service}"
        for service in (
            *("ec2", "autoscaling", "kms", "sts", "ssm", "ssmmessages", "ec2messages", "logs", "monitoring"),
        )
    }
    for record in made:
        assert record.inputs["privateDnsEnabled"] is True
        assert record.inputs["subnetIds"] == [f"c1-private-{zone}-id" for zone in "abc"]
        assert record.inputs["securityGroupIds"] == ["c1-endpoints-id"]
    vpc = records.one("Vpc").inputs
    assert vpc["enableDnsHostnames"] is vpc["enableDnsSupport"] is True, "private names need both"


def test_endpoints_take_https_from_nodes_alone(mocked, stack):
    records = mocked.cluster(stack({"network.egress": "endpoints"}))
    https = {"ipProtocol": "tcp", "fromPort": 443, "toPort": 443}
    own, nodes = "c1-endpoints-id", "c1-nodes-id"
    assert _rule(records, "c1-endpoints-from-nodes") == {
        "securityGroupId": own,
        "referencedSecurityGroupId": nodes,
        **https,
    }
    assert _rule(records, "c1-to-endpoints") == {"securityGroupId": nodes, "referencedSecurityGroupId": own, **https}
    about_endpoints = [r.name for r in records.all if r.inputs.get("securityGroupId") == own]
    assert about_endpoints == ["c1-endpoints-from-nodes"]


def test_what_takes_whatever_is_written_takes_it_from_the_account_alone(mocked, stack):
    """With credentials of another account, a node's data could leave as its logs or metrics."""
    guarded = {}
    for record in _endpoints(mocked.cluster(stack({"network.egress": "endpoints"}))):
        if policy := record.inputs.get("policy"):
            guarded[record.name] = json.loads(policy)
    assert guarded.keys() == {"c1-logs", "c1-monitoring"}
    for policy in guarded.values():
        assert allows(policy, "logs:PutLogEvents", "any", {"aws:PrincipalAccount": "123456789012"})
        assert not allows(policy, "logs:PutLogEvents", "any", {"aws:PrincipalAccount": "999999999999"})
        assert not allows(policy, "logs:PutLogEvents", "any")


def test_nodes_wait_for_their_ways_out(mocked, stack):
    for egress in ("endpoints", "nat"):
        records = mocked.cluster(stack({"network.egress": egress}))
        ways = {record.urn for record in _endpoints(records) + records.of("Route") if "public" not in record.name}
        assert ways
        assert ways <= records.one("Group").dependencies


def test_with_nat_nodes_stay_private_and_each_zone_has_its_own_gateway(mocked, stack):
    records = mocked.cluster(stack({**THREE, "network.egress": "nat"}))
    assert records.one("Group").inputs["vpcZoneIdentifiers"] == [f"c1-private-{zone}-id" for zone in "abc"]
    assert not any(record.inputs["mapPublicIpOnLaunch"] for record in records.of("Subnet"))
    tables = {r.inputs["subnetId"]: r.inputs["routeTableId"] for r in records.of("RouteTableAssociation")}
    routes = {r.inputs["routeTableId"]: r.inputs for r in records.of("Route")}
    for zone in "abc":
        assert tables[f"c1-public-{zone}-id"] == "c1-public-id"
        out = routes[tables[f"c1-private-{zone}-id"]]
        assert (out["destinationCidrBlock"], out["natGatewayId"]) == ("0.0.0.0/0", f"c1-nat-{zone}-id")
        assert "gatewayId" not in out, "a private subnet leads to no internet gateway"
        gateway = records.one("NatGateway", f"c1-nat-{zone}")
        assert gateway.inputs["subnetId"] == f"c1-public-{zone}-id"
        assert records.one("Subnet", f"c1-public-{zone}").inputs["availabilityZone"] == f"us-west-2{zone}"
        assert records.one("InternetGateway").urn in gateway.dependencies
    assert routes["c1-public-id"]["gatewayId"] == "c1-internet-id"
    assert _rule(records, "c1-to-internet") == {
        "securityGroupId": "c1-nodes-id",
        "cidrIpv4": "0.0.0.0/0",
        "ipProtocol": "tcp",
        "fromPort": 443,
        "toPort": 443,
    }


def test_with_nat_the_bucket_is_still_reached_by_its_endpoint_from_every_zone(mocked, stack):
    """By NAT it would cost for each byte, and be any bucket."""
    endpoint = mocked.cluster(stack({**THREE, "network.egress": "nat"})).one("VpcEndpoint").inputs
    assert endpoint["routeTableIds"] == [f"c1-private-{zone}-id" for zone in "abc"]


BROUGHT = {
    "network.cidr": None,
    "network.vpc": "vpc-0123456789abcdef0",
    "network.subnets": ["subnet-0123456789abcdef0"],
    "network.route_tables": ["rtb-0123456789abcdef0"],
}


@pytest.mark.parametrize("egress", ["bucket", "endpoints", "nat"])
def test_a_vpc_that_is_brought_is_used_and_nothing_of_it_is_declared(mocked, stack, egress):
    records = mocked.cluster(stack({**BROUGHT, "network.egress": egress}))
    kinds = {record.type.split(":")[-1] for record in records.all}
    assert not kinds & {"Vpc", "Subnet", "RouteTable", "RouteTableAssociation", "Route", "DefaultSecurityGroup"}
    assert not kinds & {"InternetGateway", "NatGateway", "Eip"}
    assert {r.inputs["vpcId"] for r in records.of("SecurityGroup")} == {"vpc-0123456789abcdef0"}
    assert records.one("Group").inputs["vpcZoneIdentifiers"] == ["subnet-0123456789abcdef0"]
    assert records.one("VpcEndpoint", "c1-s3").inputs["routeTableIds"] == ["rtb-0123456789abcdef0"]
    assert {tuple(r.inputs["subnetIds"]) for r in _endpoints(records)} <= {("subnet-0123456789abcdef0",)}
