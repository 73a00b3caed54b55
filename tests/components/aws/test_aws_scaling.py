"""Policies, alarms, schedules and the queue: what is declared, what it does to the fleet, what the APIs say of it."""

import base64
import json
import math
import operator
import re
from dataclasses import dataclass

import boto3
import botocore.session
import pytest
from botocore.validate import ParamValidator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moto import mock_aws

from components.aws.alarms import dashboard
from components.aws.queue import queue_policy
from components.aws.scaling import MESSAGES, metrics_policy, scaling_graphs
from components.plan import decide
from components.scaling import ACTIVE, FABRIC, GPU, namespace
from components.spec import parse
from emulator.provider.aws.api import ApiError, fit
from emulator.provider.aws.autoscaling import Policy
from tests.components.aws.policies import allows, denies
from trainer.node import metrics
from trainer.node.queue import Turn

ACCOUNT = "123456789012"
BUCKET = "c1-data-1a2b3c4"
SPACE = f"Trainwright/{BUCKET}"
KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/key-1"
SCHEDULE = {"cron": "0 7 * * MON-FRI", "time_zone": "Europe/Berlin", "nodes": 20}
ALL = {
    "nodes.type": "g5.12xlarge",
    "nodes.desired": 20,
    "nodes.max": 200,
    "job.batch": 800,
    "network.egress": "endpoints",
    "scaling": {"gpu_target": 80, "queue": {"backlog": 2, "attempts": 4}, "schedules": [SCHEDULE]},
}
AUDIT = {"audit.enabled": True, "audit.emails": ["a@example.com"]}
SESSION = botocore.session.get_session()


DECLARED = []


@pytest.fixture
def scaled(mocked, stack):
    """What `ALL` registers: once for all tests, since none changes it."""
    if not DECLARED:
        DECLARED.append(mocked.cluster(stack(ALL)))
    return DECLARED[0]


# what is asked of the APIs


def _request(service, operation, props, names=None):
    """The request that these properties make. Fails where the API's model says that it is none."""
    shape = SESSION.get_service_model(service).operation_model(operation).input_shape
    request = fit(shape, {key: value for key, value in props.items() if value not in (None, "")}, names or {})
    report = ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()
    return request


ALARM = {
    "alarmDescription": "AlarmDescription",
    "name": "AlarmName",
    "metricQueries": "Metrics",
    "metricQueries.metric": "MetricStat",
}


def _alarm_request(inputs):
    """The provider's form of queries has a metric's parts side by side, the API's has them within one another."""
    queries = []
    for query in inputs["metricQueries"]:
        rest = {key: value for key, value in query.items() if key != "metric"}
        if metric := query.get("metric"):
            dimensions = [{"Name": name, "Value": value} for name, value in metric.get("dimensions", {}).items()]
            named = {"Namespace": metric["namespace"], "MetricName": metric["metricName"], "Dimensions": dimensions}
            rest["metricStat"] = {"metric": named, "period": metric["period"], "stat": metric["stat"]}
        queries.append(rest)
    return _request("cloudwatch", "PutMetricAlarm", {**inputs, "metricQueries": queries, "name": "a"}, ALARM)


ATTRIBUTES = {
    "kmsMasterKeyId": "KmsMasterKeyId",
    "kmsDataKeyReusePeriodSeconds": "KmsDataKeyReusePeriodSeconds",
    "messageRetentionSeconds": "MessageRetentionPeriod",
    "visibilityTimeoutSeconds": "VisibilityTimeout",
    "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
    "redrivePolicy": "RedrivePolicy",
}


def _queue_request(record):
    values = {key: value for key, value in record.inputs.items() if key != "tags"}
    attributes = {ATTRIBUTES[key]: value if isinstance(value, str) else f"{value:.0f}" for key, value in values.items()}
    request = {"QueueName": record.name, "Attributes": attributes, "tags": record.inputs["tags"]}
    shape = SESSION.get_service_model("sqs").operation_model("CreateQueue").input_shape
    report = ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()
    return request


