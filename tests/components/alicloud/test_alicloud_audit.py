"""The record: what is recorded, where it goes, that nobody changes it, and how long it is kept."""

import json
import re

import pulumi
import pytest

from components.alicloud import audit
from components.alicloud.audit import (
    ACCESS,
    FOREVER,
    access_log_policy,
    log_retention,
    log_service_policy,
    trail_logstore,
    trail_name,
)
from components.alicloud.network import Network
from components.alicloud.storage import audit_bucket_policy, audit_lifecycle
from components.checks import review
from components.spec import parse
from emulator.provider import schema
from tests.components.alicloud.policies import allows, denies
from tests.components.conftest import _Outputs
from tests.components.test_declared import _typed

AUDIT = {
    "nodes.fabric": "tcp",
    "audit.enabled": True,
    "audit.retention_days": 400,
    "audit.lock_days": 30,
    "audit.emails": ["a@example.com"],
}
COMPLIANCE = {**AUDIT, "audit.lock": "compliance"}
BUCKET = "c1-audit-1a2b3c4"
KEY = "c1-logs-id"
BROUGHT = {
    **AUDIT,
    "network": {
        "vpc": "vpc-bp1opxu1zkhn00g5lr2ts",
        "zones": ["ap-southeast-1a"],
        "subnets": ["vsw-bp1s5fnvk4gn2tws0362a"],
        "route_tables": ["vtb-bp145q7glnuzdvzu2pgsy"],
    },
}


@pytest.fixture
def declared(mocked, ali):
    """What the record of a stack registers."""

    def declare(changes=None, preview=False, name="c1"):
        plan, _ = review(name, parse(ali({**AUDIT, **(changes or {})})))
        brought = [*plan.spec.network.subnets] or ["vsw-1"]
        network = Network("vpc-1", brought, pulumi.Output.from_input("sg-1"), [], [])

        def program():
            data, claims = (pulumi.Output.from_input(bucket) for bucket in ("c1-data", "c1-data-claims"))
            audit.declare(plan, data, claims, network, pulumi.ResourceOptions())

        return mocked.declare(program, preview=preview)

    return declare


def test_the_trail_is_of_all_regions_of_reads_and_writes_and_on(declared):
    """Created alone it would record nothing: the provider starts it where `status` says so."""
    trail = declared().one("Trail").inputs
    assert trail["trailRegion"] == "All"
    assert trail["eventRw"] == "All"
    assert trail["status"] == "Enable"
    assert trail["ossBucketName"] == BUCKET
    assert trail["isOrganizationTrail"] is False
    project = declared().one("Project").inputs["projectName"]
    assert trail["slsProjectArn"] == f"acs:log:ap-southeast-1:1234567890123456:project/{project}"


@pytest.mark.parametrize("cluster", ["c", "c1", "a-cluster-of-thirty-two-letters-x"[:32], "x" * 32])
def test_the_trails_name_fits_and_keeps_what_makes_it_unique(cluster):
    """6 to 36 characters, lower-case letters, digits, hyphens, a letter first (ActionTrail API, `CreateTrail`)."""
    name = trail_name(f"{cluster}-audit-0a1b2c3")
    assert re.fullmatch(r"[a-z][a-z0-9_-]{5,35}", name)
    assert name.endswith("-0a1b2c3")
    assert "--" not in name


def test_two_clusters_of_one_long_beginning_have_trails_of_their_own(declared):
    one, other = "a-cluster-with-a-long-name-for-a", "a-cluster-with-a-long-name-for-b"
    names = {declared(name=name).one("Trail").inputs["trailName"] for name in (one, other)}
    assert len(names) == 2


@pytest.mark.parametrize("lock", ["governance", "compliance"])
def test_the_record_is_encrypted_closed_and_over_tls_only(declared, lock):
    records = declared({"audit.lock": lock})
    bucket = records.one("Bucket", "c1-audit").inputs
    assert bucket["serverSideEncryptionRule"] == {"sseAlgorithm": "KMS", "kmsMasterKeyId": KEY}
    assert records.one("BucketPublicAccessBlock", "c1-audit").inputs["blockPublicAccess"] is True
    assert records.one("BucketAcl", "c1-audit").inputs["acl"] == "private"
    policy = json.loads(records.one("BucketPolicy", "c1-audit").inputs["policy"])
    assert policy == audit_bucket_policy(BUCKET, lock)
    for resource in (f"acs:oss:*:*:{BUCKET}", f"acs:oss:*:*:{BUCKET}/AliyunLogs/x"):
        assert denies(policy, "oss:PutObject", resource, {"acs:SecureTransport": "false"})
        assert not denies(policy, "oss:PutObject", resource, {"acs:SecureTransport": "true"}), "the trail comes by it"


