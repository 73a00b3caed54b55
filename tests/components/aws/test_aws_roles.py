"""Roles of people: who may take them, and what each may and may not do, judged by evaluating the documents."""

import json
from dataclasses import replace

import pytest

from components.aws.grants import (
    Ours,
    Recorded,
    auditor_policy,
    operator_policy,
    people_trust,
    session_document,
    session_node_policy,
    trainer_policy,
)
from components.checks import review
from components.findings import Invalid
from components.security_checks import LONGEST_TRUST
from components.spec import parse
from tests.components.aws.policies import allows

ACCOUNT = "123456789012"
BUCKET = "arn:aws:s3:::b"
DATA = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/data"
LOGS = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/logs"
GROUP = f"arn:aws:autoscaling:us-west-2:{ACCOUNT}:autoScalingGroup:u:autoScalingGroupName/c1-nodes-1a2b3c4"
DOCUMENT = f"arn:aws:ssm:us-west-2:{ACCOUNT}:document/c1-sessions-1a2b3c4"
SHELL = f"arn:aws:ssm:us-west-2:{ACCOUNT}:document/SSM-SessionManagerRunShell"
NODE = f"arn:aws:ec2:us-west-2:{ACCOUNT}:instance/i-0123456789abcdef0"
SESSION = f"arn:aws:ssm:us-west-2:{ACCOUNT}:session/ann-0a1b"
TRAIL = f"arn:aws:cloudtrail:us-west-2:{ACCOUNT}:trail/c1-audit-1a2b3c4"
RECORD = "arn:aws:s3:::record"
LOG = f"arn:aws:logs:us-west-2:{ACCOUNT}:log-group:c1-trail-1a2b3c4"
QUEUE = f"arn:aws:sqs:us-west-2:{ACCOUNT}:c1-queue-1a2b3c4"
OURS = Ours("us-west-2", ACCOUNT, "c1", BUCKET, DATA, GROUP, f"arn:aws:iam::{ACCOUNT}:role/c1-*")
RECORDED = Recorded(RECORD, LOGS, TRAIL, (LOG,))

BY_S3 = {"kms:ViaService": "s3.us-west-2.amazonaws.com"}
ON_NODE = {"ssm:resourceTag/trainwright:cluster": "c1", "ssm:SessionDocumentAccessCheck": "true"}
OWN = {"ssm:resourceTag/aws:ssmmessages:session-id": "AROA:ann", "aws:userid": "AROA:ann"}

TRAINER = [
    ("s3:ListBucket", BUCKET, {}, True),
    ("s3:PutObject", f"{BUCKET}/datasets/text/shard-00000.bin", {}, True),
    ("s3:GetObject", f"{BUCKET}/datasets/text/index.json", {}, True),
    ("s3:GetObject", f"{BUCKET}/runs/r/checkpoints/step-000000050/manifest.json", {}, True),
    ("s3:GetObject", f"{BUCKET}/fleet.json", {}, True),
    ("kms:GenerateDataKey", DATA, BY_S3, True),
    ("kms:Decrypt", DATA, BY_S3, True),
    ("kms:Decrypt", DATA, {}, False),
    ("kms:Decrypt", LOGS, BY_S3, False),
    ("s3:PutObject", f"{BUCKET}/runs/r/control/outcome.json", {}, False),
    ("s3:PutObject", f"{BUCKET}/bundles/0.tar", {}, False),
    ("s3:PutObject", f"{BUCKET}/fleet.json", {}, False),
    ("s3:GetObject", f"{BUCKET}/bundles/0.tar", {}, False),
    ("s3:DeleteObject", f"{BUCKET}/datasets/text/index.json", {}, True),
    ("s3:DeleteObject", f"{BUCKET}/datasets/text/shard-00000.bin", {}, False),
    ("s3:DeleteObject", f"{BUCKET}/runs/r/datasets/x/index.json", {}, False),
    ("s3:ListBucketMultipartUploads", BUCKET, {}, True),
    ("s3:ListMultipartUploadParts", f"{BUCKET}/datasets/text/shard-00000.bin", {}, True),
    ("s3:ListMultipartUploadParts", f"{BUCKET}/runs/r/x", {}, False),
    ("s3:GetObject", f"{RECORD}/AWSLogs/x", {}, False),
    ("s3:PutBucketPolicy", BUCKET, {}, False),
    ("autoscaling:SetDesiredCapacity", GROUP, {}, False),
    ("ssm:StartSession", NODE, ON_NODE, False),
    ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/c1-node", {}, False),
]

ANEW = {"s3:if-none-match": "*"}
BY_SQS = {"kms:ViaService": "sqs.us-west-2.amazonaws.com"}

