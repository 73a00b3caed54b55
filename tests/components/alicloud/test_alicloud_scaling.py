"""Rules, alarms and schedules: what is declared, what it does to the fleet, what the APIs take of it."""

import json
import math
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.alicloud.scaling import ends, growth, metrics_policy, rungs
from components.plan import decide
from components.scaling import steps
from components.spec import parse
from tests.components.alicloud.parts import ACCOUNT, BUCKET, REGION, governed
from tests.components.alicloud.policies import allows

SCHEDULE = {"cron": "0 7 * * MON-FRI", "time_zone": "Asia/Shanghai", "nodes": 20}
ALL = {
    "nodes.desired": 20,
    "nodes.max": 200,
    "job.batch": 800,
    "network.egress": "nat",
    "scaling": {"gpu_target": 80, "queue": {"backlog": 2, "attempts": 4}, "schedules": [SCHEDULE]},
}
DECLARED = []


@pytest.fixture
def scaled(mocked, ali):
    """What `ALL` declares: once for all tests, since none changes it."""
    if not DECLARED:
        DECLARED.append(mocked.declare(governed(ali(ALL))))
    return DECLARED[0]


# what is asked of the APIs


def _ess_alarms(records):
    return [record for record in records.all if record.type == "alicloud:ess/alarm:Alarm"]


def test_rules_are_such_as_auto_scaling_takes(scaled):
    """Ranges: ESS API, CreateScalingRule, and the provider's `ess.ScalingRule`."""
    for record in scaled.of("ScalingRule"):
        rule = record.inputs
        match rule["adjustmentType"]:
            case "TotalCapacity":
                assert 0 <= rule["adjustmentValue"] <= 1000
            case "QuantityChangeInCapacity":
                assert -500 <= rule["adjustmentValue"] <= 500
            case "PercentChangeInCapacity":
                assert rule["scalingRuleType"] == "StepScalingRule"
                assert all(-100 <= step["scalingAdjustment"] <= 10_000 for step in rule["stepAdjustments"])
        if rule.get("scalingRuleType") == "StepScalingRule":
            assert not {"cooldown", "adjustmentValue"} & rule.keys(), "of simple rules alone"
            assert len(rule["stepAdjustments"]) <= 20
        else:
            assert 0 <= rule["cooldown"] <= 86_400
            assert not {"stepAdjustments", "estimatedInstanceWarmup", "minAdjustmentMagnitude"} & rule.keys()


def test_alarms_are_such_as_auto_scaling_takes(scaled):
    """Provider's `ess.Alarm`."""
    alarms = _ess_alarms(scaled)
    assert {record.name for record in alarms} == {"c1-gpus", "c1-backlog", "c1-idle-to-zero"}
    for record in alarms:
        alarm = record.inputs
        assert alarm["metricType"] == "custom"
        assert alarm["period"] in {60, 120, 300, 900}
        assert alarm["statistics"] in {"Average", "Minimum", "Maximum"}
        assert alarm["comparisonOperator"] in {">=", "<=", ">", "<"}
        assert alarm["cloudMonitorGroupId"] == 7671, "the group that nodes put metrics in, as a number"
        assert alarm["dimensions"] == {"cluster": BUCKET}
        assert alarm["alarmActions"] == [f"ari:acs:ess:{record.name}"]
        assert alarm["scalingGroupId"] == "c1-nodes-id"
        assert 2 <= len(alarm["description"]) <= 255


# what it does to the fleet


def _grown(records, name, value, nodes):
    """Nodes once an alarm has spoken: the nearest number of a percentage (ESS API, CreateScalingRule)."""
    alarm, rule = records.one("Alarm", name).inputs, records.one("ScalingRule", name).inputs
    assert alarm["comparisonOperator"] == ">"
    breach = value - float(alarm["threshold"])
    if breach <= 0:
        return nodes
    (percent,) = (
        step["scalingAdjustment"]
        for step in rule["stepAdjustments"]
        if float(step["metricIntervalLowerBound"]) <= breach
        and breach < float(step.get("metricIntervalUpperBound", math.inf))
    )
    return min(200, nodes + max(rule["minAdjustmentMagnitude"], round(nodes * percent / 100)))