def test_a_lock_of_compliance_is_oss_own_for_the_days_asked_and_locked_at_once(declared):
    """One that isn't locked within 24 hours is void; and OSS has none where versions are kept."""
    records = declared(COMPLIANCE)
    worm = records.one("BucketWorm").inputs
    assert worm == {"bucket": BUCKET, "retentionPeriodInDays": 30, "status": "Locked"}
    assert "versioning" not in records.one("Bucket", "c1-audit").inputs
    assert not records.of("BucketObjectWormConfiguration"), "for invited accounts alone"


def test_without_it_versions_are_kept_and_nobody_deletes_until_the_policy_is_changed(declared):
    records = declared()
    assert not records.of("BucketWorm")
    assert records.one("Bucket", "c1-audit").inputs["versioning"] == {"status": "Enabled"}
    policy = json.loads(records.one("BucketPolicy", "c1-audit").inputs["policy"])
    over_tls = {"acs:SecureTransport": "true"}
    for action in ("oss:DeleteObject", "oss:DeleteObjectVersion"):
        assert denies(policy, action, f"acs:oss:*:*:{BUCKET}/AliyunLogs/x", over_tls)
        assert not denies(audit_bucket_policy(BUCKET, "compliance"), action, f"acs:oss:*:*:{BUCKET}/x", over_tls)
    for action in ("oss:PutBucketPolicy", "oss:GetObject", "oss:PutObject"):
        assert not denies(policy, action, f"acs:oss:*:*:{BUCKET}", over_tls), "the lock can be lifted, and read past"


@pytest.mark.parametrize(("lock", "versions"), [("governance", [{"days": 30}]), ("compliance", None)])
def test_the_record_goes_when_its_days_are_over_and_what_was_written_over_not_before_the_locks(ali, lock, versions):
    """Who may write could else get rid of a file by writing over it: it goes a day later with the usual rules."""
    (rule,) = audit_lifecycle(parse(ali({**AUDIT, "audit.lock": lock})).audit)
    assert (rule["prefix"], rule["expirations"]) == ("", [{"days": 400}])
    assert rule.get("noncurrent_version_expirations") == versions


def test_nothing_is_written_before_the_bucket_is_locked_and_no_node_runs_before_the_record(declared):
    for changes in ({}, COMPLIANCE):
        records = declared(changes)
        kinds = ("BucketPublicAccessBlock", "BucketAcl", "BucketHttpsConfig", "BucketPolicy")
        governs = {records.one(kind, "c1-audit").urn for kind in kinds} | {r.urn for r in records.of("BucketWorm")}
        for writer in (records.one("Trail"), *records.of("BucketLogging")):
            assert governs <= writer.dependencies
        attached = {record.urn for record in records.of("RolePolicyAttachment") if record.name == "c1-logs"}
        for store in records.of("Store"):
            assert attached <= store.dependencies, "SLS must be able to use the key"
        assert records.one("Store", "c1-trail").urn in records.one("Trail").dependencies, "else it isn't encrypted"


def test_what_must_be_there_first_is_all_that_records(mocked, ali):
    plan, _ = review("c1", parse(ali(AUDIT)))
    network = Network("vpc-1", ["vsw-1"], pulumi.Output.from_input("sg-1"), [], [])
    made = []

    def program():
        child = pulumi.ResourceOptions()
        data, claims = (pulumi.Output.from_input(bucket) for bucket in ("c1-data", "c1-data-claims"))
        made.append(audit.declare(plan, data, claims, network, child))

    mocked.declare(program)
    assert {type(one).__name__ for one in made[0].ready} == {"Trail", "FlowLog", "BucketLogging"}
    assert [type(store).__name__ for store in made[0].log_stores] == ["Store", "Store"]