SUBMITTER = [
    ("s3:PutObject", f"{BUCKET}/queue/000001.json", ANEW, True),
    ("s3:PutObject", f"{BUCKET}/bundles/code-0a.tar", ANEW, True),
    ("s3:PutObject", f"{BUCKET}/runs/r/control/outcome.json", ANEW, True),
    ("s3:PutObject", f"{BUCKET}/runs/r/audit/launch-0a.json", ANEW, True),
    ("s3:PutObject", f"{BUCKET}/runs/r/audit/launch-0a.json", {}, False),
    ("s3:GetObject", f"{BUCKET}/queue/000001.json", {}, True),
    ("sqs:SendMessage", QUEUE, {}, True),
    ("kms:GenerateDataKey", DATA, BY_SQS, True),
    ("s3:PutObject", f"{BUCKET}/queue/000001.json", {}, False),
    ("s3:PutObject", f"{BUCKET}/runs/r/control/outcome.json", {}, False),
    ("s3:PutObject", f"{BUCKET}/bundles/0a.tar", ANEW, False),
    ("s3:PutObject", f"{BUCKET}/runs/r/control/generations/000001.json", ANEW, False),
    ("s3:PutObject", f"{BUCKET}/runs/r/audit/retry-1.json", ANEW, False),
    ("s3:DeleteObject", f"{BUCKET}/queue/000001.json", {}, False),
    ("sqs:DeleteMessage", QUEUE, {}, False),
    ("sqs:ReceiveMessage", QUEUE, {}, False),
    ("sqs:PurgeQueue", QUEUE, {}, False),
    ("sqs:SendMessage", QUEUE.replace("c1-", "c2-"), {}, False),
]

OPERATOR = [
    ("autoscaling:DescribeAutoScalingGroups", "*", {}, True),
    ("autoscaling:ResumeProcesses", GROUP, {}, True),
    ("autoscaling:ResumeProcesses", GROUP.replace("c1-", "c2-"), {}, False),
    ("autoscaling:SuspendProcesses", GROUP, {}, False),
    ("autoscaling:SetDesiredCapacity", GROUP, {}, True),
    ("ssm:StartSession", NODE, ON_NODE, True),
    ("ssm:StartSession", DOCUMENT, {"ssm:SessionDocumentAccessCheck": "true"}, True),
    ("ssmmessages:OpenDataChannel", SESSION, {}, True),
    ("ssm:TerminateSession", SESSION, OWN, True),
    ("autoscaling:SetDesiredCapacity", GROUP.replace("c1-", "c2-"), {}, False),
    ("autoscaling:UpdateAutoScalingGroup", GROUP, {}, False),
    ("autoscaling:DeleteAutoScalingGroup", GROUP, {}, False),
    ("ssm:StartSession", NODE, {**ON_NODE, "ssm:resourceTag/trainwright:cluster": "c2"}, False),
    ("ssm:StartSession", NODE, {"ssm:SessionDocumentAccessCheck": "true"}, False),
    ("ssm:StartSession", NODE, {**ON_NODE, "ssm:SessionDocumentAccessCheck": "false"}, False),
    ("ssm:StartSession", SHELL, ON_NODE, False),
    ("ssm:TerminateSession", SESSION, {**OWN, "aws:userid": "AROA:bob"}, False),
    ("ssm:TerminateSession", SESSION, {}, False),
    ("ssm:SendCommand", NODE, ON_NODE, False),
    ("s3:GetObject", f"{BUCKET}/runs/r/x", {}, False),
    ("s3:ListBucket", BUCKET, {}, False),
    ("kms:Decrypt", DATA, BY_S3, False),
    ("ec2:RunInstances", "*", {}, False),
    ("ec2:TerminateInstances", NODE, {}, False),
    ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/c1-node", {}, False),
]

