from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore import exceptions

from cli import aws
from cli.account import Group
from cli.errors import Refused


def denied(code: str) -> exceptions.ClientError:
    return exceptions.ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeAutoScalingGroups")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (exceptions.NoCredentialsError(), "Sign in to AWS"),
        (exceptions.UnauthorizedSSOTokenError(), "Sign in to AWS"),
        (exceptions.ProfileNotFound(profile="work"), "Sign in to AWS"),
        (denied("ExpiredToken"), "Sign in to AWS"),
        (denied("AccessDenied"), "Use credentials that may do this"),
        (exceptions.EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), "See that AWS can be reached"),
        (exceptions.NoRegionError(), "See that AWS can be reached"),
    ],
)
def test_what_boto3_raises_is_one_line_with_what_to_do(error: Exception, advice: str) -> None:
    with (
        pytest.raises(Refused, match=f"the group g can't be asked for: .*{advice}") as raised,
        aws.refusals("the group g"),
    ):
        raise error
    assert "\n" not in str(raised.value)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the API answers."""
    answer: list[dict[str, Any]] = []

    class Client:
        def describe_auto_scaling_groups(self, AutoScalingGroupNames: list[str]) -> dict[str, Any]:
            return {"AutoScalingGroups": answer}

    monkeypatch.setattr(boto3, "client", lambda *_, **__: Client())
    return answer


def test_instances_on_their_way_out_are_not_counted(groups: list[dict[str, Any]]) -> None:
    states = {"i-1": "InService", "i-2": "Terminating:Wait", "i-3": "Pending", "i-4": "Terminated"}
    instances = [{"InstanceId": name, "LifecycleState": state} for name, state in states.items()]
    groups.append({"CreatedTime": datetime.fromtimestamp(9.0, UTC), "Instances": instances, "DesiredCapacity": 4})
    assert aws.Aws("us-west-2").group("g") == Group(9.0, frozenset({"i-1", "i-3"}), wanted=4)


def test_a_group_that_is_gone_has_no_instances(groups: list[dict[str, Any]]) -> None:
    assert aws.Aws("us-west-2").group("g") == Group(None, frozenset())


def test_a_group_whose_launches_are_suspended_is_stopped(groups: list[dict[str, Any]]) -> None:
    groups.append({"CreatedTime": datetime.fromtimestamp(9.0, UTC), "Instances": []})
    for suspended, stopped in (([], False), (["AZRebalance"], False), (["AZRebalance", "Launch"], True)):
        groups[0]["SuspendedProcesses"] = [{"ProcessName": name, "SuspensionReason": ""} for name in suspended]
        assert aws.Aws("us-west-2").group("g").stopped is stopped