def test_logstores_are_encrypted_with_the_logs_key_and_kept_for_the_days_asked(declared):
    records = declared()
    role = records.one("Role", "c1-logs")
    trail = records.one("Trail").inputs["trailName"]
    for name, called in (("c1-trail", trail_logstore(trail)), ("c1-flow", "flow")):
        store = records.one("Store", name).inputs
        assert store["logstoreName"] == called
        assert store["projectName"] == records.one("Project").inputs["projectName"]
        assert store["retentionPeriod"] == 400
        assert store["encryptConf"] == {
            "enable": True,
            "encryptType": "default",
            "userCmkInfo": {
                "cmkKeyId": KEY,
                "arn": f"acs:ram::1234567890123456:role/{role.inputs['roleName']}",
                "regionId": "ap-southeast-1",
            },
        }


def test_the_trails_logstore_is_the_one_that_actiontrail_takes(declared):
    """It makes one by that name, with no key and no end, where there is none."""
    records = declared()
    assert records.one("Store", "c1-trail").inputs["logstoreName"] == (
        f"actiontrail_{records.one('Trail').inputs['trailName']}"
    )
    assert [record.name for record in records.of("StoreIndex")] == ["c1-flow"], "the trail's index is ActionTrail's"


@pytest.mark.parametrize(("asked", "kept"), [(1, 1), (400, 400), (3649, 3649), (3650, FOREVER), (3653, FOREVER)])
def test_logs_are_never_kept_for_less_than_asked(asked, kept):
    """From 3650 days on, SLS keeps them for good."""
    assert log_retention(asked) == kept == 3650 or kept == asked


def test_services_take_their_roles_alone_and_use_the_logs_key_alone(declared):
    records = declared()
    for name, service in (("c1-logs", "log.aliyuncs.com"), ("c1-access", "oss.aliyuncs.com")):
        trust = json.loads(records.one("Role", name).inputs["assumeRolePolicyDocument"])
        assert [statement["Principal"] for statement in trust["Statement"]] == [{"Service": [service]}]
        policy = json.loads(records.one("Policy", name).inputs["policyDocument"])
        assert allows(policy, "kms:GenerateDataKey", f"acs:kms:*:*:key/{KEY}")
        assert not allows(policy, "kms:GenerateDataKey", "acs:kms:*:*:key/c1-data-id")
        assert not allows(policy, "kms:ScheduleKeyDeletion", f"acs:kms:*:*:key/{KEY}")


def test_oss_writes_access_logs_into_their_own_part_of_the_audit_bucket_and_reads_nothing():
    policy = access_log_policy(BUCKET, KEY)
    assert allows(policy, "oss:PutObject", f"acs:oss:*:*:{BUCKET}/{ACCESS}c1-data2026-11-30-10-00-00-0001")
    for action, path in (("PutObject", "AliyunLogs/x"), ("GetObject", f"{ACCESS}x"), ("DeleteObject", f"{ACCESS}x")):
        assert not allows(policy, f"oss:{action}", f"acs:oss:*:*:{BUCKET}/{path}")
    assert not allows(log_service_policy(KEY), "oss:PutObject", f"acs:oss:*:*:{BUCKET}/{ACCESS}x")


def test_who_reads_the_buckets_objects_is_in_the_locked_bucket(declared):
    """Claims have what they are about in them: outcomes, records, users' code."""
    records = declared()
    role = records.one("Role", "c1-access").inputs["roleName"]
    for name, bucket in (("c1-access", "c1-data"), ("c1-claims-access", "c1-data-claims")):
        logging = records.one("BucketLogging", name).inputs
        assert (logging["bucket"], logging["targetBucket"], logging["targetPrefix"]) == (bucket, BUCKET, ACCESS)
        assert logging["loggingRole"] == role, "without it, nothing arrives in an encrypted bucket"


def test_flows_of_the_whole_vpc_are_recorded_each_minute(declared):
    records = declared()
    flow = records.one("FlowLog").inputs
    assert (flow["resourceType"], flow["resourceId"], flow["status"]) == ("VPC", "vpc-1", "Active")
    assert (flow["trafficType"], flow["trafficPaths"], flow["aggregationInterval"]) == ("All", ["all"], "1")
    assert flow["logStoreName"] == records.one("Store", "c1-flow").inputs["logstoreName"]
    assert flow["projectName"] == records.one("Project").inputs["projectName"]