AUDITOR = [
    ("cloudtrail:GetTrailStatus", TRAIL, {}, True),
    ("cloudtrail:LookupEvents", "*", {}, True),
    ("logs:FilterLogEvents", LOG, {}, True),
    ("logs:GetLogEvents", f"{LOG}:log-stream:x", {}, True),
    ("s3:GetObject", f"{RECORD}/AWSLogs/{ACCOUNT}/CloudTrail/x.json.gz", {}, True),
    ("s3:ListBucket", RECORD, {}, True),
    ("kms:Decrypt", LOGS, BY_S3, True),
    ("s3:GetBucketPolicy", BUCKET, {}, True),
    ("s3:GetBucketObjectLockConfiguration", RECORD, {}, True),
    ("kms:GetKeyPolicy", DATA, {}, True),
    ("iam:GetRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/c1-node-1a2b3c4", {}, True),
    ("ec2:DescribeSecurityGroupRules", "*", {}, True),
    ("s3:GetObject", f"{BUCKET}/runs/r/x", {}, False),
    ("s3:ListBucket", BUCKET, {}, False),
    ("kms:Decrypt", DATA, BY_S3, False),
    ("kms:Decrypt", LOGS, {}, False),
    ("kms:PutKeyPolicy", LOGS, {}, False),
    ("s3:DeleteObject", f"{RECORD}/AWSLogs/x", {}, False),
    ("s3:DeleteObjectVersion", f"{RECORD}/AWSLogs/x", {}, False),
    ("s3:BypassGovernanceRetention", f"{RECORD}/AWSLogs/x", {}, False),
    ("s3:PutObjectRetention", f"{RECORD}/AWSLogs/x", {}, False),
    ("cloudtrail:StopLogging", TRAIL, {}, False),
    ("cloudtrail:DeleteTrail", TRAIL, {}, False),
    ("logs:DeleteLogGroup", LOG, {}, False),
    ("logs:PutRetentionPolicy", LOG, {}, False),
    ("iam:GetRole", f"arn:aws:iam::{ACCOUNT}:role/admin", {}, False),
    ("iam:PutRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/c1-auditor", {}, False),
    ("autoscaling:SetDesiredCapacity", GROUP, {}, False),
    ("ssm:StartSession", NODE, ON_NODE, False),
]


@pytest.mark.parametrize(("action", "resource", "context", "allowed"), TRAINER)
def test_a_trainer_puts_datasets_and_reads_runs_and_nothing_more(action, resource, context, allowed):
    assert allows(trainer_policy(OURS), action, resource, context) is allowed


@pytest.mark.parametrize(("action", "resource", "context", "allowed"), SUBMITTER)
def test_where_there_is_a_queue_a_trainer_submits_and_ends_runs_and_changes_none(action, resource, context, allowed):
    assert allows(trainer_policy(replace(OURS, queue=QUEUE)), action, resource, context) is allowed
    assert not allows(trainer_policy(OURS), action, resource, context), "without a queue there is nothing to submit to"


@pytest.mark.parametrize(("action", "resource", "context", "allowed"), OPERATOR)
def test_an_operator_runs_the_group_and_sees_no_data(action, resource, context, allowed):
    assert allows(operator_policy(OURS, DOCUMENT), action, resource, context) is allowed


@pytest.mark.parametrize(("action", "resource", "context", "allowed"), AUDITOR)
def test_an_auditor_reads_record_and_settings_and_changes_nothing(action, resource, context, allowed):
    assert allows(auditor_policy(OURS, RECORDED), action, resource, context) is allowed


def test_without_a_record_an_auditor_reads_settings_alone():
    policy = auditor_policy(OURS, None)
    assert allows(policy, "s3:GetBucketPolicy", BUCKET)
    for action, resource in (("s3:GetObject", f"{RECORD}/x"), ("logs:GetLogEvents", LOG), ("kms:Decrypt", LOGS)):
        assert not allows(policy, action, resource, BY_S3)


@pytest.mark.parametrize(
    "policy", [trainer_policy(OURS), operator_policy(OURS, DOCUMENT), auditor_policy(OURS, RECORDED)]
)
def test_no_role_is_granted_by_wildcard_and_no_change_goes_to_every_resource(policy):
    for statement in policy["Statement"]:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert not any("*" in action for action in actions)
        if statement["Resource"] == "*":
            reads = ("Describe", "Get", "List", "Lookup", "View")
            assert all(action.split(":")[1].startswith(reads) for action in actions), statement["Sid"]


def test_every_operators_way_to_a_session_asks_for_the_document():
    """A single statement without it lets the account's own, unrecorded document in."""
    statements = operator_policy(OURS, DOCUMENT)["Statement"]
    opening = [s for s in statements if "ssm:StartSession" in s["Action"]]
    assert len(opening) == 2
    for statement in opening:
        assert statement["Condition"]["BoolIfExists"] == {"ssm:SessionDocumentAccessCheck": "true"}


ANN, TEAM = f"arn:aws:iam::{ACCOUNT}:user/ann", f"arn:aws:iam::{ACCOUNT}:role/team/ops"
PEOPLE = {
    "network.egress": "endpoints",
    "security.trainers": [ANN],
    "security.operators": [ANN, TEAM],
    "security.auditors": [TEAM],
}


