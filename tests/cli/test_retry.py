"""Another try for a failed run: what is put aside, what is kept, and whom it is refused to."""

import io
import json
from dataclasses import replace
from types import SimpleNamespace

import boto3
import pytest
from moto import mock_aws
from rich.console import Console

from cli import aws
from cli import retry as retrying
from cli.account import Group
from cli.alicloud import Alicloud, Fixed
from cli.errors import Refused
from cli.retry import pardon
from cli.workspace import Workspace
from components.scaling import LAUNCH, breaker_name
from tests.cli.alibaba import PERSON, Rpc, served
from trainer import layout
from trainer.alicloud import ENDPOINT
from trainer.node.membership import Membership
from trainer.node.peers import Card, Generation, Member, Tally
from trainer.store import FileStore, Unavailable


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path)


def ended(store, *, succeeded):
    outcome = {"succeeded": succeeded, "reason": "no", "ended": 12.0}
    store.put(layout.OUTCOME, json.dumps(outcome).encode())
    return outcome


def test_a_failed_run_loses_its_outcome_and_its_count_of_failures_but_no_history(store):
    members = (Member("a", "10.0.0.1", "a1", 1),)
    for number in (1, 2, 3):
        record = Generation(number, members, 1, "why", graceful=False, step=0, tally=Tally(fruitless=number - 1))
        store.put(layout.generation(number), record.json())
    outcome = ended(store, succeeded=False)
    before = {entry.key: entry.etag for entry in store.list(layout.GENERATIONS)}
    pardon("r-1", store)
    assert not store.exists(layout.OUTCOME)
    assert json.loads(store.get(layout.past_outcome(12.0))) == outcome
    assert {entry.key: entry.etag for entry in store.list(layout.GENERATIONS)} == before, "history is not rewritten"
    node = Membership(store, store, Card("b", "10.0.0.2", "t", "b1", 1))
    node.sync()
    assert node.generation == replace(record, tally=Tally())


def test_a_run_that_goes_on_or_is_done_is_left_alone(store):
    with pytest.raises(Refused, match="has not ended"):
        pardon("r-1", store)
    ended(store, succeeded=True)
    with pytest.raises(Refused, match="is done"):
        pardon("r-1", store)
    assert store.exists(layout.OUTCOME)


class Stack:
    """A stack whose run's prefix is `store`."""

    def __init__(self, store):
        self.store = store
        self.outputs = {"group": "g"}

    own = "r-1"

    def run(self, run):
        return run, self.store

    def group(self):
        return Group(12.0, frozenset({"i-1", "i-2"}))

    @property
    def account(self):
        return self

    def caller(self):
        return "arn:aws:iam::123456789012:user/ada"

    def end_instances(self, name, instances):
        assert (name, instances) == ("g", {"i-1", "i-2"})


@pytest.mark.parametrize(
    ("run", "command"),
    [("r-1", "trainwright retry --stack a"), ("r-2", "trainwright queue retry r-2 --stack a"), ("r-0", "")],
)
def test_a_run_is_tried_again_by_the_verb_that_can(store, run, command):
    stack = Stack(store)
    stack.stack, stack.outputs = "a", {"queueUrl": "q"}
    stack.queue = lambda: SimpleNamespace(places=lambda: [SimpleNamespace(turn=SimpleNamespace(run="r-2"))])
    assert retrying.again(stack, run) == command


def test_who_tried_again_is_in_the_audit_record(store, monkeypatch):
    monkeypatch.setattr(retrying, "Workspace", lambda _: Stack(store))
    ended(store, succeeded=False)
    retrying.retry("local", Console(file=io.StringIO()))
    page = json.loads(store.get("audit/retry-12.json"))
    assert page == {"by": "arn:aws:iam::123456789012:user/ada", "ended": 12.0}


def test_nobody_unknown_tries_again(store, monkeypatch):
    def refuse(_):
        raise Refused("who you are can't be asked for")

    monkeypatch.setattr(retrying, "Workspace", lambda _: Stack(store))
    monkeypatch.setattr(Stack, "caller", refuse)
    ended(store, succeeded=False)
    with pytest.raises(Refused, match="who you are"):
        retrying.retry("local", Console(file=io.StringIO()))
    assert store.exists(layout.OUTCOME)


# A fleet that its breaker has stopped

REGION = "us-west-2"


