"""What the command asks Alibaba Cloud, against its APIs in miniature (`alibaba.py`)."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

import pytest

from cli import alicloud, credentials
from cli.account import Group, account, advice
from cli.alicloud import Alicloud, Fixed
from cli.errors import Refused
from tests.cli.alibaba import PERSON, Rpc, served
from trainer import alicloud as of_trainer
from trainer.alicloud import Credentials
from trainer.node import mns
from trainer.store import S3Store, StoreError

REGION = "cn-hangzhou"
GROUP = "asg-bp1"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rpc]:
    cloud = Rpc()
    monkeypatch.setattr(alicloud.time, "sleep", lambda _: None)
    with served(cloud) as url:
        monkeypatch.setenv(of_trainer.ENDPOINT, url)
        yield cloud


@pytest.fixture
def person() -> Alicloud:
    return Alicloud(REGION, Fixed(PERSON))


def groups(*found: dict[str, Any]) -> Any:
    return lambda _: {"ScalingGroups": {"ScalingGroup": list(found)}}


def instances(**states: str) -> Any:
    """In pages, as asked for."""
    every = [{"InstanceId": name, "LifecycleState": state} for name, state in states.items()]

    def page(asked: dict[str, str]) -> dict[str, Any]:
        size, number = int(asked["PageSize"]), int(asked["PageNumber"])
        assert size <= 50
        assert asked["ScalingGroupId"] == GROUP
        return {"ScalingInstances": {"ScalingInstance": every[size * (number - 1) : size * number]}}

    return page


def test_instances_on_their_way_out_are_not_counted(api: Rpc, person: Alicloud) -> None:
    api.actions["DescribeScalingGroups"] = groups({"CreationTime": "2026-11-30T10:00Z"})
    states = {"a": "InService", "b": "Removing", "c": "Removing:Wait", "d": "Pending:Wait", "e": "Protected"}
    api.actions["DescribeScalingInstances"] = instances(**states)
    created = datetime(2026, 11, 30, 10, tzinfo=UTC).timestamp()
    assert person.group(GROUP) == Group(created, frozenset({"a", "d", "e"}))
    assert api.asked[0] == ("DescribeScalingGroups", {"RegionId": REGION, "ScalingGroupId.1": GROUP})


def test_a_fleet_of_more_than_a_page_is_counted_whole(api: Rpc, person: Alicloud) -> None:
    api.actions["DescribeScalingGroups"] = groups({"CreationTime": "2026-11-30T10:00Z"})
    api.actions["DescribeScalingInstances"] = instances(**{f"i{number}": "InService" for number in range(101)})
    assert len(person.group(GROUP).instances) == 101


def test_a_group_that_is_gone_has_no_instances(api: Rpc, person: Alicloud) -> None:
    api.actions["DescribeScalingGroups"] = groups()
    assert person.group(GROUP) == Group(None, frozenset())
    api.actions["DescribeScalingInstances"] = (404, "InvalidScalingGroupId.NotFound")
    assert list(person.instances(GROUP)) == []


def test_a_group_that_may_launch_none_is_stopped(api: Rpc, person: Alicloud) -> None:
    api.actions["DescribeScalingInstances"] = instances()
    for suspended, stopped in (([], False), (["ScaleIn"], False), (["ScaleIn", "ScaleOut"], True)):
        told = {"CreationTime": "2026-11-30T10:00Z", "SuspendedProcesses": {"SuspendedProcess": suspended}}
        api.actions["DescribeScalingGroups"] = groups(told)
        assert person.group(GROUP).stopped is stopped


def test_only_alarms_that_are_on_and_whose_names_begin_so_count(api: Rpc, person: Alicloud) -> None:
    """CloudMonitor matches a name anywhere."""
    names = ["c1-failed-nodes-1", "x-c1-failed-nodes-", "c1-failed-nodes-2"]

    def rules(asked: dict[str, str]) -> dict[str, Any]:
        assert (asked["AlertState"], asked["RuleName"]) == ("ALARM", "c1-failed-nodes-")
        return {"Alarms": {"Alarm": [{"RuleName": name} for name in names]}}

    api.actions["DescribeMetricRuleList"] = rules
    assert person.alarms("c1-failed-nodes-") == ["c1-failed-nodes-1", "c1-failed-nodes-2"]


def test_a_group_tells_of_how_many_nodes_it_is_to_be(api: Rpc, person: Alicloud) -> None:
    """Zero is all that its breaker leaves."""
    api.actions["DescribeScalingInstances"] = instances()
    api.actions["DescribeScalingGroups"] = groups({"CreationTime": "2026-11-30T10:00Z", "DesiredCapacity": 0})
    assert (person.group(GROUP).wanted, person.group(GROUP).stopped) == (0, False)


def test_a_group_that_is_not_suspended_is_not_resumed(api: Rpc, person: Alicloud) -> None:
    api.actions["ModifyScalingGroup"] = lambda _: {}
    api.actions["DescribeScalingGroups"] = groups({"DesiredCapacity": 0})
    person.resume(GROUP, 2)
    assert [name for name, _ in api.asked] == ["DescribeScalingGroups", "ModifyScalingGroup"]


@pytest.mark.parametrize(("wanted", "set_to"), [(0, "2"), (5, None), (None, "2")])
def test_a_group_launches_again_at_the_size_that_was_asked_for_meanwhile(
    api: Rpc, person: Alicloud, wanted: int | None, set_to: str | None
) -> None:
    api.actions["ResumeProcesses"] = lambda _: {}
    api.actions["ModifyScalingGroup"] = lambda _: {}
    suspended = {"SuspendedProcess": ["ScaleOut"]}
    api.actions["DescribeScalingGroups"] = groups({"DesiredCapacity": wanted, "SuspendedProcesses": suspended})
    person.resume(GROUP, 2)
    asked = dict(api.asked)
    assert (asked["ResumeProcesses"]["ScalingGroupId"], asked["ResumeProcesses"]["Process.1"]) == (GROUP, "ScaleOut")
    assert asked.get("ModifyScalingGroup", {}).get("DesiredCapacity") == set_to


def test_instances_are_ended_twenty_at_a_time_and_the_group_keeps_its_size(api: Rpc, person: Alicloud) -> None:
    api.actions["RemoveInstances"] = lambda _: {}
    names = frozenset(f"i-{number:02d}" for number in range(45))
    person.end_instances(GROUP, names)
    ended = [[v for k, v in asked.items() if k.startswith("InstanceId.")] for _, asked in api.asked]
    assert [len(some) for some in ended] == [20, 20, 5]
    assert {name for some in ended for name in some} == names
    assert all(
        (asked["RemovePolicy"], asked["DecreaseDesiredCapacity"]) == ("release", "false") for _, asked in api.asked
    )


def test_what_is_turned_away_for_now_is_asked_again_a_few_times(api: Rpc, person: Alicloud) -> None:
    for code, times in (("Throttling.User", alicloud.TRIES), ("Forbidden.RAM", 1)):
        api.asked.clear()
        api.actions["GetCallerIdentity"] = (403, code)
        with pytest.raises(Refused):
            person.caller()
        assert len(api.asked) == times


@pytest.mark.parametrize(
    ("code", "advised"),
    [
        ("InvalidAccessKeyId.NotFound", "Sign in to Alibaba Cloud (`aliyun configure`"),
        ("InvalidSecurityToken.Expired", "Sign in to Alibaba Cloud"),
        ("Forbidden.RAM", "Use credentials that may do this"),
        ("NoPermission", "Use credentials that may do this"),
        ("InternalError", "See that Alibaba Cloud can be reached"),
    ],
)
def test_what_an_api_refuses_is_one_line_with_what_to_do(api: Rpc, person: Alicloud, code: str, advised: str) -> None:
    api.actions["GetCallerIdentity"] = (400, code)
    with pytest.raises(Refused) as raised:
        person.caller()
    assert str(raised.value).startswith(f"who you are can't be asked for: sts GetCallerIdentity: {code}: ")
    assert advised in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_answer_of_another_form_is_no_traceback(api: Rpc, person: Alicloud) -> None:
    api.actions["GetCallerIdentity"] = lambda _: {"RequestId": "1"}
    with pytest.raises(Refused, match="the answer is none of its API's"):
        person.caller()


def test_a_role_is_taken_by_the_keys_of_its_profile(api: Rpc, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Credentials("STS.x", "y", "z", "2999-01-01T00:00:00Z")
    api.by.append(taken)
    api.actions["AssumeRole"] = lambda _: {
        "Credentials": {"AccessKeyId": "STS.x", "AccessKeySecret": "y", "SecurityToken": "z",
                        "Expiration": taken.expires}
    }  # fmt: skip
    api.actions["GetCallerIdentity"] = lambda _: {"Arn": "acs:ram::1:assumed-role/r/ada"}
    profile = {"ram_role_arn": "acs:ram::1:role/r", "ram_session_name": "ada", "expired_seconds": 900,
               "external_id": "e"}  # fmt: skip
    monkeypatch.setattr(credentials, "found", lambda _, take: take(PERSON, profile))
    person = Alicloud(REGION)
    assert person.caller() == "acs:ram::1:assumed-role/r/ada"
    name, asked = api.asked[0]
    assert (name, asked["RoleArn"], asked["RoleSessionName"], asked["DurationSeconds"], asked["ExternalId"]) == (
        "AssumeRole", "acs:ram::1:role/r", "ada", "900", "e",
    )  # fmt: skip


class Queue:
    """What a queue is sent; `refuses`: a code."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.refuses = ""

    def answer(self, method: str, path: str, given: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        assert given["authorization"].startswith(f"MNS {PERSON.key}:")
        if self.refuses:
            said = f'<Error xmlns="{mns.NAMESPACE}"><Code>{self.refuses}</Code><Message>no</Message></Error>'
            return 403, {}, said.encode()
        text = ElementTree.fromstring(body).findtext(f"{{{mns.NAMESPACE}}}MessageBody") or ""
        self.sent.append((f"{method} {path}", base64.b64decode(text).decode()))
        return 201, {}, b""


def test_a_message_goes_into_the_queue_and_a_refusal_is_said(monkeypatch: pytest.MonkeyPatch, person: Alicloud) -> None:
    queue = Queue()
    with served(queue) as url:
        monkeypatch.setenv(of_trainer.ENDPOINT, url)
        person.send(f"https://123.mns.{REGION}.aliyuncs.com/queues/c1-work", "gpt-<1>&")
        assert queue.sent == [("POST /mns/queues/c1-work/messages", "gpt-<1>&")]
        queue.refuses = "AccessDenied"
        with pytest.raises(Refused, match=r"the queue can't be asked for: .*AccessDenied.*Use credentials that"):
            person.send(f"https://123.mns.{REGION}.aliyuncs.com/queues/c1-work", "x")


def test_people_reach_the_bucket_at_its_public_address_with_their_own_credentials(
    person: Alicloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "TRAINWRIGHT_OSS_INTERNAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-aws")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-aws")
    store = person.store("data", "runs/r")
    assert isinstance(store, S3Store)
    assert store.url("x") == "oss://data/runs/r/x"
    assert store.client.meta.endpoint_url == f"https://s3.oss-{REGION}.aliyuncs.com"
    signed = store.client.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "k"})
    assert signed.startswith(f"https://data.s3.oss-{REGION}.aliyuncs.com/k?")
    assert PERSON.key in signed
    assert "of-aws" not in signed