def test_only_those_listed_take_a_role(mocked, stack):
    records = mocked.cluster(stack(PEOPLE))
    for purpose, listed in (("trainer", [ANN]), ("operator", [ANN, TEAM]), ("auditor", [TEAM])):
        trust = json.loads(records.one("Role", f"c1-{purpose}").inputs["assumeRolePolicy"])
        assert trust == people_trust(tuple(listed))
        (statement,) = trust["Statement"]
        assert statement["Principal"] == {"AWS": listed}
        assert statement["Action"] == "sts:AssumeRole"


def test_where_nobody_is_listed_there_is_no_role(mocked, stack):
    records = mocked.cluster(stack())
    assert [record.name for record in records.of("Role")] == ["c1-node"]
    assert not records.of("Document")


@pytest.mark.parametrize(
    "principal",
    ["*", f"arn:aws:iam::{ACCOUNT}:root", f"arn:aws:iam::{ACCOUNT}:role/*", ACCOUNT, "arn:aws:iam::1:user/ann"],
)
def test_a_role_is_not_opened_to_an_account_or_to_everybody(stack, principal):
    with pytest.raises(Invalid, match=r"security\.trainers\.0: .* is not of the right form"):
        parse(stack({"security.trainers": [principal]}))


def test_the_policies_are_about_this_cluster(mocked, stack):
    records = mocked.cluster(stack(PEOPLE))
    key, group = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/key-1", f"arn:aws:mock::{ACCOUNT}:c1-nodes"
    ours = Ours(
        *("us-west-2", ACCOUNT, "c1", "arn:aws:s3:::c1-data-1a2b3c4", key, group), f"arn:aws:iam::{ACCOUNT}:role/c1-*"
    )
    given = {record.name: json.loads(record.inputs["policy"]) for record in records.of("RolePolicy")}
    assert given["c1-trainer"] == trainer_policy(ours)
    assert given["c1-operator"] == operator_policy(ours, f"arn:aws:mock::{ACCOUNT}:c1-sessions")
    assert given["c1-auditor"] == auditor_policy(ours, None)
    assert given["c1-sessions"] == session_node_policy(None)


def test_nodes_connect_to_session_manager_only_where_there_are_operators(mocked, stack):
    assert [record.name for record in mocked.cluster(stack()).of("RolePolicy")] == ["c1-node"]
    records = mocked.cluster(stack(PEOPLE))
    assert records.one("RolePolicy", "c1-sessions").inputs["role"] == "c1-node-id"
    assert not any(record.inputs.get("fromPort") == 22 or "keyName" in record.inputs for record in records.all), "SSH"


@pytest.mark.parametrize("action", ["ssm:SendCommand", "ssm:GetParameter", "s3:GetObject", "logs:CreateLogGroup"])
def test_a_node_connects_and_records_and_nothing_more(action):
    assert not allows(session_node_policy(LOG), action, "arn:aws:any")


def test_sessions_are_recorded_in_the_encrypted_group(mocked, stack):
    changes = {**PEOPLE, "audit.enabled": True, "audit.emails": ["a@example.com"]}
    records = mocked.cluster(stack(changes))
    group = records.one("LogGroup", "c1-sessions")
    assert group.inputs["kmsKeyId"]
    inputs = json.loads(records.one("Document").inputs["content"])["inputs"]
    assert inputs["cloudWatchLogGroupName"] == "c1-sessions"
    assert inputs["cloudWatchEncryptionEnabled"] is inputs["cloudWatchStreamingEnabled"] is True
    policy = json.loads(records.one("RolePolicy", "c1-sessions").inputs["policy"])
    arn = f"arn:aws:mock::{ACCOUNT}:c1-sessions"
    assert allows(policy, "logs:PutLogEvents", f"{arn}:log-stream:ann-0a1b")
    assert not allows(policy, "logs:PutLogEvents", f"arn:aws:mock::{ACCOUNT}:c1-trail:log-stream:x")


def test_idle_sessions_end():
    inputs = session_document("")["inputs"]
    assert 1 <= int(inputs["idleSessionTimeout"]) <= 60
    assert 1 <= int(inputs["maxSessionDuration"]) <= 1440


def test_those_who_may_take_a_role_fit_into_its_trust(stack):
    many = [f"arn:aws:iam::{ACCOUNT}:role/{'x' * 60}-{index}" for index in range(20)]
    with pytest.raises(Invalid, match=r"security\.trainers: 20 ARNs are \d+ characters, of at most 1900"):
        review("c1", parse(stack({"security.trainers": many})))
    fitting = tuple(many[: LONGEST_TRUST // (len(many[0]) + 4)])
    review("c1", parse(stack({"security.trainers": fitting})))
    assert len(json.dumps(people_trust(fitting))) <= 2048
