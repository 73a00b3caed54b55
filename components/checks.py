"""What is refused or warned of before anything is declared, all of it through `judge` or `review`.

Each check is a function from a spec or a plan to findings; what there are several of on one topic has a module beside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from components.alibaba_checks import alibaba_checks
from components.capacity import contradictions
from components.clouds import CLOUDS
from components.code import commanded
from components.data_nodes import data_checks
from components.egress import ways_of_alibaba
from components.environment import harmless, variables
from components.findings import Finding, Invalid, errors
from components.network_checks import brought, room, room_for_ways_out, way_out, zones
from components.node_checks import NODE_CHECKS
from components.plan import Plan, decide
from components.scaling import scaling_checks
from components.security_checks import audited, keys, trusted
from components.spec import NAME, Job, Spec, parse
from components.tiers import TIER_CHECKS

LONGEST_NAME = 32
"""So that the longest name made of it (`<name>-<role>-<7 hex>`) fits IAM's 64 and S3's 63 characters."""

RESERVED_TAGS = {"aws": "aws:", "alicloud": "aliyun|acs:|https?://"}
"""What no key of a tag may begin with (Tagging AWS resources user guide, "Tag naming limits"; ess.ScalingGroup)."""


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
        if "cloud" in told:
            raise  # what else is wrong depends on which it is
        if any(_nested(path, "job.command") for path in told):
            told.add("job")  # without its command, it would be taken for another kind of job
        try:
            review(name, parse(_without(values, told)))
        except Invalid as rest:
            more = [finding for finding in rest.findings if not any(_nested(finding.path, path) for path in told)]
            raise Invalid([*invalid.findings, *more]) from None
        raise
    return review(name, spec)


def _nested(one: str, other: str) -> bool:
    """Whether two paths are the same, or one leads through the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _without(values: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The values without what stands at these paths; of a list with something wrong in it, nothing is left."""
    rest = deepcopy(dict(values))
    for path in paths:
        holder, key, place = rest, "", rest
        for part in path.split("."):
            if not isinstance(place, dict):
                break
            holder, key, place = place, part, place.get(part)  # type: ignore[assignment]
        holder.pop(key, None)
    return rest


def review(name: str, spec: Spec) -> tuple[Plan, list[Finding]]:
    """The plan of a cluster and the warnings about it. Raises `Invalid` with every error there is."""
    findings = [*named(name), *(finding for check in SPEC_CHECKS for finding in check(spec))]
    try:
        plan = decide(name, spec)
    except Invalid as invalid:
        told = {finding.path for finding in errors(findings)}
        more = [finding for finding in invalid.findings if finding.path not in told]
        raise Invalid([*errors(findings), *more]) from None
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
    """Tags are such as the cloud takes, with room for our own (see `clouds.Cloud`)."""
    cloud, reserved = CLOUDS[spec.cloud], RESERVED_TAGS[spec.cloud]
    longest_key, longest_value = cloud.longest_tag
    if len(spec.tags) > cloud.most_tags:
        yield Finding("tags", f"{len(spec.tags)} tags are too many", f"Keep to {cloud.most_tags}")
    for key, value in spec.tags.items():
        path = f"tags.{key}"
        if re.match(reserved, key, re.IGNORECASE) or key.startswith("trainwright:") or key == "Name":
            yield Finding(path, f"is a key that {cloud.title} or Trainwright sets itself", "Choose another")
        elif not re.fullmatch(rf"[\w .:/=+@-]{{1,{longest_key}}}", key) or not re.fullmatch(
            rf"[\w .:/=+@-]{{0,{longest_value}}}", value
        ):
            yield Finding(
                path,
                "has characters that no tag may have, or too many",
                f"Use letters, digits and _.:/=+-@, {longest_key} in the key and {longest_value} in the value",
            )
        elif spec.cloud == "alicloud" and re.match(reserved, value, re.IGNORECASE):
            yield Finding(path, f"'{value}' begins with what no tag of {cloud.title} may begin with", "Choose another")


def disks(spec: Spec) -> Iterator[Finding]:
    """Root disks are of a size that the cloud has."""
    cloud = CLOUDS[spec.cloud]
    least, most = cloud.disk_gb
    given = [("nodes.disk_gb", spec.nodes.disk_gb)]
    if spec.data_nodes:
        given.append(("data_nodes.disk_gb", spec.data_nodes.disk_gb))
    for path, size in given:
        if not least <= size <= most:
            yield Finding(
                path,
                f"{cloud.title} has no root disk of {size:,} GiB",
                f"Choose {least} to {most:,}",
            )


def of_the_cloud(spec: Spec) -> Iterator[Finding]:
    """Names and ids are written as the spec's cloud writes them, and not as another does."""
    cloud, nodes, network, people = CLOUDS[spec.cloud], spec.nodes, spec.network, spec.security
    given = [
        ("nodes.type", "type", nodes.type),
        *((f"nodes.alternatives.{index}", "type", name) for index, name in enumerate(nodes.alternatives)),
        ("nodes.image", "image", nodes.image),
        ("nodes.reservation", "reservation", nodes.reservation),
        ("network.vpc", "vpc", network.vpc),
        *((f"network.subnets.{index}", "subnet", name) for index, name in enumerate(network.subnets)),
        *((f"network.route_tables.{index}", "route table", name) for index, name in enumerate(network.route_tables)),
        *(
            (f"security.{role}.{index}", "principal", name)
            for role in ("trainers", "operators", "auditors")
            for index, name in enumerate(getattr(people, role))
        ),
    ]
    if spec.data_nodes:
        given += [
            ("data_nodes.type", "type", spec.data_nodes.type),
            ("data_nodes.image", "image", spec.data_nodes.image),
        ]
    for path, what, value in given:
        if value is not None and not re.fullmatch(cloud.forms[what], value) and _of_another(spec.cloud, what, value):
            yield Finding(
                path,
                f"'{value}' is how another cloud writes its {what}s, and cloud is {spec.cloud}",
                f"{cloud.title} writes {cloud.examples[what]}",
            )


def _of_another(name: str, what: str, value: str) -> bool:
    return any(re.fullmatch(other.forms[what], value) for key, other in CLOUDS.items() if key != name)


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
    job = plan.spec.job
    if isinstance(job, Job) and job.batch < world:
        yield Finding(
            "job.batch",
            f"{job.batch} samples can't be shared out to {world} workers "
            f"(nodes.max {plan.fleet.max}, {plan.workers} each)",
            f"Raise it to {world} or more",
        )


def warmed_up(plan: Plan) -> Iterator[Finding]:
    """The learning rate reaches its peak before the run ends."""
    job = plan.spec.job
    if isinstance(job, Job) and job.warmup_steps >= job.steps:
        yield Finding(
            "job.warmup_steps",
            f"{job.warmup_steps} leave nothing of the {job.steps} steps",
            "Lower it, or raise job.steps",
        )


SPEC_CHECKS: tuple[Callable[[Spec], Iterator[Finding]], ...] = (
    of_the_cloud,
    tagged,
    disks,
    commanded,
    variables,
    zones,
    sizes,
    brought,
    ways_of_alibaba,
    keys,
    trusted,
    audited,
    way_out,
    contradictions,
)
PLAN_CHECKS: tuple[Callable[[Plan], Iterator[Finding]], ...] = (
    room,
    trainable,
    shared_out,
    warmed_up,
    room_for_ways_out,
    data_checks,
    harmless,
    scaling_checks,
    alibaba_checks,
    *NODE_CHECKS,
    *TIER_CHECKS,
)
