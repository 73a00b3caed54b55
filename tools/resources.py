"""The reference of what a cluster declares: names, types, tags and outputs, read off what its component registers."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from components import outputs
from components.checks import judge
from components.clouds import CLOUDS
from components.cluster import TrainingCluster
from components.cost import cost
from emulator.provider import naming, schema
from emulator.provider.wire import UNKNOWN
from tools.declared import Declared, Resource, declare

CLUSTER = "example"
"""Name of the cluster that is declared; the page has `<cluster>` in its place."""


@dataclass(frozen=True)
class By:
    """What each cloud writes in its own way."""

    aws: Any
    alicloud: Any


SMALLEST: dict[str, Any] = {
    "region": By("us-west-2", "ap-southeast-1"),
    "tags": {"team": "ml"},
    "network": {"cidr": "10.0.0.0/16", "zones": By(["us-west-2b"], ["ap-southeast-1a"])},
    "nodes": {
        "type": By("m6a.large", "ecs.g8a.large"),
        "image": By("ami-00000000000000000", "m-00000000000000000000"),
        "desired": 2,
        "max": 4,
    },
    "job": {"name": "pretrain", "dataset": "corpus", "batch": 1024},
}
"""A stack that asks for nothing that it needn't; on Alibaba Cloud it needs a KMS instance, too (`stack`)."""

PRINCIPAL = By("arn:aws:iam::111122223333:role/someone", "acs:ram::1234567890123456:role/someone")
AUDITED = {"audit.enabled": True, "audit.emails": ["ml-platform@example.com"]}
FAST = {"nodes.type": By("p4d.24xlarge", "ecs.ebmgn8v.48xlarge")}
WAY_OUT = {"network.egress": "endpoints"}
SCHEDULES = [{"cron": "0 7 * * MON-FRI", "nodes": 4}]
BROUGHT = {
    "network": {
        "zones": SMALLEST["network"]["zones"],
        "vpc": By("vpc-0123456789abcdef0", "vpc-t4nopxu1zkhn00g5lr2ts"),
        "subnets": By(["subnet-0123456789abcdef0"], ["vsw-t4ns5fnvk4gn2tws0362a"]),
        "route_tables": By(["rtb-0123456789abcdef0"], ["vtb-t4n145q7glnuzdvzu2pg"]),
    }
}

CASES: dict[str, dict[str, Any]] = {
    "": {},
    "`network.vpc`": BROUGHT,
    "`nodes.type` with EFA or eRDMA": FAST,
    "`nodes.capacity: reserved`, `nodes.reservation: create`": {
        **FAST,
        "nodes.capacity": "reserved",
        "nodes.reservation": "create",
        "nodes.max": 2,
    },
    "`network.egress: endpoints`": WAY_OUT,
    "`network.egress: nat`": {"network.egress": "nat"},
    "`nodes.type` with EFA or eRDMA, `network.egress` not `bucket`": {**FAST, **WAY_OUT},
    "`scaling`": {**WAY_OUT, "scaling": {}},
    "`scaling.schedules`": {**WAY_OUT, "scaling": {"schedules": SCHEDULES}},
    "`scaling.idle_minutes` or `.queue`": {**WAY_OUT, "scaling": {"idle_minutes": 15, "schedules": SCHEDULES}},
    "`scaling.queue`": {**WAY_OUT, "scaling": {"queue": True}},
    "`scaling.gpu_target`": {**FAST, **WAY_OUT, "scaling": {"gpu_target": 85}},
    "`storage.warm`": {**WAY_OUT, "storage": {"warm": {}}},
    "`storage.cold` with `instant-archive`": {
        "storage.cold": [{"prefix": "runs/ended-0a1b2c3d/", "after_days": 30, "class": "instant-archive"}]
    },
    "`data_nodes`": {**FAST, "data_nodes": {"type": By("i4i.32xlarge", "ecs.i4.32xlarge")}},
    "`audit.enabled`": AUDITED,
    "`audit.lock: compliance`": {**AUDITED, "audit.lock": "compliance"},
    "`audit.budget_usd`": {**AUDITED, "audit.budget_usd": 1000},
    "`security.trainers`": {"security.trainers": [PRINCIPAL]},
    "`security.operators`": {**WAY_OUT, **AUDITED, "security.operators": [PRINCIPAL]},
    "`security.auditors`": {**AUDITED, "security.auditors": [PRINCIPAL]},
}
"""What a stack's file may ask for beside the least, by the words for it; each is declared alone, in this order."""

