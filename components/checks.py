"""What is refused or warned of before anything is declared. Each check is a function from a plan to findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from components.alibaba_checks import alibaba_checks, audited_otherwise
from components.capacity import contradictions
from components.catalog import instance_types
from components.clouds import CLOUDS
from components.code import commanded
from components.data_nodes import data_checks
from components.egress import endpoints, needs, public_subnets, ways_of_alibaba
from components.environment import harmless, variables
from components.findings import Finding, Invalid, Severity, errors, nearest
from components.node_checks import NODE_CHECKS
from components.oss import SERVICE_NETWORK
from components.plan import Plan, decide
from components.scaling import scaling_checks
from components.spec import NAME, Job, Spec, parse
from components.tiers import TIER_CHECKS

LONGEST_NAME = 32
"""So that the longest name made of it (`<name>-<role>-<7 hex>`) fits IAM's 64 and S3's 63 characters."""


LONGEST_TRUST = 1900
"""Characters of ARNs in a role's trust policy: of IAM's 2,048, what the rest of the policy leaves. RAM states no limit
of its own ("Limitations"); the same holds there."""

RESERVED_TAGS = {"aws": "aws:", "alicloud": "aliyun|acs:|https?://"}
"""What no key of a tag may begin with (Tagging AWS resources user guide, "Tag naming limits"; ess.ScalingGroup)."""


VPC_OF_YOURS = {
    "aws": (
        "S3 gateway endpoint is in their route tables",
        {
            "bucket": "its DNS support is on",
            "endpoints": "its DNS support and its DNS hostnames are on",
            "nat": "its DNS support is on, and the route tables lead to a NAT gateway",
        },
    ),
    "alicloud": (
        "gateway endpoint of OSS is in it",
        {
            "bucket": f"no route of yours leads into {SERVICE_NETWORK}",
            "endpoints": f"no route of yours leads into {SERVICE_NETWORK}",
            "nat": f"no route of yours leads into {SERVICE_NETWORK}, and the route tables lead to a NAT gateway",
        },
    ),
}
"""What to see to in a VPC that is brought, by cloud: what may not be there yet, and what each way out needs."""


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


def zones(spec: Spec) -> Iterator[Finding]:
    """The region is one that the cloud has, and zones lie in it, each once."""
    known = {region for kind in instance_types(spec.cloud).values() for region in kind.regions}
    known |= CLOUDS[spec.cloud].regions
    if spec.region not in known:
        yield Finding(
            "region", f"{CLOUDS[spec.cloud].title} has no region '{spec.region}'", nearest(spec.region, known)
        )
        return
    for index, zone in enumerate(spec.network.zones):
        path = f"network.zones.{index}"
        if not re.fullmatch(rf"{re.escape(spec.region)}{CLOUDS[spec.cloud].zone}", zone):
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
    needed = plan.most_addresses
    extra = plan.most_nodes - plan.fleet.max
    replaced = f" and {extra} that replace spot nodes at risk" if extra else ""
    beside = _beside(plan)
    for subnet in () if plan.spec.network.vpc else plan.subnets:
        if subnet.addresses < needed:
            yield Finding(
                "network.cidr",
                f"{plan.spec.network.cidr} leaves {subnet.addresses} addresses in {subnet.zone}, "
                f"too few for {plan.fleet.max} nodes{replaced}{beside}",
                "Take a larger network, such as 10.0.0.0/16, or lower nodes.max",
            )


def _beside(plan: Plan) -> str:
    return f" beside {plan.data.fleet.max} data nodes" if plan.data else ""


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


def brought(spec: Spec) -> Iterator[Finding]:
    """A VPC of the user's own comes whole, and instead of one of ours."""
    network = spec.network
    given = {"subnets": network.subnets, "route_tables": network.route_tables}
    if network.vpc is None:
        for key in (key for key, ids in given.items() if ids):
            yield Finding(f"network.{key}", "says nothing without network.vpc", "Name their VPC, or take it away")
        return
    if "cidr" in network.model_fields_set:
        yield Finding("network.cidr", f"{network.vpc} has its own network already", "Take it away, or network.vpc")
    if len(network.subnets) != len(network.zones):
        yield Finding(
            "network.subnets",
            f"{len(network.subnets)} subnets don't go with {len(network.zones)} zones",
            "Name one for each zone, in the zones' order",
        )
    if not network.route_tables:
        yield Finding(
            "network.route_tables", "without them nodes don't reach the bucket", "Name the route tables of the subnets"
        )
    for key, ids in given.items():
        if len(set(ids)) < len(ids):
            yield Finding(f"network.{key}", "lists one twice", "List each once")
    endpoint, way_out = VPC_OF_YOURS[spec.cloud]
    yield Finding(
        "network.vpc",
        f"what {network.vpc} is like can't be seen from here",
        "Make sure that its subnets lie in network.zones, in that order, have room for nodes.max nodes, give out no "
        f"public addresses and are the cluster's alone, that no {endpoint}, and that {way_out[network.egress]}",
        Severity.WARNING,
    )


