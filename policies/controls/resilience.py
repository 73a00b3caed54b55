"""Resilience: what holds data isn't deleted by mistake, backups exist, single zones are meant.

Of Alibaba Cloud alone: buckets that lie in one zone, as those of S3 do only where they are of another type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policies.checks import equal, failed, passed, true, undecided, where
from policies.control import Check, Control, Judgement, Severity, StackCheck, Verdict
from policies.resources import Resource, Stack
from policies.values import UNKNOWN

TOPIC = "resilience"
QUEUE = "aws:sqs/queue:Queue"
SMQ = "alicloud:message/serviceQueue:ServiceQueue"
SIGNAL_S = 3600

BACKED_UP: Mapping[str, tuple[str, ...]] = {
    "hipaa": ("164.308(a)(7)(i)", "164.308(a)(7)(ii)(A)"),
    "soc2": ("A1.2",),
    "iso27001": ("A.8.13",),
}


def _protected(resource: Resource) -> Iterator[Judgement]:
    yield passed("protect", "is protected") if resource.protect else failed("protect", "isn't protected")


def _unforced(resource: Resource) -> Iterator[Judgement]:
    """A bucket that is destroyed with what is in it."""
    forced = resource.at("forceDestroy")
    if forced is UNKNOWN:
        yield undecided("forceDestroy")
    elif forced:
        yield failed("forceDestroy", "is destroyed with all that is in it")
    else:
        yield passed("forceDestroy", "is kept while anything is in it")


def _of_work(path: str, check: StackCheck) -> StackCheck:
    """Of queues that keep what is in them. One that forgets it within an hour, delivered or not, is a signal."""

    def judged(resource: Resource, stack: Stack) -> Iterator[Judgement]:
        kept_s = resource.at(path)
        if kept_s is UNKNOWN or kept_s is None or int(kept_s) > SIGNAL_S:
            yield from check(resource, stack)

    return judged


def _dead_letters(resource: Resource, stack: Stack) -> Iterator[Judgement]:
    """A queue names one for what failed, or is one itself: others name it, or are allowed to."""
    others = [queue for queue in stack.of(QUEUE) if queue is not resource]
    named = any(
        resource.urn in queue.links.get("redrivePolicy", frozenset())
        or any(f'"{name}"' in str(queue.at("redrivePolicy") or "") for name in resource.names)
        for queue in others
        if queue.at("redrivePolicy") is not UNKNOWN or resource.urn in queue.links.get("redrivePolicy", frozenset())
    )
    if resource.at("redrivePolicy") is not None or resource.at("redriveAllowPolicy") is not None or named:
        yield passed("redrivePolicy", "has a queue for what failed, or is one")
    elif any(queue.at("redrivePolicy") is UNKNOWN and not queue.links.get("redrivePolicy") for queue in others):
        yield undecided("redrivePolicy")
    else:
        yield failed("redrivePolicy", "not set, so that what fails comes back until it is too old")


def _dead_letters_of_smq(resource: Resource, stack: Stack) -> Iterator[Judgement]:
    """The same of SMQ, whose queues name others by their names alone."""
    path, target = "dlqPolicy", "dlqPolicy.deadLetterTargetQueue"
    pointers = [
        pointer
        for pointer in stack.pointing(resource, (SMQ,), target)
        if pointer.resource is not resource and pointer.resource.at(f"{path}.enabled") is not False
    ]
    own = list(true(f"{path}.enabled")(resource))
    if any(pointer.sure for pointer in pointers):
        yield passed(path, "is a queue for what failed")
    elif own[0].verdict is Verdict.FAIL and pointers:
        yield undecided(target)
    else:
        yield from own


def _several_zones(path: str) -> Check:
    return where(path, lambda names: len(names) > 1, "two or more, in zones of their own")


CONTROLS: tuple[Control, ...] = (
    Control(
        "RSL-PROTECT-01",
        "What holds data is protected from deletion",
        TOPIC,
        Severity.MEDIUM,
        "Set Pulumi's `protect` on it",
        {"soc2": ("A1.2",)},
        checks=dict.fromkeys(
            (
                "aws:s3/bucket:Bucket",
                "aws:efs/fileSystem:FileSystem",
                "aws:fsx/lustreFileSystem:LustreFileSystem",
                "aws:cloudtrail/trail:Trail",
                "alicloud:oss/bucket:Bucket",
                "alicloud:nas/fileSystem:FileSystem",
                "alicloud:actiontrail/trail:Trail",
            ),
            _protected,
        ),
    ),
    Control(
        "RSL-FORCE-01",
        "Buckets aren't destroyed with what is in them",
        TOPIC,
        Severity.HIGH,
        "Leave `force_destroy` off",
        {"hipaa": ("164.308(a)(7)(i)",), "soc2": ("A1.2",)},
        checks={
            "aws:s3/bucket:Bucket": _unforced,
            "aws:s3/bucketV2:BucketV2": _unforced,
            "alicloud:oss/bucket:Bucket": _unforced,
        },
    ),
    Control(
        "RSL-DELETE-01",
        "Databases and groups are guarded against deletion",
        TOPIC,
        Severity.MEDIUM,
        "Turn deletion protection on",
        {"soc2": ("A1.2",)},
        checks={
            "aws:rds/instance:Instance": true("deletionProtection"),
            "aws:rds/cluster:Cluster": true("deletionProtection"),
            "aws:dynamodb/table:Table": true("deletionProtectionEnabled"),
            "alicloud:rds/instance:Instance": true("deletionProtection"),
            "alicloud:ess/scalingGroup:ScalingGroup": true("groupDeletionProtection"),
        },
    ),
    Control(
        "RSL-BACKUP-01",
        "Databases and tables are backed up",
        TOPIC,
        Severity.MEDIUM,
        "Keep backups for 7 days or more; turn point-in-time recovery on",
        BACKED_UP,
        checks={
            "aws:rds/instance:Instance": where("backupRetentionPeriod", lambda days: int(days) >= 7, "7 or more"),
            "aws:rds/cluster:Cluster": where("backupRetentionPeriod", lambda days: int(days) >= 7, "7 or more"),
            "aws:dynamodb/table:Table": true("pointInTimeRecovery.enabled"),
            "alicloud:rds/backupPolicy:BackupPolicy": where(
                "backupRetentionPeriod", lambda days: int(days) >= 7, "7 or more", absent=Verdict.PASS
            ),
        },
    ),
    Control(
        "RSL-ZONE-01",
        "Load balancers and databases stand in several zones",
        TOPIC,
        Severity.MEDIUM,
        "Give them subnets of two zones or more; training nodes are another matter, and want one",
        {"soc2": ("A1.2",), "iso27001": ("A.8.14",)},
        checks={
            "aws:lb/loadBalancer:LoadBalancer": _several_zones("subnets"),
            "aws:rds/instance:Instance": true("multiAz"),
            "alicloud:alb/loadBalancer:LoadBalancer": _several_zones("zoneMappings"),
        },
    ),
    Control(
        "RSL-REDUNDANCY-01",
        "Buckets survive the loss of a zone",
        TOPIC,
        Severity.LOW,
        "Set `redundancy_type` to ZRS when the bucket is made; S3's buckets do by themselves",
        {"soc2": ("A1.2",)},
        checks={
            "alicloud:oss/bucket:Bucket": equal("redundancyType", "ZRS"),
        },
    ),
    Control(
        "RSL-QUEUE-01",
        "What queues can't deliver isn't lost",
        TOPIC,
        Severity.LOW,
        "Name a queue for what couldn't be worked on",
        {},
        in_stack={
            QUEUE: _of_work("messageRetentionSeconds", _dead_letters),
            SMQ: _of_work("messageRetentionPeriod", _dead_letters_of_smq),
        },
    ),
)
