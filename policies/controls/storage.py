"""Buckets: closed to the public, versioned, locked where they hold a record, cleaned by lifecycle, hard to empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from policies.checks import both, equal, failed, governed, inline_or, passed, true, undecided, where
from policies.control import Check, Control, Judgement, Severity, StackCheck, Verdict
from policies.documents import SOMEBODY, Statement, lets_everybody_in, statements
from policies.locks import kept_on_oss, kept_on_s3, of_trails, versioned_on_oss
from policies.resources import Resource, Stack
from policies.values import UNKNOWN, Undecided, spread

TOPIC = "storage"

BUCKETS = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2")
OSS = "alicloud:oss/bucket:Bucket"

NOT_PUBLIC: Mapping[str, tuple[str, ...]] = {
    "cis": ("AWS 3.1.4", "Alibaba Cloud 5.1"),
    "pci": ("1.2.8", "1.3.1"),
    "hipaa": ("164.308(a)(3)(i)", "164.312(a)(1)"),
    "iso27001": ("A.8.1",),
    "soc2": ("CC6.1",),
}
BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
PUBLIC_ACLS = ("public-read", "public-read-write", "authenticated-read", "website")
NARROWING = SOMEBODY | {"aws:sourcevpc", "aws:sourcevpce", "aws:sourceip", "acs:sourcevpc", "acs:sourceip"}
"""Keys of conditions by which a statement isn't public (S3 user guide, "The meaning of public")."""


def _policies(types: tuple[str, ...], test: Callable[[Statement], str]) -> StackCheck:
    """Each statement of a bucket's policies: `test` gives what is wrong with it, or nothing."""

    def check(resource: Resource, stack: Stack) -> Iterator[Judgement]:
        documents = [("policy", resource.at("policy"))] if resource.at("policy") is not None else []
        for pointer in stack.pointing(resource, types, "bucket"):
            if pointer.sure:
                documents.append((f"{pointer.resource.name}.policy", pointer.resource.at("policy")))
            else:
                yield undecided(f"{pointer.resource.name}.bucket")
        for place, document in documents:
            try:
                wrong = [told for statement in statements(document) if (told := test(statement))]
            except Undecided:
                yield undecided(place)
                continue
            yield failed(place, "; ".join(wrong)) if wrong else passed(place, "is narrow")
        if not documents:
            yield passed("policy", "has none")

    return check


def _public(statement: Statement) -> str:
    return f"{statement.sid or 'a statement'} lets everybody in" if lets_everybody_in(statement, NARROWING) else ""


def _private_acl(path: str) -> Check:
    return where(path, lambda name: name not in PUBLIC_ACLS, "private", absent=Verdict.PASS)


def _acls(types: tuple[str, ...]) -> StackCheck:
    """No list of the bucket, inline or of its own, names everybody."""

    def check(resource: Resource, stack: Stack) -> Iterator[Judgement]:
        yield from _private_acl("acl")(resource)
        for pointer in stack.pointing(resource, types, "bucket"):
            if pointer.sure:
                yield from _private_acl("acl")(pointer.resource)
            else:
                yield undecided(f"{pointer.resource.name}.bucket")

    return check


def _lifecycle(test: Callable[[Mapping[str, object]], bool], what: str) -> Check:
    """Some rule that is enabled, of everything in the bucket, does what `test` asks."""

    def check(resource: Resource) -> Iterator[Judgement]:
        path = "rules" if resource.at("rules") is not None else "lifecycleRules"
        unsure = False
        for _, rule in spread(resource.props, f"{path}.*"):
            try:
                if rule is not UNKNOWN and _enabled(rule) and test(rule) and _of_everything(rule):
                    yield passed(path, what)
                    return
                unsure |= rule is UNKNOWN
            except Undecided:
                unsure = True
        yield undecided(path) if unsure else failed(path, f"no rule of everything in the bucket {what}")

    return check


def _of_everything(rule: Mapping[str, object]) -> bool:
    """Neither prefix, tags nor filter leave anything out (BucketLifecycleRule of pulumi_aws and pulumi_alicloud)."""
    return not any(_says_something(rule.get(name)) for name in ("prefix", "tags", "filter"))


def _says_something(part: object) -> bool:
    return any(_says_something(value) for value in part.values()) if isinstance(part, Mapping) else bool(part)


def _enabled(rule: Mapping[str, object]) -> bool:
    return rule.get("status") == "Enabled" or rule.get("enabled") is True


def _aborts(rule: Mapping[str, object]) -> bool:
    return any(
        rule.get(name)
        for name in ("abortIncompleteMultipartUpload", "abortIncompleteMultipartUploadDays", "abortMultipartUploads")
    )


def _expires_old(rule: Mapping[str, object]) -> bool:
    return bool(rule.get("noncurrentVersionExpiration") or rule.get("noncurrentVersionExpirations"))


def _cleaned(check: Check) -> dict[str, StackCheck]:
    """A bucket's lifecycle, inline or of its own, by cloud."""
    return {
        "aws:s3/bucket:Bucket": inline_or("lifecycleRules", check, governed(LIFECYCLES, "bucket", "lifecycle", check)),
        OSS: lambda resource, _stack: check(resource),
    }


