"""The record of who did what: trails that are whole, validated and kept, access logs, logs that don't grow for ever.

Of AWS alone: validation of a trail's files, which ActionTrail hasn't, and global services, which a trail of all its
regions has among them. Of Alibaba Cloud alone: stores of logs that take anything from browsers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policies.checks import equal, failed, governed, never, passed, present, true, undecided, where
from policies.control import Check, Control, Judgement, Severity, Verdict
from policies.resources import Resource, Stack
from policies.values import UNKNOWN, spread

TOPIC = "audit"

TRAIL = "aws:cloudtrail/trail:Trail"
ACTION_TRAIL = "alicloud:actiontrail/trail:Trail"

RECORDED: Mapping[str, tuple[str, ...]] = {
    "cis": ("AWS 4.1", "Alibaba Cloud 2.1"),
    "pci": ("10.2.1",),
    "hipaa": ("164.312(b)",),
    "iso27001": ("A.8.15", "A.8.16"),
    "soc2": ("CC7.2",),
    "gdpr": ("Art. 25", "Art. 30"),
}
LEAST_DAYS = 90


def _whole(resource: Resource) -> Iterator[Judgement]:
    """Calls that manage something are recorded, reading and writing.

    A trail without selectors records them all; one with selectors, what they say (CloudTrail user guide, "Logging
    management events").
    """
    basic, advanced = resource.at("eventSelectors"), resource.at("advancedEventSelectors")
    if basic is UNKNOWN or advanced is UNKNOWN:
        yield undecided("eventSelectors")
    elif not basic and not advanced:
        yield passed("", "records all calls that manage something")
    elif advanced:
        yield from _advanced(resource)
    else:
        whole = any(
            entry.get("includeManagementEvents") is not False and entry.get("readWriteType") in (None, "All")
            for entry in basic
        )
        yield (
            passed("eventSelectors", "records them all")
            if whole
            else failed("eventSelectors", "leaves out calls that manage something")
        )


def _advanced(resource: Resource) -> Iterator[Judgement]:
    for place, selectors in spread(resource.props, "advancedEventSelectors.*.fieldSelectors"):
        if selectors is UNKNOWN:
            yield undecided(place)
            return
        fields = {entry.get("field"): entry.get("equals") for entry in selectors or ()}
        if fields.get("eventCategory") == ["Management"] and "readOnly" not in fields:
            yield passed(place, "records all calls that manage something")
            return
    yield failed("advancedEventSelectors", "leaves out calls that manage something")


def _access_logged(resource: Resource, stack: Stack) -> Iterator[Judgement]:
    """Access to a bucket is recorded: by server access logs, or by a trail that records the calls on its objects."""
    named = [
        entry
        for trail in stack.of(TRAIL)
        for path in ("advancedEventSelectors", "eventSelectors")
        if resource.urn in trail.links.get(path, frozenset()) or _names(trail, path, resource)
        for entry in [trail.name]
    ]
    if named:
        yield passed("", f"calls on its objects are recorded by {', '.join(named)}")
    elif any(
        trail.at(path) is UNKNOWN for trail in stack.of(TRAIL) for path in ("advancedEventSelectors", "eventSelectors")
    ):
        yield undecided("")
    elif _is_record(resource, stack):
        yield passed("", "holds the record itself")
    else:
        inline = resource.at("logging")
        own = governed(("aws:s3/bucketLogging:BucketLogging",), "bucket", "access log")
        yield from [passed("logging", "is on")] if inline else own(resource, stack)


def _names(trail: Resource, path: str, bucket: Resource) -> bool:
    """A selector names the bucket's objects, by an ARN that is known."""
    text = str(trail.props.get(path)) if _known(trail.props.get(path)) else ""
    return any(f"{name}/" in text for name in bucket.names)


def _known(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_known(item) for item in value.values())
    if isinstance(value, list):
        return all(_known(item) for item in value)
    return value is not UNKNOWN


def _is_record(bucket: Resource, stack: Stack) -> bool:
    return any(
        pointer.sure
        for kind, path in ((TRAIL, "s3BucketName"), (ACTION_TRAIL, "ossBucketName"))
        for pointer in stack.pointing(bucket, (kind,), path)
    )


def _access_logged_by_oss(resource: Resource, stack: Stack) -> Iterator[Judgement]:
    """The same of OSS, whose objects no trail of Alibaba Cloud tells of by itself: by access logs alone."""
    if resource.at("logging"):
        yield passed("logging", "is on")
    elif _is_record(resource, stack):
        yield passed("", "holds the record itself")
    else:
        yield from governed(("alicloud:oss/bucketLogging:BucketLogging",), "bucket", "access log")(resource, stack)


def _kept(path: str) -> Check:
    return where(path, lambda days: int(days) == 0 or int(days) >= LEAST_DAYS, f"{LEAST_DAYS} days or more")


CONTROLS: tuple[Control, ...] = (
    Control(
        "AUD-TRAIL-01",
        "Trails record every region",
        TOPIC,
        Severity.HIGH,
        "Set `is_multi_region_trail`; on Alibaba Cloud leave `trail_region` at All",
        RECORDED,
        checks={
            TRAIL: true("isMultiRegionTrail"),
            ACTION_TRAIL: where("trailRegion", lambda name: name == "All", "All", absent=Verdict.PASS),
        },
    ),
    Control(
        "AUD-TRAIL-02",
        "Trails are on and leave nothing out",
        TOPIC,
        Severity.HIGH,
        "Leave `enable_logging` on, and record all calls that manage something; on Alibaba Cloud set `event_rw` to All",
        RECORDED,
        checks={
            TRAIL: lambda resource: [*true("enableLogging", absent=Verdict.PASS)(resource), *_whole(resource)],
            ACTION_TRAIL: lambda resource: [
                *equal("status", "Enable", absent=Verdict.PASS)(resource),
                *equal("eventRw", "All")(resource),
            ],
        },
    ),
    Control(
        "AUD-TRAIL-03",
        "The files of trails can be validated",
        TOPIC,
        Severity.MEDIUM,
        "Set `enable_log_file_validation`",
        {
            "cis": ("AWS 4.2",),
            "pci": ("10.3.2",),
            "hipaa": ("164.312(c)(1)",),
            "soc2": ("PI1.3",),
            "gdpr": ("Art. 32",),
        },
        checks={TRAIL: true("enableLogFileValidation")},
    ),
    Control(
        "AUD-TRAIL-04",
        "Trails record global services",
        TOPIC,
        Severity.MEDIUM,
        "Leave `include_global_service_events` on: identities are global",
        RECORDED,
        checks={TRAIL: true("includeGlobalServiceEvents", absent=Verdict.PASS)},
    ),
    Control(
        "AUD-TRAIL-05",
        "Trails reach somewhere they can be searched and alarmed on",
        TOPIC,
        Severity.LOW,
        "Send the trail to a log group; on Alibaba Cloud to a project of the log service",
        {"cis": ("AWS 4.4",), "soc2": ("CC7.2",)},
        checks={
            TRAIL: present("cloudWatchLogsGroupArn", "a log group"),
            ACTION_TRAIL: present("slsProjectArn", "a project of the log service"),
        },
    ),
    Control(
        "AUD-RETENTION-01",
        "Logs are kept long enough, and not for ever by default",
        TOPIC,
        Severity.MEDIUM,
        f"State how many days logs are kept: {LEAST_DAYS} or more, or 0 for ever",
        {
            "pci": ("10.5.1",),
            "hipaa": ("164.312(b)",),
            "iso27001": ("A.8.15",),
            "soc2": ("C1.2",),
            "cis": ("Alibaba Cloud 2.23",),
        },
        checks={
            "aws:cloudwatch/logGroup:LogGroup": _kept("retentionInDays"),
            "alicloud:log/store:Store": _kept("retentionPeriod"),
        },
    ),
    Control(
        "AUD-ACCESS-01",
        "Access to buckets is recorded",
        TOPIC,
        Severity.MEDIUM,
        "Record the calls on the bucket's objects by a trail, or turn access logs on",
        {
            "pci": ("10.2.1",),
            "hipaa": ("164.308(a)(1)(ii)(D)", "164.312(b)"),
            "iso27001": ("A.8.15",),
            "soc2": ("CC7.2",),
        },
        in_stack={
            "aws:s3/bucket:Bucket": _access_logged,
            "alicloud:oss/bucket:Bucket": _access_logged_by_oss,
        },
    ),
    Control(
        "AUD-PUBLIC-01",
        "Log stores take nothing from browsers",
        TOPIC,
        Severity.MEDIUM,
        "Leave `enable_web_tracking` off: whoever knows the store's name may write to it without a key",
        {},
        checks={"alicloud:log/store:Store": never("enableWebTracking")},
    ),
)
