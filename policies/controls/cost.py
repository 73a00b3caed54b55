"""Cost: budgets, tags to account by, fleets that can shrink, and capacity that is bought as it was asked for.

Of AWS alone: budgets, which Alibaba Cloud's provider can't declare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policies.checks import failed, passed, undecided, where
from policies.control import Check, Control, Edits, Judgement, Remedy, Severity, StackCheck, Verdict
from policies.resources import Resource, Stack
from policies.settings import Settings
from policies.values import UNKNOWN, spread

TOPIC = "cost"

GROUP = "aws:autoscaling/group:Group"
ESS_GROUP = "alicloud:ess/scalingGroup:ScalingGroup"
BUDGET = "aws:budgets/budget:Budget"

COSTLY = (
    "aws:ec2/instance:Instance",
    "aws:ebs/volume:Volume",
    "aws:s3/bucket:Bucket",
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:efs/fileSystem:FileSystem",
    "aws:ec2/natGateway:NatGateway",
    "aws:ec2/capacityReservation:CapacityReservation",
    "alicloud:ecs/instance:Instance",
    "alicloud:ecs/ecsDisk:EcsDisk",
    "alicloud:oss/bucket:Bucket",
    "alicloud:nas/fileSystem:FileSystem",
    "alicloud:vpc/natGateway:NatGateway",
    "alicloud:ecs/capacityReservation:CapacityReservation",
    "alicloud:ess/scalingConfiguration:ScalingConfiguration",
    "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate",
)
"""Types that cost money and take tags."""


def _budgeted(_resource: Resource, stack: Stack) -> Iterator[Judgement]:
    """A stack that runs machines has a budget that somebody is told of."""
    budgets = list(stack.of(BUDGET))
    if not budgets:
        yield failed("", "no budget stands beside it")
    for budget in budgets:
        told = budget.at("notifications")
        if told is UNKNOWN:
            yield undecided(f"{budget.name}.notifications")
        elif told:
            yield passed(budget.name, "tells somebody")
        else:
            yield failed(f"{budget.name}.notifications", "tells nobody")


def _tagged(tags: tuple[str, ...]) -> Check:
    """Each of these tags is there; what it says may not be known yet."""

    def check(resource: Resource) -> Iterator[Judgement]:
        found = resource.at("tags")
        if found is UNKNOWN:
            yield undecided("tags")
            return
        for name in tags:
            there = isinstance(found, Mapping) and (found.get(name) is UNKNOWN or bool(found.get(name)))
            yield passed(f"tags.{name}", "is there") if there else failed(f"tags.{name}", "is missing")

    return check


def _tag(tags: tuple[str, ...], values: Mapping[str, str]) -> Remedy:
    """Sets the tags that are missing and that the settings have a value for."""

    def mend(resource: Resource) -> Edits:
        found = resource.at("tags")
        if found is UNKNOWN:
            return {}
        there = found or {}
        missing = [name for name in tags if there.get(name) is not UNKNOWN and not there.get(name)]
        return {("tags", name): values[name] for name in missing if values.get(name)}

    return mend


def _tag_group(tags: tuple[str, ...], values: Mapping[str, str]) -> Remedy:
    """The same of a group, and has it hand them on."""

    def mend(resource: Resource) -> Edits:
        entries = [entry for _, entry in spread(resource.props, "tags.*")]
        if any(entry is UNKNOWN for entry in entries):
            return {}
        keys = [None if entry.get("key") is UNKNOWN else entry.get("key") for entry in entries]
        kept_back = [index for index, entry in enumerate(entries) if entry.get("propagateAtLaunch") is False]
        more = [
            {"key": name, "value": values[name], "propagateAtLaunch": True}
            for name in tags
            if name not in keys and None not in keys and values.get(name)
        ]
        if resource.at("tags") is None:
            return {("tags",): more} if more else {}
        return {
            **{("tags", str(index), "propagateAtLaunch"): True for index in kept_back if keys[index] in tags},
            **{("tags", str(len(entries) + place)): entry for place, entry in enumerate(more)},
        }

    return mend


def _group_tags(tags: tuple[str, ...]) -> Check:
    """The same of a group, whose tags are a list that nodes inherit one by one."""

    def check(resource: Resource) -> Iterator[Judgement]:
        entries = [entry for _, entry in spread(resource.props, "tags.*")]
        if any(entry is UNKNOWN for entry in entries):
            yield undecided("tags")
            return
        for name in tags:
            known = [entry for entry in entries if entry.get("key") is not UNKNOWN]
            found = next((entry for entry in known if entry.get("key") == name), None)
            if found is None and len(known) < len(entries):
                yield undecided(f"tags.{name}")
            elif found is None:
                yield failed(f"tags.{name}", "is missing")
            elif found.get("propagateAtLaunch") is False:
                yield failed(f"tags.{name}", "isn't handed on to nodes")
            else:
                yield passed(f"tags.{name}", "is there, and on nodes")

    return check


def _shrinks(scaling: tuple[tuple[str, str], ...]) -> StackCheck:
    """A fleet may go down to nothing, or something in the stack makes it smaller."""

    def check(resource: Resource, stack: Stack) -> Iterator[Judgement]:
        least = resource.at("minSize")
        if least is UNKNOWN:
            yield undecided("minSize")
        elif int(least or 0) == 0:
            yield passed("minSize", "may go down to nothing")
        elif any(pointer for kind, path in scaling for pointer in stack.pointing(resource, (kind,), path)):
            yield passed("", "is scaled")
        else:
            yield failed("minSize", f"{least} nodes are paid for whether they work or not, and nothing scales them")

    return check


def _spot_as_asked(resource: Resource) -> Iterator[Judgement]:
    """A fleet that asks for spot isn't all on demand by its own distribution."""
    distribution = "mixedInstancesPolicy.instancesDistribution"
    if resource.at(distribution) in (None,):
        return
    share, base, most = (
        resource.at(f"{distribution}.onDemandPercentageAboveBaseCapacity"),
        resource.at(f"{distribution}.onDemandBaseCapacity"),
        resource.at("maxSize"),
    )
    if any(value is UNKNOWN for value in (share, base, most)):
        yield undecided(distribution)
    elif share is None or int(share) == 100:
        yield failed(distribution, "all nodes above the base are on demand, which is what it means if it isn't set")
    elif int(base or 0) >= int(most):
        yield failed(f"{distribution}.onDemandBaseCapacity", f"{base} is the whole fleet of {most}")
    else:
        yield passed(distribution, f"{base or 0} nodes and {share} % of the rest are on demand")


