"""What is refused or warned of nodes: where they lie, how they are bought, what guards them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from components.capacity import CLASSES, CREATE
from components.catalog import CONFIDENTIAL, instance_types
from components.findings import Finding, Severity
from components.plan import Plan, interfaces
from components.spec import CommandJob, Job

UEFI = {"nitro-tpm", "sev-snp", "tdx"}
"""What needs a type and an image that boot by UEFI (EC2 user guide, "NitroTPM", "AMD SEV-SNP"; ECS user guide, "Build a
TDX confidential computing environment")."""

INTERFACES = "network interfaces"

SHOWN = 6
"""Types that a message names."""


def one_zone(plan: Plan) -> Iterator[Finding]:
    """EFA, a placement group and a reservation lie in one zone (skypilot#10056; Auto Scaling API, `PlacementGroup`).

    Gangs that span zones over TCP only pay for each gradient byte and wait for it.
    """
    if len(plan.subnets) == 1:
        return
    reasons = {plan.cloud.fabric_title: plan.fast, "a reservation": plan.capacity.in_one_zone}
    if needs := " and ".join(name for name, needed in reasons.items() if needed):
        reason = f"nodes would be spread over {len(plan.subnets)} zones, which {needs} can't span"
        yield Finding("network.zones", reason, "Name one zone")
    else:
        yield Finding(
            "network.zones",
            f"nodes will be spread over {len(plan.subnets)} zones, and gradients will cross them",
            "Name one zone unless capacity matters more than speed",
            Severity.WARNING,
        )


def sold(plan: Plan) -> Iterator[Finding]:
    """Each type can be bought in the way that the fleet is."""
    if plan.spec.nodes.capacity == "capacity-block" and plan.spec.cloud != "aws":
        return  # said of all its types at once
    wanted = CLASSES[plan.spec.nodes.capacity]
    for path, kind in plan.types:
        if lacking := [name for name in wanted if name not in kind.usage_classes]:
            yield Finding(
                "nodes.capacity" if path == "nodes.type" else path,
                f"{kind.name} isn't sold as {' or '.join(lacking)}",
                f"It is sold as {', '.join(kind.usage_classes)}",
            )


def alike(plan: Plan) -> Iterator[Finding]:
    """One template, image and user-data serve all types of a fleet: they differ in nothing that those state.

    Types of other network layouts fail to launch, which looks like a lack of capacity (aws-parallelcluster,
    `InstancesNetworkingValidator`).
    """
    first = plan.instance
    for path, kind in plan.types[1:]:
        nics = interfaces(plan.spec, kind, path)
        if isinstance(nics, Finding):
            yield nics
            continue
        same = {
            INTERFACES: nics == plan.nics,
            "GPUs": kind.gpus == first.gpus,
            "architecture": kind.architecture == first.architecture,
        }
        if others := [word for word, it_is in same.items() if not it_is]:
            reason = f"{kind.name} differs from {first.name} in {', '.join(others)}, which all nodes have in common"
            tcp = ", or set nodes.fabric to tcp" if others == [INTERFACES] else ""
            yield Finding(path, reason, f"Name types that are alike in these{tcp}")


def packed(plan: Plan) -> Iterator[Finding]:
    """A placement group of several types is hard to find room for (aws-parallelcluster, its networking validator)."""
    if plan.placed and plan.alternatives:
        yield Finding(
            "nodes.alternatives",
            "nodes of several types share a cluster placement group, which makes launches likelier to fail",
            "Name one type unless capacity is scarce",
            Severity.WARNING,
        )


def reserved(plan: Plan) -> Iterator[Finding]:
    """A reservation holds the fleet at its largest, and costs as much whether nodes run or not."""
    if plan.capacity.reservation == CREATE and plan.fleet.max > plan.fleet.desired:
        yield Finding(
            "nodes.reservation",
            f"{plan.fleet.max} nodes are reserved and paid for, of which {plan.fleet.desired} will run",
            "Lower nodes.max to nodes.desired unless the fleet is to grow",
            Severity.WARNING,
        )


def confided(plan: Plan) -> Iterator[Finding]:
    """Each type has what is to guard it, and boots as that needs (EC2 user guide, "NitroTPM", "AMD SEV-SNP")."""
    wanted = plan.spec.nodes.confidential
    if wanted == "none":
        return
    having = [kind for kind in instance_types(plan.spec.cloud).values() if wanted in kind.confidential]
    for path, kind in plan.types:
        if wanted not in kind.confidential:
            nearest = sorted(having, key=lambda other: other.accelerator_kind != kind.accelerator_kind)
            shown = [other.name for other in nearest[:SHOWN]] + ["…"] * (len(nearest) > SHOWN)
            yield Finding(
                "nodes.confidential" if path == "nodes.type" else path,
                f"{kind.name} has no {wanted}",
                f"Types that have it: {', '.join(shown)}"
                if shown
                else f"No type of {plan.cloud.title} has it: choose {', '.join(sorted(CONFIDENTIAL[plan.spec.cloud]))}",
            )
        elif wanted in UEFI and "uefi" not in kind.boot_modes:
            yield Finding(path, f"{kind.name} doesn't boot by UEFI, which {wanted} needs", "Choose another type")


def checkpoint_room(job: Job | CommandJob) -> int:
    """Bytes that a job's checkpoints take on a node, 0 where that can't be told: as `trainer/node/preflight.py` asks.

    Three of them, of 12 bytes a parameter, with the largest vocabulary that there is; sharded or not, rank 0 writes it
    whole, and any node may come to have rank 0.
    """
    if not isinstance(job, Job):
        return 0
    layers, width = job.model.layers, job.model.width
    return 3 * 12 * (12 * layers * width * width + 65_536 * width)


def roomy(plan: Plan) -> Iterator[Finding]:
    """The disks of each type, were they empty, hold the checkpoints: nodes would exit at boot, one after another."""
    wanted = checkpoint_room(plan.spec.job)
    for path, kind in plan.types:
        held = kind.nvme_gb * 10**9 or plan.spec.nodes.disk_gb << 30
        if held < wanted:
            disks = f"{kind.name}'s instance storage" if kind.nvme_gb else "the root disk"
            yield Finding(
                path if kind.nvme_gb else "nodes.disk_gb",
                f"{disks} has {held >> 30} GiB, too little for the model's checkpoints: they take {wanted >> 30} GiB",
                "Choose a type with larger disks, or a smaller job.model" if kind.nvme_gb else "Raise it",
            )


def on_one_host(plan: Plan) -> Iterator[Finding]:
    """What can't work where all nodes are one host, as on an embedded cloud, and there alone.

    Open MPI tells nodes apart by their host names (see `docs/environment.md`).
    """
    job = plan.spec.job
    if isinstance(job, CommandJob) and job.launcher == "mpirun" and plan.fleet.desired > 1:
        yield Finding(
            "job.launcher",
            f"mpirun needs nodes with host names of their own, and the {plan.fleet.desired} of an embedded cloud are "
            "one host",
            "Set nodes.desired to 1 here",
        )


NODE_CHECKS: tuple[Callable[[Plan], Iterator[Finding]], ...] = (
    one_zone,
    sold,
    alike,
    packed,
    reserved,
    confided,
    roomy,
)
