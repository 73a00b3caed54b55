"""Data nodes as declared: a second template and group, as hardened as the first, with a narrower role."""

import base64
import json

import botocore.session
import pytest
from botocore.validate import ParamValidator

from components.aws.security import data_node_policy, node_policy
from components.aws.storage import data_nodes_lifecycle
from components.cluster import InvalidArgs
from emulator.provider.aws.api import fit
from emulator.provider.aws.autoscaling import Group
from emulator.provider.aws.launch_template import LaunchTemplate
from tests.components.aws.policies import allows

DATA = {"data_nodes.type": "i4i.32xlarge", "data_nodes.count": 2}
P4D = {"nodes.type": "p4d.24xlarge", "job.batch": 64}
BUCKET = "arn:aws:s3:::b"
KEY = "arn:aws:kms:us-west-2:123456789012:key/k"


@pytest.fixture
def declared(mocked, stack):
    def make(changes=None):
        return mocked.cluster(stack({**DATA, **(changes or {})}))

    return make


def test_the_two_templates_differ_in_what_the_nodes_are_and_in_nothing_that_guards_them(declared):
    """IMDSv2, encrypted root disk, tags, no public address, shut down is ended: from one function for both."""
    records = declared({"data_nodes.disk_gb": 50})
    nodes, data = (dict(records.one("LaunchTemplate", f"c1-{one}").inputs) for one in ("node", "data-node"))
    assert (nodes.pop("instanceType"), data.pop("instanceType")) == ("m6a.large", "i4i.32xlarge")
    assert nodes.pop("userData") != data.pop("userData")
    assert nodes.pop("iamInstanceProfile") != data.pop("iamInstanceProfile")
    assert [
        disk["ebs"].pop("volumeSize") for disk in (*nodes["blockDeviceMappings"], *data["blockDeviceMappings"])
    ] == [
        100,
        50,
    ]
    names = [item["tags"].pop("Name") for given in (nodes, data) for item in given["tagSpecifications"]]
    assert names == ["c1-node"] * 3 + ["c1-data-node"] * 3
    assert data == nodes


def test_user_data_is_a_secret_and_tells_a_data_node_its_part(declared, bundle):
    template = declared().one("LaunchTemplate", "c1-data-node")
    assert "userData" in template.secrets
    script = base64.b64decode(template.inputs["userData"]).decode()
    line = next(line for line in script.splitlines() if line.startswith("CONFIG = "))
    assert json.loads(json.loads(line.removeprefix("CONFIG = json.loads(").removesuffix(")"))) == {
        "cloud": "aws",
        "region": "us-west-2",
        "cluster": "c1",
        "bucket": "c1-data-1a2b3c4",
        "bundle": bundle.key,
        "sha256": bundle.sha256,
        "python": "python3",
        "deadline_s": 900,
        "role": "data",
        "run": "text",
        "workers": 0,
        "gpus": 0,
        "job": {"dataset": "text"},
    }


@pytest.mark.parametrize("capacity", ["on-demand", "spot", "capacity-block"])
def test_they_are_kept_at_their_number_and_bought_on_demand_however_the_others_are(declared, capacity):
    block = {"nodes.reservation": "cr-0123456789abcdef0"} if capacity == "capacity-block" else {}
    records = declared({**P4D, "nodes.capacity": capacity, **block})
    group = records.one("Group", "c1-data-nodes").inputs
    assert (group["desiredCapacity"], group["maxSize"]) == (2, 2)
    assert group["launchTemplate"] == {"id": "c1-data-node-id", "version": "7"}
    assert not {"mixedInstancesPolicy", "placementGroup", "capacityRebalance"} & group.keys()
    template = records.one("LaunchTemplate", "c1-data-node").inputs
    assert not {"instanceMarketOptions", "capacityReservationSpecification"} & template.keys()


