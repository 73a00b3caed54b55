"""The record: what is recorded, where it goes, that nobody changes it, and who is told."""

import json

import pytest

from components.aws.alarms import WATCHES, dashboard, topic_policy
from components.aws.audit import LOG_RETENTIONS, log_retention, trail_arn, writer_policy
from components.aws.fleet import METRICS
from components.aws.security import logs_key_policy
from components.aws.storage import audit_bucket_policy, audit_lifecycle
from components.checks import review
from components.findings import Invalid, Severity
from components.spec import parse
from tests.components.aws.policies import allows, denies, of

ACCOUNT = "123456789012"
BUCKET = "arn:aws:s3:::c1-audit-1a2b3c4"
NAME = "c1-audit-1a2b3c4"
TRAIL = f"arn:aws:cloudtrail:us-west-2:{ACCOUNT}:trail/{NAME}"
KEY = "any key"
AUDIT = {
    "audit.enabled": True,
    "audit.retention_days": 400,
    "audit.lock_days": 30,
    "audit.budget_usd": 1000,
    "audit.emails": ["a@example.com", "b@example.com"],
}


@pytest.fixture
def audited(mocked, stack):
    return mocked.cluster(stack(AUDIT))


def test_the_trail_is_of_all_regions_validated_encrypted_and_on(audited):
    trail = audited.one("Trail").inputs
    for name in ("isMultiRegionTrail", "includeGlobalServiceEvents", "enableLogFileValidation", "enableLogging"):
        assert trail[name] is True
    assert trail["kmsKeyId"] == f"arn:aws:kms:us-west-2:{ACCOUNT}:key/key-1"
    assert audited.one("Key", "c1-logs").urn in audited.one("Trail").dependencies
    assert (trail["name"], trail["s3BucketName"]) == (NAME, NAME)
    assert trail["cloudWatchLogsGroupArn"] == f"arn:aws:mock::{ACCOUNT}:c1-trail:*"


def test_the_trail_records_calls_on_objects_of_the_runs_bucket_and_of_no_other(audited):
    management, data = audited.one("Trail").inputs["advancedEventSelectors"]
    assert management["fieldSelectors"] == [{"field": "eventCategory", "equals": ["Management"]}]
    fields = {f["field"]: {k: v for k, v in f.items() if k != "field"} for f in data["fieldSelectors"]}
    assert fields == {
        "eventCategory": {"equals": ["Data"]},
        "resources.type": {"equals": ["AWS::S3::Object"]},
        "resources.ARN": {"startsWiths": ["arn:aws:s3:::c1-data-1a2b3c4/"]},
    }


def test_the_record_is_locked_versioned_encrypted_and_closed(audited):
    assert audited.one("Bucket", "c1-audit").inputs["objectLockEnabled"] is True
    assert audited.one("BucketObjectLockConfiguration").inputs["rule"] == {
        "defaultRetention": {"mode": "GOVERNANCE", "days": 30}
    }
    assert audited.one("BucketVersioning", "c1-audit").inputs["versioningConfiguration"] == {"status": "Enabled"}
    block = audited.one("BucketPublicAccessBlock", "c1-audit").inputs
    assert sum(value is True for value in block.values()) == 4
    (rule,) = audited.one("BucketServerSideEncryptionConfiguration", "c1-audit").inputs["rules"]
    assert rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "aws:kms"
    assert rule["bucketKeyEnabled"] is False, "CloudTrail would have to be let decrypt"


def test_a_lock_of_compliance_is_one(mocked, stack):
    records = mocked.cluster(stack({**AUDIT, "audit.lock": "compliance"}))
    rule = records.one("BucketObjectLockConfiguration").inputs["rule"]
    assert rule["defaultRetention"]["mode"] == "COMPLIANCE"


def test_nothing_is_written_before_the_bucket_is_locked_and_no_node_runs_before_the_record(audited):
    governs = {
        audited.one(kind, "c1-audit").urn
        for kind in (
            *("BucketPublicAccessBlock", "BucketServerSideEncryptionConfiguration", "BucketVersioning"),
            *("BucketPolicy", "BucketObjectLockConfiguration"),
        )
    }
    trail = audited.one("Trail")
    assert governs | {audited.one("RolePolicy", "c1-trail").urn} <= trail.dependencies
    assert {trail.urn, audited.one("FlowLog").urn} <= audited.one("Group").dependencies


