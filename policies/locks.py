"""Locks of the buckets that trails write to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from policies.checks import documented, equal, failed, governed, inline_or, passed, undecided, where
from policies.control import Judgement, StackCheck, Verdict
from policies.documents import Statement, covers
from policies.resources import Resource, Stack


def _undeletable(bucket: Resource, found: Iterable[Statement]) -> bool:
    """Everybody is refused to delete an object, and a version of one, whatever else is so.

    Without a condition, such a statement binds all but the bucket's owner, the account itself (OSS user guide, "Bucket
    policies"): as with a lock of S3 in GOVERNANCE, there is somebody who may lift it.
    """
    refused = [
        statement
        for statement in found
        if not statement.allow
        and statement.of_everyone
        and not statement.not_principals
        and not statement.conditions
        and not statement.not_actions
    ]
    return all(
        covers((one for one in refused if one.names_action(action)), bucket.names, objects_alone=True)
        for action in ("oss:DeleteObject", "oss:DeleteObjectVersion")
    )


def versioned_on_oss(resource: Resource, stack: Stack) -> Iterator[Judgement]:
    """The bucket keeps versions, or a retention policy that is locked: no bucket has both, and needs one.

    (OSS API, "InitiateBucketWorm": nothing that is locked is written over.)
    """
    locked = list(WORM(resource, stack))
    whole = any(judgement.verdict is Verdict.PASS for judgement in locked)
    yield from locked if whole else OSS_VERSIONED(resource, stack)


def kept_on_oss(resource: Resource, stack: Stack) -> Iterator[Judgement]:
    """The bucket has a retention policy that is locked, or keeps versions that nobody may delete."""
    locked = list(WORM(resource, stack))
    if any(judgement.verdict is Verdict.PASS for judgement in locked):
        yield from locked
        return
    refused = list(REFUSED(resource, stack))
    if all(judgement.verdict is Verdict.PASS for judgement in refused):
        yield from (*refused, *OSS_VERSIONED(resource, stack))
    elif any(judgement.verdict is Verdict.UNKNOWN for judgement in (*locked, *refused)):
        yield undecided("")
    else:
        yield failed("", "has neither a retention policy that is locked nor a policy that lets nobody delete objects")


def kept_on_s3(resource: Resource, stack: Stack) -> Iterator[Judgement]:
    """The bucket that a trail writes to locks its objects by default."""
    if isinstance(lock := resource.at("objectLockConfiguration.rule"), Mapping):
        yield passed("objectLockConfiguration.rule", str(lock))
        return
    yield from governed(
        ("aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration",),
        "bucket",
        "default lock",
        where(
            "rule.defaultRetention.mode", lambda mode: mode in {"GOVERNANCE", "COMPLIANCE"}, "GOVERNANCE or COMPLIANCE"
        ),
    )(resource, stack)


def of_trails(trails: str, path: str, check: StackCheck) -> StackCheck:
    """Judges only buckets that a trail of the stack writes to."""

    def judged(resource: Resource, stack: Stack) -> Iterator[Judgement]:
        pointers = list(stack.pointing(resource, (trails,), path))
        if any(pointer.sure for pointer in pointers):
            yield from check(resource, stack)
        elif pointers:
            yield undecided(path)

    return judged


OSS_VERSIONED = inline_or(
    "versioning",
    equal("versioning.status", "Enabled"),
    governed(("alicloud:oss/bucketVersioning:BucketVersioning",), "bucket", "versioning", equal("status", "Enabled")),
)
WORM = governed(
    ("alicloud:oss/bucketWorm:BucketWorm",),
    "bucket",
    "retention policy",
    # Void after a day, unless it is locked (OSS API, "InitiateBucketWorm").
    equal("status", "Locked"),
)
REFUSED = documented(
    ("alicloud:oss/bucketPolicy:BucketPolicy",),
    "bucket",
    _undeletable,
    "lets nobody delete objects",
    "lets somebody delete objects",
)
