"""The breaker: what it counts, and what it does."""

import fnmatch
import json
import re
from collections.abc import Iterator

import boto3
import botocore.session
import pytest
from botocore import xform_name
from botocore.validate import ParamValidator
from moto import mock_aws

from components.aws.breaker import (
    INTERRUPTIONS,
    STOPPED_S,
    failures,
    goes_on,
    start_policy,
    start_trust,
    stop_machine,
    stop_policy,
    stop_trust,
)
from components.scaling import LAUNCH, breaker_name
from emulator.provider.aws.api import fit
from emulator.provider.aws.autoscaling import Policy
from tests.components.aws.policies import allows

OUT = "At 2026-11-30T10:00:00Z an instance was taken out of service in response to"
FAILED = [
    f"{OUT} an EC2 health check indicating it has been terminated or stopped.",
    f"{OUT} a EC2 health check indicating it has been terminated or stopped.",
    f"{OUT} an EC2 instance status checks failure.",
]
WANTED = [
    f"{OUT} a user request.",
    f"{OUT} a difference between desired and actual capacity, shrinking the capacity from 3 to 2.",
    f"{OUT} an instance refresh.",
    f"{OUT} an EC2 instance rebalance recommendation.",
    "At 2026-11-30T10:00:00Z a user request update of AutoScalingGroup constraints to min: 0, max: 0, desired: 0",
]
"""Causes as Auto Scaling words them (its user guide, "Health checks", and activities that people have published)."""


def _event(cause, group="c1-nodes-1a2b3c4", kind="EC2 Instance Terminate Successful"):
    detail = {"AutoScalingGroupName": group, "Cause": cause, "EC2InstanceId": "i-1", "StatusCode": "InProgress"}
    return {"source": "aws.autoscaling", "detail-type": kind, "detail": detail}


def _matches(pattern, event):
    """As EventBridge does (user guide, "Content filtering"): every field, any of its values; any item of a list."""
    return all(
        _matches(wanted, event.get(field, {}))
        if isinstance(wanted, dict)
        else any(
            fnmatch.fnmatchcase(given, value["wildcard"]) if isinstance(value, dict) else given == value
            for value in wanted
            for given in (event[field] if isinstance(event.get(field), list) else [event.get(field, "")])
        )
        for field, wanted in pattern.items()
    )


@pytest.mark.parametrize("cause", FAILED)
def test_b9_a_node_that_ended_itself_or_never_came_up_counts(cause):
    assert _matches(failures("c1-nodes-1a2b3c4"), _event(cause))


@pytest.mark.parametrize("cause", WANTED)
def test_a_node_that_somebody_or_the_group_wanted_gone_does_not_count(cause):
    assert not _matches(failures("c1-nodes-1a2b3c4"), _event(cause))


def test_a_launch_that_found_no_capacity_does_not_count():
    """It costs nothing, and a fleet may wait for hours for GPUs."""
    assert not _matches(failures("c1-nodes-1a2b3c4"), _event(FAILED[0], kind="EC2 Instance Launch Unsuccessful"))


def test_nodes_of_another_group_do_not_count():
    assert not _matches(failures("c1-nodes-1a2b3c4"), _event(FAILED[0], group="c2-nodes-1a2b3c4"))


def test_b8_b9_boots_that_fail_over_and_over_empty_the_group(mocked, stack):
    records = mocked.cluster(stack({"nodes.failed_boots": 7}))
    policy, alarm = records.one("Policy").inputs, records.one("MetricAlarm").inputs
    assert policy == {
        "autoscalingGroupName": "c1-nodes",
        "policyType": "StepScaling",
        "adjustmentType": "ExactCapacity",
        "stepAdjustments": [{"scalingAdjustment": 0, "metricIntervalLowerBound": "0"}],
    }
    assert (alarm["threshold"], alarm["evaluationPeriods"], alarm["treatMissingData"]) == (7, 1, "notBreaching")
    assert alarm["comparisonOperator"] == "GreaterThanOrEqualToThreshold"
    assert alarm["alarmActions"] == ["arn:aws:mock::123456789012:c1-failed-nodes"]
    failed, boots = alarm["metricQueries"]
    assert failed["metric"] == {
        "namespace": "AWS/Events",
        "metricName": "TriggeredRules",
        "dimensions": {"RuleName": "c1-failed-nodes"},
        "period": 3600,
        "stat": "Sum",
    }
    assert (boots["expression"], boots["returnData"], failed["returnData"]) == ("FILL(failed, 0)", True, False)
    assert json.loads(records.one("EventRule").inputs["eventPattern"]) == failures("c1-nodes")


