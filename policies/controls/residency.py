"""Residency: data, its copies and its keys stay in the regions that the settings name. No region known is a breach.

Of AWS alone: keys of several regions, which Alibaba Cloud's KMS hasn't.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from policies.checks import failed, never, passed, undecided
from policies.control import Check, Control, Judgement, Severity
from policies.resources import Resource
from policies.settings import Settings
from policies.values import UNKNOWN, spread

TOPIC = "residency"

TRANSFER: Mapping[str, tuple[str, ...]] = {"gdpr": ("Art. 44", "Art. 46")}
"""Transfers to third countries. No tool has a mapping for them; chapter V of the regulation is about nothing else."""

HOLD_DATA = (
    "aws:s3/bucket:Bucket",
    "aws:s3/bucketV2:BucketV2",
    "aws:ebs/volume:Volume",
    "aws:ec2/launchTemplate:LaunchTemplate",
    "aws:ec2/instance:Instance",
    "aws:autoscaling/group:Group",
    "aws:efs/fileSystem:FileSystem",
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:sqs/queue:Queue",
    "aws:sns/topic:Topic",
    "aws:cloudwatch/logGroup:LogGroup",
    "aws:kms/key:Key",
    "aws:dynamodb/table:Table",
    "aws:rds/instance:Instance",
    "alicloud:oss/bucket:Bucket",
    "alicloud:ecs/ecsDisk:EcsDisk",
    "alicloud:ecs/instance:Instance",
    "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate",
    "alicloud:ess/scalingGroup:ScalingGroup",
    "alicloud:ess/scalingConfiguration:ScalingConfiguration",
    "alicloud:nas/fileSystem:FileSystem",
    "alicloud:log/project:Project",
    "alicloud:kms/key:Key",
    "alicloud:message/serviceQueue:ServiceQueue",
    "alicloud:rds/instance:Instance",
)
"""Types that hold data, keys of it, or machines that work on it."""

ZONES: Mapping[str, tuple[str, ...]] = {
    "aws:ec2/subnet:Subnet": ("availabilityZone", "availabilityZoneId"),
    "aws:ebs/volume:Volume": ("availabilityZone",),
    "aws:ec2/instance:Instance": ("availabilityZone",),
    "aws:ec2/capacityReservation:CapacityReservation": ("availabilityZone",),
    "alicloud:vpc/switch:Switch": ("zoneId", "availabilityZone"),
    "alicloud:ecs/ecsDisk:EcsDisk": ("zoneId", "availabilityZone"),
    "alicloud:ecs/instance:Instance": ("availabilityZone",),
    "alicloud:ecs/capacityReservation:CapacityReservation": ("zoneIds.*",),
    "alicloud:nas/fileSystem:FileSystem": ("zoneId",),
}

DIRECTIONS = {
    **{"north": "n", "south": "s", "east": "e", "west": "w", "central": "c", "gov": "g"},
    **{"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"},
}
"""How words of a region's name are written in ids of its zones (AWS RAM user guide, "AZ IDs"): `usw2-az1`."""


def _judged(place: str, region: Any, allowed: tuple[str, ...]) -> Judgement:
    if region is UNKNOWN:
        return undecided(place)
    if not region:
        return failed(place, "its region isn't known; name it in the program or in the provider's configuration")
    if region in allowed:
        return passed(place, region)
    return failed(place, f"{region} isn't one of {', '.join(allowed)}")


def _in_regions(allowed: tuple[str, ...]) -> Check:
    return lambda resource: [_judged("region", resource.region, allowed)]


def _id_of_region(region: str) -> str:
    """How ids of a region's zones begin: `eu-central-1` is `euc1`."""
    return "".join(DIRECTIONS.get(word, word) for word in region.split("-"))


def _zones(paths: tuple[str, ...], allowed: tuple[str, ...]) -> Check:
    """Zones lie in a region that is allowed: a zone's name is the region's and a letter, its id the region's and `az`.

    After a digit the letter follows at once (`us-east-1a`, Alibaba Cloud's `ap-southeast-1a` too), after a word by a
    hyphen (`cn-hangzhou-h`). Local zones (`us-east-1-bos-1a`) and other regions (`cn-hangzhou-finance`) add more.
    Sources: EC2 user guide, "Regions and Zones"; ECS user guide, "Regions and zones".
    """
    names = [re.compile(re.escape(region) + ("[a-z]" if region[-1:].isdigit() else "-[a-z]")) for region in allowed]
    ids = [re.compile(f"{re.escape(_id_of_region(region))}-az[0-9]+") for region in allowed]

    def check(resource: Resource) -> Iterator[Judgement]:
        for place, zone in (found for path in paths for found in spread(resource.props, path)):
            if zone is UNKNOWN:
                yield undecided(place)
            elif zone:
                inside = any(pattern.fullmatch(str(zone)) for pattern in (*names, *ids))
                yield passed(place, zone) if inside else failed(place, f"{zone} is no zone of {', '.join(allowed)}")

    return check


