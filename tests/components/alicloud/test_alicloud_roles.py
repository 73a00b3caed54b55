"""Roles of people: who may take them, and what each may and may not do, judged by evaluating the documents."""

import json
from dataclasses import replace

import pytest

from components.alicloud.grants import (
    Ours,
    Recorded,
    auditor_policy,
    operator_policy,
    people_trust,
    trainer_policy,
)
from components.alicloud.security import node_policy
from components.checks import review
from components.findings import Invalid
from components.spec import parse
from tests.components.alicloud.policies import ELEMENTS, allows
from tests.components.conftest import ALI_ACCOUNT

REGION = "ap-southeast-1"
BUCKET = "acs:oss:*:*:b"
CLAIMS = f"{BUCKET}-claims"
DATA, LOGS, EVIDENCE = (f"acs:kms:*:*:key/{name}" for name in ("data", "logs", "evidence"))
GROUP = f"acs:ess:{REGION}:{ALI_ACCOUNT}:scalinggroup/asg-1"
NODE = f"acs:ecs:{REGION}:{ALI_ACCOUNT}:instance/i-t4n0123456789abcdefgh"
TRAIL = f"acs:actiontrail:*:{ALI_ACCOUNT}:trail/c1-audit-1a2b3c4"
RECORD = "acs:oss:*:*:record"
LOG = f"acs:log:{REGION}:{ALI_ACCOUNT}:project/c1-logs-1a2b3c4/logstore/flow"
QUEUE = f"acs:mns:{REGION}:{ALI_ACCOUNT}:/queues/b-queue/messages"
OURS = Ours(REGION, ALI_ACCOUNT, "c1", "b", "data", "asg-1", evidence_key="evidence")
RECORDED = Recorded("record", "logs", ("c1-logs-1a2b3c4/trail", "c1-logs-1a2b3c4/flow"))

ON_NODE = {"acs:ResourceTag/trainwright:cluster": "c1"}

TRAINER = [
    ("oss:ListObjects", BUCKET, {}, True),
    ("oss:PutObject", f"{BUCKET}/datasets/text/shard-00000.bin", {}, True),
    ("oss:GetObject", f"{BUCKET}/datasets/text/index.json", {}, True),
    ("oss:GetObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json", {}, True),
    ("oss:GetObject", f"{CLAIMS}/runs/r/control/outcome.json", {}, True),
    ("oss:GetObject", f"{BUCKET}/fleet.json", {}, True),
    ("kms:GenerateDataKey", DATA, {}, True),
    ("kms:Decrypt", DATA, {}, True),
    ("kms:Decrypt", LOGS, {}, False),
    ("kms:AsymmetricSign", EVIDENCE, {}, False),
    ("kms:GetPublicKey", EVIDENCE, {}, False),
    *(("oss:PutObject", f"{where}/runs/r/control/outcome.json", {}, False) for where in (BUCKET, CLAIMS)),
    ("oss:PutObject", f"{BUCKET}/bundles/0.tar", {}, False),
    ("oss:PutObject", f"{BUCKET}/fleet.json", {}, False),
    ("oss:GetObject", f"{BUCKET}/bundles/0.tar", {}, False),
    ("oss:DeleteObject", f"{BUCKET}/datasets/text/index.json", {}, True),
    ("oss:DeleteObject", f"{BUCKET}/datasets/text/shard-00000.bin", {}, False),
    ("oss:DeleteObject", f"{BUCKET}/runs/r/datasets/x/index.json", {}, False),
    ("oss:ListMultipartUploads", BUCKET, {}, True),
    ("oss:ListParts", f"{BUCKET}/datasets/text/shard-00000.bin", {}, True),
    ("oss:ListParts", f"{BUCKET}/runs/r/x", {}, False),
    ("oss:GetObject", f"{RECORD}/AliyunLogs/x", {}, False),
    ("oss:PutBucketPolicy", BUCKET, {}, False),
    ("ess:ModifyScalingGroup", GROUP, {}, False),
    ("ecs:StartTerminalSession", NODE, ON_NODE, False),
    ("ram:PassRole", f"acs:ram:*:{ALI_ACCOUNT}:role/c1-node", {}, False),
]

