"""Training: what makes a fleet of fast nodes fail at launch, train slowly, or lose work.

Of AWS alone: one subnet, which EFA doesn't leave and eRDMA does; capacity blocks beside placement groups, as a private
pool of Alibaba Cloud has no such rule; and places of interfaces, which a scaling configuration doesn't name.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.checks import failed, passed, undecided, where
from policies.control import Check, Control, Judgement, Severity, Verdict
from policies.resources import Resource, Stack
from policies.values import UNKNOWN, Undecided, spread

TOPIC = "training"

GROUP = "aws:autoscaling/group:Group"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
HOOK = "aws:autoscaling/lifecycleHook:LifecycleHook"
ESS_GROUP = "alicloud:ess/scalingGroup:ScalingGroup"
ESS_HOOK = "alicloud:ess/lifecycleHook:LifecycleHook"
ESS_CONFIG = "alicloud:ess/scalingConfiguration:ScalingConfiguration"

FAST = frozenset({"efa", "efa-only"})
LEAST_DRAIN_S = 60


def _templates(group: Resource, stack: Stack) -> list[Resource]:
    """The templates of a group that are in the stack."""
    made_of = group.links.get("launchTemplate", frozenset()) | group.links.get("mixedInstancesPolicy", frozenset())
    named = {
        value
        for path in (
            "launchTemplate.id",
            "mixedInstancesPolicy.launchTemplate.launchTemplateSpecification.launchTemplateId",
        )
        if isinstance(value := group.at(path), str)
    }
    return [template for template in stack.of(TEMPLATE) if template.urn in made_of or template.names & named]


def _fast(template: Resource) -> bool:
    """A template has EFA interfaces. Raises `Undecided`."""
    kinds = [kind for _, kind in spread(template.props, "networkInterfaces.*.interfaceType")]
    if any(kind is not UNKNOWN and kind in FAST for kind in kinds):
        return True
    if any(kind is UNKNOWN for kind in kinds):
        raise Undecided
    return False


def _one_zone(group: Resource, stack: Stack) -> Iterator[Judgement]:
    """EFA stays within a subnet (EC2 user guide, "EFA limitations"): nodes in several can't reach each other by it."""
    if not any(_fast(template) for template in _templates(group, stack)):
        return
    subnets = group.at("vpcZoneIdentifiers")
    if subnets is UNKNOWN:
        yield undecided("vpcZoneIdentifiers")
    elif len(subnets or ()) > 1:
        yield failed("vpcZoneIdentifiers", f"{len(subnets)} subnets, but must be one: EFA doesn't leave it")
    else:
        yield passed("vpcZoneIdentifiers", "is one")


def _no_placement(group: Resource, stack: Stack) -> Iterator[Judgement]:
    """A capacity block places its nodes itself; with a placement group none is launched (aws-parallelcluster#6311)."""
    placed = group.at("placementGroup")
    for template in _templates(group, stack):
        market = template.at("instanceMarketOptions.marketType")
        if market is UNKNOWN:
            yield undecided(f"{template.name}.instanceMarketOptions.marketType")
        elif market == "capacity-block":
            within = template.at("placement.groupName")
            both = placed is UNKNOWN or placed or within is UNKNOWN or within
            yield failed("placementGroup", "is set beside a capacity block") if both else passed("", "is placed alone")


def _reserved(template: Resource) -> Iterator[Judgement]:
    """A capacity block is named by its reservation, and beside it no spot options stand (EC2 user guide)."""
    market = template.at("instanceMarketOptions.marketType")
    if market is UNKNOWN:
        yield undecided("instanceMarketOptions.marketType")
    elif market == "capacity-block":
        path = "capacityReservationSpecification.capacityReservationTarget"
        target = template.at(path)
        yield passed(path, "names it") if target is UNKNOWN or target else failed(path, "names no reservation")
        if template.at("instanceMarketOptions.spotOptions"):
            yield failed("instanceMarketOptions.spotOptions", "stand beside a capacity block")