@pytest.mark.parametrize("capacity", ["spot", "mixed"])
def test_c8_spot_nodes_that_are_taken_back_do_not_empty_the_group(mocked, stack, capacity):
    """Without a replacement in time, one ends as a failed check, as a failed boot does."""
    records = mocked.cluster(stack({"nodes.capacity": capacity}))
    queries = {query["id"]: query for query in records.one("MetricAlarm").inputs["metricQueries"]}
    assert queries["boots"]["expression"] == "FILL(failed, 0) - FILL(notices, 0)"
    assert queries["notices"]["metric"]["dimensions"] == {"RuleName": "c1-node-notices"}
    assert json.loads(records.one("EventRule", "c1-node-notices").inputs["eventPattern"]) == INTERRUPTIONS


def test_whoever_hears_alarms_hears_of_it(mocked, stack):
    audit = {"audit.enabled": True, "audit.emails": ["a@example.com"]}
    actions = mocked.cluster(stack(audit)).one("MetricAlarm", "c1-failed-nodes").inputs["alarmActions"]
    assert actions == ["arn:aws:mock::123456789012:c1-failed-nodes", "arn:aws:mock::123456789012:c1-alarms"]


def test_auto_scaling_knows_the_policy(mocked, stack):
    policy = mocked.cluster(stack()).one("Policy").inputs
    model = botocore.session.get_session().get_service_model("autoscaling").operation_model("PutScalingPolicy")
    request = fit(model.input_shape, {**policy, "name": "c1"}, Policy.names)
    assert not ParamValidator().validate(request, model.input_shape).has_errors()
    assert request["StepAdjustments"] == [{"ScalingAdjustment": 0, "MetricIntervalLowerBound": 0.0}]


def test_event_patterns_are_no_longer_than_eventbridge_takes():
    """2,048 characters (EventBridge quotas), with the longest name that a group has."""
    assert len(json.dumps(failures("c" * 32 + "-data-nodes-1a2b3c4"))) < 2048


# Where something scales the group by itself: launches are suspended

GOVERNED = {"network.egress": "endpoints", "scaling": {"queue": True}}
REGION, ACCOUNT = "us-west-2", "123456789012"
ALARM = f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:c1-failed-nodes-1a2b3c4"
GROUP = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:0a1b:autoScalingGroupName/c1-nodes-1a2b3c4"
MACHINE = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:c1-stop-1a2b3c4"
RULE = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/c1-stop-start-1a2b3c4"


def _change(state="ALARM", alarm=ALARM, kind="CloudWatch Alarm State Change"):
    """An alarm's event (CloudWatch user guide, "Alarm events and EventBridge")."""
    detail = {"alarmName": alarm.split(":")[-1], "state": {"value": state}, "previousState": {"value": "ALARM"}}
    return {"source": "aws.cloudwatch", "detail-type": kind, "resources": [alarm], "detail": detail}


def test_only_this_alarm_and_only_when_it_goes_on_stops_launches():
    pattern = goes_on(ALARM)
    assert _matches(pattern, _change())
    assert not _matches(pattern, _change(state="OK"))
    assert not _matches(pattern, _change(state="INSUFFICIENT_DATA"))
    assert not _matches(pattern, _change(alarm=ALARM.replace("c1", "c2")))
    assert not _matches(pattern, _change(kind="CloudWatch Alarm Configuration Change"))


def _walk(machine) -> Iterator[str]:
    """Runs a state machine as Step Functions would, and yields each state's name before it is entered.

    Calls go to moto; waits take no time. Knows the kinds of state that we use.
    """
    name, given = machine["StartAt"], {}
    while True:
        state = machine["States"][name]
        yield name
        match state["Type"]:
            case "Succeed":
                return
            case "Task":
                service, api = re.fullmatch(r"arn:aws:states:::aws-sdk:(\w+):(\w+)", state["Resource"]).groups()
                given = getattr(boto3.client(service, region_name=REGION), xform_name(api))(**state["Parameters"])
            case "Choice":
                (choice,) = state["Choices"]
                assert choice["Variable"] == "$.MetricAlarms[0].StateValue"
                chosen = given["MetricAlarms"][0]["StateValue"] == choice["StringEquals"]
                name = choice["Next"] if chosen else state["Default"]
                continue
        name = state["Next"]


