"""Queues: what they keep, who may do what there, and the alarms on their length."""

import json

import pytest

from components.alicloud.queue import counting_policy, node_queue_policy, queue_arn, submitting, url
from components.alicloud.security import document
from tests.components.alicloud.parts import ACCOUNT, BUCKET, KEY, REGION, governed
from tests.components.alicloud.policies import allows

QUEUED = {"scaling": {"queue": {"backlog": 2, "attempts": 4}}, "network.egress": "nat"}
NAME = f"{BUCKET}-queue"
ARN = f"acs:mns:{REGION}:{ACCOUNT}:/queues/{NAME}/messages"


@pytest.fixture
def declared(mocked, ali):
    return mocked.declare(governed(ali(QUEUED)))


def test_messages_are_encrypted_with_the_clusters_key_and_kept_as_long_as_can_be(declared):
    for name in ("c1-queue", "c1-dead-letters"):
        queue = declared.one("ServiceQueue", name).inputs
        assert (queue["enableSse"], queue["sseType"], queue["sseAlgorithm"]) == (True, "KMS", "AES-256-GCM")
        assert queue["kmsKeyId"] == KEY
        assert queue["messageRetentionPeriod"] == 604_800, "SMQ takes 60 to 604800"


def test_what_is_handed_out_too_often_is_put_aside_and_not_tried_for_ever(declared):
    assert declared.one("ServiceQueue", "c1-queue").inputs["dlqPolicy"] == {
        "enabled": True,
        "deadLetterTargetQueue": f"{BUCKET}-dead-letters",
        "maxReceiveCount": 4,
    }
    assert "dlqPolicy" not in declared.one("ServiceQueue", "c1-dead-letters").inputs


def test_what_is_asked_of_a_queue_is_what_smq_takes(declared):
    """Ranges: provider's `message.ServiceQueue`."""
    for record in declared.of("ServiceQueue"):
        given = record.inputs
        assert 60 <= given["messageRetentionPeriod"] <= 604_800
        assert 1 <= given.get("visibilityTimeout", 30) <= 43_200
        assert 0 <= given.get("pollingWaitSeconds", 0) <= 30
        assert given["queueName"].startswith(f"{BUCKET}-"), "an account has a name once, and no two buckets have one"
        assert len(given["queueName"]) <= 120


def test_a_counter_forgets_after_an_hour_and_holds_nothing_to_encrypt(declared):
    counter = declared.one("ServiceQueue", "c1-failed-nodes").inputs
    assert counter["messageRetentionPeriod"] == 3600
    assert "enableSse" not in counter, "it takes a ticket, and each cluster has a breaker"


def test_nodes_take_messages_out_put_one_back_read_the_queue_and_submit_nothing():
    """One that leaves while a run waits says so, or no node may ever come again."""
    policy = node_queue_policy(BUCKET, REGION, ACCOUNT, NAME)
    for action in ("mns:ReceiveMessage", "mns:DeleteMessage", "mns:SendMessage"):
        assert allows(policy, action, ARN)
        assert not allows(policy, action, ARN.replace("c1-", "c2-"))
    for action in ("mns:DeleteQueue", "mns:SetQueueAttributes", "mns:PeekMessage"):
        assert not allows(policy, action, ARN)
    assert allows(policy, "oss:GetObject", f"acs:oss:*:*:{BUCKET}/queue/000001.json")
    assert not allows(policy, "oss:PutObject", f"acs:oss:*:*:{BUCKET}/queue/000001.json")
    assert not allows(policy, "oss:GetObject", f"acs:oss:*:*:{BUCKET}/datasets/text/0")


def test_a_node_may_count_a_failed_boot_and_neither_see_nor_take_back_what_others_counted():
    policy = counting_policy(REGION, ACCOUNT, f"{BUCKET}-failed-nodes")
    counter = queue_arn(REGION, ACCOUNT, f"{BUCKET}-failed-nodes")
    assert allows(policy, "mns:SendMessage", counter)
    assert not allows(policy, "mns:SendMessage", ARN)
    for action in ("mns:ReceiveMessage", "mns:DeleteMessage", "mns:PeekMessage"):
        assert not allows(policy, action, counter)


def test_those_who_submit_signal_and_add_runs_and_receive_nothing():
    policy = document(*submitting(REGION, ACCOUNT, BUCKET, KEY, NAME))
    assert allows(policy, "mns:SendMessage", ARN)
    assert not allows(policy, "mns:SendMessage", ARN.replace("c1-", "c2-"))
    for action in ("mns:ReceiveMessage", "mns:DeleteMessage"):
        assert not allows(policy, action, ARN)
    objects = f"acs:oss:*:*:{BUCKET}"
    for key in ("queue/000001.json", "bundles/code-ab.tar", "runs/r-1/audit/launch-ab.json"):
        assert allows(policy, "oss:PutObject", f"{objects}/{key}")
    assert allows(policy, "oss:PutObject", f"{objects}/runs/r-1/control/outcome.json")
    for key in ("runs/r-1/checkpoints/1", "datasets/text/0", "bundles/ab.tar", "fleet.json"):
        assert not allows(policy, "oss:PutObject", f"{objects}/{key}")
    assert not allows(policy, "oss:DeleteObject", f"{objects}/queue/000001.json")
    assert allows(policy, "kms:GenerateDataKey", f"acs:kms:*:*:key/{KEY}")


def test_a_url_is_of_the_form_that_the_http_api_takes():
    assert url(REGION, ACCOUNT, "q") == f"https://{ACCOUNT}.mns.ap-southeast-1.aliyuncs.com/queues/q"
    assert url(f"{REGION}-internal", ACCOUNT, "q") == (
        f"https://{ACCOUNT}.mns.ap-southeast-1-internal.aliyuncs.com/queues/q"
    )


def test_without_a_queue_in_the_spec_there_is_none(mocked, ali):
    records = mocked.declare(governed(ali({"scaling": {}, "network.egress": "nat"})))
    assert {record.name for record in records.of("ServiceQueue")} == {"c1-failed-nodes"}


def test_an_alarm_on_a_queues_length_is_of_this_queue_and_of_what_cloudmonitor_takes(declared):
    alarm = declared.one("Alarm", "c1-failed-nodes").inputs
    assert (alarm["project"], alarm["metric"]) == ("acs_mns_new", "ActiveMessages")
    assert json.loads(alarm["metricDimensions"]) == [
        {"userId": ACCOUNT, "region": REGION, "queue": f"{BUCKET}-failed-nodes"}
    ]
    for record in declared.all:
        if record.type == "alicloud:cms/alarm:Alarm":
            given = record.inputs
            assert 300 <= given["silenceTime"] <= 86_400
            assert given["period"] == 300, "what a queue's length is known by"
            assert given["escalationsCritical"]["comparisonOperator"] in {">", ">=", "<", "<=", "!=", "=="}
            assert given["contactGroups"], "the provider asks for one"
            assert {target["level"] for target in given["targets"]} <= {"Critical", "Warn", "Info"}
            assert not {"dimensions", "startTime", "endTime"} & given.keys(), "deprecated, and in conflict"
