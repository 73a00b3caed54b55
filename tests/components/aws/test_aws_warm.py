"""The warm tier, encrypted, in the nodes' subnet, open on Lustre's ports alone; and the cold one behind the bucket."""

import base64
import json

import boto3
import botocore.session
import pytest
from botocore.validate import ParamValidator
from moto import mock_aws

from components import layout
from components.aws.security import key_policy, lustre_uses
from components.aws.storage import ONLY_LARGE, lifecycle
from components.spec import parse
from tests.components.aws.policies import allows
from trainer.node.config import NodeConfig, Paths

LUSTRE = {"storage.warm": {"size_gib": 4800, "throughput": 250}}
COLD = [
    {"prefix": "runs/gpt-0a1b2c3d/", "after_days": 120, "class": "deep-archive"},
    {"prefix": "datasets/older/", "after_days": 30, "class": "instant-archive"},
    {"prefix": "runs/gpt-0a1b2c3d/", "after_days": 30, "class": "archive"},
]
ACCOUNT = "123456789012"
KEY = "arn:aws:kms:us-west-2:123456789012:key/key-1"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/"
BY_FSX = {
    "kms:CallerAccount": ACCOUNT,
    "kms:ViaService": "s3.us-west-2.amazonaws.com",
    "aws:PrincipalArn": f"{ROLE}AWSServiceRoleForFSxS3Access_fs-0123456789abcdef0",
    "kms:EncryptionContext:aws:s3:arn": "arn:aws:s3:::c1-data-1a2b3c4",
}


def test_without_it_nothing_of_it_is_declared(mocked, stack):
    records = mocked.cluster(stack())
    assert not [record for record in records.all if ":fsx/" in record.type or "warm" in record.name]
    assert "Lustre" not in records.one("Key").inputs["policy"]
    assert "transitionDefaultMinimumObjectSize" not in records.one("BucketLifecycleConfiguration").inputs


def test_it_is_what_the_stacks_file_asks_for_encrypted_with_the_data_key(mocked, stack):
    system = mocked.cluster(stack(LUSTRE)).one("LustreFileSystem", "c1-warm").inputs
    assert {key: value for key, value in system.items() if key != "tags"} == {
        "deploymentType": "PERSISTENT_2",
        "storageType": "SSD",
        "storageCapacity": 4800,
        "perUnitStorageThroughput": 250,
        "dataCompressionType": "LZ4",
        "fileSystemTypeVersion": "2.15",
        "kmsKeyId": KEY,
        "subnetIds": "c1-private-a-id",
        "securityGroupIds": ["c1-warm-id"],
        "automaticBackupRetentionDays": 0,
        "skipFinalBackup": True,
    }
    assert system["tags"]["trainwright:cluster"] == "c1"


def test_a_subnet_that_is_there_already_holds_it(mocked, stack):
    brought = {
        "network": {
            "vpc": "vpc-0a1b2c3d",
            "zones": ["us-west-2a"],
            "subnets": ["subnet-0a1b2c3d"],
            "route_tables": ["rtb-0a1b2c3d"],
        }
    }
    records = mocked.cluster({**stack(LUSTRE), **brought})
    assert records.one("LustreFileSystem").inputs["subnetIds"] == "subnet-0a1b2c3d"
    assert records.one("SecurityGroup", "c1-warm").inputs["vpcId"] == "vpc-0a1b2c3d"


def test_it_shows_the_buckets_datasets_and_writes_nothing_back(mocked, stack):
    """Auto export would let a node, which may write to the file system, replace datasets, which it may not."""
    link = mocked.cluster(stack(LUSTRE)).one("DataRepositoryAssociation", "c1-warm").inputs
    assert link["dataRepositoryPath"] == f"s3://c1-data-1a2b3c4/{layout.DATASETS}"
    assert link["fileSystemPath"] == "/datasets"
    assert link["s3"] == {"autoImportPolicy": {"events": ["NEW", "CHANGED", "DELETED"]}}
    assert link["batchImportMetaDataOnCreate"] is True
    assert Paths.here().warm / "datasets/text" == Paths.here().root / "mnt/warm" / layout.DATASETS / "text"