def _woken(records, waiting, nodes=0):
    """Nodes of a fleet once all alarms on the queue have spoken that are on, each with its own rule."""
    for record in records.of("Alarm"):
        if record.name.startswith("c1-wake-"):
            alarm, rule = record.inputs, records.one("ScalingRule", record.name).inputs
            assert alarm["escalationsCritical"]["comparisonOperator"] == ">="
            assert rule["adjustmentType"] == "QuantityChangeInCapacity"
            if waiting >= float(alarm["escalationsCritical"]["threshold"]):
                nodes += rule["adjustmentValue"]
    return min(200, nodes)


def test_a_backlog_for_two_hundred_takes_twenty_nodes_to_two_hundred_in_one_step(scaled):
    assert _grown(scaled, "c1-backlog", 400 / 20, 20) == 200
    assert _grown(scaled, "c1-backlog", 100_000 / 20, 20) == 200


def test_from_no_node_a_backlog_starts_a_fleet_in_one_step(scaled):
    assert _woken(scaled, 1) == 0
    assert _woken(scaled, 2) == 1
    assert _woken(scaled, 400) == 200
    assert _woken(scaled, 100_000) == 200


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(waiting=st.integers(0, 3000), nodes=st.integers(2, 200))
def test_whatever_waits_the_fleet_grows_to_it_in_one_step_and_never_shrinks(scaled, waiting, nodes):
    after, wanted = _grown(scaled, "c1-backlog", waiting / nodes, nodes), waiting / 2
    assert nodes <= after <= 200, "nodes that are at work would be ended, or more launched than may be"
    assert after >= min(200, math.floor(wanted)), "a second step would cost the gang a second restart"
    assert after <= max(nodes, wanted * 200 ** (1 / 20) + nodes / 100 + 1), "nodes for nothing"
    assert wanted > nodes or after == nodes