def test_policies_and_schedules_make_requests_that_auto_scaling_knows(scaled):
    policies = [record for record in scaled.of("Policy") if record.type.startswith("aws:autoscaling")]
    assert {"c1-gpus", "c1-backlog", "c1-idle-to-zero"} <= {record.name for record in policies}
    for record in policies:
        _request("autoscaling", "PutScalingPolicy", {**record.inputs, "name": record.name}, Policy.names)
    given = {key: value for key, value in scaled.one("Schedule").inputs.items() if value != -1}
    _request("autoscaling", "PutScheduledUpdateGroupAction", given)


def test_alarms_and_queues_make_requests_that_their_apis_know_and_the_api_server_takes(scaled):
    alarms = {
        record.name: _alarm_request(record.inputs)
        for record in scaled.of("MetricAlarm")
        if record.name in {"c1-backlog", "c1-idle-to-zero"}
    }
    assert len(alarms) == 2
    dead, queue = (_queue_request(scaled.one("Queue", name)) for name in ("c1-dead-letters", "c1-queue"))
    with mock_aws():
        _send(alarms, dead, queue)


def _send(alarms, dead, queue):
    options = {"region_name": "us-west-2", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    watch, sqs = (boto3.client(name, **options) for name in ("cloudwatch", "sqs"))
    for name, alarm in alarms.items():
        watch.put_metric_alarm(**{**alarm, "AlarmName": name})
    assert len(watch.describe_alarms(AlarmNames=list(alarms))["MetricAlarms"]) == 2
    sqs.create_queue(**dead)
    arn = f"arn:aws:sqs:us-west-2:{ACCOUNT}:c1-dead-letters"
    redrive = {**json.loads(queue["Attributes"]["RedrivePolicy"]), "deadLetterTargetArn": arn}
    url = sqs.create_queue(**{**queue, "Attributes": {**queue["Attributes"], "RedrivePolicy": json.dumps(redrive)}})
    sqs.set_queue_attributes(QueueUrl=url["QueueUrl"], Attributes={"Policy": json.dumps(queue_policy("arn"))})
    got = sqs.get_queue_attributes(QueueUrl=url["QueueUrl"], AttributeNames=["All"])["Attributes"]
    assert (got["KmsMasterKeyId"], got["MessageRetentionPeriod"]) == (KEY, "1209600")


@pytest.mark.parametrize(
    ("service", "operation", "props"),
    [
        ("autoscaling", "PutScalingPolicy", {"autoscalingGroupName": "g", "policyType": "StepScaling"}),
        ("autoscaling", "PutScheduledUpdateGroupAction", {"autoscalingGroupName": "g", "cron": "0 0 * * *"}),
    ],
)
def test_this_files_own_guard_finds_what_is_no_request(service, operation, props):
    with pytest.raises((AssertionError, ApiError)):
        _request(service, operation, props)


# what it does to the fleet


SILENT = None


@dataclass(frozen=True)
class Value:
    """A metric's value in one minute, or none. What is missing makes a sum missing, or counts as zero."""

    number: float | None
    as_zero: bool

    def _and(self, other, how):
        numbers = [value.number if isinstance(value, Value) else value for value in (self, other)]
        if self.as_zero:
            numbers = [number or 0 for number in numbers]
        return Value(None if None in numbers else how(*numbers), self.as_zero)

    def __add__(self, other):
        return self._and(other, operator.add)

    def __sub__(self, other):
        return self._and(other, operator.sub)

    def __truediv__(self, other):
        return self._and(other, operator.truediv)


def _fill(value, other):
    number = other.number if isinstance(other, Value) else other
    return Value(number if value.number is None else value.number, value.as_zero)


def _answers(alarm, minutes, as_zero):
    """What an alarm judges, minute by minute, of its metrics' values, by each expression in its turn."""
    queries = [query for query in alarm["metricQueries"] if query.get("expression")]
    last, answers = {}, []
    for values in minutes:
        known = {name: Value(value, as_zero) for name, value in values.items()}
        last |= {name: value for name, value in known.items() if value.number is not None}
        for query in queries:
            found = re.fullmatch(r"FILL\((\w+), REPEAT\)", query["expression"])
            names = {**known, "FILL": _fill, "REPEAT": last.get(found[1], Value(None, as_zero)) if found else None}
            known[query["id"]] = eval(query["expression"], names)
        (answer,) = (query["id"] for query in queries if query["returnData"])
        answers.append(known[answer].number)
    return answers


def _after(records, waiting, nodes):
    """Nodes of the fleet once its alarm on the backlog has spoken, as Auto Scaling has it (user guide, "Step scaling").

    From what is declared: the alarm's expression, its threshold, the policy's steps, and the group's most.
    """
    alarm, policy = records.one("MetricAlarm", "c1-backlog").inputs, records.one("Policy", "c1-backlog").inputs
    (answer,) = _answers(alarm, [{"waiting": waiting, "nodes": nodes}], as_zero=False)
    breach = answer - alarm["threshold"]
    assert alarm["comparisonOperator"] == "GreaterThanOrEqualToThreshold"
    if breach < 0:
        return nodes
    (added,) = (
        step["scalingAdjustment"]
        for step in policy["stepAdjustments"]
        if float(step["metricIntervalLowerBound"]) <= breach
        and breach < float(step.get("metricIntervalUpperBound", math.inf))
    )
    assert policy["adjustmentType"] == "ChangeInCapacity"
    return min(records.one("Group", "c1-nodes").inputs["maxSize"], nodes + added)


def test_a_backlog_for_two_hundred_takes_twenty_nodes_to_two_hundred_in_one_step(scaled):
    assert _after(scaled, waiting=400, nodes=20) == 200
    assert _after(scaled, waiting=100_000, nodes=20) == 200


def test_from_no_node_a_backlog_starts_a_fleet_in_one_step(scaled):
    """A percentage of no node is no node, and a backlog for each of no nodes is none."""
    assert _after(scaled, waiting=2, nodes=0) == 1
    assert _after(scaled, waiting=400, nodes=0) == 200


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(waiting=st.integers(0, 3000), nodes=st.integers(0, 200))
def test_whatever_waits_the_fleet_grows_to_it_in_one_step_and_never_beyond_its_most_nor_shrinks(scaled, waiting, nodes):
    after, wanted = _after(scaled, waiting, nodes), waiting // 2
    assert nodes <= after <= 200, "nodes that are at work would be ended, or more launched than may be"
    assert after >= min(200, wanted), "a second step would cost the gang a second restart"
    assert wanted > nodes or after == nodes, "a node for nothing"


def test_a_backlog_must_last_and_nodes_on_their_way_count_as_there(mocked, stack):
    records = mocked.cluster(stack({**ALL, "scaling": {**ALL["scaling"], "warmup_seconds": 900}}))
    alarm = records.one("MetricAlarm", "c1-backlog").inputs
    assert [query["metric"]["period"] for query in alarm["metricQueries"][:2]] == [60, 60]
    assert (alarm["evaluationPeriods"], alarm["treatMissingData"]) == (3, "notBreaching")
    assert alarm["alarmActions"] == [f"arn:aws:mock::{ACCOUNT}:c1-backlog"]
    assert records.one("Policy", "c1-backlog").inputs["estimatedInstanceWarmup"] == 900
    assert records.one("Policy", "c1-gpus").inputs["estimatedInstanceWarmup"] == 900


def test_the_backlog_is_of_this_queue_and_the_nodes_are_of_this_group(scaled):
    waiting, nodes, *_ = scaled.one("MetricAlarm", "c1-backlog").inputs["metricQueries"]
    assert (waiting["metric"]["metricName"], waiting["metric"]["dimensions"]) == (
        MESSAGES[0],
        {"QueueName": "c1-queue"},
    )
    assert nodes["metric"]["metricName"] == "GroupInServiceInstances"
    assert nodes["metric"]["dimensions"] == {"AutoScalingGroupName": "c1-nodes"}
    assert nodes["metric"]["metricName"] in scaled.one("Group", "c1-nodes").inputs["enabledMetrics"]


@pytest.mark.parametrize("as_zero", [False, True])
def test_a_fleet_that_is_there_is_not_taken_for_none_where_its_size_is_late_or_missing(scaled, as_zero):
    """Else a backlog for ten would have the fleet's most added to the nodes that it has."""
    alarm = scaled.one("MetricAlarm", "c1-backlog").inputs
    there, late, silent = {"waiting": 60, "nodes": 20}, {"waiting": 60, "nodes": SILENT}, {"nodes": SILENT}
    assert _answers(alarm, [there, late], as_zero) == [10, 10]
    (answer,) = _answers(alarm, [late], as_zero)
    assert answer < alarm["threshold"]
    (answer,) = _answers(alarm, [{"waiting": SILENT, **silent}], as_zero)
    assert (answer or 0) < alarm["threshold"]


def _idle(records, **series):
    """Whether the idle alarm would speak, of each metric's newest values by the minute, whatever missing ones mean."""
    alarm = records.one("MetricAlarm", "c1-idle-to-zero").inputs
    ids, minutes = [query["id"] for query in alarm["metricQueries"][:-1]], int(alarm["evaluationPeriods"])
    assert (alarm["comparisonOperator"], alarm["treatMissingData"]) == ("LessThanOrEqualToThreshold", "notBreaching")
    window = {name: ([SILENT] * minutes + series.get(name, []))[-minutes:] for name in ids}
    values = [{name: window[name][minute] for name in ids} for minute in range(minutes)]

    def speaks(as_zero):
        quiet = [answer is not None and answer <= alarm["threshold"] for answer in _answers(alarm, values, as_zero)]
        return sum(quiet) >= alarm["datapointsToAlarm"]

    (spoken,) = {speaks(as_zero) for as_zero in (False, True)}
    return spoken


def test_a_fleet_whose_run_has_ended_and_whose_queue_is_empty_is_set_to_zero(scaled):
    assert _idle(scaled, active=[0] * 15)
    assert _idle(scaled, active=[0] * 15, waiting=[0] * 15)
    policy = scaled.one("Policy", "c1-idle-to-zero").inputs
    assert policy["adjustmentType"] == "ExactCapacity"
    assert policy["stepAdjustments"] == [{"scalingAdjustment": 0, "metricIntervalUpperBound": "0"}]
    assert scaled.one("MetricAlarm", "c1-idle-to-zero").inputs["alarmActions"] == [
        f"arn:aws:mock::{ACCOUNT}:c1-idle-to-zero"
    ]
    assert scaled.one("Group", "c1-nodes").inputs["minSize"] == 0, "zero could not be reached"


def test_a_run_that_goes_on_work_that_waits_or_is_at_hand_and_a_minute_too_few_keep_the_fleet(scaled):
    assert not _idle(scaled, active=[1] * 15)
    assert not _idle(scaled, active=[1] + [0] * 14)
    for queued in ("waiting", "handed", "coming"):
        assert not _idle(scaled, active=[0] * 15, **{queued: [0] * 14 + [1]})


def test_silence_of_metrics_never_ends_a_run(scaled):
    """A fault of CloudWatch, of the way to it or of a permission looks like nothing at all."""
    assert not _idle(scaled)
    assert not _idle(scaled, active=[0] * 14 + [SILENT])
    assert not _idle(scaled, active=[SILENT] * 18, waiting=[0] * 18)


def test_metrics_that_come_late_keep_no_idle_fleet(scaled):
    assert _idle(scaled, active=[0] * 15 + [SILENT] * 3)


def test_without_a_queue_the_runs_end_alone_decides(mocked, stack):
    records = mocked.cluster(stack({**ALL, "scaling": {"idle_minutes": 30}}))
    alarm = records.one("MetricAlarm", "c1-idle-to-zero").inputs
    assert [query["id"] for query in alarm["metricQueries"]] == ["active", "answer"]
    assert alarm["metricQueries"][0]["metric"] == {
        "namespace": SPACE,
        "metricName": "RunActive",
        "period": 60,
        "stat": "Maximum",
    }
    assert _idle(records, active=[0] * 30)
    assert not records.of("Queue")


def test_gpu_utilisation_adds_nodes_and_takes_none_away(scaled):
    """A run that waits for data would be scaled in, node by node, to the group's least, which is zero."""
    policy = scaled.one("Policy", "c1-gpus").inputs
    assert policy["policyType"] == "TargetTrackingScaling"
    assert policy["targetTrackingConfiguration"] == {
        "targetValue": 80,
        "disableScaleIn": True,
        "customizedMetricSpecification": {"namespace": SPACE, "metricName": "GPUUtilization", "statistic": "Average"},
    }


def test_a_schedule_sets_the_size_and_leaves_least_and_most_alone(scaled):
    schedule = scaled.one("Schedule").inputs
    assert (schedule["recurrence"], schedule["timeZone"]) == ("0 7 * * MON-FRI", "Europe/Berlin")
    assert (schedule["desiredCapacity"], schedule["minSize"], schedule["maxSize"]) == (20, -1, -1)


@pytest.mark.parametrize("scaling", [{"gpu_target": 80}, {"schedules": [SCHEDULE]}], ids=str)
def test_an_update_does_not_undo_the_size_that_a_policy_or_a_schedule_has_set(mocked, stack, scaling):
    group = mocked.cluster(stack({**ALL, "scaling": scaling})).one("Group", "c1-nodes")
    assert group.ignore_changes == ("desiredCapacity", "suspendedProcesses")


def test_an_update_brings_back_a_fleet_that_nothing_else_brings_back(mocked, stack):
    records = mocked.cluster(stack({**ALL, "scaling": {"idle_minutes": 30}}))
    assert records.one("Group", "c1-nodes").ignore_changes == ()


@pytest.mark.parametrize("scaling", [None, {}])
def test_without_any_of_it_nothing_of_it_is_declared(mocked, stack, scaling):
    records = mocked.cluster(stack({**ALL, "scaling": scaling}))
    assert records.one("Group", "c1-nodes").ignore_changes == ()
    own = {"c1-gpus", "c1-backlog", "c1-idle-to-zero"}
    assert not own & {record.name for record in records.all}
    assert not records.of("Queue")
    assert not records.of("Schedule")


# the queue


def test_messages_are_encrypted_with_the_clusters_key_and_kept_as_long_as_can_be(scaled):
    for name in ("c1-queue", "c1-dead-letters"):
        queue = scaled.one("Queue", name)
        assert (queue.inputs["kmsMasterKeyId"], queue.inputs["messageRetentionSeconds"]) == (KEY, 1209600)


def test_what_fails_too_often_is_put_aside_and_not_tried_for_ever(scaled):
    redrive = json.loads(scaled.one("Queue", "c1-queue").inputs["redrivePolicy"])
    assert redrive == {"deadLetterTargetArn": f"arn:aws:mock::{ACCOUNT}:c1-dead-letters", "maxReceiveCount": 4}
    assert "redrivePolicy" not in scaled.one("Queue", "c1-dead-letters").inputs


def test_queues_take_nothing_without_tls(scaled):
    for name in ("c1-queue", "c1-dead-letters"):
        record = scaled.one("QueuePolicy", name)
        arn = f"arn:aws:mock::{ACCOUNT}:{name}"
        policy = json.loads(record.inputs["policy"])
        assert record.inputs["queueUrl"] == f"{name}-id"
        for action in ("sqs:SendMessage", "sqs:ReceiveMessage", "sqs:DeleteMessage"):
            assert denies(policy, action, arn, {"aws:SecureTransport": "false"})
            assert not denies(policy, action, arn, {"aws:SecureTransport": "true"})


def test_the_cluster_tells_its_queue(mocked, stack):
    from components.cluster import TrainingCluster

    told = {}
    for name, scaling in (("with", {"queue": True}), ("without", {})):
        values = stack({**ALL, "scaling": scaling})
        mocked.declare(lambda name=name, values=values: told.update({name: TrainingCluster("c1", values).outputs()}))
    assert "queueUrl" in told["with"]
    assert "queueUrl" not in told["without"]


def test_a_fleet_at_zero_gets_as_many_nodes_as_a_run_needs(mocked, stack):
    """With fewer, it would wait for others that nothing asks for: what waits is no more than there are nodes."""
    records = mocked.cluster(stack({**ALL, "nodes.min": 8}))
    for step in records.one("Policy", "c1-backlog").inputs["stepAdjustments"]:
        assert step["scalingAdjustment"] >= 8


# what nodes may and are told


def test_nodes_read_the_queue_keep_its_count_and_submit_nothing(scaled):
    policy = json.loads(scaled.one("RolePolicy", "c1-queue").inputs["policy"])
    queue = f"arn:aws:mock::{ACCOUNT}:c1-queue"
    (reads,) = (item["Resource"] for item in policy["Statement"] if item["Action"] == "s3:GetObject")
    assert reads.endswith(f"{BUCKET}/queue/*")
    for action in ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:SendMessage"):
        assert allows(policy, action, queue)
        assert not allows(policy, action, f"{queue}-of-another")
    for action in ("sqs:PurgeQueue", "sqs:DeleteQueue", "sqs:SetQueueAttributes", "sqs:AddPermission"):
        assert not allows(policy, action, queue)
    assert not allows(policy, "s3:PutObject", reads.replace("*", "000001.json"))


def test_the_stacks_own_run_is_written_once_for_all_nodes_and_before_they_boot(mocked, stack):
    """Nodes that aren't replaced have another run in their user-data, after a change of the job, than those to come."""
    values = {**ALL, "nodes.refresh": False}
    records = mocked.cluster(stack(values))
    own, plan = records.one("BucketObjectv2", "c1-own"), decide("c1", parse(stack(values)))
    assert Turn.parse(own.inputs["content"].encode(), 0) == Turn(plan.run.id, plan.run.job)
    assert (own.inputs["key"], own.ignore_changes) == ("queue/own.json", ("content",))
    assert own.urn in records.one("Group", "c1-nodes").dependencies
    without = mocked.cluster(stack({**values, "scaling": {}}))
    assert "c1-own" not in {record.name for record in without.all}


@pytest.mark.parametrize(("scaling", "url"), [({"queue": True}, "c1-queue-id"), ({}, None)])
def test_nodes_are_told_of_the_queue_where_there_is_one(mocked, stack, scaling, url):
    assert _told(mocked.cluster(stack({**ALL, "scaling": scaling}))).get("queue") == url


def test_nodes_put_metrics_into_their_clusters_namespace_alone(scaled):
    record = scaled.one("RolePolicy", "c1-metrics")
    assert record.inputs["role"] == "c1-node-id"
    policy = json.loads(record.inputs["policy"])
    assert policy == metrics_policy(BUCKET)
    assert allows(policy, "cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": SPACE})
    for other in ("Trainwright", "Trainwright/c2-data-1a2b3c4", "AWS/EC2"):
        assert not allows(policy, "cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": other})
    assert not allows(policy, "cloudwatch:PutMetricData", "*", {})
    assert not allows(policy, "cloudwatch:PutMetricAlarm", "*", {"cloudwatch:namespace": SPACE})


