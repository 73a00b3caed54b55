"""Keys: rotation, lockout, deletion, who may use them, and where they are copied to.

Of AWS alone: lockout, as within an account Alibaba Cloud's KMS goes by a key's policy or by RAM, so that no policy
shuts its account out (KMS user guide, "Overview of key policies"); and grants, which that KMS hasn't.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policies.checks import both, equal, failed, never, passed, undecided, where
from policies.control import Check, Control, Judgement, Severity, Verdict
from policies.documents import SOMEBODY, Statement, lets_everybody_in, statements
from policies.resources import Resource
from policies.values import UNKNOWN

TOPIC = "keys"

AWS_KEYS = ("aws:kms/key:Key", "aws:kms/externalKey:ExternalKey", "aws:kms/replicaKey:ReplicaKey")

ROTATED: Mapping[str, tuple[str, ...]] = {
    "cis": ("AWS 4.6",),
    "pci": ("3.7.4",),
    "hipaa": ("164.312(a)(2)(iv)",),
    "iso27001": ("A.8.24",),
    "soc2": ("PI1.5",),
    "gdpr": ("Art. 25", "Art. 30"),
}

NARROWING = SOMEBODY | {"aws:sourceorgid", "kms:calleraccount"}
"""kms:ViaService is none of them: everybody may come by a service."""

LEAST_WAIT_DAYS = 7
HANDS_ON = frozenset({"CreateGrant"})
"""Operations by which a grant hands the key on (KMS developer guide, "Grants in AWS KMS")."""


def _rotates(resource: Resource) -> Iterator[Judgement]:
    """A symmetric key for encryption rotates by itself; others can't (KMS developer guide, "Rotate AWS KMS keys")."""
    kind = resource.at("customerMasterKeySpec")
    usage = resource.at("keyUsage")
    if kind is UNKNOWN or usage is UNKNOWN:
        yield undecided("keyUsage")
    elif kind in (None, "SYMMETRIC_DEFAULT") and usage in (None, "ENCRYPT_DECRYPT"):
        yield from equal("enableKeyRotation", True)(resource)


def _rotates_on_alicloud(resource: Resource) -> Iterator[Judgement]:
    """A symmetric key that KMS made rotates (KMS user guide, "Key rotation"); others can't."""
    usage, origin = resource.at("keyUsage"), resource.at("origin")
    if usage is UNKNOWN or origin is UNKNOWN:
        yield undecided("keyUsage")
    elif usage in (None, "ENCRYPT/DECRYPT") and origin in (None, "Aliyun_KMS"):
        yield from equal("automaticRotation", "Enabled")(resource)


def _everybody(resource: Resource) -> Iterator[Judgement]:
    """No statement of the key's policy lets everybody in, unless a condition leaves somebody in particular."""
    document = resource.at("policy")
    if document is UNKNOWN:
        yield undecided("policy")
    elif document is None:
        yield passed("policy", "not set, which lets the account alone decide")
    else:
        open_ = [
            statement.sid or "a statement"
            for statement in statements(document)
            if lets_everybody_in(statement, NARROWING)
        ]
        yield failed("policy", f"{', '.join(open_)} lets everybody in") if open_ else passed("policy", "is narrow")


def _root_decides(resource: Resource) -> Iterator[Judgement]:
    """The account itself keeps the right to change the key's policy (KMS developer guide, "Default key policy")."""
    document = resource.at("policy")
    if document is UNKNOWN:
        yield undecided("policy")
    elif document is None or any(_of_root(statement) for statement in statements(document)):
        yield passed("policy", "lets the account decide")
    else:
        yield failed("policy", "leaves nobody who could change it, if those it names are gone")


def _of_root(statement: Statement) -> bool:
    account = any(name.endswith(":root") or name.removeprefix("AWS:").isdigit() for name in statement.principals)
    return statement.allow and account and statement.names_action("kms:PutKeyPolicy") and not statement.conditions