def _in_its_pool(config: Resource) -> Iterator[Judgement]:
    """A configuration that launches into private pools names them, and asks for no spot nodes: those are in none.

    (ECS user guide, "Overview of resource assurance"; ESS API, CreateScalingConfiguration, `ResourcePoolOptions`.)
    """
    strategy = config.at("resourcePoolOptionsStrategy")
    if strategy is UNKNOWN:
        yield undecided("resourcePoolOptionsStrategy")
    elif strategy in {"PrivatePoolFirst", "PrivatePoolOnly"}:
        paths = ("resourcePoolOptionsPrivatePoolIds", "resourcePoolOptionsPrivatePoolTags")
        named = any(value is UNKNOWN or value for value in map(config.at, paths))
        yield passed(paths[0], "names it") if named else failed(paths[0], "names no reservation")
        yield from where(
            "spotStrategy", lambda name: name == "NoSpot", "NoSpot beside a reservation", absent=Verdict.PASS
        )(config)


def _numbered(path: str) -> Check:
    return where(
        path,
        lambda version: str(version) not in {"$Latest", "$Default", "Latest", "Default"},
        "a number, by which a change is seen (pulumi-aws#1577)",
        absent=Verdict.NOT_APPLICABLE,
    )


def _spot(group: Resource, stack: Stack) -> bool:
    """Nodes of a group may be taken back. Raises `Undecided`."""
    distribution = group.at("mixedInstancesPolicy.instancesDistribution")
    markets = [template.at("instanceMarketOptions.marketType") for template in _templates(group, stack)]
    if distribution is UNKNOWN or any(market is UNKNOWN for market in markets):
        raise Undecided
    share = (distribution or {}).get("onDemandPercentageAboveBaseCapacity")
    return "spot" in markets or (share is not None and int(share) < 100)


def _drained(group: Resource, stack: Stack) -> Iterator[Judgement]:
    """A spot fleet has a hook at termination that gives a node the time to save."""
    if not _spot(group, stack):
        return
    inline = [hook for _, hook in spread(group.props, "initialLifecycleHooks.*")]
    own = list(stack.pointing(group, (HOOK,), "autoscalingGroupName"))
    if any(not pointer.sure for pointer in own):
        yield undecided("")
    hooks = [*inline, *(pointer.resource.props for pointer in own if pointer.sure)]
    yield from _judged_hooks(hooks, "autoscaling:EC2_INSTANCE_TERMINATING")


def _judged_hooks(hooks: list[object], transition: str) -> Iterator[Judgement]:
    ending = [hook for hook in hooks if isinstance(hook, dict) and hook.get("lifecycleTransition") == transition]
    if not ending:
        yield failed("", "has no hook at termination, so that a node goes without saving")
    for hook in ending:
        beat = hook.get("heartbeatTimeout")
        long = beat is UNKNOWN or beat is None or int(beat) >= LEAST_DRAIN_S
        yield (
            passed("heartbeatTimeout", "gives time to save")
            if long
            else failed("heartbeatTimeout", f"{beat} s, but must be {LEAST_DRAIN_S} or more")
        )


def _drained_on_alicloud(group: Resource, stack: Stack) -> Iterator[Judgement]:
    policy, configs = group.at("multiAzPolicy"), list(stack.pointing(group, (ESS_CONFIG,), "scalingGroupId"))
    strategies = [pointer.resource.at("spotStrategy") for pointer in configs]
    if policy is UNKNOWN or any(strategy is UNKNOWN for strategy in strategies):
        raise Undecided
    mixed = policy in {"COST_OPTIMIZED", "COMPOSABLE"}
    if not mixed and not any(strategy not in (None, "NoSpot") for strategy in strategies):
        return
    hooks: list[object] = [
        pointer.resource.props for pointer in stack.pointing(group, (ESS_HOOK,), "scalingGroupId") if pointer.sure
    ]
    yield from _judged_hooks(hooks, "SCALE_IN")


def _interfaces(template: Resource) -> Iterator[Judgement]:
    """Interfaces as EC2 takes them: one is card 0 and device 0, no place is taken twice, devices are 0 or 1.

    Sources: eksctl#7520; EC2 user guide, "Maximize network bandwidth on instances with multiple network cards".
    """
    entries = template.at("networkInterfaces")
    if entries is UNKNOWN:
        yield undecided("networkInterfaces")
        return
    if not entries or len(entries) == 1:
        return
    places = [(entry.get("networkCardIndex") or 0, entry.get("deviceIndex") or 0) for entry in entries]
    if any(value is UNKNOWN for place in places for value in place):
        yield undecided("networkInterfaces")
        return
    kinds = [kind for _, kind in spread(template.props, "networkInterfaces.*.interfaceType")]
    far = [place for place in places if place[1] > 1]
    if far and any(kind is not UNKNOWN and kind in FAST for kind in kinds):
        yield failed("networkInterfaces", f"card {far[0][0]} has a device {far[0][1]}, but EFA's are 0 or 1")
    if len(set(places)) < len(places):
        yield failed("networkInterfaces", "two have the same card and device")
    elif (0, 0) not in places:
        yield failed("networkInterfaces", "none is device 0 of card 0")
    else:
        yield passed("networkInterfaces", "each has its place")


