"""What is refused or warned of nodes on Alibaba Cloud alone: where it, or what declares it, differs from AWS.

It differs in what a group is declared from (`plan.Pool.source`), in where TDX is, in which groups can be refreshed, and
in how much of its catalog has a primary source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from components.findings import Finding, Severity
from components.plan import Plan
from components.spec import Spec

INTERFACES, SOLD, OFFERED, GUARDED = "fabric_interfaces", "usage_classes", "regions", "confidential"

RELIED_ON = {
    INTERFACES: "how many eRDMA interfaces it takes",
    GUARDED: "that it has TDX",
    SOLD: "that it is sold as spot",
    OFFERED: "in which regions it is",
}
"""Facts that a plan relies on, in words."""

COMPARE = {
    INTERFACES: "EriQuantity of `aliyun ecs DescribeInstanceTypes`",
    GUARDED: "the ECS user guide",
    SOLD: "`aliyun ecs DescribeAvailableResource`",
    OFFERED: "`aliyun ecs DescribeAvailableResource`",
}
"""Where each is stated."""

TDX_ZONES = {"g8i": ("cn-beijing-i",), "gn8v-tee": ("cn-beijing-f", "cn-beijing-l")}
"""Zones in which a family's types had TDX (ECS user guide, "Build a TDX confidential computing environment", of 2024-12
and later; of gn8v-tee the 4xlarge and 6xlarge)."""


CONFIGURATION_GB = 500
"""Largest root disk of a group that is declared from a scaling configuration, GiB (terraform-provider-alicloud v1.289,
`system_disk_size`)."""

NO_RETENTION = frozenset({"cn-nanjing", "cn-wuhan-lr", "us-east-1", "na-south-1", "me-central-1"})
"""Regions of Alibaba Cloud that OSS's user guide, "Retention policies", doesn't name among those that have them."""


def alibaba_checks(plan: Plan) -> Iterator[Finding]:
    """Everything about nodes on Alibaba Cloud; nothing where they are elsewhere."""
    if plan.spec.cloud == "alicloud":
        for check in CHECKS:
            yield from check(plan)


def inland(plan: Plan) -> Iterator[Finding]:
    """Who reaches a bucket from outside is told where OSS lets new accounts in from the region's own network alone.

    Since 2025-03-20, its public addresses in mainland China answer PublicEndpointForbidden to new users' reads and
    writes of objects (OSS user guide, "Access OSS through a custom domain name"; error 0048-00000401).
    """
    region = plan.spec.region
    if region.startswith("cn-") and region != "cn-hongkong":
        yield Finding(
            "region",
            "an account that is new since March 2025 reads and writes no object of OSS from outside its network there",
            f"With such an account, run everything on an ECS instance in {region}, with TRAINWRIGHT_OSS_INTERNAL=1",
            Severity.WARNING,
        )


def wanting(plan: Plan) -> tuple[str, str]:
    """Why the group is declared from a scaling configuration: the key of the stack's file, and what it asks for."""
    if plan.fast:
        return "nodes.fabric", "eRDMA"
    if plan.capacity.reservation:
        return "nodes.reservation", "a private pool"
    return "nodes.confidential", "TDX"


def completed(plan: Plan) -> Iterator[Finding]:
    """What of a group can't be declared is added to it, which only the embedded cloud has been seen to take."""
    if plan.pool.source == "configuration":
        asked = {"eRDMA": plan.fast, "TDX": plan.spec.nodes.confidential == "tdx", "metadata tokens": True}
        added = " and ".join(what for what, there in asked.items() if there)
        yield Finding(
            wanting(plan)[0],
            f"OOS adds {added} to the group before its first node: that was tried on no real account",
            "Have OOS activated; where it fails, so does the update, and no node starts",
            Severity.WARNING,
        )


def rooted(plan: Plan) -> Iterator[Finding]:
    """The root disk is one that the provider takes."""
    least, most = plan.cloud.disk_gb[0], CONFIGURATION_GB
    if plan.pool.source == "configuration" and plan.pool.disk_gb > most:
        yield Finding(
            "nodes.disk_gb",
            f"a group with {wanting(plan)[1]} has no root disk of {plan.pool.disk_gb:,} GiB",
            f"Choose {least} to {most}",
        )


def guarded(plan: Plan) -> Iterator[Finding]:
    """TDX is where documents say that it is. A node that finds itself outside of it fails its boot."""
    if plan.spec.nodes.confidential != "tdx":
        return
    zone = plan.subnets[0].zone
    for path, kind in plan.types:
        known = next((zones for family, zones in TDX_ZONES.items() if kind.name.startswith(f"ecs.{family}")), ())
        if known and zone not in known:
            yield Finding(
                "network.zones" if path == "nodes.type" else path,
                f"no document says that {kind.name} has TDX in {zone}, but in {' and '.join(known)}",
                "Ask before you rely on it, or name one of those",
                Severity.WARNING,
            )