def test_a_node_cannot_hide_an_alarm_on_the_record(mocked, stack):
    """A number below zero beside the one that counts an event would make their sum nothing."""
    records = mocked.cluster(stack({**ALL, **AUDIT}))
    spaces = {r.inputs["metricTransformation"]["namespace"] for r in records.of("LogMetricFilter")}
    policy = json.loads(records.one("RolePolicy", "c1-metrics").inputs["policy"])
    assert spaces
    for space in spaces:
        assert not allows(policy, "cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": space})


@pytest.mark.parametrize(
    ("changes", "sends"),
    [
        ({"scaling": {}}, True),
        ({"scaling": None}, False),
        ({"scaling": None, **AUDIT}, True),
        ({"scaling": None, **AUDIT, "network.egress": "nat"}, True),
        ({"scaling": None, **AUDIT, "network.egress": "bucket"}, False),
    ],
    ids=str,
)
def test_nodes_are_told_their_namespace_where_they_may_and_can_send_and_else_nothing(mocked, stack, changes, sends):
    """An audited cluster has graphs of its GPUs; one whose nodes reach the bucket alone is no error for it."""
    records = mocked.cluster(stack({**ALL, **changes}))
    assert _told(records).get("namespace") == (SPACE if sends else None)
    assert [r.name for r in records.of("RolePolicy") if r.name == "c1-metrics"] == ["c1-metrics"] * sends
    if "audit.enabled" in changes:
        assert ("GPUs, % used" in records.one("Dashboard").inputs["dashboardBody"]) is sends