SUBMITTER = [
    ("oss:PutObject", f"{BUCKET}/queue/000001.json", True),
    ("oss:PutObject", f"{CLAIMS}/queue/000001.json", True),
    ("oss:PutObject", f"{BUCKET}/bundles/code-0a.tar", True),
    ("oss:PutObject", f"{CLAIMS}/bundles/code-0a.tar", True),
    ("oss:PutObject", f"{BUCKET}/runs/r/control/outcome.json", True),
    ("oss:PutObject", f"{CLAIMS}/runs/r/control/outcome.json", True),
    ("oss:PutObject", f"{BUCKET}/runs/r/audit/launch-0a.json", True),
    ("oss:PutObject", f"{CLAIMS}/runs/r/audit/launch-0a.json", True),
    ("oss:GetObject", f"{BUCKET}/queue/000001.json", True),
    ("oss:GetObject", f"{BUCKET}/bundles/code-0a.tar", True),
    ("oss:GetObject", f"{CLAIMS}/bundles/code-0a.tar", True),
    ("mns:SendMessage", QUEUE, True),
    ("oss:PutObject", f"{BUCKET}/bundles/0a.tar", False),
    ("oss:GetObject", f"{BUCKET}/bundles/0a.tar", False),
    ("oss:PutObject", f"{BUCKET}/runs/r/control/generations/000001.json", False),
    ("oss:PutObject", f"{CLAIMS}/runs/r/control/generations/000001.json", False),
    ("oss:PutObject", f"{BUCKET}/runs/r/audit/retry-1.json", False),
    ("oss:DeleteObject", f"{BUCKET}/queue/000001.json", False),
    ("oss:DeleteObject", f"{CLAIMS}/queue/000001.json", False),
    ("mns:DeleteMessage", QUEUE, False),
    ("mns:ReceiveMessage", QUEUE, False),
    ("mns:SendMessage", QUEUE.replace("b-queue", "other"), False),
]

OPERATOR = [
    ("ess:DescribeScalingGroups", "*", {}, True),
    ("ess:ResumeProcesses", GROUP, {}, True),
    ("ess:ModifyScalingGroup", GROUP, {}, True),
    ("ecs:StartTerminalSession", NODE, ON_NODE, True),
    ("kms:AsymmetricSign", EVIDENCE, {}, True),
    ("kms:GetPublicKey", EVIDENCE, {}, True),
    ("kms:ListKeyVersions", EVIDENCE, {}, True),
    ("kms:AsymmetricVerify", EVIDENCE, {}, False),
    ("kms:ScheduleKeyDeletion", EVIDENCE, {}, False),
    ("kms:AsymmetricSign", DATA, {}, False),
    ("ess:ResumeProcesses", GROUP.replace("asg-1", "asg-2"), {}, False),
    ("ess:ModifyScalingGroup", GROUP.replace("asg-1", "asg-2"), {}, False),
    ("ess:SuspendProcesses", GROUP, {}, False),
    ("ess:DeleteScalingGroup", GROUP, {}, False),
    ("ecs:StartTerminalSession", NODE, dict.fromkeys(ON_NODE, "c2"), False),
    ("ecs:StartTerminalSession", NODE, {}, False),
    ("ecs:StartTerminalSession", NODE.replace(REGION, "cn-hangzhou"), ON_NODE, False),
    ("ecs:EndTerminalSession", "*", {}, False),
    ("ecs:RunCommand", NODE, ON_NODE, False),
    ("ecs:InvokeCommand", NODE, ON_NODE, False),
    ("ecs:SendFile", NODE, ON_NODE, False),
    ("oss:GetObject", f"{BUCKET}/runs/r/x", {}, False),
    ("oss:ListObjects", BUCKET, {}, False),
    ("kms:Decrypt", DATA, {}, False),
    ("ecs:RunInstances", "*", {}, False),
    ("ecs:DeleteInstance", NODE, ON_NODE, False),
    ("ecs:ModifyInstanceMetadataOptions", NODE, ON_NODE, False),
    ("ram:PassRole", f"acs:ram:*:{ALI_ACCOUNT}:role/c1-node", {}, False),
]