def test_in_a_network_that_was_there_flows_of_the_clusters_vswitches_alone(declared):
    flow = declared(BROUGHT).one("FlowLog").inputs
    assert (flow["resourceType"], flow["resourceId"]) == ("VSwitch", "vsw-bp1s5fnvk4gn2tws0362a")


@pytest.mark.parametrize("production", [False, True])
def test_production_keeps_the_record_and_what_it_is_made_by(declared, production):
    records = declared({"production": production})
    for kind in ("Bucket", "Trail", "Project", "Store", "StoreIndex", "Key", "Role"):
        for record in records.of(kind):
            assert (bool(record.protect), bool(record.retain_on_delete)) == (production, production), record.key


def _once(records):
    """Names that there are once, in all of the cloud or in the account, of what stays when the stack goes."""
    kinds = {"Project": "projectName", "Trail": "trailName", "Role": "roleName", "Policy": "policyName"}
    kept = [record for record in records.all if record.retain_on_delete]
    return {
        (kind, record.inputs[name])
        for kind, name in kinds.items()
        for record in kept
        if record.type.endswith(f":{kind}")
    }


def test_a_stack_of_production_that_comes_again_meets_no_name_that_the_last_one_left(declared, monkeypatch):
    """What holds the record stays, and the bucket's name is a new one each time; all others follow from it."""
    before = _once(declared({"production": True}))
    assert {kind for kind, _ in before} == {"Project", "Trail", "Role", "Policy"}
    assert before == _once(declared({"production": True})), "an update of the same stack replaces nothing"
    answer = _Outputs.new_resource

    def again(self, args):
        made, outputs = answer(self, args)
        bucket = {"bucket": f"{args.name}-9f8e7d6"} if args.typ == "alicloud:oss/bucket:Bucket" else {}
        return made, outputs | bucket

    monkeypatch.setattr(_Outputs, "new_resource", again)
    assert not before & _once(declared({"production": True}))


NAMES = {
    "Project": ("projectName", r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"),
    "Store": ("logstoreName", r"[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]"),
    "Trail": ("trailName", r"[a-z][a-z0-9_-]{5,35}"),
    "Role": ("roleName", r"[A-Za-z0-9._-]{1,64}"),
}
"""SLS guide, "Manage projects" and "Manage Logstores"; ActionTrail API, `CreateTrail`; RAM API, `CreateRole`."""

ALLOWED = {
    "Trail": {"eventRw": {"Read", "Write", "All"}, "status": {"Enable", "Disable"}},
    "FlowLog": {
        "resourceType": {"NetworkInterface", "VSwitch", "VPC"},
        "trafficType": {"All", "Allow", "Drop"},
        "aggregationInterval": {"1", "5", "10"},
        "status": {"Active", "Inactive"},
    },
    "BucketWorm": {"status": {"InProgress", "Locked"}},
    "BucketAcl": {"acl": {"private", "public-read", "public-read-write"}},
}
"""What the provider's documents of these resources allow."""

DEPRECATED = {"Project": {"name"}, "Store": {"name", "project"}, "Trail": {"name", "roleName", "mnsTopicArn"}}
"""Each of them excludes what is given instead (`ExactlyOneOf`)."""


@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
@pytest.mark.parametrize("changes", [{}, COMPLIANCE, BROUGHT], ids=["governance", "compliance", "brought"])
def test_every_argument_is_one_that_the_provider_takes(declared, changes, preview):
    for record in declared(changes, preview, name="x" * 32).all:
        kind = record.type.split(":")[-1]
        assert schema.check(schema.resource_type(record.type), _typed(record.inputs)) == [], record.key
        for name, values in ALLOWED.get(kind, {}).items():
            assert record.inputs[name] in values, record.key
        assert not DEPRECATED.get(kind, set()) & record.inputs.keys(), record.key
        if kind in NAMES and not preview:
            name, form = NAMES[kind]
            assert re.fullmatch(form, record.inputs[name]), record.inputs[name]
        if kind == "Store":
            assert 1 <= record.inputs["retentionPeriod"] <= 3650
            assert 1 <= record.inputs["maxSplitShardCount"] <= 256
        if kind == "BucketWorm":
            assert 1 <= record.inputs["retentionPeriodInDays"] <= 70 * 365


def test_a_preview_declares_the_same(declared):
    for changes in ({}, COMPLIANCE, BROUGHT):
        assert {record.key for record in declared(changes, True).all} == {
            record.key for record in declared(changes).all
        }