def _told(records):
    script = base64.b64decode(records.one("LaunchTemplate", "c1-node").inputs["userData"]).decode()
    line = next(line for line in script.splitlines() if line.startswith("CONFIG = "))
    return json.loads(json.loads(line.removeprefix("CONFIG = json.loads(").removesuffix(")")))


def test_a_change_of_the_policies_replaces_no_node(mocked, stack):
    """What a node boots with may not change with them: a refresh would stop the run for a new threshold."""
    changed = {"gpu_target": 70, "queue": {"backlog": 9}, "idle_minutes": 99, "warmup_seconds": 900}
    before, after = (
        mocked.cluster(stack({**ALL, "scaling": scaling})).one("LaunchTemplate", "c1-node").inputs
        for scaling in (ALL["scaling"], changed)
    )
    assert before == after


def test_policies_ask_for_what_nodes_send():
    gpu = {"use": 50.0, "memory": 1.0, "memory_total": 2.0}
    sample = {"time": 0, "active": True, "gpus": [gpu], "fabric_in": 1, "fabric_out": 2}
    assert {GPU, ACTIVE, FABRIC, "GPUMemoryUtilization"} <= {datum["MetricName"] for datum in metrics.data(sample)}
    assert namespace(BUCKET) == SPACE


# the dashboard