def _window(path: str) -> Check:
    return where(
        path, lambda days: int(days) > LEAST_WAIT_DAYS, f"more than {LEAST_WAIT_DAYS} days", absent=Verdict.PASS
    )


def _protected(resource: Resource) -> Iterator[Judgement]:
    yield passed("protect", "is protected") if resource.protect else failed("protect", "isn't protected from deletion")


def _narrow_grant(resource: Resource) -> Iterator[Judgement]:
    """A grant hands on no right to hand on, and names no whole account."""
    operations = resource.at("operations")
    principal = resource.at("granteePrincipal")
    if operations is UNKNOWN:
        yield undecided("operations")
    else:
        wide = sorted(HANDS_ON & {name for name in operations or () if name is not UNKNOWN})
        yield failed("operations", f"{', '.join(wide)} hands the key on") if wide else passed("operations", "is narrow")
    if isinstance(principal, str):
        whole = principal.endswith(":root") or principal.isdigit()
        yield failed("granteePrincipal", "is a whole account") if whole else passed("granteePrincipal", principal)


CONTROLS: tuple[Control, ...] = (
    Control(
        "KEY-ROTATE-01",
        "Keys rotate by themselves",
        TOPIC,
        Severity.MEDIUM,
        "Turn automatic rotation on",
        ROTATED,
        checks={"aws:kms/key:Key": _rotates, "alicloud:kms/key:Key": _rotates_on_alicloud},
    ),
    Control(
        "KEY-LOCKOUT-01",
        "No key can lock its own account out",
        TOPIC,
        Severity.CRITICAL,
        "Let the account's root keep kms:PutKeyPolicy, and leave the lockout check on",
        {},
        checks={kind: both(never("bypassPolicyLockoutSafetyCheck"), _root_decides) for kind in AWS_KEYS},
    ),
    Control(
        "KEY-PUBLIC-01",
        "No key is open to everybody",
        TOPIC,
        Severity.CRITICAL,
        "Name those who may use the key, or narrow the statement by a condition such as aws:SourceAccount",
        {"cis": ("AWS 2.21",), "iso27001": ("A.8.1",)},
        checks=dict.fromkeys((*AWS_KEYS, "alicloud:kms/key:Key"), _everybody),
    ),
    Control(
        "KEY-DELETE-01",
        "Keys aren't deleted by mistake",
        TOPIC,
        Severity.CRITICAL,
        f"Protect the key in Pulumi (`protect`), or on Alibaba Cloud by `deletion_protection`, and wait longer than "
        f"{LEAST_WAIT_DAYS} days before its deletion",
        {"pci": ("3.5.1", "3.6.1"), "iso27001": ("A.8.24",)},
        checks={
            "aws:kms/key:Key": both(_window("deletionWindowInDays"), _protected),
            "aws:kms/externalKey:ExternalKey": both(_window("deletionWindowInDays"), _protected),
            "aws:kms/replicaKey:ReplicaKey": both(_window("deletionWindowInDays"), _protected),
            "alicloud:kms/key:Key": both(_window("pendingWindowInDays"), equal("deletionProtection", "Enabled")),
        },
    ),
    Control(
        "KEY-GRANT-01",
        "Grants of keys are no wider than needed",
        TOPIC,
        Severity.HIGH,
        "Grant the operations on data alone, to a role or user by its own ARN",
        {"iso27001": ("A.8.24",)},
        checks={"aws:kms/grant:Grant": _narrow_grant},
    ),
    Control(
        "KEY-ENABLED-01",
        "Keys are enabled",
        TOPIC,
        Severity.MEDIUM,
        "Enable the key: what it encrypted can't be read, and nothing new be written",
        {},
        checks={
            "aws:kms/key:Key": where("isEnabled", lambda on: on is not False, "true", absent=Verdict.PASS),
            "alicloud:kms/key:Key": where("status", lambda state: state == "Enabled", "Enabled", absent=Verdict.PASS),
        },
    ),
)
