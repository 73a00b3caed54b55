"""What the stand-in answers: previews without a cloud, real changes in local stacks alone, sound diffs and reads."""

from collections.abc import Callable
from typing import Any

import pytest

from emulator.provider.diff import Change
from emulator.provider.stand_in import Refused, StandIn
from emulator.provider.wire import UNKNOWN

Deployment = Any
KEY = "aws:kms/key:Key"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"
FLOW_LOG = "aws:ec2/flowLog:FlowLog"


def urn(token: str, stack: str = "local") -> str:
    return f"urn:pulumi:{stack}::project::{token}::x"


def test_a_preview_needs_no_cloud_and_knows_what_was_given(without_cloud: Callable[..., StandIn]) -> None:
    inputs = {"description": "d", "tags": {"a": "b"}}
    id_, state = without_cloud().create(urn(KEY, "prod"), inputs, preview=True)
    assert id_ == ""
    assert inputs.items() <= state.items()
    assert state["tagsAll"] == {"a": "b"}
    assert state["region"] == "us-west-2"
    assert state["arn"] == state["keyId"] == UNKNOWN


def test_a_preview_of_an_update_knows_what_it_leaves_alone(without_cloud: Callable[..., StandIn]) -> None:
    old = {"imageId": "ami-1", "description": "d"}
    state = {**old, "arn": "arn", "latestVersion": 1}
    stand_in = without_cloud()
    new = stand_in.update(urn(TEMPLATE), "lt-1", state, old, {"imageId": "ami-2"}, preview=True)
    assert (new["arn"], new["latestVersion"], new["imageId"]) == ("arn", UNKNOWN, "ami-2")
    assert "description" not in new
    tagged = {**old, "tags": {"a": "b"}}
    assert stand_in.update(urn(TEMPLATE), "lt-1", state, old, tagged, preview=True)["latestVersion"] == 1


def test_real_changes_are_refused_outside_local_stacks(deployment: Deployment) -> None:
    for call in (
        lambda: deployment.stand_in.create(urn(KEY, "prod"), {}, preview=False),
        lambda: deployment.stand_in.update(urn(KEY, "prod"), "k", {}, {}, {}, preview=False),
        lambda: deployment.stand_in.delete(urn(KEY, "prod"), "k", {}),
        lambda: deployment.stand_in.read(urn(KEY, "prod"), "k", {"description": "d"}, {}),
        lambda: deployment.stand_in.create(urn(FLOW_LOG, "prod"), {}, preview=False),
    ):
        with pytest.raises(
            Refused, match=r"only stacks named local…, not prod; .* use a shell without `trainwright env`"
        ):
            call()
    assert not deployment.client("kms").list_keys()["Keys"]


def test_a_cloud_that_is_not_running_is_said_with_the_fix(without_cloud: Callable[..., StandIn]) -> None:
    with pytest.raises(Refused, match=r'not running: run `eval "\$\(trainwright env\)"`'):
        without_cloud().create(urn(KEY), {}, preview=False)


def test_an_existing_resource_is_made_up_without_a_cloud_and_read_in_one(
    deployment: Deployment, without_cloud: Callable[..., StandIn]
) -> None:
    vpc, _ = deployment.network()
    id_, _, state = without_cloud().read(urn("aws:ec2/vpc:Vpc", "prod"), vpc.id, {}, {})
    assert (id_, state["arn"]) == (vpc.id, vpc.state["arn"])
    assert UNKNOWN not in state.values(), "the engine refuses unknowns in what is read"
    id_, inputs, state = deployment.stand_in.read(vpc.urn, vpc.id, {}, {})
    assert (id_, state["cidrBlock"], state["region"]) == (vpc.id, "127.10.0.0/16", "us-west-2")
    assert inputs["cidrBlock"] == "127.10.0.0/16"


def test_a_type_that_no_api_holds_is_kept_as_given(deployment: Deployment) -> None:
    one = deployment.create(FLOW_LOG, {"vpcId": "vpc-1", "trafficType": "ALL", "tags": {"a": "b"}})
    assert one.id.startswith("fl-")
    assert one.id in one.state["arn"]
    assert deployment.read(one) == (one.id, one.inputs, one.state)
    deployment.update(one, trafficType="REJECT", tags={})
    assert (one.state["trafficType"], one.state["tagsAll"]) == ("REJECT", {})
    deployment.delete(one)