def test_a_fleet_at_zero_gets_what_the_steps_of_all_clouds_say(scaled):
    for waiting in range(450):
        wanted = max((step.nodes for step in steps(200) if step.short <= waiting // 2), default=0)
        assert _woken(scaled, waiting) == min(200, wanted), waiting


def test_from_one_node_a_hundred_are_added_at_once_as_a_rule_adds_no_more():
    assert growth(1, 1000)[-1].percent == 10_000


def test_a_fleet_at_zero_gets_as_many_nodes_as_a_run_needs():
    assert rungs(200, 8, 1)[0] == (1, 8)
    assert [nodes for _, nodes in rungs(4, 4, 1)] == [4]
    assert sum(nodes for _, nodes in rungs(64, 8, 3)) == 64


@pytest.mark.parametrize(("target", "most"), [(80, 100), (100, 100), (1, 100), (2, 400), (1, 1)])
def test_steps_follow_on_one_another_and_ask_for_more_the_further_a_metric_is(target, most):
    found = growth(target, most)
    assert found[0].above == 0, "a value just above the target asks for nothing"
    assert all(low.above < high.above and low.percent < high.percent for low, high in pairwise(found))
    assert found[0].percent >= 1
    assert len(found) <= 20


def test_gpu_utilisation_adds_nodes_in_proportion_and_takes_none_away(scaled):
    alarm = scaled.one("Alarm", "c1-gpus").inputs
    assert (alarm["metricName"], alarm["statistics"], alarm["threshold"]) == ("GPUUtilization", "Average", "80")
    assert _grown(scaled, "c1-gpus", 100, 20) == 25
    assert _grown(scaled, "c1-gpus", 80, 20) == 20
    assert _grown(scaled, "c1-gpus", 81, 2) == 3, "a few percent of few nodes are none"
    assert _grown(scaled, "c1-gpus", 0, 20) == 20
    assert all(step["scalingAdjustment"] > 0 for step in scaled.one("ScalingRule", "c1-gpus").inputs["stepAdjustments"])


def test_a_backlog_must_last_and_nodes_on_their_way_count_as_there(mocked, ali):
    records = mocked.declare(governed(ali({**ALL, "scaling": {**ALL["scaling"], "warmup_seconds": 900}})))
    for name in ("c1-backlog", "c1-gpus"):
        alarm = records.one("Alarm", name).inputs
        assert (alarm["period"], alarm["evaluationCount"]) == (60, 3)
        assert records.one("ScalingRule", name).inputs["estimatedInstanceWarmup"] == 900
    for record in records.of("Alarm"):
        if record.name.startswith("c1-wake-"):
            assert record.inputs["escalationsCritical"]["statistics"] == "Minimum", "of five minutes"


def test_an_alarm_that_stays_on_for_lack_of_capacity_does_not_add_its_nodes_over_and_over(scaled):
    wakes = [record.inputs for record in scaled.of("Alarm") if record.name.startswith("c1-wake-")]
    assert wakes
    assert {alarm["silenceTime"] for alarm in wakes} == {86_400}


def test_alarms_that_only_act_tell_nobody(scaled):
    wakes = [record.inputs for record in scaled.of("Alarm") if record.name.startswith("c1-wake-")]
    assert {tuple(alarm["contactGroups"]) for alarm in wakes} == {("c1-nodes-id-nobody",)}
    assert "contacts" not in scaled.one("AlarmContactGroup", "c1-nobody").inputs


def test_a_fleet_is_woken_by_its_own_queue(scaled):
    alarm = scaled.one("Alarm", "c1-wake-2").inputs
    assert json.loads(alarm["metricDimensions"])[0]["queue"] == f"{BUCKET}-queue"
    assert alarm["targets"][0]["arn"] == (
        f"acs:ess:{REGION}:{ACCOUNT}:scalingGroupId/c1-nodes-id:scalingRuleId/c1-wake-2-id"
    )


def _idle(records, active):
    """Whether the idle alarm would speak of its newest minutes: each must have a value, and none be above."""
    alarm = records.one("Alarm", "c1-idle-to-zero").inputs
    assert (alarm["comparisonOperator"], alarm["threshold"], alarm["statistics"]) == ("<=", "0", "Maximum")
    minutes = int(alarm["evaluationCount"])
    window = ([None] * minutes + active)[-minutes:]
    return all(value is not None and value <= 0 for value in window)


def test_a_fleet_whose_run_has_ended_is_set_to_zero_and_silence_ends_none(scaled):
    assert _idle(scaled, [0] * 15)
    assert not _idle(scaled, [1] + [0] * 14)
    assert not _idle(scaled, [0] * 14)
    assert not _idle(scaled, [0] * 14 + [None])
    rule = scaled.one("ScalingRule", "c1-idle-to-zero").inputs
    assert (rule["adjustmentType"], rule["adjustmentValue"], rule["cooldown"]) == ("TotalCapacity", 0, 0)


def test_without_a_queue_the_runs_end_alone_decides(mocked, ali):
    records = mocked.declare(governed(ali({**ALL, "scaling": {"idle_minutes": 30}})))
    assert records.one("Alarm", "c1-idle-to-zero").inputs["evaluationCount"] == 30
    assert {record.name for record in _ess_alarms(records)} == {"c1-idle-to-zero"}


@pytest.mark.parametrize("scaling", [None, {}])
def test_without_any_of_it_nothing_of_it_is_declared(mocked, ali, scaling):
    records = mocked.declare(governed(ali({**ALL, "scaling": scaling})))
    assert _ess_alarms(records) == records.of("ScheduledTask") == []
    assert {record.name for record in records.of("ScalingRule")} == {"c1-failed-nodes"}


# schedules


def test_a_schedule_is_in_utc_and_sets_the_size_alone(scaled):
    task = scaled.one("ScheduledTask").inputs
    assert (task["recurrenceType"], task["recurrenceValue"]) == ("Cron", "0 23 * * SUN,MON,TUE,WED,THU")
    assert (task["desiredCapacity"], task["scalingGroupId"]) == (20, "c1-nodes-id")
    assert not {"minValue", "maxValue", "scheduledAction"} & task.keys(), "a rule beside a group conflicts"
    assert 2 <= len(task["description"]) <= 200
    first = datetime.strptime(task["launchTime"], "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC)
    assert 0 < (first - datetime.now(UTC)).days + 1 <= 90
    assert (first.hour, first.minute) == (23, 0)


def test_a_later_update_moves_a_schedules_end_and_not_its_first_time(scaled):
    assert scaled.one("ScheduledTask").ignore_changes == ("launchTime",)
    assert ends(datetime(2026, 11, 30, tzinfo=UTC)) == ends(datetime(2026, 11, 1, tzinfo=UTC)) == "2027-10-01T00:00Z"
    assert ends(datetime(2026, 1, 31, tzinfo=UTC)) == "2026-12-01T00:00Z"
    assert ends(datetime(2026, 2, 1, tzinfo=UTC)) == "2027-01-01T00:00Z"


@settings(max_examples=100)
@given(day=st.datetimes(datetime(2025, 1, 1), datetime(2040, 1, 1)))
def test_a_schedule_ends_within_the_year_that_auto_scaling_takes(day):
    end = datetime.strptime(ends(day.replace(tzinfo=UTC)), "%Y-%m-%dT%H:%MZ")
    assert 300 <= (end - day).days < 365


def test_a_schedule_that_is_two_in_utc_is_declared_as_two(mocked, ali):
    twice = {"cron": "0 7,9 * * MON", "time_zone": "Asia/Shanghai", "nodes": 4}
    records = mocked.declare(governed(ali({**ALL, "scaling": {"schedules": [twice]}})))
    tasks = {record.name: record.inputs["recurrenceValue"] for record in records.of("ScheduledTask")}
    assert tasks == {"c1-schedule-0": "0 23 * * SUN", "c1-schedule-0-1": "0 1 * * MON"}


# what nodes may and are told


def test_a_change_of_the_policies_replaces_no_node(mocked, ali):
    """What a node boots with may not change with them: a refresh would stop the run for a new threshold."""
    changed = {"queue": {"backlog": 9}, "idle_minutes": 99, "warmup_seconds": 900}
    before, after = (
        mocked.cluster(ali({"network.egress": "nat", "scaling": scaling})).one("ScalingConfiguration").inputs
        for scaling in ({"queue": True}, changed)
    )
    assert before == after


def test_nodes_put_metrics_and_see_and_change_nothing():
    policy = metrics_policy()
    assert allows(policy, "cms:PutCustomMetric", "*")
    for action in ("cms:DescribeMetricList", "cms:PutResourceMetricRule", "cms:DeleteMetricRules"):
        assert not allows(policy, action, "*")
    group = "acs:ess:*:*:scalinggroup/asg-1"
    assert allows(policy, "ess:DescribeScalingGroups", group), "what waits is divided by what the group is to be"
    assert allows(policy, "ess:DescribeScalingInstances", group), "by which a node finds its group"
    for action in ("ess:ModifyScalingGroup", "ess:ExecuteScalingRule", "ess:SuspendProcesses"):
        assert not allows(policy, action, group)


@pytest.mark.parametrize(
    ("changes", "sends"),
    [
        ({"scaling": {}}, True),
        ({"scaling": None}, False),
        ({"scaling": None, "audit.enabled": True, "audit.emails": ["a@example.com"]}, True),
        ({"scaling": None, "audit.enabled": True, "network.egress": "bucket"}, False),
    ],
    ids=str,
)
def test_there_is_a_group_for_metrics_where_nodes_send_any_and_else_none(mocked, ali, changes, sends):
    records = mocked.declare(governed(ali({**ALL, **changes})))
    assert bool(records.of("MonitorGroup")) is sends
    assert [record.name for record in records.of("RolePolicyAttachment") if record.name == "c1-metrics"] == (
        ["c1-metrics"] * sends
    )


def test_every_spec_that_scales_names_a_rung_once(ali):
    for most in (1, 2, 4, 7, 64, 1000):
        plan = decide("c1", parse(ali({"nodes.desired": 1, "nodes.max": most})))
        found = rungs(plan.fleet.max, plan.fleet.min, 1)
        assert len({length for length, _ in found}) == len(found) <= 20
        assert sum(nodes for _, nodes in found) == most
