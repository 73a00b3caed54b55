"""What is left of a cluster in its account: found by its tag, known by its state, and told with how to remove it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from botocore import xform_name
from moto import mock_aws
from typer.testing import CliRunner

from cli import main
from cli.alicloud import Alicloud, Fixed
from cli.aws import Aws
from cli.errors import Refused
from cli.leftovers import TAG, alicloud, aws, kinds, mentioned, unknown
from cli.leftovers.kinds import Tagged
from cli.workspace import Workspace
from tests.cli.alibaba import PERSON, Rpc, served
from trainer import alicloud as of_trainer

REGION = "us-west-2"
STACK = "c1"


def test_what_belongs_to_something_known_is_known_by_way_of_others_too() -> None:
    group, instance = Tagged("a:g", "group", "g"), Tagged("i", "instance", "i", of="g")
    disk, lost = Tagged("d", "disk", "d", of="i"), Tagged("e", "disk", "e", of="gone")
    every = [disk, lost, instance, group]
    assert unknown(every, {"g"}) == unknown(every, {"a:g"}) == [lost]
    assert unknown(every, ()) == every


def test_a_state_knows_all_that_it_mentions_but_what_is_secret() -> None:
    outputs = {"arn": "arn:1", "ids": ["sg-1", {"deep": "eni-1"}], "size": 3, "secret": {"ciphertext": "x", "4": None}}
    state = {"deployment": {"resources": [{"urn": "u"}, {"id": "vpc-1", "outputs": outputs}]}}
    assert mentioned(state) >= {"vpc-1", "arn:1", "sg-1", "eni-1"}
    assert mentioned({"deployment": None}) == mentioned({}) == frozenset()


@pytest.mark.parametrize(
    ("arn", "kind", "name"),
    [
        ("arn:aws:ec2:us-west-2:1:elastic-ip/eipalloc-1", "ec2:elastic-ip", "eipalloc-1"),
        ("arn:aws:s3:::bucket-one", "s3", "bucket-one"),
        ("arn:aws:sqs:us-west-2:1:c1-runs", "sqs", "c1-runs"),
        ("arn:aws:logs:us-west-2:1:log-group:/c1/flow:*", "logs:log-group", "/c1/flow"),
        ("arn:aws:cloudwatch:us-west-2:1:alarm:c1/idle", "cloudwatch:alarm", "c1/idle"),
        ("arn:aws:fsx:us-west-2:1:association/fs-1/dra-2", "fsx:association", "dra-2"),
        ("arn:acs:ess:cn-hangzhou:1:scalingGroup/asg-1", "ess:scalinggroup", "asg-1"),
    ],
)
def test_an_arn_says_what_it_is_of(arn: str, kind: str, name: str) -> None:
    assert (kinds.tagged(arn).kind, kinds.tagged(arn).id) == (kind, name)


class Account:
    """Makes things that bear the tag, in an account of nobody's."""

    def __init__(self) -> None:
        self.tags = [{"Key": TAG, "Value": STACK}]
        self.ec2 = self.client("ec2")
        self.subnet = self.ec2.create_subnet(
            VpcId=self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"], CidrBlock="10.0.0.0/24"
        )["Subnet"]["SubnetId"]

    @staticmethod
    def client(service: str) -> Any:
        return boto3.client(service, region_name=REGION)  # type: ignore[call-overload]

    def spec(self, kind: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": self.tags}]

    def group(self, name: str) -> str:
        """A group of one node; returns its instance's id."""
        data = {"ImageId": "ami-12c6146b", "InstanceType": "p4d.24xlarge"}
        self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        autoscaling = self.client("autoscaling")
        autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=name, MinSize=1, MaxSize=1, VPCZoneIdentifier=self.subnet,
            LaunchTemplate={"LaunchTemplateName": name}, Tags=[{**self.tags[0], "PropagateAtLaunch": True}],
        )  # fmt: skip
        told = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]
        return str(told["Instances"][0]["InstanceId"])

    def volume(self, instance: str = "") -> str:
        made = self.ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=5, TagSpecifications=self.spec("volume"))
        if instance:
            self.ec2.attach_volume(VolumeId=made["VolumeId"], InstanceId=instance, Device="/dev/sdh")
        return str(made["VolumeId"])

    def gateway(self) -> str:
        """A NAT gateway."""
        made = self.ec2.create_nat_gateway(
            SubnetId=self.subnet, ConnectivityType="private", TagSpecifications=self.spec("natgateway")
        )
        return str(made["NatGateway"]["NatGatewayId"])

    def endpoint(self) -> str:
        """An interface endpoint."""
        made = self.ec2.create_vpc_endpoint(
            VpcId=self.ec2.describe_subnets(SubnetIds=[self.subnet])["Subnets"][0]["VpcId"], SubnetIds=[self.subnet],
            VpcEndpointType="Interface", ServiceName=f"com.amazonaws.{REGION}.kms",
            TagSpecifications=self.spec("vpc-endpoint"),
        )  # fmt: skip
        return str(made["VpcEndpoint"]["VpcEndpointId"])

    def key(self) -> str:
        made = self.client("kms").create_key(Tags=[{"TagKey": TAG, "TagValue": STACK}])
        return str(made["KeyMetadata"]["KeyId"])

    def left(self, *known: str) -> set[tuple[str, str]]:
        return {(one.kind, one.id) for one in unknown(aws.tagged(Aws(REGION), TAG, STACK, known), known)}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        yield Account()


