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


def group(name: str) -> Group:
    """The auto scaling group of this name, as it is now. Raises `Refused`."""
    with refusals(f"the group {name}"):
        client = boto3.client("autoscaling", config=PATIENCE)
        found = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    if not found:
        return Group(None, frozenset())
    live = (item for item in found[0]["Instances"] if not item["LifecycleState"].startswith("Terminat"))
    return Group(found[0]["CreatedTime"].timestamp(), frozenset(item["InstanceId"] for item in live))


def end_instances(group: Group) -> int:
    """End every instance of the group, which replaces them; how many there were. Raises `Refused`."""
    with refusals("the end of the group's instances"):
        client = boto3.client("autoscaling", config=PATIENCE)
        for instance in sorted(group.instances):
            client.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=False)
    return len(group.instances)


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
