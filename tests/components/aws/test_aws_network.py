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