def test_what_a_known_group_launched_is_known_and_what_another_left_is_not(account: Account) -> None:
    """As after a second `up` on a state that was lost: two clusters by one name."""
    ours, theirs = account.group("ours"), account.group("theirs")
    account.volume(ours)
    lost, loose = account.volume(theirs), account.volume()
    assert account.left("ours") == {
        ("autoscaling:autoscalinggroup", "theirs"), ("ec2:instance", theirs), ("ec2:volume", lost),
        ("ec2:volume", loose),
    }  # fmt: skip
    account.client("autoscaling").delete_auto_scaling_group(AutoScalingGroupName="theirs", ForceDelete=True)
    assert not {one for one in account.left("ours") if one[0] in {"ec2:instance", "autoscaling:autoscalinggroup"}}


def test_a_key_that_is_being_deleted_is_not_left(account: Account) -> None:
    going, staying = account.key(), account.key()
    account.client("kms").schedule_key_deletion(KeyId=going)
    assert account.left() == {("kms:key", staying)}


def test_what_ec2_says_was_deleted_is_not_left_though_it_stays_listed(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NAT gateway does so for an hour or so. moto has no reservations, and lists no endpoints by their tags."""
    gateways, endpoints = (account.gateway(), account.gateway()), (account.endpoint(), account.endpoint())
    account.ec2.delete_nat_gateway(NatGatewayId=gateways[0])
    account.ec2.delete_vpc_endpoints(VpcEndpointIds=endpoints[:1])
    named = {"natgateway": gateways, "vpc-endpoint": endpoints, "capacity-reservation": ("cr-0", "cr-1", "cr-2")}
    listed = [f"arn:aws:ec2:{REGION}:1:{kind}/{name}" for kind, names in named.items() for name in names]
    reserved = [
        {"CapacityReservationId": f"cr-{number}", "State": ("cancelled", "active")[number]} for number in (0, 1)
    ]
    answers = {"get_resources": [{"ResourceARN": one} for one in listed], "describe_capacity_reservations": reserved}
    pages = aws._pages

    def some(service: str, region: str, action: str, items: str, **asked: Any) -> Iterator[dict[str, Any]]:
        return iter(answers[action]) if action in answers else pages(service, region, action, items, **asked)

    monkeypatch.setattr(aws, "_pages", some)
    assert account.left() == {
        ("ec2:natgateway", gateways[1]), ("ec2:vpc-endpoint", endpoints[1]), ("ec2:capacity-reservation", "cr-1"),
    }  # fmt: skip


def test_every_page_is_read_and_other_clusters_are_not_ours(account: Account) -> None:
    sns = account.client("sns")
    for number in range(60):
        sns.create_topic(Name=f"t{number}", Tags=account.tags)
    sns.create_topic(Name="other", Tags=[{"Key": TAG, "Value": "c2"}])
    assert {name for _, name in account.left()} == {f"t{number}" for number in range(60)}


def test_who_may_not_look_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it would keep what another test has signed in with
    with pytest.raises(Refused, match=rf"what is tagged {TAG}={STACK} can't be asked for: .*Sign in to AWS"):
        aws.tagged(Aws(REGION), TAG, STACK, ())


def commands() -> list[str]:
    return [
        part
        for kind in aws.KINDS.values()
        for part in [kind.remove.partition("  #")[0], *re.findall(r"\$\((.*)\)", kind.remove)]
        if not part.startswith("aws s3 ")
    ]


@pytest.mark.parametrize("kind", [*aws.KINDS.values(), *alicloud.KINDS.values()], ids=lambda kind: kind.what)
def test_every_call_of_a_command_goes_to_the_region_that_was_looked_through(kind: kinds.Kind) -> None:
    """The shell's own may be another: there, a thing of the same name is somebody else's."""
    command = kind.command(Tagged("a", "k", "i"), REGION).partition("  #")[0]
    inner = re.findall(r"\$\((.*)\)", command)
    for part in [re.sub(r"\$\(.*\)", "X", command), *inner] if command else []:
        assert shlex.split(part)[-2:] == ["--region", REGION]


@pytest.mark.parametrize("command", commands())
def test_a_command_of_aws_is_one_that_its_api_has_with_those_very_options(command: str) -> None:
    """The AWS CLI has its names from the API's (botocore)."""
    _, service, verb, *rest = shlex.split(re.sub(r"\$\(.*\)", "X", command))
    model = botocore.session.get_session().get_service_model(service)
    actions = {xform_name(name, "-"): name for name in model.operation_names}
    shape = model.operation_model(actions[verb]).input_shape
    assert shape is not None
    own = [word for word in rest if word not in {"--query", "QueueUrl", "--output", "text", "--region", "{region}"}]
    given = {word.removeprefix("--") for word in own if word.startswith("--")}
    flags = {one for one, after in zip(own, [*own[1:], "--"], strict=True) if {one[:2], after[:2]} == {"--"}}
    members = {xform_name(name, "-"): member for name, member in shape.members.items()}
    assert given <= members.keys()
    assert {xform_name(name, "-") for name in shape.required_members} <= given
    assert {members[flag.removeprefix("--")].type_name for flag in flags} <= {"boolean"}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rpc]:
    cloud = Rpc()
    with served(cloud) as url:
        monkeypatch.setenv(of_trainer.ENDPOINT, url)
        yield cloud


