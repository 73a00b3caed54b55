"""Alibaba Cloud's APIs, asked by the very clients of nodes and of the command, over the groups that stand behind."""

import json
import time
import urllib.error
import urllib.request
import uuid
from typing import Any

import boto3
import pytest

from cli.alicloud import Alicloud
from emulator import places
from trainer import alicloud
from trainer.node import mns

World = Any
HOLDING = "autoscaling:EC2_INSTANCE_TERMINATING"


class Fixed:
    """A caller with a key that means nothing here."""

    def credentials(self) -> alicloud.Credentials:
        return alicloud.Credentials("k", "s")


@pytest.fixture
def endpoint(world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"{world.cloud.endpoint}{places.PATH}"
    monkeypatch.setenv(alicloud.ENDPOINT, address)
    return address


@pytest.fixture
def api(endpoint: str) -> alicloud.Api:
    return alicloud.Api("cn-hangzhou", Fixed())


@pytest.fixture
def account(endpoint: str) -> Alicloud:
    return Alicloud("cn-hangzhou", Fixed())


@pytest.fixture
def server(world: World) -> Any:
    """Makes clients of the region where things of Alibaba Cloud are."""
    session: Any = boto3.Session(aws_access_key_id="k", aws_secret_access_key="s", region_name=places.REGION)
    return lambda service: session.client(service, endpoint_url=world.cloud.endpoint)


@pytest.fixture
def group(server: Any):
    """A scaling group of two idle nodes, by its id."""
    ec2, autoscaling = server("ec2"), server("autoscaling")
    vpc = ec2.create_vpc(CidrBlock="127.11.0.0/16")["Vpc"]["VpcId"]
    zone = [{"ResourceType": "subnet", "Tags": [{"Key": places.ZONE_TAG, "Value": "cn-hangzhou-i"}]}]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="127.11.1.0/24", TagSpecifications=zone)["Subnet"]["SubnetId"]
    data = {"ImageId": "m-1", "InstanceType": "ecs.g8i.large"}
    name = f"asg-{uuid.uuid4().hex[:20]}"
    ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=4,
        DesiredCapacity=2,
        VPCZoneIdentifier=subnet,
        LaunchTemplate={"LaunchTemplateName": name, "Version": "1"},
    )
    yield name
    autoscaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)


def hold(server: Any, group: str) -> None:
    server("autoscaling").put_lifecycle_hook(
        AutoScalingGroupName=group, LifecycleHookName="drain", LifecycleTransition=HOLDING, HeartbeatTimeout=60
    )


def states(api: alicloud.Api, group: str) -> dict[str, str]:
    found = api.call("ess", "DescribeScalingInstances", ScalingGroupId=group)["ScalingInstances"]
    return {instance["InstanceId"]: instance["LifecycleState"] for instance in found}


def pending(api: alicloud.Api, group: str) -> list[dict[str, Any]]:
    """The lifecycle actions that wait, found as a node finds its own."""
    activities = api.call("ess", "DescribeScalingActivities", ScalingGroupId=group, StatusCode="InProgress")
    actions = []
    for activity in activities["ScalingActivities"]:
        wanted = {"ScalingActivityId": activity["ScalingActivityId"], "LifecycleActionStatus": "Pending"}
        actions += api.call("ess", "DescribeLifecycleActions", **wanted)["LifecycleActions"]
    return actions


def test_an_instance_that_is_removed_waits_until_its_own_action_is_completed(api, server, group) -> None:
    hold(server, group)
    assert pending(api, group) == []
    going, staying = sorted(states(api, group))
    removal = {"InstanceIds.1": going, "DecreaseDesiredCapacity": "true"}
    api.call("ess", "RemoveInstances", ScalingGroupId=group, **removal)
    assert states(api, group) == {going: "Removing:Wait", staying: "InService"}
    (action,) = pending(api, group)
    assert action["InstanceIds"] == [going]
    (hook,) = api.call("ess", "DescribeLifecycleHooks", ScalingGroupId=group)["LifecycleHooks"]
    assert (hook["LifecycleHookName"], hook["LifecycleHookId"]) == ("drain", action["LifecycleHookId"])
    token = {"LifecycleHookId": hook["LifecycleHookId"], "LifecycleActionResult": "CONTINUE"}
    with pytest.raises(alicloud.ApiError) as wrong:
        api.call("ess", "CompleteLifecycleAction", LifecycleActionToken="other", **token)
    assert wrong.value.code == "InvalidLifecycleActionToken.NotFound"
    api.call("ess", "CompleteLifecycleAction", LifecycleActionToken=action["LifecycleActionToken"], **token)
    assert states(api, group) == {staying: "InService"}


