"""Alarms of an audited cluster: who is told of what."""

import json

import pytest

from components.alicloud.alarms import WATCHES, custom_dimensions, pattern
from tests.components.alicloud.parts import ACCOUNT, BUCKET, REGION, governed

AUDITED = {"audit.enabled": True, "audit.emails": ["a@example.com", "b@example.com"], "network.egress": "nat"}


@pytest.fixture
def audited(mocked, ali):
    return mocked.declare(governed(ali(AUDITED)))


def _matches(wanted, event):
    """As EventBridge does (user guide, "Event patterns"): every field, any of its values."""
    return all(
        _matches(value, event.get(field, {})) if isinstance(value, dict) else event.get(field) in value
        for field, value in wanted.items()
    )


def _call(name, service="Actiontrail", kind="ApiCall"):
    """An event of ActionTrail's (EventBridge user guide, "ActionTrail events"), as far as it matters."""
    data = {"eventName": name, "serviceName": service, "eventType": kind, "eventRW": "Write"}
    return {"source": "acs.actiontrail", "type": f"actiontrail:ActionTrail:{kind}", "data": data}


TRAIL, KEYS = (pattern(watch) for watch in WATCHES)


@pytest.mark.parametrize("name", ["StopLogging", "DeleteTrail", "UpdateTrail"])
@pytest.mark.parametrize("kind", ["ApiCall", "ConsoleOperation"])
def test_who_changes_or_stops_a_trail_is_told_of_however_it_is_done(name, kind):
    assert _matches(TRAIL, _call(name, kind=kind))
    assert not _matches(KEYS, _call(name, kind=kind))


@pytest.mark.parametrize("name", ["DisableKey", "ScheduleKeyDeletion"])
def test_who_disables_a_key_or_schedules_its_deletion_is_told_of(name):
    assert _matches(KEYS, _call(name, "Kms"))
    assert not _matches(KEYS, _call(name, "Ecs"))


def test_what_changes_nothing_of_the_record_is_not_told_of():
    for event in (_call("CreateKey", "Kms"), _call("DescribeTrails"), _call("DeleteDisk", "Ecs")):
        assert not _matches(TRAIL, event)
        assert not _matches(KEYS, event)


def test_rules_are_such_as_eventbridge_takes(audited):
    """Five values of a field (provider's `eventbridge.Rule`), and parameters that a queue needs."""
    rules = audited.of("Rule")
    assert len(rules) == 2
    for record in rules:
        wanted = json.loads(record.inputs["filterPattern"])
        assert all(len(values) <= 5 for values in wanted["data"].values())
        (target,) = record.inputs["targets"]
        suffix = record.name.removeprefix("c1-")
        assert target["type"] == "acs.mns.queue"
        assert target["endpoint"] == f"acs:mns:{REGION}:{ACCOUNT}:queues/{BUCKET}-{suffix}"
        given = {param["resourceKey"]: (param["form"], param["value"]) for param in target["paramLists"]}
        assert given == {"queue": ("CONSTANT", f"{BUCKET}-{suffix}"), "Body": ("CONSTANT", suffix)}
        assert record.inputs["ruleName"] != record.name, "a bus has a name once"


def test_an_event_that_is_counted_is_told_within_the_hour(audited):
    for suffix in ("trail-changed", "key-disabled", "troubles"):
        assert audited.one("ServiceQueue", f"c1-{suffix}").inputs["messageRetentionPeriod"] == 3600
        alarm = audited.one("Alarm", f"c1-{suffix}").inputs
        assert alarm["escalationsCritical"]["threshold"] == "1"
        assert alarm["contactGroups"] == ["c1-nodes-id-alarms"]
        assert json.loads(alarm["metricDimensions"])[0]["queue"] == f"{BUCKET}-{suffix}"


def test_nodes_that_do_not_come_and_schedules_that_end_are_told_of(audited):
    told = audited.one("Notification").inputs
    assert told["scalingGroupId"] == "c1-nodes-id"
    assert told["notificationArn"] == f"acs:ess:{REGION}:{ACCOUNT}:queue/{BUCKET}-troubles"
    assert {"AUTOSCALING:SCALE_OUT_ERROR", "AUTOSCALING:SCHEDULE_TASK_EXPIRING"} <= set(told["notificationTypes"])
    assert not {kind for kind in told["notificationTypes"] if "SUCCESS" in kind or "START" in kind}


def test_nodes_that_are_paid_for_and_do_nothing_are_told_of_after_half_an_hour(audited):
    alarm = audited.one("Alarm", "c1-idle").inputs
    assert alarm["project"] == f"acs_customMetric_{ACCOUNT}"
    assert alarm["metric"] == "CPUUtilization"
    assert alarm["metricDimensions"] == custom_dimensions("7671", BUCKET)
    assert all(isinstance(value, str) for value in json.loads(alarm["metricDimensions"])[0].values()), (
        "the provider reads them as strings, and fails at others"
    )
    warn = alarm["escalationsWarn"]
    assert (warn["comparisonOperator"], warn["threshold"]) == ("<", "1")
    assert warn["times"] * alarm["period"] == 1800


def test_each_address_is_a_contact_in_the_group_and_a_contacts_name_fits(audited):
    contacts = [record.inputs for record in audited.of("AlarmContact")]
    assert {contact["channelsMail"] for contact in contacts} == {"a@example.com", "b@example.com"}
    for contact in contacts:
        longest = contact["alarmContactName"].replace("c1-nodes-id", "asg-bp1fo0dbtsbmqa9h1234")
        assert 2 <= len(longest) <= 40
        assert "@" not in contact["alarmContactName"]
        assert contact["describe"]
        assert contact["lang"] in {"en", "zh-cn"}
    group = audited.one("AlarmContactGroup", "c1-alarms").inputs
    assert group["contacts"] == [contact["alarmContactName"] for contact in contacts]


def test_without_a_record_nobody_is_told_of_it(mocked, ali):
    records = mocked.declare(governed(ali({**AUDITED, "audit.enabled": False})))
    assert records.of("Rule") == records.of("Notification") == records.of("AlarmContact") == []


def test_without_metrics_there_is_no_alarm_on_them(mocked, ali):
    records = mocked.declare(governed(ali({**AUDITED, "network.egress": "bucket"})))
    assert not [record for record in records.of("Alarm") if record.name == "c1-idle"]