def arn(kind: str, name: str) -> dict[str, Any]:
    service, _, type_ = kind.partition(":")
    return {"ResourceARN": f"arn:acs:{service}:cn-hangzhou:1:{type_}/{name}", "Tags": [{"Key": TAG, "Value": STACK}]}


def test_alibaba_cloud_is_asked_for_every_page_and_what_each_thing_is_attached_to(api: Rpc) -> None:
    """ECS is asked for a hundred at once, and tells only of what there still is."""
    disks = {f"d-{number:03d}": "i-ours" for number in range(150)} | {"d-000": "", "d-149": ""}
    listed = [
        arn("ess:scalinggroup", "asg-theirs"), arn("ecs:instance", "i-ours"), arn("ecs:instance", "i-theirs"),
        arn("ecs:instance", "i-gone"), arn("ecs:eni", "eni-1"), arn("kms:key", "k-going"), arn("kms:key", "k-there"),
        arn("oss:bucket", "b"), *(arn("ecs:disk", name) for name in disks),
    ]  # fmt: skip

    def resources(asked: dict[str, str]) -> dict[str, Any]:
        assert json.loads(asked["Tags"]) == {TAG: STACK}
        start = int(asked.get("NextToken", 0))
        more = start + 100 < len(listed)
        return {"TagResources": listed[start : start + 100], "NextToken": str(start + 100) if more else ""}

    def members(asked: dict[str, str]) -> dict[str, Any]:
        held = {"asg-ours": ["i-ours"], "asg-theirs": ["i-theirs"]}[asked["ScalingGroupId"]]
        return {"ScalingInstances": {"ScalingInstance": [{"InstanceId": i, "LifecycleState": "S"} for i in held]}}

    def described(asked: dict[str, str]) -> dict[str, Any]:
        names = json.loads(asked["DiskIds"])
        assert len(names) <= int(asked["PageSize"]) == 100
        return {"Disks": {"Disk": [{"DiskId": name, "InstanceId": disks[name]} for name in names]}}

    there = [{"InstanceId": name, "InstanceType": "ecs.g8i.24xlarge"} for name in ("i-ours", "i-theirs")]
    interface = {"NetworkInterfaceId": "eni-1", "InstanceId": "i-ours"}
    states = {"k-going": "PendingDeletion", "k-there": "Enabled"}
    api.actions |= {
        "ListTagResources": resources,
        "DescribeScalingInstances": members,
        "DescribeDisks": described,
        "DescribeInstances": lambda _: {"Instances": {"Instance": there}},
        "DescribeNetworkInterfaces": lambda _: {"NetworkInterfaceSets": {"NetworkInterfaceSet": [interface]}},
        "DescribeKey": lambda asked: {"KeyMetadata": {"KeyState": states[asked["KeyId"]]}},
    }
    found = alicloud.tagged(Alicloud("cn-hangzhou", Fixed(PERSON)), TAG, STACK, {"asg-ours", "b"})
    left = {(one.kind, one.id, one.type) for one in unknown(found, {"asg-ours", "b"})}
    assert left == {
        ("ess:scalinggroup", "asg-theirs", ""), ("ecs:instance", "i-theirs", "ecs.g8i.24xlarge"),
        ("ecs:disk", "d-000", ""), ("ecs:disk", "d-149", ""), ("kms:key", "k-there", ""),
    }  # fmt: skip
    asked = next(given for name, given in api.asked if name == "DescribeNetworkInterfaces")
    assert asked["NetworkInterfaceId.1"] == "eni-1"


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The stack of a project of its own; its state is what a test puts in."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: p\n")
    file = tmp_path / "stacks" / f"Pulumi.{STACK}.yaml"
    file.write_text(
        f"config:\n  trainwright:region: {REGION}\n  trainwright:prices: {{m6a.large: {{on_demand: 0.5}}}}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    for name in (of_trainer.ENDPOINT, "TRAINWRIGHT_OSS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    state: dict[str, Any] = {"deployment": {"resources": []}}

    def exported(_: Workspace, *arguments: str, capture: bool) -> str:
        assert capture
        if arguments[:2] == ("stack", "history"):
            return json.dumps(state.get("history", [{"kind": "destroy"}]))
        assert arguments == ("stack", "export")
        if not state:
            raise Refused(f"`pulumi stack export` ended with 255: error: no stack named '{STACK}' found")
        return json.dumps(state)

    monkeypatch.setattr(Workspace, "pulumi", exported)
    return state


def told(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main.app, ["leftovers", "--stack", STACK, *arguments], env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, done.output


def test_nothing_left_is_exit_code_0(account: Account, stack: dict[str, Any]) -> None:
    instance = account.group("ours")
    stack["deployment"]["resources"] = [{"id": "ours"}]
    code, said = told()
    assert code == 0
    assert f"everything that is tagged {TAG}={STACK} in {REGION} is in the stack's state (2 things)" in said
    assert instance not in said


def test_all_that_is_left_is_told_in_the_order_of_its_removal_with_its_cost(
    account: Account, stack: dict[str, Any]
) -> None:
    key, volume, instance = account.key(), account.volume(), account.group("theirs")
    code, said = told()
    assert code == 1
    assert "isn't in the stack's state, which has 0 others" in said
    assert [said.index(name) for name in ("theirs", instance, volume, key)] == sorted(
        said.index(name) for name in ("theirs", instance, volume, key)
    )
    assert f"instance {instance}  p4d.24xlarge, 21.96 USD an hour on demand" in said
    assert f"  aws ec2 terminate-instances --instance-ids {instance} --region {REGION}\n" in said
    assert f"--key-id {key} --region {REGION}  # what it encrypts is lost with it" in said
    as_json = json.loads(told("--json")[1])
    assert as_json["known"] == 0
    assert [one["id"] for one in as_json["left"]] == ["theirs", instance, volume, key]
    assert all(one["remove"] and not one["kept"] for one in as_json["left"])


@pytest.mark.parametrize("state", [{}, {"deployment": {"manifest": {}}, "history": []}], ids=["none", "a new one"])
def test_without_a_state_that_anything_was_done_in_no_command_is_told(
    account: Account, stack: dict[str, Any], state: dict[str, Any]
) -> None:
    """As in a fresh checkout, or with another backend: all of a cluster that is up would be removed."""
    names = {account.key(), account.volume(), account.group("up-elsewhere"), "up-elsewhere"}
    account.client("ssm").put_parameter(Name="p", Value="v", Type="String", Tags=account.tags)
    stack.clear()
    stack.update(state)
    code, said = told()
    assert code == 1
    assert "the stack has no state here: if it is up from elsewhere, that is in use. No commands are told" in said
    assert all(name in said for name in names)
    assert not re.search(r"\baws |--region|remove it", said)
    as_json = json.loads(told("--json")[1])
    assert as_json["known"] is None
    assert {one["id"] for one in as_json["left"]} > names
    assert {one["remove"] for one in as_json["left"]} == {""}
    assert as_json["caution"].startswith("the stack has no state here")


def test_a_cluster_of_that_name_which_another_state_knows_is_always_warned_of(
    account: Account, stack: dict[str, Any]
) -> None:
    warned = "A cluster of this name that another backend or project has the state of would be listed too"
    assert warned in told()[1]
    account.volume()
    assert warned in told()[1]
    assert warned in json.loads(told("--json")[1])["caution"]


@pytest.mark.parametrize(("production", "keeps"), [("true", True), ("'true'", True), ("false", False), ("null", True)])
def test_what_production_keeps_on_purpose_is_marked_and_has_no_command(
    account: Account, stack: dict[str, Any], production: str, keeps: bool
) -> None:
    """Where the file doesn't say plainly that it isn't production, it counts as such."""
    key, volume = account.key(), account.volume()
    account.client("s3").create_bucket(Bucket="left", CreateBucketConfiguration={"LocationConstraint": REGION})
    account.client("s3").put_bucket_tagging(Bucket="left", Tagging={"TagSet": account.tags})
    account.client("logs").create_log_group(logGroupName="flow", tags={TAG: STACK})
    with next(Path("stacks").iterdir()).open("a") as file:
        file.write(f"  trainwright:production: {production}\n")
    said, as_json = told()[1], json.loads(told("--json")[1])
    marked = {line.split("  ")[0] for line in said.splitlines() if line.endswith("  kept on purpose")}
    assert marked == ({f"key {key}", "bucket left", "log group flow"} if keeps else set())
    assert {one["id"] for one in as_json["left"] if not one["remove"]} == ({key, "left", "flow"} if keeps else set())
    assert {one["id"] for one in as_json["left"] if one["kept"]} == ({key, "left", "flow"} if keeps else set())
    assert "console" not in said
    assert f"delete-volume --volume-id {volume}" in said


def test_a_kind_that_is_not_known_is_told_by_its_arn_and_names_can_hold_no_command(
    account: Account, stack: dict[str, Any]
) -> None:
    account.client("ssm").put_parameter(Name="p", Value="v", Type="String", Tags=account.tags)
    account.client("logs").create_log_group(logGroupName="a.b#c", tags={TAG: STACK})
    _, said = told()
    assert "remove it in the console: arn:aws:ssm:" in said
    assert f"--log-group-name 'a.b#c' --region {REGION}" in said


def test_a_price_that_the_stacks_file_states_comes_before_the_catalogs(account: Account, stack: dict[str, Any]) -> None:
    account.ec2.run_instances(
        ImageId="ami-12c6146b", MinCount=1, MaxCount=1, SubnetId=account.subnet, InstanceType="m6a.large",
        TagSpecifications=account.spec("instance"),
    )  # fmt: skip
    assert "m6a.large, 0.50 USD an hour on demand" in told()[1]
    file = next(Path("stacks").iterdir())
    for wrong in ("3", "{m6a.large: 3}", "{m6a.large: {on_demand: -1}}", "[]"):
        file.write_text(f"config:\n  trainwright:region: {REGION}\n  trainwright:prices: {wrong}\n")
        assert told()[1].count("m6a.large") == 0