def test_servers_and_nodes_talk_over_lustres_ports_alone(mocked, stack):
    records = mocked.cluster(stack(LUSTRE))
    found = {
        (kind, rule["securityGroupId"], rule["referencedSecurityGroupId"], rule["fromPort"], rule["toPort"])
        for kind in ("Ingress", "Egress")
        for record in records.of(f"SecurityGroup{kind}Rule")
        if "warm" in record.name
        for rule in [record.inputs]
        if rule["ipProtocol"] == "tcp"
    }
    pairs = ("c1-warm-id", "c1-warm-id"), ("c1-warm-id", "c1-nodes-id"), ("c1-nodes-id", "c1-warm-id")
    ports = (988, 988), (1018, 1023)
    assert found == {(kind, *pair, *span) for kind in ("Ingress", "Egress") for pair in pairs for span in ports}
    assert not {"ingress", "egress"} & records.one("SecurityGroup", "c1-warm").inputs.keys()


def test_fsx_finds_the_rules_and_the_bucket_as_they_are_to_be(mocked, stack):
    """FSx refuses a group that lets no Lustre through, and a link to a bucket whose key it may not use yet fails."""
    records = mocked.cluster(stack(LUSTRE))
    rules = {record.urn for record in records.all if "SecurityGroup" in record.type and "-warm-" in record.name}
    assert len(rules) == 12
    assert rules <= records.one("LustreFileSystem").dependencies
    link = records.one("DataRepositoryAssociation")
    kinds = "BucketPolicy", "BucketServerSideEncryptionConfiguration"
    assert {records.one(kind).urn for kind in kinds} <= link.dependencies
    group = records.one("Group")
    assert {link.urn, *rules} <= group.dependencies, "a node that boots finds it whole"


@pytest.mark.parametrize("production", [False, True])
def test_production_protects_it_and_lets_it_go_with_the_stack(mocked, stack, production):
    """Left in the account, it would be billed, and the subnet and security group that it is in couldn't be deleted."""
    changes = {"production": production, "audit.enabled": production, "audit.emails": ["a@example.com"]}
    records = mocked.cluster(stack({**LUSTRE, **(changes if production else {})}))
    for kind in ("LustreFileSystem", "DataRepositoryAssociation"):
        assert (bool(records.one(kind).protect), bool(records.one(kind).retain_on_delete)) == (production, False)


@pytest.mark.parametrize("action", ["Decrypt", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "DescribeKey"])
def test_fsx_may_use_the_data_key_for_the_clusters_bucket(action):
    policy = {"Statement": key_policy("us-west-2", ACCOUNT, lustre_uses("us-west-2", ACCOUNT, "c1"))["Statement"][1:]}
    assert allows(policy, f"kms:{action}", KEY, BY_FSX)


@pytest.mark.parametrize(
    "changes",
    [
        {"aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:role/AWSServiceRoleForFSxS3Access_fs-1"},
        {"aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:role/admin"},
        {"aws:PrincipalArn": f"{ROLE}other"},
        {"kms:CallerAccount": "999999999999"},
        {"kms:ViaService": "ec2.us-west-2.amazonaws.com"},
        {"kms:EncryptionContext:aws:s3:arn": "arn:aws:s3:::another"},
        {"kms:EncryptionContext:aws:s3:arn": None},
    ],
)
def test_nobody_else_and_for_no_other_bucket(changes):
    context = {key: value for key, value in {**BY_FSX, **changes}.items() if value is not None}
    policy = {"Statement": [lustre_uses("us-west-2", ACCOUNT, "c1")]}
    assert not allows(policy, "kms:Decrypt", KEY, context)
    assert not allows(policy, "kms:ScheduleKeyDeletion", KEY, BY_FSX)


