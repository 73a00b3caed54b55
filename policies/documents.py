"""Policy documents of AWS and Alibaba Cloud, read by what they say and not by how they are written."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Any

from policies.values import UNKNOWN, Undecided

EVERYONE = "*"

OF_TEXT = frozenset({"StringEquals", "StringEqualsIgnoreCase", "StringLike"})
OF_ARNS = frozenset({"ArnEquals", "ArnLike"})
"""Operators that are true only of what is asked for and there: not of what isn't, as `…IfExists`, `ForAllValues:`,
`Null` and those with `Not` are (IAM user guide, "IAM JSON policy elements: Condition operators")."""

ACCOUNT_AT = {"arn": 4, "acs": 3}
"""Which part of an ARN is its account, by the first (AWS General Reference, "ARNs"; RAM user guide, "Resource")."""

SOME_OBJECT = "\0/\0"
"""A key that nobody writes: what takes it in takes in every object."""

WIDEST_PREFIX_BITS = 1
"""A range of addresses of so few fixed bits is half of the internet or more."""


@dataclass(frozen=True)
class Statement:
    """A statement, each of its parts as a list; keys of conditions in lower case, as both clouds compare them."""

    sid: str
    allow: bool
    principals: tuple[str, ...]
    """`AWS:arn…`, `Service:name`, `*` for everyone; empty where the document is of an identity."""
    not_principals: bool
    actions: tuple[str, ...]
    not_actions: bool
    resources: tuple[str, ...]
    not_resources: bool
    conditions: Mapping[tuple[str, str], tuple[str, ...]]
    """By operator (`Bool`) and key (`aws:securetransport`)."""

    @property
    def of_everyone(self) -> bool:
        """Whoever calls is meant."""
        return any(name == EVERYONE or name.partition(":")[2] == EVERYONE for name in self.principals)

    def names_action(self, action: str) -> bool:
        """An action (`s3:GetObject`) is among its actions, by wildcards too."""
        named = any(fnmatchcase(action.lower(), pattern.lower()) for pattern in self.actions)
        return named != self.not_actions

    def names_resource(self, resource: str) -> bool:
        """A resource is among its resources, by wildcards too."""
        return any(fnmatchcase(resource, pattern) for pattern in self.resources) != self.not_resources

    def condition(self, operator: str, key: str) -> tuple[str, ...]:
        """The values of a condition, empty where it has none; `…IfExists` is asked for by its own name."""
        return self.conditions.get((operator, key.lower()), ())


def statements(document: Any) -> tuple[Statement, ...]:
    """The statements of a document: JSON text, or what it holds. Raises `Undecided` where it isn't known yet.

    Raises `ValueError` where it is no policy document.
    """
    if document is UNKNOWN:
        raise Undecided
    if isinstance(document, str):
        document = json.loads(document)
    if not isinstance(document, Mapping):
        raise ValueError("is no policy document")  # noqa: TRY004  one error for whatever isn't one
    return tuple(_statement(entry) for entry in _listed(document.get("Statement")))


def lets_everybody_in(statement: Statement, keys: Collection[str]) -> bool:
    """The statement is for everybody, or for all but some, and no condition on one of these keys narrows it."""
    return statement.allow and (statement.of_everyone or statement.not_principals) and not narrows(statement, keys)


SOMEBODY = frozenset(
    {"aws:sourceaccount", "aws:sourcearn", "aws:principalorgid", "aws:principalarn", "aws:principalaccount"}
)
"""Keys of conditions that leave somebody in particular of everybody, whatever is asked for (IAM user guide, "AWS global
condition context keys"); controls add those of what they judge."""


def narrows(statement: Statement, keys: Collection[str]) -> bool:
    """Some condition on one of these keys (in lower case, `*` for any text) leaves something in particular of all.

    Its operator asks for the key, and each of its values is fixed: no variable, no wildcard except behind the account
    of an ARN, no range of half of the internet (S3 user guide, "The meaning of public").
    """
    return any(
        # `ForAnyValue:` is false where the key is absent, as the operator without it is.
        any(fnmatchcase(key, name) for name in keys) and _fixed(operator.removeprefix("ForAnyValue:"), values)
        for (operator, key), values in statement.conditions.items()
    )


def covers(found: Iterable[Statement], names: Iterable[str], *, objects_alone: bool = False) -> bool:
    """Together, these take in the bucket of one of these names or ARNs, and its objects (prowler#1481).

    With `objects_alone`, its objects are enough. Where no name is known yet, any one bucket is: a policy that names
    another than its own is refused by S3, as by OSS. What is said by `NotResource` leaves something out, and isn't
    counted.
    """
    said = (name for statement in found if not statement.not_resources for name in statement.resources)
    patterns = {_within_service(name) for name in said}
    wanted = {name.rpartition(":")[2] for name in names} or {name.partition("/")[0] for name in patterns}
    return any(
        (objects_alone or any(fnmatchcase(bucket, pattern) for pattern in patterns))
        and any(fnmatchcase(f"{bucket}/{SOME_OBJECT}", pattern) for pattern in patterns)
        for bucket in wanted
    )


def _within_service(pattern: str) -> str:
    """What of an ARN of S3 or OSS comes behind its account: a bucket, or objects. Other ARNs name neither."""
    account = ACCOUNT_AT.get(pattern.partition(":")[0])
    if account is None:
        return pattern
    parts = pattern.split(":", account + 1)
    of_buckets = any(fnmatchcase(service, parts[account - 2]) for service in ("s3", "oss"))
    return parts[-1] if of_buckets else ""


def _fixed(operator: str, values: tuple[str, ...]) -> bool:
    if operator == "IpAddress":
        return _few_addresses(values)
    by_parts = operator in OF_ARNS
    return (by_parts or operator in OF_TEXT) and bool(values) and all(_of_one(value, by_parts) for value in values)


def _of_one(value: str, by_parts: bool) -> bool:
    """A value names one thing, or things of one account.

    Operators of ARNs compare part by part. In those of text a wildcard takes in colons, which paths of roles may have,
    so that nothing before the account may vary either.
    """
    parts = value.split(":")
    account = ACCOUNT_AT.get(parts[0], 0)
    if not account or not any(parts[account : account + 1]):
        named = value
    else:
        named = parts[account] if by_parts else ":".join(parts[: account + 1])
    return not set("*?") & set(named) and "${" not in value


def _few_addresses(ranges: tuple[str, ...]) -> bool:
    """There are ranges, and together they are less than half of the internet."""
    try:
        networks = [ip_network(value, strict=False) for value in ranges]
    except ValueError:
        return False
    old = collapse_addresses([each for each in networks if isinstance(each, IPv4Network)])
    new = collapse_addresses([each for each in networks if isinstance(each, IPv6Network)])
    bits = [*(each.prefixlen for each in old), *(each.prefixlen for each in new)]
    return bool(bits) and min(bits) > WIDEST_PREFIX_BITS


def _statement(entry: Mapping[str, Any]) -> Statement:
    conditions = {
        (operator, key.lower()): tuple(_text(value) for value in _listed(values))
        for operator, keys in (entry.get("Condition") or {}).items()
        for key, values in keys.items()
    }
    return Statement(
        sid=str(entry.get("Sid", "")),
        allow=entry.get("Effect") == "Allow",
        principals=tuple(_principals(entry.get("Principal", entry.get("NotPrincipal")))),
        not_principals="NotPrincipal" in entry,
        actions=tuple(_listed(entry.get("Action", entry.get("NotAction")))),
        not_actions="NotAction" in entry,
        resources=tuple(_listed(entry.get("Resource", entry.get("NotResource")))),
        not_resources="NotResource" in entry,
        conditions=conditions,
    )


def _principals(given: Any) -> Iterator[str]:
    if isinstance(given, Mapping):
        for kind, names in given.items():
            yield from (f"{kind}:{name}" for name in _listed(names))
    else:
        yield from _listed(given)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