def test_the_record_goes_when_its_days_are_over():
    (rule,) = audit_lifecycle(400)
    assert rule["expiration"] == {"days": 400}
    assert rule["filter"] == {}


BY_TRAIL = {"aws:SourceArn": TRAIL, "s3:x-amz-acl": "bucket-owner-full-control", "aws:PrincipalIsAWSService": "true"}
WRITE = f"{BUCKET}/AWSLogs/{ACCOUNT}/CloudTrail/us-west-2/x.json.gz"


@pytest.mark.parametrize("tls", ["1.2", "1.3"])
def test_cloudtrail_writes_for_this_trail_alone_and_is_not_asked_for_new_tls(tls):
    policy = audit_bucket_policy(BUCKET, tls, ACCOUNT, TRAIL)
    service = of(policy, {"Service": "cloudtrail.amazonaws.com"})
    everybody = of(policy, "*")
    assert allows(service, "s3:GetBucketAcl", BUCKET, BY_TRAIL)
    assert allows(service, "s3:PutObject", WRITE, BY_TRAIL)
    assert not denies(everybody, "s3:PutObject", WRITE, {**BY_TRAIL, "s3:TlsVersion": "1.2"})
    another = {**BY_TRAIL, "aws:SourceArn": TRAIL.replace("c1", "c2")}
    assert not allows(service, "s3:PutObject", WRITE, another)
    assert not allows(service, "s3:GetBucketAcl", BUCKET, another)
    assert not allows(service, "s3:PutObject", f"{BUCKET}/elsewhere", BY_TRAIL)
    assert not allows(service, "s3:GetObject", WRITE, BY_TRAIL)
    assert not allows(service, "s3:DeleteObject", WRITE, BY_TRAIL)
    assert denies(everybody, "s3:GetObject", WRITE, {"aws:SecureTransport": "false"})


def test_the_audit_buckets_policy_names_this_trail(audited):
    policy = json.loads(audited.one("BucketPolicy", "c1-audit").inputs["policy"])
    assert policy == audit_bucket_policy(BUCKET, "1.2", ACCOUNT, TRAIL)
    assert trail_arn("us-west-2", ACCOUNT, NAME) == TRAIL


def _logs_key(service):
    return of(logs_key_policy("c1", "us-west-2", ACCOUNT, TRAIL), {"Service": service})


def test_the_logs_key_serves_this_trail_alone():
    policy = _logs_key("cloudtrail.amazonaws.com")
    context = {"aws:SourceArn": TRAIL, "kms:EncryptionContext:aws:cloudtrail:arn": TRAIL}
    assert allows(policy, "kms:GenerateDataKey", KEY, context)
    assert allows(policy, "kms:DescribeKey", KEY, context)
    assert not allows(policy, "kms:GenerateDataKey", KEY, {**context, "aws:SourceArn": TRAIL + "2"})
    foreign = TRAIL.replace(ACCOUNT, "999999999999")
    of_another = {**context, "kms:EncryptionContext:aws:cloudtrail:arn": foreign}
    assert not allows(policy, "kms:GenerateDataKey", KEY, of_another)
    assert not allows(policy, "kms:Decrypt", KEY, context)


@pytest.mark.parametrize(
    ("group", "allowed"),
    [
        (f"arn:aws:logs:us-west-2:{ACCOUNT}:log-group:c1-trail-1a2b3c4", True),
        (f"arn:aws:logs:us-west-2:{ACCOUNT}:log-group:other", False),
        ("arn:aws:logs:us-west-2:999999999999:log-group:c1-trail-1a2b3c4", False),
        (f"arn:aws:logs:eu-west-1:{ACCOUNT}:log-group:c1-trail-1a2b3c4", False),
    ],
)
def test_the_logs_key_serves_the_clusters_log_groups_alone(group, allowed):
    policy = _logs_key("logs.us-west-2.amazonaws.com")
    for action in ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:DescribeKey"):
        assert allows(policy, action, KEY, {"kms:EncryptionContext:aws:logs:arn": group}) is allowed
    assert not allows(policy, "kms:ScheduleKeyDeletion", KEY, {"kms:EncryptionContext:aws:logs:arn": group})


