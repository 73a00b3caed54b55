"""The breaker: what it counts, what it does, and whom it tells."""

import json

import pytest

from components.scaling import breaker_name
from tests.components.alicloud.parts import ACCOUNT, BUCKET, REGION, governed
from tests.components.alicloud.policies import allows


@pytest.fixture
def declared(mocked, ali):
    return mocked.declare(governed(ali({"nodes.failed_boots": 7})))


def _alarm(records, name=None):
    return records.one("Alarm", name or breaker_name("c1")).inputs


def test_b8_b9_boots_that_fail_over_and_over_empty_the_group(declared):
    alarm, rule = _alarm(declared), declared.one("ScalingRule").inputs
    assert rule == {
        "scalingGroupId": "c1-nodes-id",
        "adjustmentType": "TotalCapacity",
        "adjustmentValue": 0,
        "cooldown": 0,
    }
    assert alarm["escalationsCritical"] == {
        "comparisonOperator": ">=",
        "statistics": "Maximum",
        "threshold": "7",
        "times": 1,
    }
    assert alarm["targets"] == [
        {
            "targetId": "1",
            "level": "Critical",
            "arn": f"acs:ess:{REGION}:{ACCOUNT}:scalingGroupId/c1-nodes-id:scalingRuleId/c1-failed-nodes-id",
        }
    ]


def test_failures_count_for_an_hour_and_for_no_longer(declared):
    assert declared.one("ServiceQueue", "c1-failed-nodes").inputs["messageRetentionPeriod"] == 3600


def test_while_boots_fail_the_group_is_set_to_zero_again_and_again(declared):
    """A schedule or a queue may bring nodes back within the hour."""
    assert _alarm(declared)["silenceTime"] == 300


def test_each_pool_has_a_breaker_of_its_own_group_and_its_own_count(mocked, ali):
    data = {"data_nodes.type": "ecs.g8i.24xlarge", "data_nodes.count": 2}
    records = mocked.declare(governed(ali(data)))
    for one, group in (("node", "c1-nodes-id"), ("data-node", "c1-data-nodes-id")):
        name = breaker_name("c1", one)
        assert records.one("ScalingRule", name).inputs["scalingGroupId"] == group
        alarm = _alarm(records, name)
        assert f'"{BUCKET}-failed-{one}s"' in alarm["metricDimensions"]
        assert alarm["targets"][0]["arn"].endswith(f"{group}:scalingRuleId/{name}-id")
        attached = records.one("RolePolicyAttachment", f"c1-failed-{one}s").inputs
        assert attached["roleName"] == f"c1-{one}"


def test_nodes_may_count_and_nothing_else(declared):
    policy = json.loads(declared.one("Policy", "c1-failed-nodes").inputs["policyDocument"])
    counter = f"acs:mns:{REGION}:{ACCOUNT}:/queues/{BUCKET}-failed-nodes/messages"
    assert allows(policy, "mns:SendMessage", counter)
    assert len(policy["Statement"]) == 1
    for action in ("ess:ModifyScalingGroup", "ess:ExecuteScalingRule", "ess:SuspendProcesses"):
        assert not allows(policy, action, "acs:ess:*:*:scalinggroup/c1-nodes-id")


def test_whoever_hears_alarms_hears_of_it(mocked, ali):
    records = mocked.declare(governed(ali({"audit.enabled": True, "audit.emails": ["a@example.com"]})))
    assert _alarm(records)["contactGroups"] == ["c1-nodes-id-alarms"]
    assert _alarm(mocked.declare(governed(ali())))["contactGroups"] == ["c1-nodes-id-alarms"], "an empty one"