def _with_versions(checks: Mapping[str, StackCheck]) -> dict[str, StackCheck]:
    """The same of buckets that keep versions, or once did: others have no old ones."""

    def judged(check: StackCheck) -> StackCheck:
        def within(resource: Resource, stack: Stack) -> Iterator[Judgement]:
            if resource.at("versioning") is not None or any(stack.pointing(resource, VERSIONINGS, "bucket")):
                yield from check(resource, stack)

        return within

    return {kind: judged(check) for kind, check in checks.items()}


BLOCKED = both(*(true(name) for name in BLOCKS))
VERSIONED = equal("versioningConfiguration.status", "Enabled")
LIFECYCLES = ("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",)
VERSIONINGS = (
    "aws:s3/bucketVersioning:BucketVersioning",
    "aws:s3/bucketVersioningV2:BucketVersioningV2",
    "alicloud:oss/bucketVersioning:BucketVersioning",
)

CONTROLS: tuple[Control, ...] = (
    Control(
        "STO-PUBLIC-01",
        "Buckets refuse to become public",
        TOPIC,
        Severity.CRITICAL,
        "Block public access in all its forms",
        NOT_PUBLIC,
        in_stack={
            **dict.fromkeys(
                BUCKETS,
                governed(
                    ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",),
                    "bucket",
                    "public access block",
                    BLOCKED,
                ),
            ),
            OSS: governed(
                ("alicloud:oss/bucketPublicAccessBlock:BucketPublicAccessBlock",),
                "bucket",
                "public access block",
                true("blockPublicAccess"),
            ),
        },
    ),
    Control(
        "STO-PUBLIC-02",
        "No list of access names everybody",
        TOPIC,
        Severity.CRITICAL,
        "Use the list `private`, and say who may what in policies",
        NOT_PUBLIC,
        in_stack={
            **dict.fromkeys(BUCKETS, _acls(("aws:s3/bucketAcl:BucketAcl", "aws:s3/bucketAclV2:BucketAclV2"))),
            OSS: _acls(("alicloud:oss/bucketAcl:BucketAcl",)),
        },
        checks=dict.fromkeys(
            (
                "aws:s3/bucketObject:BucketObject",
                "aws:s3/bucketObjectv2:BucketObjectv2",
                "alicloud:oss/bucketObject:BucketObject",
            ),
            _private_acl("acl"),
        ),
    ),
    Control(
        "STO-PUBLIC-03",
        "No bucket's policy lets everybody in",
        TOPIC,
        Severity.CRITICAL,
        "Name the principals, or narrow the statement to accounts, networks or an organisation",
        NOT_PUBLIC,
        in_stack={
            **dict.fromkeys(BUCKETS, _policies(("aws:s3/bucketPolicy:BucketPolicy",), _public)),
            OSS: _policies(("alicloud:oss/bucketPolicy:BucketPolicy",), _public),
        },
    ),
    Control(
        "STO-VERSION-01",
        "Buckets keep versions",
        TOPIC,
        Severity.MEDIUM,
        "Turn versioning on, so that what was overwritten or deleted can be brought back",
        {
            "pci": ("10.3.4",),
            "hipaa": ("164.308(a)(7)(i)", "164.308(a)(7)(ii)(A)"),
            "iso27001": ("A.8.10",),
            "soc2": ("A1.2", "C1.2"),
        },
        in_stack={
            "aws:s3/bucket:Bucket": inline_or(
                "versioning",
                true("versioning.enabled"),
                governed(("aws:s3/bucketVersioning:BucketVersioning",), "bucket", "versioning", VERSIONED),
            ),
            "aws:s3/bucketV2:BucketV2": governed(
                ("aws:s3/bucketVersioning:BucketVersioning", "aws:s3/bucketVersioningV2:BucketVersioningV2"),
                "bucket",
                "versioning",
                VERSIONED,
            ),
            OSS: versioned_on_oss,
        },
    ),
    Control(
        "STO-LOCK-01",
        "The record of a trail is locked",
        TOPIC,
        Severity.HIGH,
        "Lock the bucket's objects by default, for as long as the record must stand; on OSS, lock a retention policy, "
        "or keep versions and let the bucket's policy refuse everybody to delete them",
        {"pci": ("10.3.2", "10.3.4"), "hipaa": ("164.312(c)(1)",), "iso27001": ("A.8.15",)},
        in_stack={
            "aws:s3/bucket:Bucket": of_trails("aws:cloudtrail/trail:Trail", "s3BucketName", kept_on_s3),
            OSS: of_trails("alicloud:actiontrail/trail:Trail", "ossBucketName", kept_on_oss),
        },
    ),
    Control(
        "STO-CLEAN-01",
        "Uploads that were broken off are cleaned up",
        TOPIC,
        Severity.LOW,
        "Add a lifecycle rule that aborts incomplete multipart uploads",
        {},
        in_stack=_cleaned(_lifecycle(_aborts, "aborts incomplete uploads")),
    ),
    Control(
        "STO-CLEAN-02",
        "Old versions go after a while",
        TOPIC,
        Severity.LOW,
        "Add a lifecycle rule that expires noncurrent versions: they are paid for, and hold what was to be deleted",
        {},
        in_stack=_with_versions(_cleaned(_lifecycle(_expires_old, "expires noncurrent versions"))),
    ),
)