AUDITOR = [
    ("actiontrail:GetTrailStatus", TRAIL, {}, True),
    ("actiontrail:LookupEvents", "*", {}, True),
    ("log:GetLogStoreLogs", LOG, {}, True),
    ("log:GetLogStoreLogs", LOG.replace("/flow", "/trail"), {}, True),
    ("oss:GetObject", f"{RECORD}/AliyunLogs/Actiontrail/x.json.gz", {}, True),
    ("oss:GetObjectVersion", f"{RECORD}/AliyunLogs/Actiontrail/x.json.gz", {}, True),
    ("oss:ListObjects", RECORD, {}, True),
    ("kms:Decrypt", LOGS, {}, True),
    ("oss:GetBucketPolicy", BUCKET, {}, True),
    ("oss:GetBucketOverwriteConfig", CLAIMS, {}, True),
    ("oss:GetBucketWorm", RECORD, {}, True),
    *(("kms:GetKeyPolicy", key, {}, True) for key in (DATA, LOGS, EVIDENCE)),
    ("kms:AsymmetricVerify", EVIDENCE, {}, True),
    ("kms:GetPublicKey", EVIDENCE, {}, True),
    ("kms:AsymmetricSign", EVIDENCE, {}, False),
    ("ram:GetRole", f"acs:ram:*:{ALI_ACCOUNT}:role/c1-node-1a2b3c4", {}, True),
    ("ram:GetPolicyVersion", f"acs:ram:*:{ALI_ACCOUNT}:policy/c1-node-1a2b3c4", {}, True),
    ("ecs:DescribeSecurityGroupAttribute", "*", {}, True),
    *(("oss:GetObject", f"{where}/runs/r/x", {}, False) for where in (BUCKET, CLAIMS)),
    ("oss:ListObjects", BUCKET, {}, False),
    ("kms:Decrypt", DATA, {}, False),
    ("kms:SetKeyPolicy", LOGS, {}, False),
    ("oss:DeleteObject", f"{RECORD}/AliyunLogs/x", {}, False),
    ("oss:DeleteObjectVersion", f"{RECORD}/AliyunLogs/x", {}, False),
    ("oss:PutObject", f"{RECORD}/AliyunLogs/x", {}, False),
    ("oss:AbortBucketWorm", RECORD, {}, False),
    ("oss:PutBucketPolicy", RECORD, {}, False),
    ("actiontrail:StopLogging", TRAIL, {}, False),
    ("actiontrail:DeleteTrail", TRAIL, {}, False),
    ("log:DeleteLogStore", LOG, {}, False),
    ("log:UpdateLogStore", LOG, {}, False),
    ("log:GetLogStoreLogs", LOG.replace("c1-logs", "c2-logs"), {}, False),
    ("ram:GetRole", f"acs:ram:*:{ALI_ACCOUNT}:role/admin", {}, False),
    ("ram:CreatePolicyVersion", f"acs:ram:*:{ALI_ACCOUNT}:policy/c1-auditor", {}, False),
    ("ess:ModifyScalingGroup", GROUP, {}, False),
    ("ecs:StartTerminalSession", NODE, ON_NODE, False),
]


@pytest.mark.parametrize(("action", "resource", "context", "allowed"), TRAINER)
def test_a_trainer_puts_datasets_and_reads_runs_and_nothing_more(action, resource, context, allowed):
    assert allows(trainer_policy(OURS), action, resource, context) is allowed


@pytest.mark.parametrize(("action", "resource", "allowed"), SUBMITTER)
def test_where_there_is_a_queue_a_trainer_submits_and_ends_runs(action, resource, allowed):
    assert allows(trainer_policy(replace(OURS, queue="b-queue")), action, resource) is allowed
    assert not allows(trainer_policy(OURS), action, resource), "without a queue there is nothing to submit to"


