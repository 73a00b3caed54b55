"""What changes the fleet's size by itself: decisions and checks, pure functions from a spec or a plan.

A gang trains one job, so that each change of size costs all nodes a checkpoint and a restart. Hence: nodes are added
all at once, not a few at a time; what asks for them must last `ASKED_MINUTES`; nodes on their way count as there, for
`scaling.warmup_seconds`; and nothing but the end of all work takes nodes away from a run, which then takes all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import available_timezones

from components.capacity import CREATE
from components.crontab import in_utc
from components.findings import Finding, Severity, nearest
from components.plan import Plan
from components.spec import Scaling, Spec

ASKED_MINUTES = 3
"""For how long the backlog must ask for nodes: what a few messages at once would do is over by then."""

EMPTY_MINUTES = 15
"""Of `scaling.idle_minutes`, for a cluster with a queue: SQS's metrics come up to 15 minutes late for a queue that was
inactive (SQS developer guide, "Available CloudWatch metrics for Amazon SQS")."""

GPU, ACTIVE, FABRIC = "GPUUtilization", "RunActive", "FabricBytes"
"""Metrics that nodes send, of those that policies and graphs ask for; `trainer/node/metrics.py` has all of them."""

LAUNCH = "Launch"
"""The process of a group that is suspended where it may launch no more (Auto Scaling user guide, "Suspend and resume
processes"): by a governed cluster's breaker, or by hand."""

MOST_STEPS = 20
"""Step adjustments that a policy may have (Auto Scaling user guide, "Quotas")."""

CRON_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
    ("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")),
)
"""Fields of Unix's cron, which Auto Scaling takes (its API, `Recurrence`): least, most, and names from the least on."""


@dataclass(frozen=True)
class Step:
    """From so many nodes short on, up to the next step, `nodes` are added."""

    short: int
    nodes: int


def namespace(bucket: str) -> str:
    """Where the cluster's nodes put metrics. IAM limits by namespace alone, so each cluster has its own.

    It is named by the bucket, as two clusters of an account may have one name, but no two buckets.
    """
    return f"Trainwright/{bucket}"


def governed(spec: Spec) -> bool:
    """Whether something other than the stack's file sets how many nodes there are, once they are there.

    Setting a fleet to zero is not enough: the file is what brings it back.
    """
    scaling = spec.scaling
    return scaling is not None and bool(scaling.gpu_target or scaling.queue or scaling.schedules)


def resize(spec: Spec) -> str:
    """The command that gives a fleet at zero its size again; an update leaves a governed one's alone."""
    commands = {"aws": "aws autoscaling set-desired-capacity", "alicloud": "aliyun ess ModifyScalingGroup"}
    return commands[spec.cloud] if governed(spec) else "pulumi up --refresh"


def breaker_name(cluster: str, one: str = "node") -> str:
    """What the breaker of a cluster's nodes is called, but for what the provider adds to its name."""
    return f"{cluster}-failed-{one}s"


def idle_minutes(scaling: Scaling) -> int | None:
    """After how many minutes without work the fleet is set to zero; None is never."""
    return scaling.idle_minutes or (EMPTY_MINUTES if scaling.queue else None)


def steps(most: int, least: int = 1) -> tuple[Step, ...]:
    """How many nodes are added, by how many there are too few of, for a fleet of at most `most`; always `least`.

    With fewer than `nodes.min` on a fleet at zero, a run would wait for others that nothing asks for.

    Every shortage is met at once: a step adds what the largest one in it needs. Few are met to the node, more to within
    a factor of `most ** (1 / 20)`: 1.3 for 200 nodes.
    """
    bounds = sorted({round(most ** (index / MOST_STEPS)) for index in range(MOST_STEPS)})
    return tuple(
        Step(short, max(least, until - 1)) for short, until in zip(bounds, [*bounds[1:], most + 1], strict=True)
    )


def scaling_checks(plan: Plan) -> Iterator[Finding]:
    """Everything about the plan's scaling; nothing where it has none."""
    if plan.spec.scaling:
        for check in SCALING_CHECKS:
            yield from check(plan, plan.spec.scaling)


def bought(plan: Plan, scaling: Scaling) -> Iterator[Finding]:
    """A fleet that is paid for as a whole gains nothing from another size, and has no room beyond what was bought."""
    nodes = plan.spec.nodes
    if not governed(plan.spec) and not idle_minutes(scaling):
        return
    if nodes.capacity == "capacity-block":
        yield Finding(
            "scaling",
            "a capacity block holds so many nodes for so long, all paid for ahead: it can't be scaled",
            "Take it away, or set nodes.capacity to on-demand, spot or mixed",
        )
    elif nodes.capacity == "reserved":
        beyond = "" if nodes.reservation == CREATE else ", and launches none beyond its own size"
        yield Finding(
            "scaling",
            f"the reservation is paid for whether its nodes run or not{beyond}",
            "Set nodes.capacity to on-demand, spot or mixed, unless the capacity matters more than its cost",
            Severity.WARNING,
        )


def measured(plan: Plan, scaling: Scaling) -> Iterator[Finding]:
    """GPU utilisation is of GPUs, and there is room for the nodes that it asks for."""
    if scaling.gpu_target is None:
        return
    for path, kind in plan.types:
        if not kind.gpus:
            yield Finding(
                "scaling.gpu_target",
                f"{kind.name} ({path}) has no NVIDIA GPUs, so that there is no utilisation to follow",
                "Take it away, or choose a type with GPUs",
            )
    if plan.fleet.max == plan.fleet.desired:
        yield Finding(
            "scaling.gpu_target",
            f"no node can be added: the fleet has {plan.fleet.desired} nodes and may have no more",
            "Raise nodes.max",
        )