@pytest.fixture
def failing():
    """A cloud with a group whose launches are at work, and its breaker, which is on."""
    with mock_aws():
        scaling, watch = boto3.client("autoscaling", region_name=REGION), boto3.client("cloudwatch", region_name=REGION)
        scaling.create_launch_configuration(
            LaunchConfigurationName="c1", ImageId="ami-12c6146b", InstanceType="m5.large"
        )
        scaling.create_auto_scaling_group(
            AutoScalingGroupName="g",
            MinSize=0,
            MaxSize=9,
            DesiredCapacity=0,
            AvailabilityZones=[f"{REGION}b"],
            LaunchConfigurationName="c1",
        )
        scaling.suspend_processes(AutoScalingGroupName="g", ScalingProcesses=["AZRebalance"])
        for name, state in (("a", "ALARM"), ("another", "OK")):
            watch.put_metric_alarm(
                AlarmName=name,
                Namespace="n",
                MetricName="m",
                Statistic="Sum",
                Period=60,
                EvaluationPeriods=1,
                Threshold=1,
                ComparisonOperator="GreaterThanThreshold",
            )
            watch.set_alarm_state(AlarmName=name, StateValue=state, StateReason="so")
        yield scaling, watch


def _suspended(scaling):
    (group,) = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    return {process["ProcessName"] for process in group["SuspendedProcesses"]}


def test_b8_b9_a_queue_can_not_bring_back_a_fleet_that_fails_to_boot(failing):
    """The alarm tells of itself once: resumed while it is on, launches are suspended again; once it is over, they
    stay as somebody has them."""
    scaling, watch = failing
    walk = _walk(stop_machine(REGION, "g", "a"))
    assert (next(walk), next(walk)) == ("Stop", "Wait")
    assert _suspended(scaling) == {"AZRebalance", LAUNCH}
    scaling.resume_processes(AutoScalingGroupName="g", ScalingProcesses=[LAUNCH])
    assert [next(walk) for _ in range(4)] == ["Ask", "Judge", "Stop", "Wait"]
    assert _suspended(scaling) == {"AZRebalance", LAUNCH}
    watch.set_alarm_state(AlarmName="a", StateValue="OK", StateReason="an hour is over")
    scaling.resume_processes(AutoScalingGroupName="g", ScalingProcesses=[LAUNCH])
    assert list(walk) == ["Ask", "Judge", "Over"]
    assert _suspended(scaling) == {"AZRebalance"}


def test_a_machine_ends_before_step_functions_ends_it():
    """25,000 events of an execution (Step Functions developer guide, "Quotas"): five of a task, two of the others."""
    machine = stop_machine(REGION, "g", "a")
    loop = [state for name, state in machine["States"].items() if name != "Over"]
    events = sum({"Task": 5, "Wait": 2, "Choice": 2}[state["Type"]] for state in loop)
    (pause,) = (state["Seconds"] for state in loop if state["Type"] == "Wait")
    assert machine["TimeoutSeconds"] == STOPPED_S
    assert STOPPED_S / pause * events < 25_000
    assert all(state["Retry"][0]["MaxAttempts"] >= 10 for state in loop if state["Type"] == "Task")


def test_the_machine_may_stop_its_own_group_and_see_its_own_alarm_and_nothing_else():
    policy = stop_policy(GROUP, ALARM)
    assert allows(policy, "autoscaling:SuspendProcesses", GROUP)
    assert allows(policy, "cloudwatch:DescribeAlarms", ALARM)
    assert not allows(policy, "autoscaling:SuspendProcesses", GROUP.replace("c1", "c2"))
    assert not allows(policy, "cloudwatch:DescribeAlarms", ALARM.replace("c1", "c2"))
    for action in ("autoscaling:ResumeProcesses", "autoscaling:UpdateAutoScalingGroup", "cloudwatch:SetAlarmState"):
        assert not allows(policy, action, GROUP)
        assert not allows(policy, action, ALARM)


def test_eventbridge_may_start_the_machine_and_nothing_else():
    policy = start_policy(MACHINE)
    assert allows(policy, "states:StartExecution", MACHINE)
    assert not allows(policy, "states:StartExecution", MACHINE.replace("c1", "c2"))
    for action in ("states:UpdateStateMachine", "iam:PassRole"):
        assert not allows(policy, action, MACHINE)