def test_the_key_of_a_cluster_with_it_says_so(mocked, stack):
    policy = json.loads(mocked.cluster(stack(LUSTRE)).one("Key").inputs["policy"])
    assert lustre_uses("us-west-2", ACCOUNT, "c1") in policy["Statement"]


def _told(mocked, values):
    """What a node's user-data tells it."""
    script = base64.b64decode(mocked.cluster(values).one("LaunchTemplate", "c1-node").inputs["userData"]).decode()
    (line,) = [line for line in script.splitlines() if line.startswith("CONFIG = ")]
    exec(line, scope := {"json": json})
    return scope["CONFIG"]


def test_nodes_are_told_what_to_mount(mocked, stack, tmp_path):
    (tmp_path / "node.json").write_text(json.dumps(_told(mocked, stack(LUSTRE))))
    assert NodeConfig.read(tmp_path / "node.json").warm == "fs-1.fsx.example.com@tcp:/abcdefgh"
    plain = _told(mocked, stack())
    assert "warm" not in plain, "what there is none of adds nothing to user-data"
    (tmp_path / "node.json").write_text(json.dumps(plain))
    assert NodeConfig.read(tmp_path / "node.json").warm == ""


def test_a_preview_that_knows_nothing_of_it_yet_goes_through(mocked, stack):
    records = mocked.cluster(stack(LUSTRE), preview=True)
    assert records.one("LustreFileSystem").inputs["storageCapacity"] == 4800


def _valid(service, operation, request):
    shape = botocore.session.get_session().get_service_model(service).operation_model(operation).input_shape
    report = ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()
    return shape


def test_fsx_would_take_the_requests(mocked, stack):
    """Against the API's own model: names, kinds, ranges and the lists of values."""
    records = mocked.cluster(stack(LUSTRE))
    system, link = records.one("LustreFileSystem").inputs, records.one("DataRepositoryAssociation").inputs
    configuration = {
        "DeploymentType": system["deploymentType"],
        "PerUnitStorageThroughput": int(system["perUnitStorageThroughput"]),
        "DataCompressionType": system["dataCompressionType"],
        "AutomaticBackupRetentionDays": int(system["automaticBackupRetentionDays"]),
    }
    shape = _valid(
        "fsx",
        "CreateFileSystem",
        {
            "FileSystemType": "LUSTRE",
            "StorageCapacity": int(system["storageCapacity"]),
            "StorageType": system["storageType"],
            # Mocks make up ids that no service would.
            "SubnetIds": ["subnet-0a1b2c3d"],
            "SecurityGroupIds": ["sg-0a1b2c3d"],
            "KmsKeyId": system["kmsKeyId"],
            "FileSystemTypeVersion": system["fileSystemTypeVersion"],
            "LustreConfiguration": configuration,
        },
    )
    lustre = shape.members["LustreConfiguration"].members
    assert system["deploymentType"] in lustre["DeploymentType"].enum
    assert system["dataCompressionType"] in lustre["DataCompressionType"].enum
    assert system["storageType"] in shape.members["StorageType"].enum
    shape = _valid(
        "fsx",
        "CreateDataRepositoryAssociation",
        {
            "FileSystemId": "fs-0123456789abcdef0",
            "FileSystemPath": link["fileSystemPath"],
            "DataRepositoryPath": link["dataRepositoryPath"],
            "BatchImportMetaDataOnCreate": link["batchImportMetaDataOnCreate"],
            "S3": {"AutoImportPolicy": {"Events": link["s3"]["autoImportPolicy"]["events"]}},
        },
    )
    events = shape.members["S3"].members["AutoImportPolicy"].members["Events"].member.enum
    assert set(link["s3"]["autoImportPolicy"]["events"]) == set(events)


def _moves(key, days, rules):
    """The class that S3 has moved an object to after so many days: the last of the transitions that are due."""
    due = [
        (transition["days"], transition["storage_class"])
        for rule in rules
        if key.startswith(rule["filter"].get("prefix", "\0"))
        for transition in rule.get("transitions", [])
        if transition["days"] <= days
    ]
    return max(due)[1] if due else "STANDARD"


