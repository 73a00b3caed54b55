"""What the command asks AWS, and what it says where AWS doesn't answer. `alicloud` is its twin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from botocore import exceptions
from botocore.config import Config

from cli.account import Group, folders
from cli.errors import Refused
from cli.words import plain
from components.scaling import LAUNCH
from trainer.store import Store, open_store

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


class Aws:
    """An account with AWS, in a region, with boto3's credentials; see `account.Account`."""

    def __init__(self, region: str) -> None:
        self.region = region

    def _client(self, service: str) -> Any:
        return boto3.client(service, region_name=self.region or None, config=PATIENCE)  # type: ignore[call-overload]

    def signed_in(self) -> bool:
        """See `Account.signed_in`. Raises `Refused` for a profile that isn't there."""
        with refusals("AWS credentials"):
            return boto3.Session().get_credentials() is not None

    def environment(self) -> dict[str, str]:
        """See `Account.environment`: the provider looks where boto3 does."""
        return {}

    def caller(self) -> str:
        """See `Account.caller`."""
        with refusals("who you are"):
            return str(self._client("sts").get_caller_identity()["Arn"])

    def group(self, name: str) -> Group:
        """See `Account.group`."""
        with refusals(f"the group {name}"):
            found = self._client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        if not found["AutoScalingGroups"]:
            return Group(None, frozenset())
        told = found["AutoScalingGroups"][0]
        live = (item for item in told["Instances"] if not item["LifecycleState"].startswith("Terminat"))
        stopped = any(process["ProcessName"] == LAUNCH for process in told.get("SuspendedProcesses", ()))
        ids = frozenset(item["InstanceId"] for item in live)
        return Group(told["CreatedTime"].timestamp(), ids, stopped, told.get("DesiredCapacity"))

    def alarms(self, prefix: str) -> list[str]:
        """See `Account.alarms`."""
        with refusals(f"the alarm {prefix}"):
            pages = self._client("cloudwatch").get_paginator("describe_alarms")
            found = (alarm for page in pages.paginate(AlarmNamePrefix=prefix) for alarm in page["MetricAlarms"])
            return [str(alarm["AlarmName"]) for alarm in found if alarm["StateValue"] == "ALARM"]

    def resume(self, name: str, nodes: int) -> None:
        """See `Account.resume`."""
        with refusals(f"launches of the group {name}"):
            client = self._client("autoscaling")
            client.resume_processes(AutoScalingGroupName=name, ScalingProcesses=[LAUNCH])
            found = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
            if found and not found[0]["DesiredCapacity"]:
                client.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=nodes)

    def end_instances(self, name: str, instances: frozenset[str]) -> None:
        """See `Account.end_instances`."""
        with refusals(f"the end of instances of the group {name}"):
            client = self._client("autoscaling")
            for instance in sorted(instances):
                client.terminate_instance_in_auto_scaling_group(
                    InstanceId=instance, ShouldDecrementDesiredCapacity=False
                )

    def send(self, url: str, body: str) -> None:
        """See `Account.send`."""
        with refusals("the queue"):
            self._client("sqs").send_message(QueueUrl=url, MessageBody=body)

    def store(self, bucket: str, prefix: str = "") -> Store:
        """See `Account.store`."""
        with refusals(f"the bucket {bucket}"):
            return open_store(f"s3://{bucket}/{prefix}")

    def folders(self, bucket: str, prefix: str) -> list[str]:
        """See `Account.folders`."""
        with refusals(f"what bucket {bucket} holds"):
            return folders(self._client("s3"), bucket, prefix)


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