def test_alarms_reach_the_encrypted_topic_from_the_account_alone():
    """With AWS's own key for SNS an alarm can't publish, and nobody is told."""
    for policy, action in (
        (_logs_key("cloudwatch.amazonaws.com"), "kms:GenerateDataKey"),
        (topic_policy("topic", ACCOUNT), "sns:Publish"),
    ):
        resource = "topic" if action == "sns:Publish" else KEY
        assert allows(policy, action, resource, {"aws:SourceAccount": ACCOUNT})
        assert not allows(policy, action, resource, {"aws:SourceAccount": "999999999999"})
        assert not allows(policy, action, resource)


@pytest.mark.parametrize("name", ["c1-data", "c1-logs"])
def test_k2_the_account_keeps_each_key_and_no_lockout_check_is_bypassed(audited, name):
    key = audited.one("Key", name).inputs
    first = json.loads(key["policy"])["Statement"][0]
    assert (first["Principal"], first["Action"]) == ({"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "kms:*")
    assert key["enableKeyRotation"] is True
    assert not key.get("bypassPolicyLockoutSafetyCheck")


def test_each_purpose_has_its_key_and_nodes_are_granted_none_of_the_logs(audited):
    assert {record.name for record in audited.of("Key")} == {"c1-data", "c1-logs", "c1-evidence"}
    logs = json.loads(audited.one("Key", "c1-logs").inputs["policy"])
    assert not any("autoscaling" in json.dumps(statement) for statement in logs["Statement"])


def test_every_log_group_is_encrypted_and_kept_for_at_least_the_days_asked(audited):
    groups = audited.of("LogGroup")
    assert {group.name for group in groups} == {"c1-trail", "c1-flow"}
    for group in groups:
        assert group.inputs["kmsKeyId"]
        assert group.inputs["retentionInDays"] == 400


@pytest.mark.parametrize(("asked", "kept"), [(1, 1), (2, 3), (91, 120), (366, 400), (3000, 3288), (3653, 3653)])
def test_a_log_group_is_kept_for_days_that_cloudwatch_knows_and_never_for_fewer(asked, kept):
    assert log_retention(asked) == kept
    assert kept in LOG_RETENTIONS


def test_whatever_days_the_file_may_ask_for_there_are_days_for_a_log_group(stack):
    parse(stack({"audit.retention_days": LOG_RETENTIONS[-1]}))
    with pytest.raises(Invalid):
        parse(stack({"audit.retention_days": LOG_RETENTIONS[-1] + 1}))


def test_all_flows_of_the_vpc_are_recorded(audited):
    flow = audited.one("FlowLog").inputs
    assert (flow["vpcId"], flow["trafficType"], flow["maxAggregationInterval"]) == ("c1-vpc-id", "ALL", 60)
    assert flow["logDestination"] == f"arn:aws:mock::{ACCOUNT}:c1-flow"


def test_in_a_vpc_that_is_brought_flows_of_the_clusters_subnets_are_recorded(mocked, stack):
    brought = {
        "network.cidr": None,
        "network.vpc": "vpc-0123456789abcdef0",
        "network.subnets": ["subnet-0123456789abcdef0"],
        "network.route_tables": ["rtb-0123456789abcdef0"],
    }
    (flow,) = mocked.cluster(stack({**AUDIT, **brought})).of("FlowLog")
    assert (flow.name, flow.inputs["subnetId"]) == ("c1-flow-a", "subnet-0123456789abcdef0")
    assert "vpcId" not in flow.inputs


def test_flow_logs_of_the_account_alone_take_their_role(audited):
    trust = json.loads(audited.one("Role", "c1-flow").inputs["assumeRolePolicy"])
    (statement,) = trust["Statement"]
    assert statement["Principal"] == {"Service": "vpc-flow-logs.amazonaws.com"}
    assert statement["Condition"] == {
        "StringEquals": {"aws:SourceAccount": ACCOUNT},
        "ArnLike": {"aws:SourceArn": f"arn:aws:ec2:us-west-2:{ACCOUNT}:vpc-flow-log/*"},
    }


def test_cloudtrail_takes_its_role_without_conditions_or_nothing_arrives(audited):
    """Where it writes to a log group it states no source, and a condition on one never holds (prowler#4714)."""
    (statement,) = json.loads(audited.one("Role", "c1-trail").inputs["assumeRolePolicy"])["Statement"]
    assert statement["Principal"] == {"Service": "cloudtrail.amazonaws.com"}
    assert "Condition" not in statement


@pytest.mark.parametrize("name", ["c1-trail", "c1-flow"])
def test_a_service_writes_to_its_own_log_group_alone(audited, name):
    policy = json.loads(audited.one("RolePolicy", name).inputs["policy"])
    arn = f"arn:aws:mock::{ACCOUNT}:{name}"
    assert policy == writer_policy(arn)
    assert allows(policy, "logs:PutLogEvents", f"{arn}:log-stream:x")
    assert not allows(policy, "logs:PutLogEvents", f"{arn}2:log-stream:x")
    assert not allows(policy, "logs:DeleteLogStream", f"{arn}:log-stream:x")


def test_the_budget_tells_everyone_before_and_when_it_is_spent(audited):
    budget = audited.one("Budget").inputs
    assert (float(budget["limitAmount"]), budget["limitUnit"], budget["timeUnit"]) == (1000, "USD", "MONTHLY")
    assert not budget.get("costFilters"), "a tag that isn't activated would count nothing, and be silent"
    told = budget["notifications"]
    thresholds = [(n["notificationType"], n["threshold"]) for n in told]
    assert thresholds == [("ACTUAL", 80), ("FORECASTED", 100), ("ACTUAL", 100)]
    assert all(n["subscriberEmailAddresses"] == ["a@example.com", "b@example.com"] for n in told)


def test_every_alarm_tells_the_topic_and_the_topic_tells_everyone(audited):
    alarms = audited.of("MetricAlarm")
    own = {"c1-unhealthy", "c1-idle", "c1-missing", "c1-trail-changed", "c1-key-disabled"}
    assert {alarm.name for alarm in alarms} == own | {"c1-failed-nodes"}
    for alarm in alarms:
        told = alarm.inputs["alarmActions"]
        assert (told if alarm.name in own else told[1:]) == [f"arn:aws:mock::{ACCOUNT}:c1-alarms"]
        assert alarm.inputs["treatMissingData"] == "notBreaching"
    assert audited.one("Topic").inputs["kmsMasterKeyId"] == "c1-logs-id"
    subscribed = {r.inputs["endpoint"]: r.name for r in audited.of("TopicSubscription")}
    assert subscribed.keys() == {"a@example.com", "b@example.com"}


def test_c6_nodes_that_do_not_come_are_noticed(audited):
    """The others are paid for and wait for them."""
    alarm = audited.one("MetricAlarm", "c1-missing").inputs
    desired, running, missing = alarm["metricQueries"]
    assert [query["metric"]["metricName"] for query in (desired, running)] == [
        "GroupDesiredCapacity",
        "GroupInServiceInstances",
    ]
    assert all(query["metric"]["dimensions"] == {"AutoScalingGroupName": "c1-nodes"} for query in (desired, running))
    assert (missing["expression"], missing["returnData"]) == ("desired - running", True)
    assert (alarm["threshold"], alarm["comparisonOperator"]) == (0, "GreaterThanThreshold")
    assert alarm["evaluationPeriods"] * desired["metric"]["period"] == 30 * 60
    assert audited.one("Group").inputs["enabledMetrics"] == list(METRICS), "a metric that isn't collected never alarms"


def test_who_is_told_changes_without_changing_the_others(mocked, stack):
    before = mocked.cluster(stack(AUDIT)).of("TopicSubscription")
    (after,) = mocked.cluster(stack({**AUDIT, "audit.emails": ["b@example.com"]})).of("TopicSubscription")
    assert (after.name, after.inputs["endpoint"]) in {(r.name, r.inputs["endpoint"]) for r in before}


def test_changes_to_the_record_itself_are_watched(audited):
    for watch in WATCHES:
        metric = audited.one("LogMetricFilter", f"c1-{watch.name}").inputs
        alarm = audited.one("MetricAlarm", f"c1-{watch.name}").inputs
        assert metric["logGroupName"] == "c1-trail"
        assert metric["pattern"] == watch.pattern
        made = metric["metricTransformation"]
        assert (made["namespace"], made["name"]) == (alarm["namespace"], alarm["metricName"])
    patterns = " ".join(watch.pattern for watch in WATCHES)
    for event in ("StopLogging", "DeleteTrail", "UpdateTrail", "DisableKey", "ScheduleKeyDeletion"):
        assert f"$.eventName = {event}" in patterns


def test_the_dashboard_shows_this_cluster(audited):
    record = audited.one("Dashboard")
    assert record.inputs["dashboardName"] == "c1-nodes", "a fixed name would overwrite another stack's"
    body = json.loads(record.inputs["dashboardBody"])
    assert body == dashboard("us-west-2", "c1-nodes", "c1-data-1a2b3c4", [])


def test_graphs_do_not_overlap_and_the_gateways_are_among_them():
    widgets = dashboard("us-west-2", "g", "b", ["nat-1", "nat-2"])["widgets"]
    assert len({(widget["x"], widget["y"]) for widget in widgets}) == len(widgets) == 6
    assert [metric[-1] for metric in widgets[-1]["properties"]["metrics"]] == ["nat-1", "nat-2"]


def test_production_keeps_the_record_with_all_that_it_takes_to_go_on(mocked, stack):
    records = mocked.cluster(stack({**AUDIT, "production": True}))
    kept = {record.key[0].split(":")[-1] + " " + record.name for record in records.all if record.protect}
    assert {
        *("Bucket c1-audit", "BucketObjectLockConfiguration c1-audit", "BucketPolicy c1-audit", "Key c1-logs"),
        *("BucketPublicAccessBlock c1-audit", "BucketVersioning c1-audit", "BucketLifecycleConfiguration c1-audit"),
        *("BucketServerSideEncryptionConfiguration c1-audit", "BucketOwnershipControls c1-audit"),
        *("Trail c1-audit", "LogGroup c1-trail", "LogGroup c1-flow", "Role c1-trail", "RolePolicy c1-trail"),
    } <= kept
    assert records.one("Bucket", "c1-audit").inputs["forceDestroy"] is False


def test_without_audit_nothing_of_it_is_there(mocked, stack):
    kinds = {record.type.split(":")[-1] for record in mocked.cluster(stack()).all}
    assert not kinds & {"Trail", "FlowLog", "LogGroup", "Budget", "Dashboard", "Topic"}


def _findings(stack, changes):
    try:
        return review("c1", parse(stack(changes)))[1]
    except Invalid as invalid:
        return list(invalid.findings)


@pytest.mark.parametrize(
    ("changes", "line", "severity"),
    [
        ({"production": True}, "audit.enabled: production is true, but nothing would record", Severity.ERROR),
        ({"audit.lock_days": 9, "audit.enabled": False}, "audit.lock_days: does nothing while", Severity.WARNING),
        ({**AUDIT, "audit.lock_days": 401}, "audit.lock_days: the record is locked for 401 days", Severity.ERROR),
        ({**AUDIT, "audit.emails": []}, "audit.emails: alarms would be heard by nobody", Severity.ERROR),
        ({"audit.enabled": True}, "audit.emails: alarms would be heard by nobody", Severity.WARNING),
        ({**AUDIT, "audit.lock": "compliance"}, "audit.lock: nobody, AWS included, can delete", Severity.WARNING),
        ({**AUDIT, "audit.emails": ["nobody"]}, "audit.emails.0: 'nobody' is not of the right form", Severity.ERROR),
    ],
    ids=str,
)
def test_an_audit_that_would_not_be_one_is_told(stack, changes, line, severity):
    (finding,) = _findings(stack, changes)
    assert str(finding).startswith(line)
    assert finding.severity is severity


def test_production_with_audit_passes(stack):
    assert _findings(stack, {**AUDIT, "production": True}) == []