ON_DEMAND = {
    "COST_OPTIMIZED": ("onDemandPercentageAboveBaseCapacity", "onDemandBaseCapacity", "compensateWithOnDemand"),
    "COMPOSABLE": (
        "capacityOptionsOnDemandPercentageAboveBaseCapacity",
        "capacityOptionsOnDemandBaseCapacity",
        "capacityOptionsCompensateWithOnDemand",
    ),
}
"""What a group of ESS says of nodes on demand, by its policy: the share above the base (all, where a group that is
COMPOSABLE doesn't say), the base, and whether they make up for spot nodes (ESS API, CreateScalingGroup)."""


def _spot_as_asked_on_alicloud(resource: Resource) -> Iterator[Judgement]:
    """A group that mixes isn't all on demand, nor falls back to it."""
    policy = resource.at("multiAzPolicy")
    if policy is UNKNOWN:
        yield undecided("multiAzPolicy")
    elif policy in ON_DEMAND:
        share, base, instead = ON_DEMAND[policy]
        most = resource.at("maxSize")
        fewer = where(base, lambda nodes: int(nodes) < int(most), "less than the fleet", absent=Verdict.PASS)
        yield from where(share, lambda percent: int(percent) < 100, "less than 100")(resource)
        yield from fewer(resource)
        yield from where(instead, lambda on: on is not True, "false", absent=Verdict.PASS)(resource)


def _ends(path: str) -> Check:
    """Something says whether and when a reservation ends."""

    def check(resource: Resource) -> Iterator[Judgement]:
        kind = resource.at(path)
        if kind is UNKNOWN:
            yield undecided(path)
        elif kind:
            yield passed(path, str(kind))
        else:
            yield failed(path, "not set, so that it is paid for until somebody ends it")

    return check


def controls(settings: Settings) -> tuple[Control, ...]:
    """The controls of this topic."""
    tags = settings.cost_tags
    return (
        Control(
            "COST-BUDGET-01",
            "Fleets have a budget",
            TOPIC,
            Severity.MEDIUM,
            "Declare a budget with notifications beside the fleet",
            {},
            in_stack={GROUP: _budgeted},
        ),
        Control(
            "COST-TAG-01",
            "What costs money says whose it is",
            TOPIC,
            Severity.LOW,
            f"Set the tags {', '.join(tags)}" if tags else "Set the tags that policies:cost_tags names",
            {},
            checks={
                **dict.fromkeys(COSTLY, _tagged(tags)),
                GROUP: _group_tags(tags),
                ESS_GROUP: _tagged(tags),
            },
            remedies={
                **dict.fromkeys((*COSTLY, ESS_GROUP), _tag(tags, settings.tag_values)),
                GROUP: _tag_group(tags, settings.tag_values),
            },
        ),
        Control(
            "COST-IDLE-01",
            "Fleets can shrink",
            TOPIC,
            Severity.MEDIUM,
            "Let the group's least size be 0, or scale it by what it does",
            {},
            in_stack={
                GROUP: _shrinks(
                    (
                        ("aws:autoscaling/policy:Policy", "autoscalingGroupName"),
                        ("aws:autoscaling/schedule:Schedule", "autoscalingGroupName"),
                    )
                ),
                ESS_GROUP: _shrinks((("alicloud:ess/scalingRule:ScalingRule", "scalingGroupId"),)),
            },
        ),
        Control(
            "COST-SPOT-01",
            "Spot fleets are bought as spot",
            TOPIC,
            Severity.MEDIUM,
            "State the on-demand share above the base, below 100; don't let the group make up with on-demand nodes",
            {},
            checks={GROUP: _spot_as_asked, ESS_GROUP: _spot_as_asked_on_alicloud},
        ),
        Control(
            "COST-RESERVED-01",
            "Reservations end, or are meant not to",
            TOPIC,
            Severity.MEDIUM,
            "State `end_date_type`, on Alibaba Cloud `end_time_type`, and an end for a reservation that isn't to last",
            {},
            checks={
                "aws:ec2/capacityReservation:CapacityReservation": _ends("endDateType"),
                "alicloud:ecs/capacityReservation:CapacityReservation": _ends("endTimeType"),
            },
        ),
    )