def test_people_within_the_regions_network_reach_the_bucket_there(
    person: Alicloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New accounts reach it in no other way in regions of mainland China."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRAINWRIGHT_OSS_INTERNAL", "1")
    store = person.store("data")
    assert isinstance(store, S3Store)
    assert store.client.meta.endpoint_url == f"https://s3.oss-{REGION}-internal.aliyuncs.com"


def test_a_bucket_is_opened_by_nobody_with_the_way_to_sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "found", lambda *_: None)
    with pytest.raises(Refused, match="Sign in to Alibaba Cloud"):
        Alicloud(REGION).store("data")


def test_each_cloud_has_its_own_account_and_advice() -> None:
    assert isinstance(account("alicloud", REGION), Alicloud)
    assert not isinstance(account("aws", "us-west-2"), Alicloud)
    for url, code, expected in (("oss://b/k", "InvalidAccessKeyId", "Sign in to Alibaba Cloud"),
                                ("oss://b/k", "PublicEndpointForbidden", "Do this on an ECS instance in"),
                                ("s3://b/k", "ExpiredToken", "Sign in to AWS")):  # fmt: skip
        from botocore.exceptions import ClientError

        error = StoreError(f"{url}: {code}")
        error.__cause__ = ClientError({"Error": {"Code": code}}, "GetObject")
        assert advice(error).startswith(expected)
    assert advice(StoreError("oss://b/k: nothing")) == ""