def _grouped_in_interfaces(template: Resource) -> Iterator[Judgement]:
    """Groups stand in the interfaces where there are any, and not beside them (terraform-provider-aws#4570)."""
    entries = template.at("networkInterfaces")
    if entries is UNKNOWN:
        yield undecided("networkInterfaces")
    elif entries:
        beside = template.at("vpcSecurityGroupIds") or template.at("securityGroupNames")
        yield failed("vpcSecurityGroupIds", "stands beside interfaces") if beside else passed("", "is in interfaces")


def _primary(config: Resource) -> Iterator[Judgement]:
    """Interfaces for eRDMA come beside exactly one primary (ESS API, CreateScalingConfiguration)."""
    entries = config.at("networkInterfaces")
    if entries is UNKNOWN:
        yield undecided("networkInterfaces")
    elif entries:
        if config.at("securityGroupId") or config.at("securityGroupIds"):
            yield failed("securityGroupId", "stands beside interfaces, which ESS refuses")
        kinds = [kind for _, kind in spread(config.props, "networkInterfaces.*.instanceType")]
        primaries = [kind for kind in kinds if kind == "Primary"]
        yield (
            passed("networkInterfaces", "one is primary")
            if len(primaries) == 1
            else failed("networkInterfaces", f"{len(primaries)} are primary, but must be one")
        )


CONTROLS: tuple[Control, ...] = (
    Control(
        "TRN-ZONE-01",
        "Fleets with EFA stay in one subnet",
        TOPIC,
        Severity.HIGH,
        "Name one subnet, in the zone that has the capacity",
        {},
        in_stack={GROUP: _one_zone},
    ),
    Control(
        "TRN-BLOCK-01",
        "Capacity blocks have no placement group",
        TOPIC,
        Severity.HIGH,
        "Take the placement group away: a block places its nodes itself",
        {},
        in_stack={GROUP: _no_placement},
    ),
    Control(
        "TRN-BLOCK-02",
        "Reserved capacity is named by its reservation",
        TOPIC,
        Severity.HIGH,
        "Name the reservation in the template's capacity reservation target, on Alibaba Cloud the private pool in the "
        "scaling configuration, and take spot options away",
        {},
        checks={TEMPLATE: _reserved, ESS_CONFIG: _in_its_pool},
    ),
    Control(
        "TRN-VERSION-01",
        "Groups name a template's version by its number",
        TOPIC,
        Severity.MEDIUM,
        "Use the template's `latest_version`: with $Latest no change is seen, and no refresh starts",
        {},
        checks={
            GROUP: lambda resource: [
                *_numbered("launchTemplate.version")(resource),
                *_numbered("mixedInstancesPolicy.launchTemplate.launchTemplateSpecification.version")(resource),
            ],
            ESS_GROUP: _numbered("launchTemplateVersion"),
        },
    ),
    Control(
        "TRN-DRAIN-01",
        "Spot nodes are given time to save",
        TOPIC,
        Severity.HIGH,
        f"Declare a lifecycle hook at termination of {LEAST_DRAIN_S} seconds or more",
        {},
        in_stack={GROUP: _drained, ESS_GROUP: _drained_on_alicloud},
    ),
    Control(
        "TRN-NIC-01",
        "Interfaces have places that EC2 takes",
        TOPIC,
        Severity.HIGH,
        "Put one interface at device 0 of card 0, and others at devices 0 or 1 of cards of their own",
        {},
        checks={TEMPLATE: _interfaces},
    ),
    Control(
        "TRN-NIC-02",
        "Groups stand in interfaces, not beside them",
        TOPIC,
        Severity.HIGH,
        "Name security groups in each interface; on Alibaba Cloud, with exactly one primary",
        {},
        checks={TEMPLATE: _grouped_in_interfaces, ESS_CONFIG: _primary},
    ),
)
