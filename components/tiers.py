"""What is refused or warned of storage tiers: the file system before the bucket, and the cold classes behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from components import layout, nas
from components.findings import Finding, Severity
from components.plan import Plan
from components.spec import Cold, Warm

COLDER = ("infrequent", "instant-archive", "archive", "deep-archive")
"""S3 and OSS move objects down this list only (S3 user guide, "Transitioning objects using Amazon S3 Lifecycle"; OSS
user guide, "Lifecycle rules based on the last modified time")."""

RESTORED = {"archive", "deep-archive"}
"""Classes from which nothing is read before it is restored, which takes hours (S3 user guide, "Understanding S3 Glacier
storage classes"; OSS user guide, "Storage classes", of ColdArchive and DeepColdArchive)."""

LEAST_DAYS = {
    "aws": {"infrequent": 30, "instant-archive": 90, "archive": 90, "deep-archive": 180},
    "alicloud": {"infrequent": 30, "instant-archive": 60, "archive": 180, "deep-archive": 180},
}
"""For which an object is paid for in a class, though it leaves earlier (S3 and OSS user guides, "Storage classes")."""

DEEPEST = frozenset(
    [
        *("cn-hangzhou", "cn-shanghai", "cn-beijing", "cn-zhangjiakou", "cn-wulanchabu", "cn-shenzhen"),
        "ap-southeast-1",
    ]
)
"""Regions of Alibaba Cloud that have `deep-archive` (OSS error code 0013-00000109). ColdArchive, `archive`, is in all
that a cluster can be in (`components/oss.py`; error code 0013-00000105)."""

SMALLEST_GIB = 1200
STEP_GIB = 2400
"""Sizes of PERSISTENT_2 file systems on SSDs: 1200, 2400, and steps of 2400 (FSx API, `StorageCapacity`)."""


THROUGHPUTS = (125, 250, 500, 1000)
"""What `storage.warm.throughput` can be."""


def live(plan: Plan) -> dict[str, str]:
    """What nodes of this run read, by what its keys begin with."""
    return {
        layout.FLEET: "the fleet's sizes",
        layout.BUNDLES: "the trainer",
        layout.DATA: "what data nodes say of themselves",
        f"{layout.DATASETS}{plan.spec.job.dataset}/": "the run's dataset",
        f"{layout.RUNS}{plan.run.id}/": "the run's checkpoints and what its nodes agree through",
    }


def overlap(one: str, other: str) -> bool:
    """Whether there are keys that begin with both."""
    return one.startswith(other) or other.startswith(one)


def frozen(plan: Plan) -> Iterator[Finding]:
    """No rule freezes what a run needs: it couldn't be read, and nodes would fail at boot or at a restart."""
    for index, rule in enumerate(plan.spec.storage.cold):
        path = f"storage.cold.{index}"
        needed = [what for prefix, what in live(plan).items() if overlap(rule.prefix, prefix)]
        if not rule.prefix.startswith((layout.DATASETS, layout.RUNS)):
            yield Finding(
                f"{path}.prefix",
                f"'{rule.prefix}' holds {' and '.join(needed)}" if needed else f"nothing lies below '{rule.prefix}'",
                f"Name a prefix below {layout.DATASETS} or {layout.RUNS}",
            )
        elif needed and rule.class_ in RESTORED:
            yield Finding(
                f"{path}.prefix",
                f"'{rule.prefix}' holds {' and '.join(needed)}, which can't be read from {rule.class_}",
                f"Name what no run needs any more, such as {layout.RUNS}{plan.spec.job.name}-0a1b2c3d/ of a run that "
                "has ended, or set class to instant-archive, which is read at once",
            )
        elif needed:
            yield Finding(
                f"{path}.prefix",
                f"'{rule.prefix}' holds {' and '.join(needed)}; each read from {rule.class_} is charged by size",
                "Name what is rarely read",
                Severity.WARNING,
            )


def ordered(plan: Plan) -> Iterator[Finding]:
    """Rules that meet go from a class to a colder one, later; and not before the first has been paid for anyway."""
    rules = enumerate(plan.spec.storage.cold)
    for (early, first), (late, then) in combinations(sorted(rules, key=lambda rule: rule[1].after_days), 2):
        if not overlap(first.prefix, then.prefix):
            continue
        path, days = f"storage.cold.{late}", then.after_days - first.after_days
        if COLDER.index(then.class_) <= COLDER.index(first.class_) or not days:
            yield Finding(
                path,
                f"moves to {then.class_} after {then.after_days} days what storage.cold.{early} has moved to "
                f"{first.class_} after {first.after_days}; {plan.cloud.store} moves objects to colder classes only, "
                "one after another",
                "Give the colder class more days, or take one of the two away",
            )
        elif days < (least := LEAST_DAYS[plan.spec.cloud][first.class_]):
            yield Finding(
                f"{path}.after_days",
                f"objects leave {first.class_} after {days} days, but are paid for there for {least}",
                f"Raise it to {first.after_days + least}, or take storage.cold.{early} away",
                Severity.WARNING,
            )


def offered(plan: Plan) -> Iterator[Finding]:
    """The region has the class; S3 has each of its own everywhere."""
    region = plan.spec.region
    for index, rule in enumerate(plan.spec.storage.cold):
        if plan.spec.cloud == "alicloud" and rule.class_ == "deep-archive" and region not in DEEPEST:
            reason = f"OSS has no deep-archive in {region}"
            yield Finding(f"storage.cold.{index}.class", reason, "Choose archive, which costs more to keep")


def warm(plan: Plan) -> Iterator[Finding]:
    """The file system is one that its service makes, and lies in the one zone that nodes are in."""
    wanted = plan.spec.storage.warm
    if wanted is None:
        return
    if len(plan.subnets) > 1:
        yield Finding(
            "storage.warm",
            f"a file system lies in one zone, but nodes would be spread over {len(plan.subnets)}",
            "Name one zone in network.zones, or take storage.warm away",
        )
    yield from (_fsx if plan.spec.cloud == "aws" else _extreme_nas)(plan, wanted)


def _fsx(plan: Plan, wanted: Warm) -> Iterator[Finding]:
    """FSx for Lustre, in sizes of its own; it reads the bucket itself."""
    size, tls = wanted.size_gib, plan.spec.security.tls
    if size != SMALLEST_GIB and size % STEP_GIB:
        below = size // STEP_GIB * STEP_GIB or SMALLEST_GIB
        yield Finding(
            "storage.warm.size_gib",
            f"there is no file system of {size:,} GiB",
            f"Choose {below} or {(size // STEP_GIB + 1) * STEP_GIB}",
        )
    if tls != "1.2":
        yield Finding(
            "security.tls",
            f"no document says that FSx reads the bucket over TLS {tls}, as it then must",
            "Set it to 1.2 if the file system's data repository association turns out misconfigured",
            Severity.WARNING,
        )


def _extreme_nas(plan: Plan, wanted: Warm) -> Iterator[Finding]:
    """Extreme NAS, in zones that have it, as fast as its size makes it (`components/nas.py`)."""
    zone, size = plan.subnets[0].zone, wanted.size_gib
    if size > nas.LARGEST_GIB:
        yield Finding(
            "storage.warm.size_gib", f"there is no file system of {size:,} GiB", f"Choose {nas.LARGEST_GIB:,} at most"
        )
    elif not nas.kind(zone):
        known = nas.zones(plan.spec.region)
        yield Finding(
            "storage.warm",
            f"no document says that {zone} has Extreme NAS",
            f"Choose {' or '.join(known)} in network.zones" if known else "Take it away: nor has its region",
        )
    elif (asked := wanted.throughput * size // 1024) > (given := nas.throughput(zone, size)):
        less = [choice for choice in THROUGHPUTS if choice * size // 1024 <= given]
        yield Finding(
            "storage.warm.throughput",
            f"a file system of {size:,} GiB in {zone} gives {given:,} MB/s in all, not {asked:,}",
            f"Lower it to {less[-1]}" if less else "Lower storage.warm.size_gib",
        )


TIER_CHECKS: tuple[Callable[[Plan], Iterator[Finding]], ...] = (frozen, ordered, offered, warm)


def transitions(rules: tuple[Cold, ...]) -> dict[str, list[Cold]]:
    """The rules by their prefix, each prefix's in the order in which they come to hold."""
    by_prefix: dict[str, list[Cold]] = {}
    for rule in sorted(rules, key=lambda rule: rule.after_days):
        by_prefix.setdefault(rule.prefix, []).append(rule)
    return by_prefix
