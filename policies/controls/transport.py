"""Encryption in transit: buckets and queues take TLS alone, of a minimum version; listeners too.

Of AWS alone: queues and topics, as those of SMQ have no policy that could refuse what comes without TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from policies.checks import documented, equal, failed, governed, passed, undecided, where
from policies.control import Check, Control, Judgement, Severity, StackCheck
from policies.documents import Statement, covers
from policies.resources import Resource
from policies.settings import Settings
from policies.values import UNKNOWN, spread

TOPIC = "transport"

IN_TRANSIT = {
    "hipaa": ("164.312(a)(2)(iv)", "164.312(c)(1)", "164.312(e)(1)"),
    "gdpr": ("Art. 32",),
    "cis": ("AWS 3.1.1", "Alibaba Cloud 5.4"),
    "pci": ("4.2.1",),
    "iso27001": ("A.8.24",),
}

BUCKET_POLICIES = ("aws:s3/bucketPolicy:BucketPolicy", "alicloud:oss/bucketPolicy:BucketPolicy")
HTTPS_CONFIGS = ("alicloud:oss/bucketHttpsConfig:BucketHttpsConfig",)


def denies_without_tls(statement: Statement, *actions: str) -> bool:
    """The statement refuses everybody one of these actions, or all, without TLS (facts K4; aws-guard-rules#218, #243).

    `aws:SecureTransport`, on OSS `acs:SecureTransport`, is false by any operator that compares a Boolean, and no
    further condition narrows it.
    """
    insecure = any(
        statement.condition(operator, key) == ("false",)
        for operator in ("Bool", "BoolIfExists", "StringEquals", "StringEqualsIgnoreCase")
        for key in ("aws:SecureTransport", "acs:SecureTransport")
    )
    return _refuses(statement, *actions) and insecure and len(statement.conditions) == 1


def _refuses(statement: Statement, *actions: str) -> bool:
    """The statement refuses everybody one of these actions (in lower case), or all."""
    refused = {action.lower() for action in statement.actions} & {"*", *actions}
    everybody = statement.of_everyone and not statement.not_principals
    return not statement.allow and everybody and bool(refused) and not statement.not_actions


def denies_old_tls(statement: Statement, least: str) -> bool:
    """The statement refuses everybody versions of TLS below `least`; requests of AWS's own services may be exempt."""
    old = [("NumericLessThan", "s3:tlsversion"), ("NumericLessThanIfExists", "s3:tlsversion")]
    exempt = [("Bool", "aws:principalisawsservice"), ("BoolIfExists", "aws:principalisawsservice")]
    versions = [value for condition in old for value in statement.conditions.get(condition, ())]
    return (
        _refuses(statement, "s3:*")
        and set(statement.conditions) <= {*old, *exempt}
        and all(statement.conditions.get(condition, ("false",)) == ("false",) for condition in exempt)
        and bool(versions)
        and all(float(version) >= float(least) for version in versions)
    )


def _bucket_policy(test: Callable[[Statement], bool], good: str, bad: str) -> StackCheck:
    def whole(bucket: Resource, found: Iterable[Statement]) -> bool:
        return covers((statement for statement in found if test(statement)), bucket.names)

    return documented(BUCKET_POLICIES, "bucket", whole, good, bad)


def _of_policies(types: Iterable[str], path: str, *actions: str) -> StackCheck:
    return documented(
        types,
        path,
        lambda _, found: any(denies_without_tls(statement, *actions) for statement in found),
        "refuses what comes without TLS",
        "refuses nothing that comes without TLS",
    )


def _encrypts(path: str, protocols: Collection[str], actions: str) -> Check:
    """A listener of one of the protocols, or one that redirects all that comes."""

    def check(resource: Resource) -> Iterator[Judgement]:
        does = [value for _, value in spread(resource.props, f"{actions}.*.type")] if actions else []
        if does and all(value is not UNKNOWN and value in {"redirect", "Redirect"} for value in does):
            yield passed(actions, "redirects")
        else:
            yield from where(path, lambda name: name in protocols, " or ".join(sorted(protocols)))(resource)

    return check


def _security_policy(path: str, protocols: Collection[str], protocol: str, old: Collection[str]) -> Check:
    """A listener that encrypts names a policy, and none that is old."""

    def check(resource: Resource) -> Iterator[Judgement]:
        speaks = resource.at(protocol)
        if speaks is UNKNOWN:
            yield undecided(protocol)
        elif speaks in protocols:
            yield from where(
                path, lambda name: not any(part in name for part in old), "a policy that begins with TLS 1.2"
            )(resource)

    return check


def _versions(least: str) -> Check:
    taken = [version for version in ("1.2", "1.3") if version >= least]

    def check(resource: Resource) -> Iterator[Judgement]:
        """Each version that a configuration names, which is on; without names it takes any.

        It is of TLS alone: what comes by HTTP, it doesn't refuse (OSS API, "PutBucketHttpsConfig").
        """
        yield from equal("enable", True)(resource)
        if resource.at("tlsVersions") in (None, []):
            yield failed("tlsVersions", "not set, so that any version of TLS is taken")
        names = {f"TLSv{version}" for version in taken}
        yield from where("tlsVersions.*", lambda name: name in names, " or ".join(sorted(names)))(resource)

    return check


def _new_tls(least: str) -> StackCheck:
    """AWS takes nothing below 1.2 by itself (AWS Storage Blog, "Enforcing encryption in transit with TLS1.2")."""
    if least == "1.2":
        return lambda _resource, _stack: [passed("", "AWS takes nothing below TLS 1.2")]
    return _bucket_policy(
        lambda statement: denies_old_tls(statement, least),
        f"refuses TLS below {least}",
        f"doesn't refuse TLS below {least}",
    )


ONLY_TLS = _bucket_policy(
    lambda statement: denies_without_tls(statement, "s3:*", "oss:*"),
    "refuses what comes without TLS",
    "refuses nothing that comes without TLS",
)

OLD_POLICIES = ("2015-05", "2016-08", "TLS-1-0", "TLS-1-1")
"""Parts of the names of security policies that take TLS 1.0 or 1.1 (Elastic Load Balancing user guide, "Security
policies"); a listener that names none has one of them."""

OLD_CIPHERS = ("tls_cipher_policy_1_0", "tls_cipher_policy_1_1")
"""The same of Alibaba Cloud's (SLB user guide, "TLS security policies")."""


def controls(settings: Settings) -> tuple[Control, ...]:
    """The controls of this topic."""
    new_tls = _new_tls(settings.tls)
    return (
        Control(
            "TLS-BUCKET-01",
            "Buckets take TLS alone",
            TOPIC,
            Severity.MEDIUM,
            "Deny everybody every action on the bucket and its objects where aws:SecureTransport, on OSS "
            "acs:SecureTransport, is false",
            IN_TRANSIT,
            in_stack={
                "aws:s3/bucket:Bucket": ONLY_TLS,
                "aws:s3/bucketV2:BucketV2": ONLY_TLS,
                "alicloud:oss/bucket:Bucket": ONLY_TLS,
            },
        ),
        Control(
            "TLS-BUCKET-02",
            f"Buckets take no TLS below {settings.tls}",
            TOPIC,
            Severity.LOW,
            "Deny everybody where s3:TlsVersion is less; on OSS, name the versions in its HTTPS configuration",
            {"pci": ("4.2.1",)},
            in_stack={
                "aws:s3/bucket:Bucket": new_tls,
                "aws:s3/bucketV2:BucketV2": new_tls,
                "alicloud:oss/bucket:Bucket": governed(
                    HTTPS_CONFIGS, "bucket", "HTTPS configuration", _versions(settings.tls)
                ),
            },
        ),
        Control(
            "TLS-QUEUE-01",
            "Queues and topics take TLS alone",
            TOPIC,
            Severity.MEDIUM,
            "Deny everybody sqs:*, or sns:Publish, where aws:SecureTransport is false",
            {"hipaa": ("164.312(e)(1)",), "gdpr": ("Art. 32",)},
            in_stack={
                "aws:sqs/queue:Queue": _of_policies(("aws:sqs/queuePolicy:QueuePolicy",), "queueUrl", "sqs:*"),
                "aws:sns/topic:Topic": _of_policies(
                    ("aws:sns/topicPolicy:TopicPolicy",), "arn", "sns:*", "sns:publish"
                ),
            },
        ),
        Control(
            "TLS-LISTENER-01",
            "Listeners of load balancers encrypt",
            TOPIC,
            Severity.HIGH,
            "Use HTTPS or TLS, and let a listener of HTTP do nothing but redirect",
            IN_TRANSIT,
            checks={
                "aws:lb/listener:Listener": _encrypts("protocol", {"HTTPS", "TLS"}, "defaultActions"),
                "alicloud:alb/listener:Listener": _encrypts("listenerProtocol", {"HTTPS", "QUIC"}, "defaultActions"),
                "alicloud:slb/listener:Listener": _encrypts("protocol", {"https"}, ""),
            },
        ),
        Control(
            "TLS-LISTENER-02",
            "Listeners of load balancers take no TLS below 1.2",
            TOPIC,
            Severity.HIGH,
            "Name a security policy that begins with TLS 1.2",
            {"pci": ("4.2.1",), "gdpr": ("Art. 32",)},
            checks={
                "aws:lb/listener:Listener": _security_policy("sslPolicy", {"HTTPS", "TLS"}, "protocol", OLD_POLICIES),
                "alicloud:alb/listener:Listener": _security_policy(
                    "securityPolicyId",
                    {"HTTPS", "QUIC"},
                    "listenerProtocol",
                    ("tls_cipher_policy_1_0", "tls_cipher_policy_1_1"),
                ),
                "alicloud:slb/listener:Listener": _security_policy(
                    "tlsCipherPolicy", {"https"}, "protocol", ("tls_cipher_policy_1_0", "tls_cipher_policy_1_1")
                ),
            },
        ),
    )