def _regions_at(path: str, allowed: tuple[str, ...], *, absent_is_own: bool = False) -> Check:
    """Each region named at `path`; with `absent_is_own`, one that isn't named is the resource's."""

    def check(resource: Resource) -> Iterator[Judgement]:
        for place, region in spread(resource.props, path):
            yield _judged(place, resource.region if region is None and absent_is_own else region, allowed)

    return check


def _replicas_of_s3(resource: Resource) -> Iterator[Judgement]:
    """Where a bucket is copied to can't be told from its name: S3's ARNs have no region."""
    for place, target in spread(resource.props, "rules.*.destination.bucket"):
        if target is UNKNOWN:
            yield undecided(place)
        else:
            yield failed(place, f"{target} names no region: that it stays in the regions allowed can't be seen")


def _replication(resource: Resource, allowed: tuple[str, ...], stack_regions: Mapping[str, Any]) -> Iterator[Judgement]:
    made_of = resource.links.get("rules", frozenset())
    known = [region for urn, region in stack_regions.items() if urn in made_of]
    if known:
        yield from (_judged("rules.*.destination.bucket", region, allowed) for region in known)
    else:
        yield from _replicas_of_s3(resource)


def controls(settings: Settings) -> tuple[Control, ...]:
    """The controls of this topic; idle where the settings name no region."""
    all_ = _controls(settings.regions)
    return all_ if settings.regions else tuple(replace(control, checks={}, in_stack={}) for control in all_)


def _controls(allowed: tuple[str, ...]) -> tuple[Control, ...]:
    buckets = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2")
    return (
        Control(
            "RES-REGION-01",
            "Data lies in the regions allowed",
            TOPIC,
            Severity.HIGH,
            f"Declare it in {' or '.join(allowed)}, or add its region to policies:regions",
            TRANSFER,
            checks=dict.fromkeys(HOLD_DATA, _in_regions(allowed)),
        ),
        Control(
            "RES-ZONE-01",
            "Zones lie in the regions allowed",
            TOPIC,
            Severity.HIGH,
            f"Name zones of {' or '.join(allowed)}",
            TRANSFER,
            checks={kind: _zones(paths, allowed) for kind, paths in ZONES.items()},
        ),
        Control(
            "RES-COPY-01",
            "Copies of snapshots and images stay in the regions allowed",
            TOPIC,
            Severity.HIGH,
            "Copy to a region that is allowed, from one that is",
            TRANSFER,
            checks={
                "aws:ebs/snapshotCopy:SnapshotCopy": _copies("sourceRegion", allowed),
                "aws:ec2/amiCopy:AmiCopy": _copies("sourceAmiRegion", allowed),
                "alicloud:ecs/imageCopy:ImageCopy": _copies("sourceRegionId", allowed),
            },
        ),
        Control(
            "RES-REPLICA-01",
            "Replicas stay in the regions allowed",
            TOPIC,
            Severity.HIGH,
            "Replicate to a bucket, table or file system in a region that is allowed, declared in the same program",
            TRANSFER,
            checks={
                "aws:efs/replicationConfiguration:ReplicationConfiguration": _regions_at(
                    "destination.region", allowed, absent_is_own=True
                ),
                "aws:dynamodb/table:Table": _regions_at("replicas.*.regionName", allowed),
                "alicloud:oss/bucketReplication:BucketReplication": _oss_replica(allowed),
            },
            in_stack={
                "aws:s3/bucketReplicationConfig:BucketReplicationConfig": lambda resource, stack: _replication(
                    resource, allowed, {bucket.urn: bucket.region for bucket in stack.of(*buckets)}
                )
            },
        ),
        Control(
            "RES-KEY-01",
            "Keys are of one region",
            TOPIC,
            Severity.MEDIUM,
            "Leave `multi_region` off: a copy of the key opens the data elsewhere",
            TRANSFER,
            checks={"aws:kms/key:Key": never("multiRegion")},
        ),
    )


def _copies(source: str, allowed: tuple[str, ...]) -> Check:
    return lambda resource: [
        _judged("region", resource.region, allowed),
        _judged(source, resource.at(source), allowed),
    ]


def _oss_replica(allowed: tuple[str, ...]) -> Check:
    """Locations of OSS are regions with `oss-` before them (OSS API, PutBucketReplication)."""

    def check(resource: Resource) -> Iterator[Judgement]:
        location = resource.at("destination.location")
        region = location if location is UNKNOWN else str(location or "").removeprefix("oss-")
        yield _judged("destination.location", region, allowed)

    return check