@pytest.mark.parametrize(
    "policy",
    [node_policy("b", "data"), trainer_policy(replace(OURS, queue="b-queue"))],
    ids=["node", "trainer"],
)
def test_whoever_may_put_an_object_if_it_is_not_there_may_see_whether_it_is(policy):
    """The store asks for it in both buckets first; OSS answers 403 to who may put it and not read it."""
    puts = [
        pattern
        for statement in policy["Statement"]
        if statement["Effect"] == "Allow" and "oss:PutObject" in statement["Action"]
        for pattern in statement["Resource"]
    ]
    assert {pattern.split("/")[0] for pattern in puts} == {BUCKET, CLAIMS}
    for pattern in puts:
        bucket, key = pattern.split("/", 1)
        assert allows(policy, "oss:GetObject", f"{bucket}/{key.replace('*', 'x')}"), pattern


@pytest.mark.parametrize(("action", "resource", "context", "allowed"), OPERATOR)
def test_an_operator_runs_the_group_and_sees_no_data(action, resource, context, allowed):
    assert allows(operator_policy(OURS), action, resource, context) is allowed


@pytest.mark.parametrize(("action", "resource", "context", "allowed"), AUDITOR)
def test_an_auditor_reads_record_and_settings_and_changes_nothing(action, resource, context, allowed):
    assert allows(auditor_policy(OURS, RECORDED), action, resource, context) is allowed


def test_without_a_record_an_auditor_reads_settings_alone():
    policy = auditor_policy(replace(OURS, evidence_key=None), None)
    assert allows(policy, "oss:GetBucketPolicy", BUCKET)
    for action, resource in (
        ("oss:GetObject", f"{RECORD}/x"),
        ("log:GetLogStoreLogs", LOG),
        ("kms:Decrypt", LOGS),
        ("kms:AsymmetricVerify", EVIDENCE),
    ):
        assert not allows(policy, action, resource)
    assert not allows(operator_policy(replace(OURS, evidence_key=None)), "kms:AsymmetricSign", EVIDENCE)


EVERY = [trainer_policy(replace(OURS, queue="b-queue")), operator_policy(OURS), auditor_policy(OURS, RECORDED)]


@pytest.mark.parametrize("policy", EVERY, ids=["trainer", "operator", "auditor"])
def test_no_role_is_granted_by_wildcard_and_no_change_goes_to_every_resource(policy):
    for statement in policy["Statement"]:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert not any("*" in action for action in actions)
        if statement["Resource"] == "*":
            reads = ("Describe", "Get", "List", "Lookup")
            assert all(action.split(":")[1].startswith(reads) for action in actions), statement


@pytest.mark.parametrize("policy", EVERY, ids=["trainer", "operator", "auditor"])
def test_a_policy_is_no_longer_than_ram_takes(policy):
    assert len(json.dumps(policy)) <= 6144


ANN, TEAM = f"acs:ram::{ALI_ACCOUNT}:user/ann", f"acs:ram::{ALI_ACCOUNT}:role/ops"
PEOPLE = {
    "network.egress": "endpoints",
    "security.trainers": [ANN],
    "security.operators": [ANN, TEAM],
    "security.auditors": [TEAM],
}


def test_only_those_listed_take_a_role_and_for_eight_hours(mocked, ali):
    records = mocked.cluster(ali(PEOPLE))
    for purpose, listed in (("trainer", [ANN]), ("operator", [ANN, TEAM]), ("auditor", [TEAM])):
        role = records.one("Role", f"c1-{purpose}").inputs
        trust = json.loads(role["assumeRolePolicyDocument"])
        assert trust == people_trust(tuple(listed))
        (statement,) = trust["Statement"]
        assert statement["Principal"] == {"RAM": listed}
        assert statement["Action"] == "sts:AssumeRole"
        assert role["maxSessionDuration"] == 8 * 3600