def test_they_lie_in_the_nodes_subnets_and_security_group_which_lets_in_nobody_else(declared):
    records = declared(P4D)
    nodes, data = (records.one("Group", f"c1-{one}s").inputs for one in ("node", "data-node"))
    assert data["vpcZoneIdentifiers"] == nodes["vpcZoneIdentifiers"]
    (interface,) = records.one("LaunchTemplate", "c1-data-node").inputs["networkInterfaces"]
    assert interface == {
        "associatePublicIpAddress": "false",
        "deleteOnTermination": "true",
        "deviceIndex": 0,
        "securityGroups": ["c1-nodes-id"],
    }
    (rule,) = [rule.inputs for rule in records.of("SecurityGroupIngressRule")]
    assert (rule["securityGroupId"], rule["referencedSecurityGroupId"]) == ("c1-nodes-id", "c1-nodes-id")


def test_no_data_node_starts_before_all_that_it_counts_on(declared):
    records = declared()
    needed = {
        records.one("BucketObjectv2", "c1-bundle").urn,
        records.one("RolePolicy", "c1-data-node").urn,
        records.one("VpcEndpoint").urn,
        records.one("RouteTableAssociation").urn,
        *(record.urn for record in records.all if record.type.endswith("Rule") and "GroupE" in record.type),
        *(record.urn for record in records.of("SecurityGroupIngressRule")),
    }
    assert needed <= records.one("Group", "c1-data-nodes").dependencies


def test_b8_data_nodes_that_cannot_boot_are_not_launched_for_ever(declared):
    policies = {record.inputs["autoscalingGroupName"] for record in declared().of("Policy")}
    assert policies >= {"c1-nodes", "c1-data-nodes"}


def test_a_cluster_without_data_nodes_declares_nothing_of_them(mocked, stack):
    records = mocked.cluster(stack())
    assert not [record.key for record in records.all if "data-" in record.name.removeprefix("c1-data-1a2b3c4")]


def test_an_image_of_data_nodes_that_is_not_there_fails_the_preview_by_its_own_path(mocked, stack):
    with pytest.raises(InvalidArgs, match=r"data_nodes\.image: ami-00000000 can't be looked up"):
        mocked.cluster(stack({**DATA, "data_nodes.image": "ami-00000000"}), preview=True)
    assert {record.type for record in mocked.records.children()} == {"pulumi:providers:aws"}


def test_the_disk_that_is_encrypted_is_the_one_that_their_image_boots_from(declared):
    records = declared({"data_nodes.image": "ami-11111111"})
    for one, image in (("node", "ami-0123456789abcdef0"), ("data-node", "ami-11111111")):
        (disk,) = records.one("LaunchTemplate", f"c1-{one}").inputs["blockDeviceMappings"]
        assert disk["deviceName"] == f"/dev/root-of-{image}"


# ---- what they may do

ALLOWED = [
    ("s3:ListBucket", BUCKET),
    ("s3:GetObject", f"{BUCKET}/bundles/0.tar"),
    ("s3:GetObject", f"{BUCKET}/datasets/text/shard-00000.bin"),
    ("s3:PutObject", f"{BUCKET}/data/nodes/i-1.json"),
    ("s3:PutObject", f"{BUCKET}/data/boot/i-1.json"),
    ("s3:PutObject", f"{BUCKET}/data/logs/i-1/agent/000000.log"),
    ("s3:DeleteObject", f"{BUCKET}/data/nodes/i-1.json"),
    ("kms:Decrypt", KEY),
    ("kms:GenerateDataKey", KEY),
]
DENIED = [
    ("s3:GetObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/rank0"),
    ("s3:PutObject", f"{BUCKET}/runs/r/control/members/i-1/card.json"),
    ("s3:PutObject", f"{BUCKET}/runs/r/control/outcome.json"),
    ("s3:PutObject", f"{BUCKET}/datasets/text/index.json"),
    ("s3:PutObject", f"{BUCKET}/datasets/text/shard-00000.bin"),
    ("s3:PutObject", f"{BUCKET}/bundles/0.tar"),
    ("s3:PutObject", f"{BUCKET}/fleet.json"),
    ("s3:DeleteObject", f"{BUCKET}/datasets/text/shard-00000.bin"),
    ("s3:DeleteObject", f"{BUCKET}/data/logs/i-1/agent/000000.log"),
    ("s3:DeleteObjectVersion", f"{BUCKET}/data/nodes/i-1.json"),
    ("kms:Decrypt", KEY.replace("/k", "/other")),
    ("kms:CreateGrant", KEY),
    ("ec2:RunInstances", "*"),
    ("autoscaling:SetDesiredCapacity", "*"),
]