def keys(spec: Spec) -> Iterator[Finding]:
    """Keys have somewhere to lie: on Alibaba Cloud a KMS instance (KMS user guide, "Understanding KMS keys")."""
    path, given = "security.kms_instance", spec.security.kms_instance
    if spec.cloud == "alicloud" and given is None:
        yield Finding(
            path,
            "is missing: keys that rotate and have a policy of their own lie in a KMS instance, which is bought",
            "Name one of the software kind in your region, kst-…; ECS must once have been authorized to use its keys",
        )
    elif spec.cloud != "alicloud" and given is not None:
        yield Finding(path, f"says nothing on {CLOUDS[spec.cloud].title}", "Take it away")


def trusted(spec: Spec) -> Iterator[Finding]:
    """Those who may take a role fit into its trust policy (IAM and AWS STS quotas: 2,048 characters)."""
    for role in ("trainers", "operators", "auditors"):
        length = sum(len(principal) + len('"",') for principal in getattr(spec.security, role))
        if length > LONGEST_TRUST:
            yield Finding(
                f"security.{role}",
                f"{len(getattr(spec.security, role))} ARNs are {length} characters, of at most {LONGEST_TRUST}",
                "Name a role that they all may take, or fewer",
            )


def audited(spec: Spec) -> Iterator[Finding]:
    """Production is audited; a record isn't locked for longer than it is kept; alarms reach somebody."""
    audit = spec.audit
    if not audit.enabled:
        if spec.production:
            yield Finding(
                "audit.enabled",
                "production is true, but nothing would record who did what",
                "Set it to true, with audit.retention_days and audit.emails as your rules ask, or production to false",
            )
        elif idle := sorted(audit.model_fields_set - {"enabled"}):
            yield Finding(
                f"audit.{idle[0]}", "does nothing while audit.enabled is false", "Set that too", Severity.WARNING
            )
        return
    if audit.lock_days > audit.retention_days:
        yield Finding(
            "audit.lock_days",
            f"the record is locked for {audit.lock_days} days but kept for {audit.retention_days}",
            f"Lower it to {audit.retention_days}, or raise audit.retention_days",
        )
    if audit.lock == "compliance":
        yield Finding(
            "audit.lock",
            f"nobody, {CLOUDS[spec.cloud].title} included, can delete the record or shorten its lock for "
            f"{audit.lock_days} days",
            "Choose governance unless a rule asks for compliance",
            Severity.WARNING,
        )
    if spec.cloud == "alicloud":
        yield from audited_otherwise(spec)
    if not audit.emails:
        error = Severity.ERROR if audit.budget_usd else Severity.WARNING
        yield Finding("audit.emails", "alarms would be heard by nobody", "Name who is to be told", error)


def way_out(spec: Spec) -> Iterator[Finding]:
    """What the spec asks of services has a way out; else a node waits for an answer that can't come (facts: B8)."""
    if spec.network.egress == "bucket":
        for need in needs(spec):
            yield Finding(
                "network.egress",
                f"nodes reach the bucket alone, but {need.path} needs {need.what} ({', '.join(need.services)})",
                "Set it to endpoints or nat",
            )


def room_for_ways_out(plan: Plan) -> Iterator[Finding]:
    """Interface endpoints take an address each in every subnet (PrivateLink guide); NAT gateways, a subnet a zone."""
    network, needed, beside = plan.spec.network, plan.most_addresses, _beside(plan)
    if network.vpc:
        return
    if network.egress == "nat" and isinstance(public := public_subnets(plan), Finding):
        yield public
    ways = len(endpoints(plan.spec))
    for subnet in plan.subnets if network.egress == "endpoints" else ():
        if needed <= subnet.addresses < needed + ways:
            yield Finding(
                "network.cidr",
                f"{network.cidr} leaves {subnet.addresses} addresses in {subnet.zone}, too few for {plan.most_nodes} "
                f"nodes{beside} and {ways} endpoints",
                "Take a larger network, such as 10.0.0.0/16, or lower nodes.max",
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