def _graphs(stack, changes, queue=None):
    plan = decide("c1", parse(stack(changes)))
    found = list(scaling_graphs(plan, "c1-nodes", BUCKET, queue))
    widgets = dashboard("us-west-2", "c1-nodes", BUCKET, [], found)["widgets"]
    json.dumps(widgets)
    titles = [widget["properties"]["title"] for widget in widgets]
    assert titles[len(titles) - len(found) :] == [title for title, _, _ in found]
    return {title.split(",")[0]: shown for title, _, shown in found}


def test_the_dashboard_shows_gpus_fabric_queue_and_cost(stack):
    p4d = {**ALL, "nodes.type": "p4d.24xlarge", "job.batch": 1600, "prices": {"p4d.24xlarge": {"on_demand": 10.0}}}
    graphs = _graphs(stack, p4d, "c1-queue")
    assert list(graphs) == [
        "Cost of nodes in service",
        "GPUs",
        "Fabric",
        "Queue",
        "Messages waiting for each node",
    ]
    assert graphs["Cost of nodes in service"][0][0]["expression"] == "nodes * 10.0000"
    assert graphs["GPUs"][0] == [SPACE, "GPUUtilization"]
    assert [metric[1] for metric in graphs["Queue"]] == list(MESSAGES)
    assert graphs["Messages waiting for each node"][0][0]["expression"] == "IF(nodes > 0, waiting / nodes, waiting)"


def test_what_is_not_there_has_no_graph(stack):
    assert not {"GPUs", "Fabric", "Queue"} & _graphs(stack, {**ALL, "scaling": None}).keys()


def test_the_declared_dashboard_has_them(mocked, stack):
    body = json.loads(mocked.cluster(stack({**ALL, **AUDIT})).one("Dashboard").inputs["dashboardBody"])
    titles = [widget["properties"]["title"] for widget in body["widgets"]]
    assert {"GPUs, % used", "Queue, messages"} <= set(titles)
