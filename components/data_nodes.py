"""What is refused or warned of data nodes, which hold the run's dataset and serve it to the nodes that train."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from components.findings import Finding, Severity
from components.plan import Plan, Pool

TYPE = "data_nodes.type"


def data_checks(plan: Plan) -> Iterator[Finding]:
    """Everything about the plan's data nodes; nothing where it has none."""
    if plan.data:
        for check in DATA_CHECKS:
            yield from check(plan, plan.data)


def holding(plan: Plan, data: Pool) -> Iterator[Finding]:
    """The type is one for storage: accelerators would be paid for and do nothing, and a root disk is slow and small."""
    kind, better = data.instance, f"Choose a type for storage, such as {plan.cloud.examples['type for storage']}"
    if kind.accelerators:
        reason = f"{kind.name} has {kind.accelerators} {kind.accelerator}, which data nodes leave idle"
        yield Finding(TYPE, reason, better)
    elif not kind.nvme_disks:
        yield Finding(
            TYPE,
            f"{kind.name} has no NVMe disk: the dataset will lie on the root disk, {data.disk_gb:,} GiB, at its speed",
            f"{better}, or raise data_nodes.disk_gb",
            Severity.WARNING,
        )


def bought(_: Plan, data: Pool) -> Iterator[Finding]:
    """Data nodes are bought on demand alone: one that is taken back takes its copy of the dataset with it."""
    if "on-demand" not in data.instance.usage_classes:
        yield Finding(
            TYPE,
            f"{data.instance.name} isn't sold as on-demand, which data nodes are bought as",
            f"It is sold as {', '.join(data.instance.usage_classes)}; choose another",
        )


def bootable(plan: Plan, data: Pool) -> Iterator[Finding]:
    """The image that both kinds of node share is for one architecture."""
    ours, theirs = data.instance.architecture, plan.instance.architecture
    if data.image == plan.pool.image and ours != theirs:
        yield Finding(
            "data_nodes.image",
            f"{data.instance.name} is {ours}, but {plan.instance.name}, which boots the same image, is {theirs}",
            f"Name an image for {ours}",
        )


def encrypted_on_the_way(plan: Plan, data: Pool) -> Iterator[Finding]:
    """Shards travel without TLS; EC2 encrypts them where the types at both ends do, and else they are in the clear.

    EC2 user guide, "Data protection in Amazon EC2", encryption in transit; EC2 API, `EncryptionInTransitSupported`.
    """
    for path, kind in ((TYPE, data.instance), *plan.types):
        if not kind.encrypts_in_transit:
            does = "isn't known to encrypt" if "encrypts_in_transit" in kind.unverified else "doesn't encrypt"
            yield Finding(
                path,
                f"{kind.name} {does} what travels between instances, and shards travel from data nodes without TLS",
                "Choose another type" + ("" if plan.spec.production else " where the data is confidential"),
                Severity.ERROR if plan.spec.production else Severity.WARNING,
            )


def asked(plan: Plan, _: Pool) -> Iterator[Finding]:
    """Nodes with a warm tier read the dataset there, as long as it is right."""
    if plan.spec.storage.warm:
        yield Finding(
            "data_nodes",
            "nodes read the dataset from storage.warm, and ask data nodes only where that fails",
            "Take one of the two away",
            Severity.WARNING,
        )


DATA_CHECKS: tuple[Callable[[Plan, Pool], Iterator[Finding]], ...] = (
    holding,
    bought,
    bootable,
    encrypted_on_the_way,
    asked,
)