@pytest.mark.parametrize(
    ("key", "days", "kind"),
    [
        ("runs/gpt-0a1b2c3d/checkpoints/x", 29, "STANDARD"),
        ("runs/gpt-0a1b2c3d/checkpoints/x", 30, "GLACIER"),
        ("runs/gpt-0a1b2c3d/checkpoints/x", 120, "DEEP_ARCHIVE"),
        ("datasets/older/shard-00000.bin", 400, "GLACIER_IR"),
        ("datasets/text/shard-00000.bin", 400, "STANDARD"),
        ("runs/gpt-ffffffff/control/outcome.json", 400, "STANDARD"),
        ("fleet.json", 400, "STANDARD"),
        ("bundles/0.tar", 400, "STANDARD"),
    ],
)
def test_objects_move_as_they_age_and_by_prefix_alone(stack, key, days, kind):
    rules = lifecycle(7, parse(stack({"storage.cold": COLD})).storage.cold)
    assert _moves(key, days, rules) == kind


def test_cold_rules_come_beside_the_others_and_small_objects_stay(mocked, stack):
    """Whatever the class: what agents agree through is small, and stays readable."""
    inputs = mocked.cluster(stack({"storage.cold": COLD})).one("BucketLifecycleConfiguration").inputs
    plain = mocked.cluster(stack()).one("BucketLifecycleConfiguration").inputs
    assert inputs["transitionDefaultMinimumObjectSize"] == ONLY_LARGE == "all_storage_classes_128K"
    assert inputs["rules"][: len(plain["rules"])] == plain["rules"]
    assert inputs["rules"][len(plain["rules"]) :] == [
        {
            "id": "cool-datasets/older/",
            "status": "Enabled",
            "filter": {"prefix": "datasets/older/"},
            "transitions": [{"days": 30, "storageClass": "GLACIER_IR"}],
        },
        {
            "id": "cool-runs/gpt-0a1b2c3d/",
            "status": "Enabled",
            "filter": {"prefix": "runs/gpt-0a1b2c3d/"},
            "transitions": [
                {"days": 30, "storageClass": "GLACIER"},
                {"days": 120, "storageClass": "DEEP_ARCHIVE"},
            ],
        },
    ]


def test_s3_takes_cold_rules(mocked, stack):
    """By the API's model, and by moto, whose checks of a lifecycle are S3's."""
    inputs = mocked.cluster(stack({"storage.cold": COLD})).one("BucketLifecycleConfiguration").inputs
    rules = [
        {
            "ID": rule["id"],
            "Status": rule["status"],
            "Filter": {"Prefix": rule["filter"]["prefix"]},
            "Transitions": [
                {"Days": int(move["days"]), "StorageClass": move["storageClass"]} for move in rule["transitions"]
            ],
        }
        for rule in inputs["rules"]
        if "transitions" in rule
    ]
    request = {
        "Bucket": "b-1",
        "LifecycleConfiguration": {"Rules": rules},
        "TransitionDefaultMinimumObjectSize": inputs["transitionDefaultMinimumObjectSize"],
    }
    shape = _valid("s3", "PutBucketLifecycleConfiguration", request)
    assert inputs["transitionDefaultMinimumObjectSize"] in shape.members["TransitionDefaultMinimumObjectSize"].enum
    kinds = shape.members["LifecycleConfiguration"].members["Rules"].member.members["Transitions"].member.members
    assert {move["StorageClass"] for rule in rules for move in rule["Transitions"]} <= set(kinds["StorageClass"].enum)
    with mock_aws():
        s3 = boto3.client("s3", "us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
        s3.create_bucket(Bucket="b-1")
        s3.put_bucket_lifecycle_configuration(**request)
        assert len(s3.get_bucket_lifecycle_configuration(Bucket="b-1")["Rules"]) == 2