def test_alicloud_types_are_checked_and_kept(api_url: str) -> None:
    stand_in = StandIn("alicloud", lambda: api_url)
    stand_in.configure({"region": "cn-hangzhou"})
    network = "alicloud:vpc/network:Network"
    inputs, failures = stand_in.check(urn(network), {}, {"cidrBlock": "10.0.0.0/16"}, b"")
    assert not failures
    id_, state = stand_in.create(urn(network), inputs, preview=False)
    assert id_.startswith("vpc-")
    assert state["routeTableId"].startswith("vtb-")
    assert stand_in.check(urn(network), {}, {"cidrBlok": "10.0.0.0/8"}, b"")[1]


def test_drift_is_read_back_into_the_inputs(deployment: Deployment) -> None:
    group = deployment.group(deployment.template())
    deployment.client("autoscaling").set_desired_capacity(AutoScalingGroupName=group.id, DesiredCapacity=1)
    _, inputs, state = deployment.read(group)
    assert inputs == {**group.inputs, "desiredCapacity": 1}
    assert deployment.stand_in.diff(group.urn, inputs, group.inputs).changes == {"desiredCapacity": Change.UPDATE}
    assert state["desiredCapacity"] == 1


def test_a_creation_that_fails_halfway_leaves_nothing(deployment: Deployment) -> None:
    with pytest.raises(Exception, match=r"^AddRoleToInstanceProfile: NoSuchEntity: "):
        deployment.create("aws:iam/instanceProfile:InstanceProfile", {"role": "nobody"})
    assert not deployment.client("iam").list_instance_profiles()["InstanceProfiles"]


def test_a_property_the_api_has_no_place_for_is_refused_not_dropped(deployment: Deployment) -> None:
    with pytest.raises(Exception, match=r"UnsupportedProperty: 'requestPayer' has no place in the API"):
        deployment.create("aws:s3/bucket:Bucket", {"requestPayer": "Requester"})


@pytest.mark.parametrize(
    ("token", "old", "new", "replaces", "first"),
    [
        ("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"}, {"cidrBlock": "10.1.0.0/16"}, ("cidrBlock",), False),
        (TEMPLATE, {"name": "a"}, {"name": "b"}, ("name",), False),
        (TEMPLATE, {"name": "a", "imageId": "1"}, {"name": "a", "imageId": "2"}, (), False),
        (TEMPLATE, {"name": "a", "region": "r"}, {"name": "a", "region": "s"}, ("region",), True),
        (TEMPLATE, {"name": "x-0123456", "region": "r"}, {"name": "x-0123456", "region": "s"}, ("region",), False),
        ("aws:sns/topic:Topic", {"name": "a"}, {"name": "b"}, ("name",), False),
        ("aws:sns/topic:Topic", {"name": "a"}, {"name": "a", "displayName": "b"}, (), False),
        (
            "aws:ec2/routeTableAssociation:RouteTableAssociation",
            {"routeTableId": "a"},
            {"routeTableId": "b"},
            ("routeTableId",),
            True,
        ),
    ],
)
def test_replacements_are_those_of_the_real_provider(
    without_cloud: Callable[..., StandIn], token: str, old: Any, new: Any, replaces: tuple[str, ...], first: bool
) -> None:
    found = without_cloud().diff(urn(token), old, new)
    assert (found.replaces, found.delete_first) == (replaces, first)


def test_the_configuration_needs_a_region_and_known_names(
    without_cloud: Callable[..., StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = without_cloud()
    assert stand_in.check_config({"region": "eu-central-1", "version": "7.51.1"})[1] == []
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    reasons = [failure.reason for failure in stand_in.check_config({"regoin": "eu-central-1"})[1]]
    assert reasons[0] == "there is no property 'regoin'; did you mean region or sts_region?"
    assert "no region: run `pulumi config set aws:region REGION`" in reasons[1]
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert stand_in.check_config({})[0]["region"] == "eu-west-1"