@pytest.mark.parametrize(
    ("trust", "service", "source"),
    [
        (stop_trust(REGION, ACCOUNT), "states.amazonaws.com", MACHINE),
        (start_trust(RULE, ACCOUNT), "events.amazonaws.com", RULE),
    ],
    ids=["machine", "rule"],
)
def test_roles_are_taken_by_their_service_for_this_account_alone(trust, service, source):
    (statement,) = trust["Statement"]
    assert statement["Principal"] == {"Service": service}
    trust = {"Statement": [{**statement, "Resource": "*"}]}

    def taken(account, arn):
        return allows(trust, "sts:AssumeRole", "role", {"aws:SourceAccount": account, "aws:SourceArn": arn})

    assert taken(ACCOUNT, source)
    assert not taken("999999999999", source)
    assert not taken(ACCOUNT, source.replace(ACCOUNT, "999999999999"))
    assert not taken(ACCOUNT, f"arn:aws:events:{REGION}:{ACCOUNT}:rule/another")
    assert not allows(trust, "sts:AssumeRole", "role")


def test_a_fleet_that_a_queue_sizes_is_stopped_by_its_breaker(mocked, stack):
    records = mocked.cluster(stack(GOVERNED))
    alarm = records.one("MetricAlarm", breaker_name("c1"))
    machine, target = records.one("StateMachine").inputs, records.one("EventTarget").inputs
    arn = "arn:aws:mock::123456789012"
    assert json.loads(machine["definition"]) == stop_machine(REGION, "c1-nodes", "c1-failed-nodes")
    assert json.loads(records.one("EventRule", "c1-stop-start").inputs["eventPattern"]) == goes_on(
        f"{arn}:c1-failed-nodes"
    )
    assert target == {"rule": "c1-stop-start", "arn": f"{arn}:c1-stop", "roleArn": f"{arn}:c1-stop-start"}
    assert machine["roleArn"] == f"{arn}:c1-stop"
    granted = {record.name: json.loads(record.inputs["policy"]) for record in records.of("RolePolicy")}
    assert granted["c1-stop"] == stop_policy(f"{arn}:c1-nodes", f"{arn}:c1-failed-nodes")
    assert granted["c1-stop-start"] == start_policy(f"{arn}:c1-stop")
    trusts = {record.name: json.loads(record.inputs["assumeRolePolicy"]) for record in records.of("Role")}
    assert trusts["c1-stop"] == stop_trust(REGION, ACCOUNT)
    assert trusts["c1-stop-start"] == start_trust(f"{arn}:c1-stop-start", ACCOUNT)
    assert "and launches none" in alarm.inputs["alarmDescription"]
    assert alarm.inputs["alarmDescription"].endswith("have it launch again, by `trainwright retry`")


@pytest.mark.parametrize(
    "changes",
    [{}, {"scaling": {"idle_minutes": 30}}, {"data_nodes.type": "i4i.32xlarge", "data_nodes.count": 2}],
    ids=["no scaling", "only to zero", "data nodes"],
)
def test_a_fleet_that_nothing_brings_back_is_set_to_zero_and_that_is_all(mocked, stack, changes):
    records = mocked.cluster(stack({**GOVERNED, "scaling": None, **changes}))
    assert records.of("StateMachine") == records.of("EventTarget") == []
    assert records.one("MetricAlarm", breaker_name("c1")).inputs["alarmDescription"].endswith("`pulumi up --refresh`")


def test_a_data_nodes_breaker_stops_nothing_beside(mocked, stack):
    records = mocked.cluster(stack({**GOVERNED, "data_nodes.type": "i4i.32xlarge", "data_nodes.count": 2}))
    assert json.loads(records.one("StateMachine").inputs["definition"]) == stop_machine(
        REGION, "c1-nodes", "c1-failed-nodes"
    )
    # An update ignores what sizes the nodes that train, not theirs.
    told = records.one("MetricAlarm", breaker_name("c1", "data-node")).inputs["alarmDescription"]
    assert told.endswith("set the group's size again, by `pulumi up --refresh`")


def test_names_of_the_longest_cluster_fit(mocked, stack):
    """64 characters of a role, 80 of a state machine (their quotas), with what the provider adds."""
    records = mocked.cluster(stack(GOVERNED), name="c" * 32)
    for kind, most in (("Role", 64), ("StateMachine", 80), ("EventRule", 64)):
        assert all(len(f"{record.name}-1a2b3c4") <= most for record in records.of(kind)), kind
