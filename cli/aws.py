"""What the command asks AWS beside its bucket, and what it says where AWS doesn't answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import boto3
from boto3.exceptions import Boto3Error
from botocore import exceptions
from botocore.config import Config

from cli.errors import Refused
from cli.words import plain
from components.scaling import LAUNCH

PATIENCE = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3})
"""Seconds to connect and for each read, and how often a call is tried in all."""

SIGN_IN = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.SSOError,
    exceptions.TokenRetrievalError,
    exceptions.ProfileNotFound,
)
EXPIRED = {
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
}
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
"""Error codes that mean so, as the "Common Errors" of every API's reference list them."""


@dataclass(frozen=True)
class Group:
    """A fleet's group: when it was created (seconds since 1970; None where it is gone), and its live instances' ids."""

    created: float | None
    instances: frozenset[str]
    stopped: bool = False
    """Whether its launches are suspended, as a breaker leaves them."""


def group(name: str) -> Group:
    """The auto scaling group of this name, as it is now. Raises `Refused`."""
    with refusals(f"the group {name}"):
        client = boto3.client("autoscaling", config=PATIENCE)
        found = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    if not found:
        return Group(None, frozenset())
    live = (item for item in found[0]["Instances"] if not item["LifecycleState"].startswith("Terminat"))
    stopped = any(process["ProcessName"] == LAUNCH for process in found[0].get("SuspendedProcesses", ()))
    return Group(found[0]["CreatedTime"].timestamp(), frozenset(item["InstanceId"] for item in live), stopped)


def alarms(prefix: str) -> list[str]:
    """Names of the alarms that are on, of those whose names start so. Raises `Refused`."""
    with refusals(f"the alarm {prefix}"):
        pages = boto3.client("cloudwatch", config=PATIENCE).get_paginator("describe_alarms")
        found = (alarm for page in pages.paginate(AlarmNamePrefix=prefix) for alarm in page["MetricAlarms"])
        return [alarm["AlarmName"] for alarm in found if alarm["StateValue"] == "ALARM"]


def resume(name: str, nodes: int) -> None:
    """Let the group of this name launch again: `nodes`, unless it wants some already. Raises `Refused`."""
    with refusals(f"launches of the group {name}"):
        client = boto3.client("autoscaling", config=PATIENCE)
        client.resume_processes(AutoScalingGroupName=name, ScalingProcesses=[LAUNCH])
        found = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        if found and not found[0]["DesiredCapacity"]:
            client.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=nodes)


def caller() -> str:
    """ARN of the user or the role's session whose credentials these are. Raises `Refused`."""
    with refusals("who you are"):
        return str(boto3.client("sts", config=PATIENCE).get_caller_identity()["Arn"])


def end_instances(group: Group) -> int:
    """End every instance of the group, which replaces them; how many there were. Raises `Refused`."""
    with refusals("the end of the group's instances"):
        client = boto3.client("autoscaling", config=PATIENCE)
        for instance in sorted(group.instances):
            client.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=False)
    return len(group.instances)


def send(url: str, body: str) -> None:
    """Put a message into the queue at this URL. Raises `Refused`."""
    with refusals("the queue"):
        boto3.client("sqs", config=PATIENCE).send_message(QueueUrl=url, MessageBody=body)


@contextmanager
def refusals(asked: str) -> Iterator[None]:
    """Turn what boto3 raises while it is asked for something into `Refused`, with what to do about it."""
    try:
        yield
    except (exceptions.BotoCoreError, exceptions.ClientError, Boto3Error) as error:
        what_to_do = advice(error) or "See that AWS can be reached from here, then try again"
        raise Refused(f"{asked} can't be asked for: {plain(str(error))}. {what_to_do}") from None


def advice(error: BaseException | None) -> str:
    """What to do about an error of boto3's, if it is for want of credentials or rights; else nothing."""
    code = error.response.get("Error", {}).get("Code", "") if isinstance(error, exceptions.ClientError) else ""
    if isinstance(error, SIGN_IN) or code in EXPIRED:
        return "Sign in to AWS (`aws sso login`, or AWS_PROFILE, or AWS_ACCESS_KEY_ID and its secret), then try again"
    return "Use credentials that may do this, or have it allowed" if code in DENIED else ""