def scheduled(plan: Plan, scaling: Scaling) -> Iterator[Finding]:
    """Schedules are such as Auto Scaling and ESS take, and set sizes that can be had and that train, or zero."""
    for index, schedule in enumerate(scaling.schedules):
        path = f"scaling.schedules.{index}"
        if fault := cron_fault(schedule.cron):
            yield Finding(f"{path}.cron", f"'{schedule.cron}': {fault}", "Write it as in `0 7 * * MON-FRI`")
        # A machine without a database of time zones can't judge.
        if (known := available_timezones()) and schedule.time_zone not in known:
            reason = f"there is no time zone '{schedule.time_zone}'"
            yield Finding(f"{path}.time_zone", reason, nearest(schedule.time_zone, known))
        if schedule.nodes > plan.fleet.max:
            yield Finding(
                f"{path}.nodes",
                f"{schedule.nodes} nodes are more than the {plan.fleet.max} that the fleet may have",
                f"Lower it to {plan.fleet.max} or raise nodes.max",
            )
        elif 0 < schedule.nodes < plan.fleet.min:
            yield Finding(
                f"{path}.nodes",
                f"{schedule.nodes} nodes would be paid for and wait, as {plan.fleet.min} are needed to train",
                f"Set it to 0 or raise it to {plan.fleet.min}, or lower nodes.min",
            )


def woken(plan: Plan, scaling: Scaling) -> Iterator[Finding]:
    """What is set to zero comes back by itself, or somebody knows how to bring it back."""
    if scaling.idle_minutes and not (scaling.queue or scaling.schedules):
        yield Finding(
            "scaling.idle_minutes",
            "once a run has ended and the fleet is at zero, nothing brings nodes back for the next run",
            f"Give it its size by `{resize(plan.spec)}`, or add scaling.queue or scaling.schedules",
            Severity.WARNING,
        )


def cron_fault(cron: str) -> str:
    """What keeps Auto Scaling from taking this recurrence, or nothing."""
    fields = cron.split()
    if len(fields) != len(CRON_FIELDS):
        return f"it has {len(fields)} fields, not the {len(CRON_FIELDS)} that Auto Scaling takes"
    for field, (name, least, most, names) in zip(fields, CRON_FIELDS, strict=True):
        values = {word: str(number) for number, word in enumerate(names, least)}
        for item in field.split(","):
            match = re.fullmatch(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", item)
            if match is None:
                return f"'{item}' is no {name}: a number, *, a range a-b, a step */n, or several with commas"
            ends = [values.get(end.upper(), end) for end in match.group(2, 3) if end]
            if not all(end.isdecimal() and least <= int(end) <= most for end in ends):
                words = f", or {names[0]} to {names[-1]}" if names else ""
                return f"'{item}' is no {name}: those are {least} to {most}{words}"
            if len(ends) == 2 and int(ends[0]) > int(ends[1]):
                return f"'{item}' is a range that ends before it begins"
            if match[4] and not 1 <= int(match[4]) <= most:
                return f"'{item}' has a step that isn't 1 to {most}"
    return ""


def scaled_by_ess(plan: Plan, scaling: Scaling) -> Iterator[Finding]:
    """What ESS, CloudMonitor and SMQ do otherwise than Auto Scaling, CloudWatch and SQS.

    RAM limits custom metrics to no cluster, and the breaker suspends nothing.
    """
    if plan.spec.cloud != "alicloud":
        return
    if scaling.gpu_target or scaling.queue or idle_minutes(scaling):
        yield Finding(
            "scaling",
            "whoever may put custom metrics into the account can add nodes, up to nodes.max, but end no run",
            "Give cms:PutCustomMetric to nobody beside nodes",
            Severity.WARNING,
        )
    for index, schedule in enumerate(scaling.schedules):
        if schedule.time_zone not in available_timezones() or cron_fault(schedule.cron):
            continue
        try:
            in_utc(schedule.cron, schedule.time_zone, datetime.now(UTC))
        except ValueError as error:
            yield Finding(
                f"scaling.schedules.{index}",
                str(error),
                "Use a zone without summer time, such as Asia/Shanghai or Etc/UTC, and days of the week instead of the "
                "month",
            )
    if scaling.schedules:
        yield Finding(
            "scaling.schedules",
            "ESS ends a schedule after a year at most",
            "Run `trainwright up` at least once in ten months, which renews it",
            Severity.WARNING,
        )
    if scaling.queue:
        yield Finding(
            "scaling.queue",
            "SMQ makes a queue with a key of yours only where the account has that feature and the role "
            "AliyunMNSAccessingKMSRole; a message waits seven days at most",
            "Ask for the feature by a ticket first",
            Severity.WARNING,
        )
    if governed(plan.spec):
        yield Finding(
            "nodes.failed_boots",
            "at zero, the group still launches what a schedule or another run asks for",
            "Suspend that by hand meanwhile: `aliyun ess SuspendProcesses --Processes.1 ScaleOut`",
            Severity.WARNING,
        )


SCALING_CHECKS: tuple[Callable[[Plan, Scaling], Iterator[Finding]], ...] = (
    bought,
    measured,
    scheduled,
    woken,
    scaled_by_ess,
)
