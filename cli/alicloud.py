"""What the command asks Alibaba Cloud, and what it says where it doesn't answer. `aws` is its twin.

Its APIs are asked at their public endpoints, in the region ("Endpoints" in each product's API reference).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import botocore.credentials
from botocore.exceptions import BotoCoreError, ClientError

from cli import credentials, sessions
from cli.account import Group, folders
from cli.credentials import SIGN_IN, Person
from cli.errors import Refused
from cli.words import plain
from trainer.alicloud import Api, ApiError, Caller, Credentials
from trainer.dialects import INTERNAL, OSS, oss_client
from trainer.node import mns
from trainer.store import S3Store, Store

SERVICES = {
    "cms": ("2019-01-01", "metrics.{region}.aliyuncs.com"),
    "ecs": ("2014-05-26", "ecs.{region}.aliyuncs.com"),
    "ess": ("2014-08-28", "ess.{region}.aliyuncs.com"),
    "kms": ("2016-01-20", "kms.{region}.aliyuncs.com"),
    "nas": ("2017-06-26", "nas.{region}.aliyuncs.com"),
    "sts": ("2015-04-01", "sts.{region}.aliyuncs.com"),
    "tag": ("2018-08-28", "tag.{region}.aliyuncs.com"),
}
"""Version of each API that is called, and its public endpoint."""

LIMITS = {"connect_timeout": 3, "read_timeout": 10, "retries": {"mode": "standard", "total_max_attempts": 3}}
"""Of requests to a bucket: seconds to connect and for each read, and how often one is tried in all."""

TRIES = 3
"""Of a call that is not answered, or is turned away for now."""

MOST_PAGES = 100
PAGE = 50
"""The most that a page may have (ESS API, DescribeScalingInstances)."""

LAUNCH = "ScaleOut"
"""The process of a group that is suspended where it may launch no more (ESS API, SuspendProcesses)."""

NO_GROUP = "InvalidScalingGroupId.NotFound"
AWAY = ("Throttling", "ServiceUnavailable", "InternalError")
SIGNED_WRONG = (
    "InvalidAccessKeyId",
    "InvalidSecurityToken",
    "SecurityTokenExpired",
    "SignatureDoesNotMatch",
    "ExpiredToken",
)
DENIED = ("Forbidden", "NoPermission", "AccessDenied", "NotAuthorized")
"""What error codes begin with that mean so ("Common error codes", and each API's)."""

OUTSIDE = "PublicEndpointForbidden"
"""What OSS answers accounts that opened it on or after 2025-03-20, at public endpoints of regions of mainland China
(OSS user guide, "Access OSS through a custom domain name"; EC 0048-00000401)."""


class Alicloud:
    """An account with Alibaba Cloud, in a region; see `account.Account`. `person` may be another than is found here."""

    def __init__(self, region: str, person: Caller | None = None) -> None:
        self.region = region
        self.person = person or Person(self._session)

    def signed_in(self) -> bool:
        """See `Account.signed_in`. Raises `Refused` for a profile that isn't there, or can't be used."""
        return credentials.present()

    def environment(self) -> dict[str, str]:
        """See `Account.environment`."""
        return credentials.for_the_engine()

    def call(self, service: str, action: str, **parameters: str | int) -> dict[str, Any]:
        """The answer of an action. Raises `ApiError`, `Refused` where there are no credentials."""
        return _call(Api(self.region, self.person, SERVICES), service, action, parameters)

    def caller(self) -> str:
        """See `Account.caller`."""
        with refusals("who you are"):
            return str(self.call("sts", "GetCallerIdentity")["Arn"])

    def group(self, name: str) -> Group:
        """See `Account.group`."""
        with refusals(f"the group {name}"):
            told = self._group(name)
            if told is None:
                return Group(None, frozenset())
            # An instance that is being removed is one no more (ESS API, DescribeScalingInstances, `LifecycleState`).
            live = {instance for instance, state in self.instances(name) if not state.startswith("Remov")}
            created = datetime.fromisoformat(told["CreationTime"]).timestamp()
        return Group(created, frozenset(live), _suspended(told), told.get("DesiredCapacity"))

    def instances(self, group: str) -> Iterator[tuple[str, str]]:
        """Ids and states of a group's instances, whatever their states; none of one that is gone.

        Raises `ApiError`, `Refused`.
        """
        for page in range(1, MOST_PAGES + 1):
            asked: dict[str, str | int] = {"ScalingGroupId": group, "PageNumber": page, "PageSize": PAGE}
            try:
                told = self.call("ess", "DescribeScalingInstances", **asked)
            except ApiError as error:
                if error.code == NO_GROUP:
                    return
                raise
            found = told["ScalingInstances"]["ScalingInstance"]
            yield from ((str(item["InstanceId"]), str(item["LifecycleState"])) for item in found)
            if len(found) < PAGE:
                return

    def alarms(self, prefix: str) -> list[str]:
        """See `Account.alarms`. A rule's name is matched anywhere in it (CloudMonitor API, DescribeMetricRuleList)."""
        names: list[str] = []
        with refusals(f"the alarm {prefix}"):
            for page in range(1, MOST_PAGES + 1):
                told = self.call(
                    "cms", "DescribeMetricRuleList", AlertState="ALARM", RuleName=prefix, Page=page, PageSize=PAGE
                )
                found = (told.get("Alarms") or {}).get("Alarm") or ()
                names += [str(rule["RuleName"]) for rule in found if str(rule["RuleName"]).startswith(prefix)]
                if len(found) < PAGE:
                    break
        return names

    def resume(self, name: str, nodes: int) -> None:
        """See `Account.resume`."""
        with refusals(f"launches of the group {name}"):
            told = self._group(name) or {}
            if _suspended(told):
                self.call("ess", "ResumeProcesses", ScalingGroupId=name, **{"Process.1": LAUNCH})
            if told and not told.get("DesiredCapacity"):
                self.call("ess", "ModifyScalingGroup", ScalingGroupId=name, DesiredCapacity=nodes)

    def end_instances(self, name: str, instances: frozenset[str]) -> None:
        """See `Account.end_instances`. A call takes 20 instances (ESS API, RemoveInstances)."""
        left = sorted(instances)
        with refusals(f"the end of instances of the group {name}"):
            while left:
                some, left = left[:20], left[20:]
                named: dict[str, str | int] = {f"InstanceId.{number}": one for number, one in enumerate(some, 1)}
                kept: dict[str, str | int] = {"DecreaseDesiredCapacity": "false", "IgnoreInvalidInstance": "true"}
                self.call("ess", "RemoveInstances", ScalingGroupId=name, RemovePolicy="release", **kept, **named)

    def send(self, url: str, body: str) -> None:
        """See `Account.send`."""
        with refusals("the queue"):
            mns.Client(self.person).send_message(QueueUrl=url, MessageBody=body)

    def store(self, bucket: str, prefix: str = "") -> Store:
        """See `Account.store`."""
        return S3Store(bucket, prefix, self._oss(), dialect=OSS)

    def folders(self, bucket: str, prefix: str) -> list[str]:
        """See `Account.folders`."""
        with refusals(f"what bucket {bucket} holds"):
            return folders(self._oss(), bucket, prefix)

    def _oss(self) -> Any:
        return oss_client(self.region, _Provider(self.person), LIMITS)

    def _group(self, name: str) -> Mapping[str, Any] | None:
        found = self.call("ess", "DescribeScalingGroups", **{"ScalingGroupId.1": name})["ScalingGroups"]["ScalingGroup"]
        return found[0] if found else None

    def _session(self, of: Credentials | None, profile: Mapping[str, Any]) -> Credentials:
        """See `credentials.Session`; a role is taken by STS API, AssumeRole. Raises `Refused`."""
        if of is None:
            if credentials.mode_of(profile) == "ecsramrole":
                return sessions.of_instance(str(profile["ram_role_name"]))
            return sessions.at_address(str(profile["credentials_uri"]))
        role, session = str(profile.get("ram_role_arn") or ""), str(profile.get("ram_session_name") or "trainwright")
        asked: dict[str, str | int] = {"RoleArn": role, "RoleSessionName": session}
        asked["DurationSeconds"] = int(profile.get("expired_seconds") or credentials.SESSION_S)
        if profile.get("external_id"):
            asked["ExternalId"] = str(profile["external_id"])
        region = str(profile.get("sts_region") or self.region)
        with refusals(f"the role {role}"):
            told = _call(Api(region, Fixed(of), SERVICES), "sts", "AssumeRole", asked)["Credentials"]
        return Credentials(
            told["AccessKeyId"], told["AccessKeySecret"], told["SecurityToken"], expires=told["Expiration"]
        )


class _Provider:
    """A person's credentials for botocore, which asks for them anew before they end."""

    METHOD = CANONICAL_NAME = "alibaba-cloud-person"

    def __init__(self, person: Caller) -> None:
        self._person = person

    def load(self) -> botocore.credentials.Credentials:
        """See `botocore.credentials.CredentialProvider.load`."""
        found = self._person.credentials()
        if not found.expires:
            return botocore.credentials.Credentials(found.key, found.secret, found.token or None)
        return botocore.credentials.DeferredRefreshableCredentials(refresh_using=self._fetch, method=self.METHOD)

    def _fetch(self) -> dict[str, str]:
        found = self._person.credentials()
        return {
            "access_key": found.key,
            "secret_key": found.secret,
            "token": found.token,
            "expiry_time": found.expires,
        }


def _suspended(group: Mapping[str, Any]) -> bool:
    """Whether a group may launch none, as somebody had it: its breaker suspends nothing (`components/alicloud`)."""
    return LAUNCH in ((group.get("SuspendedProcesses") or {}).get("SuspendedProcess") or ())


class Fixed:
    """Who calls with these very credentials."""

    def __init__(self, held: Credentials) -> None:
        self._held = held

    def credentials(self) -> Credentials:
        """These."""
        return self._held


def _call(api: Api, service: str, action: str, parameters: Mapping[str, str | int]) -> dict[str, Any]:
    """The answer, for which it is asked again where it isn't given or not now. Raises `ApiError`, `Refused`."""
    for left in reversed(range(TRIES)):
        try:
            return api.call(service, action, **parameters)
        except ApiError as error:
            if not left or (error.code and not error.code.startswith(AWAY)):
                raise
            time.sleep(0.5 * (TRIES - left))
    raise AssertionError


@contextmanager
def refusals(asked: str) -> Iterator[None]:
    """Turn errors of APIs, while they are asked for something, into `Refused`, with what to do about it."""
    try:
        yield
    except (OSError, BotoCoreError, ClientError) as error:
        what_to_do = advice(code_of(error)) or "See that Alibaba Cloud can be reached from here, then try again"
        raise Refused(f"{asked} can't be asked for: {plain(str(error)).rstrip('.')}. {what_to_do}") from None
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Refused(f"{asked} can't be asked for: the answer is none of its API's ({plain(repr(error))})") from None


def code_of(error: BaseException) -> str:
    """The code of an API's error; empty for others."""
    told = error.response.get("Error", {}) if isinstance(error, ClientError) else {}
    return str(told.get("Code") or getattr(error, "code", "") or "")


def advice(code: str) -> str:
    """What to do about an error of this code, if it is for want of credentials, rights or a way in; else nothing."""
    if code.startswith(SIGNED_WRONG):
        return SIGN_IN
    if code == OUTSIDE:
        return f"Do this on an ECS instance in the stack's region, with {INTERNAL}=1 set"
    return "Use credentials that may do this, or have it allowed" if code.startswith(DENIED) else ""
