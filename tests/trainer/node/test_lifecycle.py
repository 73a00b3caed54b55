"""What a node notices of its own end, and what it tells its group."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from trainer.grace import GRACE_S
from trainer.metadata import open_metadata
from trainer.node import lifecycle
from trainer.node.lifecycle import Lifecycle


class Metadata:
    when, ends, risk, notice_s = None, False, None, 120.0

    def interruption(self):
        return self.when

    def terminating(self):
        return self.ends

    def at_risk(self):
        return self.risk


class AutoScaling:
    """Answers, or raises what `trouble` holds, first things first."""

    def __init__(self):
        self.told, self.trouble = [], []

    def describe_auto_scaling_instances(self, InstanceIds):
        return {"AutoScalingInstances": [{"InstanceId": InstanceIds[0], "AutoScalingGroupName": "c1-nodes-1a2b3c4"}]}

    def complete_lifecycle_action(self, **told):
        if self.trouble:
            raise self.trouble.pop(0)
        self.told.append(told)


@pytest.fixture
def api(monkeypatch):
    api = AutoScaling()
    monkeypatch.setattr(lifecycle.boto3, "client", lambda service, **_: api)
    return api


@pytest.fixture
def node(api):
    return Lifecycle(Metadata(), "i-1", "us-west-2", "drain")


def test_what_takes_a_node_away_is_said_in_words(node):
    assert node.notice() is None
    node.metadata.ends = True
    assert node.notice()[0] == "its group ends this node"
    node.metadata.when = "2026-01-01T00:02:00Z"
    assert node.notice()[0] == "the cloud takes this node away at 2026-01-01T00:02:00Z"


@pytest.mark.parametrize(
    ("when", "seconds"),
    [
        ("2026-01-01T00:02:00Z", 110),
        ("2026-01-01T00:01:55Z", 105),
        ("2026-01-01T00:05:00Z", 290),
        ("2026-01-01T00:00:05Z", lifecycle.LAST_S),
        ("2026-01-01T09:00:00Z", GRACE_S),
        ("2025-12-31T00:00:00Z", GRACE_S),
        ("2026-01-01T00:02:00", GRACE_S),
        ("soon", GRACE_S),
    ],
)
def test_workers_are_given_the_time_that_a_notice_leaves(when, seconds):
    """Alibaba Cloud's is three minutes longer than AWS's, which large checkpoints may need; a wrong clock's is none."""
    assert lifecycle.left(when, datetime(2026, 1, 1, tzinfo=UTC), 300.0) == seconds


@pytest.mark.parametrize(("cloud", "seconds"), [("aws", 110), ("alicloud", 290)])
def test_a_slow_clock_gives_workers_no_more_time_than_the_cloud_gives_the_node(cloud, seconds):
    """AWS's two minutes would look like three, and what saves in that time would be cut off without a word."""
    most_s = open_metadata(cloud).notice_s
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert lifecycle.left((now + timedelta(seconds=most_s + 55)).isoformat(), now, most_s) == seconds


def test_a_node_has_its_groups_time_until_the_cloud_gives_it_another(node):
    node.metadata.ends, node.metadata.notice_s = True, 300.0
    assert node.notice()[1] == GRACE_S
    node.metadata.when = (datetime.now(UTC) + timedelta(seconds=300)).isoformat()
    assert GRACE_S < node.notice()[1] <= 290


def test_advice_alone_stops_no_work_and_is_said_once(node, capsys):
    """Most nodes that are advised of are never taken, and the group ends one only once another has come."""
    node.metadata.risk = "2026-01-01T00:00:00Z"
    assert [node.notice() for _ in range(3)] == [None] * 3
    assert capsys.readouterr().out.count("may take this node away soon (as of 2026-01-01T00:00:00Z)") == 1


def test_a_group_that_waits_is_told_once(node, api):
    node.metadata.ends = True
    for _ in range(3):
        node.settle()
        node.close()
    assert api.told == [
        {
            "LifecycleHookName": "drain",
            "AutoScalingGroupName": "c1-nodes-1a2b3c4",
            "LifecycleActionResult": "CONTINUE",
            "InstanceId": "i-1",
        }
    ]


def test_what_a_node_leaves_undone_is_told_before_its_group_may_end_it(api):
    told = []
    node = Lifecycle(Metadata(), "i-1", "us-west-2", "drain", leaving=lambda: told.append(len(api.told)))
    node.close()
    assert told == [], "it goes on"
    node.metadata.ends = True
    node.close()
    assert (told, len(api.told)) == ([0], 1)


def test_a_group_that_is_slow_to_answer_is_asked_once_at_a_time(node, api, monkeypatch):
    node.metadata.ends = True
    answered, asked = threading.Event(), []

    def describe(InstanceIds):
        asked.append(InstanceIds)
        assert answered.wait(10)
        return {"AutoScalingInstances": []}

    monkeypatch.setattr(api, "describe_auto_scaling_instances", describe)
    for _ in range(3):
        node.settle()
    answered.set()
    node._saying.join(10)
    assert asked == [["i-1"]]


def test_a_group_that_does_not_end_the_node_is_told_nothing(node, api):
    node.settle()
    node.close()
    assert api.told == []


def test_nobody_is_asked_where_no_hook_can_be_reached(api):
    """Without a way out of the VPC, each call would wait for an answer that can't come."""
    node = Lifecycle(Metadata(), "i-1", "us-west-2", "")
    node.metadata.ends = True
    node.settle()
    node.close()
    assert api.told == []


@pytest.mark.parametrize(
    "trouble",
    [
        ClientError({"Error": {"Code": "ValidationError", "Message": "No active Lifecycle Action found"}}, "Complete"),
        ConnectTimeoutError(endpoint_url="https://autoscaling"),
    ],
    ids=["too early", "no way"],
)
def test_a_group_that_does_not_listen_yet_is_told_again(node, api, trouble, capsys, wait_for):
    node.metadata.ends = True
    api.trouble = [trouble]
    node.settle()
    wait_for("the refusal", lambda: not api.trouble)
    node.close()
    node.close()
    assert len(api.told) == 1
    assert "can't be told yet" in capsys.readouterr().out


def test_a_node_whose_run_has_ended_keeps_its_group_waiting_no_longer(node, api, monkeypatch):
    """Each of a fleet that rests would be paid for until the hook's time is over."""
    monkeypatch.setattr(lifecycle, "ATTENDING_S", 0.02)
    threading.Timer(0.1, lambda: setattr(node.metadata, "ends", True)).start()
    node.attend(0.5)
    assert len(api.told) == 1


def test_metadata_that_does_not_answer_does_not_keep_an_agent_from_its_end(node, monkeypatch):
    def refuse():
        raise OSError("refused")

    monkeypatch.setattr(node.metadata, "terminating", refuse, raising=False)
    node.close()