def test_where_nobody_is_listed_no_role_is_anybodys(mocked, ali):
    for record in mocked.cluster(ali()).of("Role"):
        for statement in json.loads(record.inputs["assumeRolePolicyDocument"])["Statement"]:
            assert statement["Principal"].keys() == {"Service"}, record.name


@pytest.mark.parametrize(
    "principal",
    ["*", f"acs:ram::{ALI_ACCOUNT}:root", f"acs:ram::{ALI_ACCOUNT}:role/*", ALI_ACCOUNT, "acs:ram::1:user/ann"],
)
def test_a_role_is_not_opened_to_an_account_or_to_everybody(ali, principal):
    with pytest.raises(Invalid, match=r"security\.trainers\.0: .* is not of the right form"):
        parse(ali({"security.trainers": [principal]}))


def test_the_policies_are_about_this_cluster(mocked, ali):
    changes = {**PEOPLE, "audit.enabled": True, "audit.emails": ["a@example.com"], "scaling": {"queue": True}}
    records = mocked.cluster(ali(changes))
    given = {record.name: json.loads(record.inputs["policyDocument"]) for record in records.of("Policy")}
    bucket = "c1-data-1a2b3c4"
    (group,) = records.of("ScalingGroup")
    queue = records.one("ServiceQueue", "c1-queue").inputs["queueName"]
    ours = Ours(
        REGION, ALI_ACCOUNT, "c1", bucket, "c1-data-id", f"{group.name}-id", queue, evidence_key="c1-evidence-id"
    )
    logs = tuple(f"{r.inputs['projectName']}/{r.inputs['logstoreName']}" for r in records.of("Store"))
    recorded = Recorded("c1-audit-1a2b3c4", "c1-logs-id", logs)
    assert given["c1-trainer"] == trainer_policy(ours)
    assert given["c1-operator"] == operator_policy(ours)
    assert given["c1-auditor"] == auditor_policy(ours, recorded)


def test_every_policy_of_the_cluster_is_such_as_ram_takes(mocked, ali):
    """RAM refuses a statement with a `Sid`, and a whole deployment with it."""
    changes = {**PEOPLE, "audit.enabled": True, "audit.emails": ["a@example.com"], "scaling": {"queue": True}}
    records = mocked.cluster(ali({**changes, "data_nodes": {"type": "ecs.i4.8xlarge"}}))
    documents = [(r.name, r.inputs["policyDocument"], ELEMENTS - {"Principal"}) for r in records.of("Policy")]
    documents += [(r.name, r.inputs["assumeRolePolicyDocument"], ELEMENTS - {"Resource"}) for r in records.of("Role")]
    assert len(documents) > 8
    for name, text, elements in documents:
        policy = json.loads(text)
        assert len(text) <= 6144, name
        assert policy.keys() == {"Version", "Statement"}, name
        assert policy["Version"] == "1", name
        for statement in policy["Statement"]:
            assert statement.keys() <= elements, name
            assert statement["Effect"] in {"Allow", "Deny"}, name


def test_nobody_logs_in_but_by_session_manager(mocked, ali):
    records = mocked.cluster(ali(PEOPLE))
    assert not any("keyPairName" in record.inputs or "keyName" in record.inputs for record in records.all), "SSH"
    ports = {r.inputs["portRange"] for r in records.of("SecurityGroupRule") if r.inputs["type"] == "ingress"}
    assert ports == {"-1/-1"}, "from nodes alone"


def test_what_the_record_doesnt_have_of_sessions_is_said(ali):
    recorded = {**PEOPLE, "audit.enabled": True, "audit.emails": ["a@example.com"]}
    said = [str(finding) for finding in review("c1", parse(ali(recorded)))[1]]
    assert any(
        line.startswith("security.operators: the record says who opened a session, not what was") for line in said
    )
    assert not any("Session" in str(finding) for finding in review("c1", parse(ali({"network.egress": "nat"})))[1])
