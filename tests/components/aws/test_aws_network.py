"""The network: private subnets, no way in, and out only to the bucket."""


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