def test_the_command_sees_a_group_and_ends_its_instances_which_it_replaces(account, api, group) -> None:
    seen = account.group(group)
    assert seen.created is not None
    assert (len(seen.instances), seen.stopped) == (2, False)
    account.end_instances(group, seen.instances)
    again = account.group(group)
    assert len(again.instances) == 2
    assert not again.instances & seen.instances
    assert account.group("asg-none").created is None


def test_launches_are_stopped_and_resumed(account, api, group) -> None:
    api.call("ess", "SuspendProcesses", ScalingGroupId=group, **{"Processes.1": "ScaleOut"})
    api.call("ess", "ModifyScalingGroup", ScalingGroupId=group, DesiredCapacity=0)
    assert (account.group(group).stopped, states(api, group)) == (True, {})
    account.resume(group, 1)
    assert (account.group(group).stopped, len(states(api, group))) == (False, 1)


def test_an_instance_tells_when_and_where_it_was_launched(api, group) -> None:
    instance = next(iter(states(api, group)))
    wanted = {"InstanceIds.1": instance}
    (found,) = api.call("ess", "DescribeScalingInstances", **wanted)["ScalingInstances"]
    assert (found["ScalingGroupId"], found["ZoneId"]) == (group, "cn-hangzhou-i")
    assert found["CreationTime"].endswith("Z")


def test_more_instances_than_a_page_has_are_all_found(account, api, group) -> None:
    api.call("ess", "ModifyScalingGroup", ScalingGroupId=group, MaxSize=60, DesiredCapacity=53)
    assert len(account.group(group).instances) == 53


def test_who_is_asked_for_and_which_alarms_are_on(account) -> None:
    assert account.caller() == "acs:ram::123456789012:user/local"
    assert account.alarms("x") == []


@pytest.mark.parametrize(
    ("service", "action", "parameters", "code"),
    [
        ("ess", "DescribeNothing", {}, "InvalidAction.NotFound"),
        ("ess", "ModifyScalingGroup", {"ScalingGroupId": "asg-none"}, "InvalidScalingGroupId.NotFound"),
    ],
)
def test_what_is_not_there_is_said_in_the_clouds_own_words(api, service, action, parameters, code) -> None:
    with pytest.raises(alicloud.ApiError) as refused:
        api.call(service, action, **parameters)
    assert refused.value.code == code


def test_a_size_that_the_group_may_not_have_and_a_stranger_are_refused(api, group) -> None:
    with pytest.raises(alicloud.ApiError, match="InvalidDesiredCapacity"):
        api.call("ess", "ModifyScalingGroup", ScalingGroupId=group, DesiredCapacity=9)
    with pytest.raises(alicloud.ApiError, match=r"InvalidInstanceId\.NotFound"):
        api.call("ess", "RemoveInstances", ScalingGroupId=group, **{"InstanceIds.1": "i-none"})


def test_a_call_that_nobody_signed_is_refused(endpoint: str) -> None:
    query = "Action=GetCallerIdentity&Version=2015-04-01"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{endpoint}/?{query}", timeout=30)
    assert (refused.value.code, json.loads(refused.value.read())["Code"]) == (400, "MissingAccessKeyId")
    with urllib.request.urlopen(f"{endpoint}/sts/?{query}&Signature=x", timeout=30) as answer:
        assert json.loads(answer.read())["AccountId"] == "123456789012"


def test_a_message_is_taken_by_one_and_stays_until_it_is_deleted(endpoint: str, server: Any) -> None:
    sqs = server("sqs")
    url = sqs.create_queue(QueueName="work", Attributes={"VisibilityTimeout": "1"})["QueueUrl"]
    queue = "https://123456789012.mns.cn-hangzhou-internal.aliyuncs.com/queues/work"
    client = mns.Client(Fixed())

    def taken() -> list[dict[str, Any]]:
        found = client.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=0)
        return list(found.get("Messages", []))

    try:
        assert taken() == []
        client.send_message(QueueUrl=queue, MessageBody="run <1>")
        (message,) = taken()
        assert taken() == [], "another sees it, too"
        client.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        time.sleep(1.1)
        assert taken() == [], "deleted, yet it came back"
        with pytest.raises(alicloud.ApiError, match="QueueNotExist"):
            client.send_message(QueueUrl=f"{queue}-none", MessageBody="x")
    finally:
        sqs.delete_queue(QueueUrl=url)