HASHED = re.compile(r"-[0-9a-f]{7}$")
"""The end of a name that is made of what it stands for, such as an address of e-mail."""


def page() -> str:
    """The page."""
    declared = {
        cloud: {case: declare(CLUSTER, stack(changes, cloud)) for case, changes in CASES.items()} for cloud in CLOUDS
    }
    every = [case for cases in declared.values() for case in cases.values()]
    resources = [line for cloud, cases in declared.items() for line in _resources(CLOUDS[cloud].title, cloud, cases)]
    return "\n".join([*_head(), *_outputs(every), *_tags(every), *resources]) + "\n"


def stack(changes: Mapping[str, Any], cloud: str = "aws") -> dict[str, Any]:
    """The values of the smallest stack of a cloud, changed at dotted paths."""
    own = {"cloud": "alicloud", "security": {"kms_instance": "kst-sgp00000000000000000"}} if cloud == "alicloud" else {}
    values: dict[str, Any] = {**own, **_of(cloud, SMALLEST)}
    for path, value in _of(cloud, changes).items():
        *parents, last = path.split(".")
        part = values
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = value
    return values


def _of(cloud: str, value: Any) -> Any:
    """A copy of the value, as one cloud writes it."""
    match value:
        case By():
            return _of(cloud, getattr(value, cloud))
        case dict():
            return {key: _of(cloud, item) for key, item in value.items()}
        case list():
            return [_of(cloud, item) for item in value]
    return value


def _head() -> list[str]:
    return [
        "# What a cluster declares",
        "",
        "Names, types, tags and outputs of the resources of one `TrainingCluster`, as its component registers them: on",
        "AWS first, then on Alibaba Cloud. [clouds.md](clouds.md) holds the two side by side, key by key of a stack's",
        "file. `trainwright preview --stack NAME` counts those of your own stack, without an account.",
        "",
        "A name is the one in Pulumi's state; `<cluster>` stands for the stack's name. In the account a resource gets",
        "this name and seven hexadecimal digits, so that its replacement can stand beside it, unless its name there is",
        "stated; what the cloud gives no name is found by its id and, on AWS, its tag `Name`.",
        "",
    ]


def _outputs(every: Sequence[Declared]) -> Iterator[str]:
    """The stack's outputs, the same on each cloud, in the words of the component's attributes."""
    yield from ("## Outputs", "", "| output | what |", "|---|---|")
    described = _described()
    for output in dict.fromkeys(output for case in every for output in case.outputs):
        yield f"| `{output}` | {described[_snake(output)]} |"
    plan, _ = judge(CLUSTER, stack(FAST | {"nodes.desired": 8, "nodes.max": 16}))
    yield from ("", "`cost`, for 8 to 16 nodes of p4d.24xlarge, in US dollars from low to high:", "")
    yield from ("| key | value |", "|---|---|")
    for key, value in cost(plan).outputs().items():
        yield f"| `{key}` | {_shown(value)} |"
    yield ""


def _described() -> dict[str, str]:
    """What the docstrings below the attributes of the component and of `Declared` say, by attribute."""
    found = {}
    for described in (TrainingCluster, outputs.Declared):
        (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(described))).body
        assert isinstance(parsed, ast.ClassDef)
        for attribute, said in pairwise(parsed.body):
            match attribute, said:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _shown(value: object) -> str:
    match value:
        case dict():
            return "; ".join(f"{key}: {_shown(one)}" for key, one in value.items())
        case [float() | int() as low, float() | int() as high]:
            return f"{low:,.2f} to {high:,.2f}"
        case list():
            return "; ".join(map(str, value))
    return str(value)