@pytest.mark.parametrize(("action", "resource"), ALLOWED)
def test_a_data_node_may_do_what_it_has_to(action, resource):
    assert allows(data_node_policy(BUCKET, KEY), action, resource)


@pytest.mark.parametrize(("action", "resource"), DENIED)
def test_a_data_node_may_do_nothing_more(action, resource):
    """Above all it can't alter what the shards that it serves are verified by, or take part in a run."""
    assert not allows(data_node_policy(BUCKET, KEY), action, resource)


def test_nodes_may_read_where_data_nodes_are_and_change_nothing_of_it():
    assert allows(node_policy(BUCKET, KEY), "s3:GetObject", f"{BUCKET}/data/nodes/i-1.json")
    for action in ("s3:PutObject", "s3:DeleteObject"):
        assert not allows(node_policy(BUCKET, KEY), action, f"{BUCKET}/data/nodes/i-1.json")


def test_the_role_of_data_nodes_has_that_policy_and_instances_alone_take_it(declared):
    records = declared()
    policy = json.loads(records.one("RolePolicy", "c1-data-node").inputs["policy"])
    assert policy == data_node_policy("arn:aws:s3:::c1-data-1a2b3c4", "arn:aws:kms:us-west-2:123456789012:key/key-1")
    trust = json.loads(records.one("Role", "c1-data-node").inputs["assumeRolePolicy"])
    assert [statement["Principal"] for statement in trust["Statement"]] == [{"Service": "ec2.amazonaws.com"}]


def test_operators_reach_data_nodes_by_sessions_too(declared):
    operators = {"security.operators": ["arn:aws:iam::123456789012:role/ops"], "network.egress": "endpoints"}
    records = declared(operators)
    roles = {record.name: record.inputs["role"] for record in records.of("RolePolicy") if "sessions" in record.name}
    assert roles == {"c1-sessions": "c1-node-id", "c1-data-sessions": "c1-data-node-id"}


def test_records_of_data_nodes_that_are_gone_go_from_the_bucket(declared, mocked, stack):
    (rule,) = data_nodes_lifecycle()
    assert rule["filter"] == {"prefix": "data/nodes/"}
    for records, there in ((declared(), True), (mocked.cluster(stack()), False)):
        rules = records.one("BucketLifecycleConfiguration", "c1-data").inputs["rules"]
        assert (rule["id"] in {given["id"] for given in rules}) is there


# ---- what AWS is asked for


def test_template_and_group_make_requests_that_ec2_knows(declared):
    records, session = declared(P4D), botocore.session.get_session()
    template = LaunchTemplate().sent({**records.one("LaunchTemplate", "c1-data-node").inputs, "name": "c1"})
    group = Group().sent({**records.one("Group", "c1-data-nodes").inputs, "name": "c1"})
    for service, operation, given, names in (
        ("ec2", "CreateLaunchTemplate", template, LaunchTemplate.names),
        ("autoscaling", "CreateAutoScalingGroup", group, Group.names),
    ):
        shape = session.get_service_model(service).operation_model(operation).input_shape
        report = ParamValidator().validate(fit(shape, given, names), shape)
        assert not report.has_errors(), report.generate_report()