def in_order(plan: Plan) -> Iterator[Finding]:
    """The order of types is kept where it says something."""
    mix = plan.capacity.distribution
    if mix and len(mix.types) > 1 and mix.strategy == "priority" and plan.pool.source == "template":
        yield Finding(
            "nodes.alternatives",
            "stand in no order: the provider keeps the types of a template's group as a set",
            "Set nodes.spot_strategy to lowest-price, or nodes.capacity to mixed or spot of one type",
            Severity.WARNING,
        )


def counted(plan: Plan) -> Iterator[Finding]:
    """Boots that fail are counted by messages that nodes send before they power off (facts: B9)."""
    if plan.spec.network.egress == "bucket":
        yield Finding(
            "nodes.failed_boots",
            "nodes that reach the bucket alone can't say that they failed, so that nothing sets the group to zero",
            "Set network.egress to endpoints or nat",
            Severity.WARNING,
        )


def taken_back(plan: Plan) -> Iterator[Finding]:
    """A spot node isn't replaced before it goes, and that is said.

    ESS does otherwise for groups that go by cost alone, which it neither keeps in order nor refreshes
    (`ess.ScalingGroup`, `spot_instance_remedy`).
    """
    if plan.capacity.interruptible:
        yield Finding(
            "nodes.capacity",
            "a spot node that is taken back is replaced once it has gone, not before",
            "Raise nodes.on_demand_base of a mixed fleet where the run must not shrink",
            Severity.WARNING,
        )


def refreshed(plan: Plan) -> Iterator[Finding]:
    """Nodes are replaced by what the stack's file says now where they are to be, or it is said that they aren't."""
    if plan.pool.refresh and not plan.pool.refreshable:
        yield Finding(
            "nodes.refresh",
            "running nodes go on as they booted: ESS refreshes no group that mixes types or spot with on demand",
            "Set it to false, and end nodes that are to change yourself",
            Severity.WARNING,
        )


def one_layout(plan: Plan) -> Iterator[Finding]:
    """There is one layout of eRDMA interfaces."""
    if plan.spec.nodes.nic_layout != "guide":
        yield Finding(
            "nodes.nic_layout",
            f"{plan.spec.nodes.nic_layout} is a layout of EFA interfaces, and eRDMA ones have a single one",
            "Take it away",
        )


def without_gpus(plan: Plan) -> Iterator[Finding]:
    """A g8i has no GPU, though articles say that it carries some (ECS user guide, "Overview of instance families")."""
    for path, kind in plan.types:
        if kind.name.startswith("ecs.g8i."):
            yield Finding(
                path,
                f"{kind.name} has no GPU: it trains on its CPUs, whatever articles say of g8i",
                "Choose ecs.gn8v or ecs.ebmgn8v for GPUs of its generation, ecs.gn8v-tee for such with TDX",
                Severity.WARNING,
            )
            return


def sourced(plan: Plan) -> Iterator[Finding]:
    """What the plan takes from the catalog without a primary source is named, once, with where to look it up."""
    nodes = plan.spec.nodes
    asked = {
        INTERFACES: nodes.fabric == "auto",
        GUARDED: nodes.confidential != "none",
        SOLD: plan.capacity.interruptible,
        OFFERED: True,
    }
    facts = [fact for fact in RELIED_ON if asked[fact] and any(fact in kind.unverified for _, kind in plan.types)]
    if not facts:
        return
    counts = {
        kind.name: f"{kind.name} (taken to have {kind.fabric_interfaces})"
        if INTERFACES in facts and INTERFACES in kind.unverified
        else kind.name
        for _, kind in plan.types
        if set(facts) & set(kind.unverified)
    }
    yield Finding(
        "nodes.type",
        f"of {', '.join(counts.values())} no primary source states {' or '.join(RELIED_ON[fact] for fact in facts)}",
        f"Compare {' and '.join(dict.fromkeys(COMPARE[fact] for fact in facts))}, and state it in catalog.overrides",
        Severity.WARNING,
    )


def audited_otherwise(spec: Spec) -> Iterator[Finding]:
    """What of an audit Alibaba Cloud has otherwise, or its provider not at all."""
    audit = spec.audit
    yield Finding(
        "audit.enabled",
        "there is no dashboard, and no alarm on nodes' status checks: the provider declares neither",
        "Have EventBridge activated in the account, which tells of the other alarms",
        Severity.WARNING,
    )
    if audit.lock == "governance":
        yield Finding(
            "audit.lock",
            "OSS has no such lock: a policy of the bucket denies deletion, and whoever may change that can lift it",
            "Choose compliance, which nobody can lift, if a rule asks for it",
            Severity.WARNING,
        )
    elif spec.region in NO_RETENTION:
        yield Finding(
            "audit.lock", f"OSS has no retention policies in {spec.region}", "Choose governance, or another region"
        )
    if audit.budget_usd:
        yield Finding(
            "audit.budget_usd",
            "nobody will be told of costs: no budget of Alibaba Cloud can be declared",
            "Set one in its Expenses console, and take this away",
            Severity.WARNING,
        )


CHECKS: tuple[Callable[[Plan], Iterator[Finding]], ...] = (
    inland,
    completed,
    rooted,
    guarded,
    in_order,
    taken_back,
    refreshed,
    counted,
    one_layout,
    without_gpus,
    sourced,
)