def _tags(every: Sequence[Declared]) -> Iterator[str]:
    """The tags that all have, and what carries none though it could."""
    yield from ("## Tags", "", "What can carry tags has these, and those of `tags` in the stack's file:", "")
    yield from ("| tag | value | on |", "|---|---|---|")
    found = [(one, tags) for case in every for one in case.resources if (tags := _tags_of(one))]
    own = {"team"}
    for key in sorted({key for _, tags in found for key in tags} - own):
        values = {tags[key] for _, tags in found if key in tags}
        value = f"`{_renamed(values.pop())}`" if len(values) == 1 else "stated below"
        yield f"| `{key}` | {value} | {'all' if all(key in tags for _, tags in found) else 'some'} |"
    launched = [one for case in every for one in case.resources if "tagSpecifications" in one.inputs]
    kinds = sorted({spec["resourceType"] for one in launched for spec in one.inputs["tagSpecifications"]})
    named = ", ".join(f"{kind.replace('-', ' ')}s" for kind in kinds)
    yield from ("", f"What a launch template makes carries them too: on AWS {named}.", "")


def _resources(title: str, cloud: str, declared: Mapping[str, Declared]) -> Iterator[str]:
    """A table for each service: what is always there first, then what a stack asks for."""
    rows: dict[tuple[str, str], tuple[str, Resource]] = {}
    for case, found in declared.items():
        for one in found.resources:
            rows.setdefault((one.type, HASHED.sub("-…", one.name)), (case, one))
    services: dict[str, list[tuple[str, str, Resource]]] = {}
    for (token, name), (case, one) in rows.items():
        package, module, _ = token.split(":")
        service = module.partition("/")[0] if package == cloud else "pulumi"
        services.setdefault(service, []).append((case, name, one))
    order = list(declared)
    yield from (f"## Resources on {title}", "", "Without a condition, they are part of every cluster.", "")
    for service in sorted(services, key=lambda name: (name == "pulumi", name)):
        yield from (f"### {title}: {service}", "", "| name | type | in the account | tags | only with |")
        yield "|---|---|---|---|---|"
        for case, name, one in sorted(services[service], key=lambda row: (order.index(row[0]), row[2].type, row[1])):
            cells = (f"`{_renamed(name)}`", f"`{one.type}`", _in_the_account(one, cloud), _tagged(one), case)
            yield f"| {' | '.join(cells)} |"
        yield ""


def _in_the_account(one: Resource, cloud: str) -> str:
    """The name that the cloud knows it by, where the program states one or the provider makes one."""
    if not one.type.startswith(f"{cloud}:"):
        return ""
    made = naming.naming_property(schema.resource_type(one.type))
    kind = one.type.rpartition(":")[2].lower()
    own = [key for key in one.inputs if key.endswith("Name") and kind.endswith(key.removesuffix("Name").lower())]
    stated = next((one.inputs[key] for key in (made, *own) if key and isinstance(one.inputs.get(key), str)), "")
    if stated and stated != UNKNOWN:
        return f"`{_renamed(HASHED.sub('-…', stated))}`"
    return "name and digits" if made else ""


def _tagged(one: Resource) -> str:
    """Whether it carries tags, and the one that says its name."""
    tags = _tags_of(one)
    name = f", `Name`: `{_renamed(tags['Name'])}`" if "Name" in tags else ""
    return f"yes{name}" if tags else "no"


def _tags_of(one: Resource) -> dict[str, str]:
    tags = one.inputs.get("tags") or {}
    return dict(tags) if isinstance(tags, Mapping) else {tag["key"]: tag["value"] for tag in tags}


def _renamed(text: str) -> str:
    return re.sub(rf"\b{CLUSTER}\b", "<cluster>", text)
