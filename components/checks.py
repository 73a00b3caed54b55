"""What is refused or warned of before anything is declared. Each check is a function from a plan to findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from components.catalog import instance_types
from components.findings import Finding, Invalid, Severity, errors, nearest
from components.plan import Plan, decide
from components.spec import NAME, Spec, parse

LONGEST_NAME = 32
"""So that the longest name made of it (`<name>-<role>-<7 hex>`) fits IAM's 64 and S3's 63 characters."""


MOST_TAGS = 40
"""AWS takes 50 on a resource; ours, and those that services add, need room."""


def judge(name: str, values: Mapping[str, Any]) -> tuple[Plan, list[Finding]]:
    """The plan of a stack's values and the warnings about it. Raises `Invalid` with every error there is.

    Values that can't be parsed don't hide what else is wrong: the rest is judged without them.
    """
    try:
        spec = parse(values)
    except Invalid as invalid:
        if not isinstance(values, Mapping):
            raise
        told = {finding.path for finding in invalid.findings}
        try:
            review(name, parse(_without(values, told)))
        except Invalid as rest:
            more = [finding for finding in rest.findings if not any(finding.path.startswith(path) for path in told)]
            raise Invalid([*invalid.findings, *more]) from None
        raise
    return review(name, spec)


def _without(values: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The values without what stands at these paths."""
    rest = deepcopy(dict(values))
    for path in paths:
        *parents, last = path.split(".")
        place: Any = rest
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place.pop(last, None)
    return rest


def review(name: str, spec: Spec) -> tuple[Plan, list[Finding]]:
    """The plan of a cluster and the warnings about it. Raises `Invalid` with every error there is."""
    findings = [*named(name), *tagged(spec), *zones(spec), *sizes(spec)]
    try:
        plan = decide(name, spec)
    except Invalid as invalid:
        raise Invalid([*findings, *invalid.findings]) from None
    for check in PLAN_CHECKS:
        findings.extend(check(plan))
    if refused := errors(findings):
        raise Invalid(refused)
    return plan, findings


def named(name: str) -> Iterator[Finding]:
    """The cluster's name becomes part of every name in the account."""
    if len(name) > LONGEST_NAME or not re.fullmatch(NAME, name):
        yield Finding(
            "name",
            f"'{name}' can't name a cluster",
            f"Use lower-case letters, digits and single hyphens, a letter first, {LONGEST_NAME} characters at most",
        )


def tagged(spec: Spec) -> Iterator[Finding]:
    """Tags are such as AWS takes (Tagging AWS resources user guide, "Tag naming limits"), with room for our own."""
    if len(spec.tags) > MOST_TAGS:
        yield Finding("tags", f"{len(spec.tags)} tags are too many", f"Keep to {MOST_TAGS}")
    for key, value in spec.tags.items():
        path = f"tags.{key}"
        if key.lower().startswith("aws:") or key.startswith("trainwright:") or key == "Name":
            yield Finding(path, "is a key that AWS or Trainwright sets itself", "Choose another")
        elif not re.fullmatch(r"[\w .:/=+@-]{1,128}", key) or not re.fullmatch(r"[\w .:/=+@-]{0,256}", value):
            yield Finding(path, "has characters that no tag may have, or too many", "Use letters, digits and _.:/=+-@")


def zones(spec: Spec) -> Iterator[Finding]:
    """The region is one that the cloud has, and zones lie in it, each once."""
    known = {region for kind in instance_types(spec.cloud).values() for region in kind.regions}
    if spec.region not in known:
        yield Finding("region", f"{spec.cloud} has no region '{spec.region}'", nearest(spec.region, known))
        return
    for index, zone in enumerate(spec.network.zones):
        path = f"network.zones.{index}"
        if not re.fullmatch(rf"{re.escape(spec.region)}[a-z]", zone):
            yield Finding(path, f"{zone} is not a zone of {spec.region}", f"A zone is written {spec.region}a")
        elif zone in spec.network.zones[:index]:
            yield Finding(path, f"{zone} is listed twice", "List each zone once")


def sizes(spec: Spec) -> Iterator[Finding]:
    """Sizes of the fleet agree: min <= desired <= max."""
    nodes = spec.nodes
    if nodes.min > nodes.desired:
        yield Finding(
            "nodes.min",
            f"{nodes.min} nodes are needed to train, but {nodes.desired} are desired",
            f"Lower it to {nodes.desired} or raise nodes.desired",
        )
    if nodes.max is not None and nodes.max < nodes.desired:
        reason = f"{nodes.max} is fewer than the {nodes.desired} desired"
        yield Finding("nodes.max", reason, f"Raise it to {nodes.desired} or more")


def room(plan: Plan) -> Iterator[Finding]:
    """Each zone's subnet holds the whole fleet, since a zone may be the only one that has capacity."""
    for subnet in plan.subnets:
        if subnet.addresses < plan.fleet.max:
            yield Finding(
                "network.cidr",
                f"{plan.spec.network.cidr} leaves {subnet.addresses} addresses in {subnet.zone}, "
                f"too few for {plan.fleet.max} nodes",
                "Take a larger network, such as 10.0.0.0/16, or lower nodes.max",
            )


def trainable(plan: Plan) -> Iterator[Finding]:
    """The bundled trainer runs on NVIDIA GPUs and on CPUs."""
    if plan.instance.accelerators and not plan.instance.gpus:
        yield Finding(
            "nodes.type",
            f"{plan.instance.name} has {plan.instance.accelerator}, which the trainer can't use",
            "Choose a type with NVIDIA GPUs, or one without accelerators to train on its CPUs",
        )


def shared_out(plan: Plan) -> Iterator[Finding]:
    """Each worker of the largest world gets at least one sample of a step."""
    world = plan.fleet.max * plan.workers
    if plan.spec.job.batch < world:
        yield Finding(
            "job.batch",
            f"{plan.spec.job.batch} samples can't be shared out to {world} workers "
            f"(nodes.max {plan.fleet.max}, {plan.workers} each)",
            f"Raise it to {world} or more",
        )


def warmed_up(plan: Plan) -> Iterator[Finding]:
    """The learning rate reaches its peak before the run ends."""
    job = plan.spec.job
    if job.warmup_steps >= job.steps:
        yield Finding(
            "job.warmup_steps",
            f"{job.warmup_steps} leave nothing of the {job.steps} steps",
            "Lower it, or raise job.steps",
        )


def one_zone(plan: Plan) -> Iterator[Finding]:
    """Gangs that span zones pay for each gradient byte and wait for it (facts: skypilot#10056)."""
    if len(plan.subnets) > 1:
        yield Finding(
            "network.zones",
            f"nodes will be spread over {len(plan.subnets)} zones, and gradients will cross them",
            "Name one zone unless capacity matters more than speed",
            Severity.WARNING,
        )


PLAN_CHECKS: tuple[Callable[[Plan], Iterator[Finding]], ...] = (room, trainable, shared_out, warmed_up, one_zone)