@pytest.fixture
def stopped(store, monkeypatch):
    """A cluster `c1` whose group wants no nodes and may launch none, its breaker on."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(Workspace, "run", lambda *_: ("r-1", store))
    monkeypatch.setattr(Workspace, "account", aws.Aws(REGION))
    monkeypatch.setattr(Workspace, "outputs", {"group": "g", "run": "r-1"})
    monkeypatch.setattr(Workspace, "plan", lambda _: (SimpleNamespace(fleet=SimpleNamespace(desired=2)), []))
    with mock_aws():
        scaling, watch = boto3.client("autoscaling"), boto3.client("cloudwatch")
        scaling.create_launch_configuration(
            LaunchConfigurationName="c", ImageId="ami-12c6146b", InstanceType="m5.large"
        )
        scaling.create_auto_scaling_group(
            AutoScalingGroupName="g",
            MinSize=0,
            MaxSize=9,
            DesiredCapacity=0,
            AvailabilityZones=[f"{REGION}b"],
            LaunchConfigurationName="c",
        )
        scaling.suspend_processes(AutoScalingGroupName="g", ScalingProcesses=["AZRebalance", LAUNCH])
        watch.put_metric_alarm(
            AlarmName=f"{breaker_name('c1')}-1a2b3c4",
            Namespace="n",
            MetricName="m",
            Statistic="Sum",
            Period=60,
            EvaluationPeriods=1,
            Threshold=1,
            ComparisonOperator="GreaterThanThreshold",
        )
        yield SimpleNamespace(scaling=scaling, breaker=lambda state: _turn(watch, state))


def _turn(watch, state):
    watch.set_alarm_state(AlarmName=f"{breaker_name('c1')}-1a2b3c4", StateValue=state, StateReason="so")


def _group(scaling):
    (group,) = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    return group["DesiredCapacity"], {process["ProcessName"] for process in group["SuspendedProcesses"]}


def _retried():
    console = Console(file=io.StringIO(), width=200)
    retrying.retry("c1", console)
    return console.file.getvalue()


def test_a_stopped_fleet_launches_again_though_its_run_has_not_ended(stopped):
    stopped.breaker("OK")
    assert _retried().startswith("The fleet launches nodes again. Follow it")
    assert _group(stopped.scaling) == (2, {"AZRebalance"})
    with pytest.raises(Refused, match="has not ended"):
        _retried()


def test_an_operator_who_sees_no_bucket_has_a_stopped_fleet_launch_again_and_hears_what_stays_unseen(
    stopped, store, monkeypatch
):
    def denied(*_):
        raise Unavailable("403: denied")

    stopped.breaker("OK")
    ended(store, succeeded=False)
    monkeypatch.setattr(store, "exists", denied)
    assert _retried().startswith("Whether its run has failed can't be seen (403: denied). The fleet launches nodes")
    assert _group(stopped.scaling) == (2, {"AZRebalance"})


def test_a_size_that_the_queue_asked_for_meanwhile_stays(stopped):
    stopped.breaker("OK")
    stopped.scaling.set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=5)
    _retried()
    assert _group(stopped.scaling) == (5, {"AZRebalance"})


def test_a_fleet_is_not_resumed_while_its_breaker_would_stop_it_again(stopped, store):
    stopped.breaker("ALARM")
    ended(store, succeeded=False)
    with pytest.raises(Refused, match=r"alarm c1-failed-nodes-1a2b3c4 is on.*try again once the alarm is over"):
        _retried()
    assert _group(stopped.scaling) == (0, {"AZRebalance", LAUNCH})
    assert store.exists(layout.OUTCOME)


def test_a_failed_run_on_a_stopped_fleet_is_pardoned_with_it(stopped, store):
    stopped.breaker("OK")
    ended(store, succeeded=False)
    said = _retried()
    assert "its failure is put aside, and 0 nodes will be replaced. The fleet launches nodes again." in said
    assert _group(stopped.scaling) == (2, {"AZRebalance"})
    assert not store.exists(layout.OUTCOME)
    assert store.exists(layout.audit_retry(12.0))


def test_a_run_that_is_done_stays_so_while_its_stopped_fleet_goes_on_for_others(stopped, store):
    stopped.breaker("OK")
    ended(store, succeeded=True)
    assert _retried().startswith("The fleet launches nodes again. Follow it")
    assert _group(stopped.scaling) == (2, {"AZRebalance"})
    assert store.exists(layout.OUTCOME)


# The same on Alibaba Cloud


@pytest.fixture
def alibaba(store, monkeypatch):
    """A cluster `c1` there, whose group wants no nodes and may launch none; what it is asked."""
    api = Rpc()
    suspended = ["ScaleOut"]
    group = {
        "CreationTime": "2026-11-30T10:00Z",
        "DesiredCapacity": 0,
        "SuspendedProcesses": {"SuspendedProcess": suspended},
    }
    api.on = []
    api.actions |= {
        "GetCallerIdentity": lambda _: {"Arn": "acs:ram::1234567890123456:user/ada"},
        "DescribeScalingGroups": lambda _: {"ScalingGroups": {"ScalingGroup": [group]}},
        "DescribeScalingInstances": lambda _: {"ScalingInstances": {"ScalingInstance": []}},
        "DescribeMetricRuleList": lambda _: {"Alarms": {"Alarm": [{"RuleName": name} for name in api.on]}},
        "ResumeProcesses": lambda asked: suspended.remove(asked["Process.1"]) or {},
        "ModifyScalingGroup": lambda asked: group.update(DesiredCapacity=int(asked["DesiredCapacity"])) or {},
    }
    api.group, api.suspended = group, suspended
    monkeypatch.setattr(boto3, "client", lambda *_, **__: pytest.fail("AWS was asked"))
    monkeypatch.setattr(Workspace, "run", lambda *_: ("r-1", store))
    monkeypatch.setattr(Workspace, "account", Alicloud("cn-hangzhou", Fixed(PERSON)))
    monkeypatch.setattr(Workspace, "outputs", {"group": "asg-1", "run": "r-1"})
    monkeypatch.setattr(Workspace, "plan", lambda _: (SimpleNamespace(fleet=SimpleNamespace(desired=2)), []))
    with served(api) as url:
        monkeypatch.setenv(ENDPOINT, url)
        yield api


def test_a_stopped_fleet_on_alibaba_cloud_launches_again(alibaba, store):
    ended(store, succeeded=False)
    assert "its failure is put aside, and 0 nodes will be replaced. The fleet launches nodes again." in _retried()
    assert alibaba.group["DesiredCapacity"] == 2
    assert alibaba.group["SuspendedProcesses"]["SuspendedProcess"] == []
    assert json.loads(store.get(layout.audit_retry(12.0)))["by"] == "acs:ram::1234567890123456:user/ada"


def test_a_fleet_on_alibaba_cloud_is_not_resumed_while_its_breaker_is_on(alibaba, store):
    alibaba.on = [f"{breaker_name('c1')}-1a2b3c4"]
    ended(store, succeeded=False)
    with pytest.raises(Refused, match=r"alarm c1-failed-nodes-1a2b3c4 is on"):
        _retried()
    assert alibaba.group["DesiredCapacity"] == 0
    assert store.exists(layout.OUTCOME)


def test_a_fleet_that_its_breaker_set_to_zero_comes_back_though_nothing_is_suspended_there(alibaba, store):
    """As it leaves one on Alibaba Cloud: no alarm there can suspend launches."""
    alibaba.suspended.clear()
    assert _retried().startswith("The fleet launches nodes again. Follow it")
    assert alibaba.group["DesiredCapacity"] == 2
    with pytest.raises(Refused, match="has not ended"):
        _retried()


def test_a_failed_run_on_a_fleet_at_zero_gets_nodes_again(alibaba, store):
    """With its end, nothing was left that waits: without a size of its own it would wait for ever."""
    alibaba.suspended.clear()
    ended(store, succeeded=False)
    assert "its failure is put aside, and 0 nodes will be replaced. The fleet launches nodes again." in _retried()
    assert alibaba.group["DesiredCapacity"] == 2


def test_a_fleet_at_zero_is_not_started_while_its_breaker_is_on(alibaba, store):
    alibaba.suspended.clear()
    alibaba.on = [f"{breaker_name('c1')}-1a2b3c4"]
    with pytest.raises(Refused, match=r"alarm c1-failed-nodes-1a2b3c4 is on"):
        _retried()
    assert alibaba.group["DesiredCapacity"] == 0


def test_a_fleet_that_is_idle_at_zero_stays_there_as_nothing_waits_unless_a_queue_has_more(
    alibaba, store, tmp_path, monkeypatch
):
    alibaba.suspended.clear()
    ended(store, succeeded=True)
    with pytest.raises(Refused, match="is done"):
        _retried()
    assert alibaba.group["DesiredCapacity"] == 0
    submitted = FileStore(tmp_path / "submitted")
    monkeypatch.setattr(Workspace, "own", "r-1")
    monkeypatch.setattr(Workspace, "run", lambda _, run="": (run or "r-2", store if run else submitted))
    assert _retried().startswith("The fleet launches nodes again. Follow it")
    assert (alibaba.group["DesiredCapacity"], store.exists(layout.OUTCOME)) == (2, True)
