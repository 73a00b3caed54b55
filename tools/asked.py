"""What a stack's file can ask for: every key of it, in a row of `ROWS` or as one that no cloud can differ in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from components.spec import Spec
from tools.resources import AUDITED, BROUGHT, FAST, PRINCIPAL, SCHEDULES, WAY_OUT, By

NEUTRAL = {
    "cloud": "which of the two columns holds",
    "region": "where; there is no default",
    "catalog.overrides": "facts about types, for the checks",
    "prices": "prices of types, for what the preview says of costs",
    "job": "what nodes train: the same trainer, told of the run through the bucket",
}
"""Keys, with all below them, that no resource is declared by: the clouds can't differ in them."""


@dataclass(frozen=True)
class Row:
    """One thing to ask for: changes by dotted paths, what they need beside them, and the keys that it is `about`."""

    changes: Mapping[str, Any]
    beside: Mapping[str, Any] = field(default_factory=dict)
    about: tuple[str, ...] = ()
    """Where it isn't about all that it changes."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the stack's file that it is about."""
        changed = (leaf for path, value in self.changes.items() for leaf in _paths(path, value))
        return self.about or tuple(dict.fromkeys(changed))

    @property
    def title(self) -> str:
        """The keys, each with its value where there is a choice of them."""
        words = []
        for key in self.keys:
            given = [str(one).lower() if isinstance(one, bool) else one for one in _given(self.changes, key)]
            words.append(f"`{key}: {given[0]}`" if given and choices(key) else f"`{key}`")
        return ", ".join(words)


COLD = {"prefix": "runs/ended-0a1b2c3d/", "after_days": 200}
CLASS = ("storage.cold.class",)
GUARDED = {"nodes.type": By("m6a.4xlarge", "ecs.g8i.xlarge"), "nodes.fabric": "tcp"}
SERVED = {**FAST, "data_nodes": {"type": By("i4i.32xlarge", "ecs.i4.32xlarge")}}
SPOT = {"nodes.capacity": "spot"}
OTHERS = {"nodes.alternatives": By(["c6a.large"], ["ecs.g8a.xlarge"])}
MIXED = {"nodes.capacity": "mixed", **OTHERS}
RESERVED = {"nodes.capacity": "reserved", "nodes.reservation": "create", "nodes.max": 2}
H200 = {"nodes.type": By("p5en.48xlarge", "ecs.ebmgn8v.48xlarge")}
OWN = dict(BROUGHT["network"])
BROUGHT_ALONE = (
    {f"network.{key}": OWN[key] for key in ("vpc", "subnets", "route_tables")},
    {"network": {"zones": OWN["zones"]}},
)
QUEUED = {**WAY_OUT, "scaling": {"queue": {}}}
WARM = {**WAY_OUT, "storage": {"warm": {}}}

ROWS = (
    Row({"production": True}, AUDITED),
    Row({"tags": {"team": "ml", "cost-center": "4711"}}),
    Row({"network.cidr": "10.1.0.0/16"}),
    Row({"network.zones": By(["us-west-2b", "us-west-2c"], ["ap-southeast-1a", "ap-southeast-1b"])}),
    Row({"network.egress": "endpoints"}),
    Row({"network.egress": "nat"}),
    Row(*BROUGHT_ALONE),
    Row({"nodes.type": By("c6a.large", "ecs.g8a.xlarge")}),
    Row({"nodes.image": By("ami-11111111111111111", "m-11111111111111111111")}),
    Row({"nodes.desired": 3}),
    Row({"nodes.min": 2}),
    Row({"nodes.max": 6}),
    Row({"nodes.disk_gb": 200}),
    Row({"nodes.python": "/opt/python/bin/python3"}),
    Row({"nodes.fabric": "auto"}, {**FAST, "nodes.fabric": "tcp"}),
    Row({"nodes.nic_layout": "ip-saving"}, FAST),
    Row({"nodes.capacity": "spot"}),
    Row({"nodes.capacity": "mixed"}),
    Row({"nodes.capacity": "reserved", "nodes.reservation": "create"}, {"nodes.max": 2}),
    Row({"nodes.reservation": By("cr-0123456789abcdef0", "crp-bp1234567890abcdefghi")}, RESERVED),
    Row({"nodes.capacity": "capacity-block", "nodes.reservation": By("cr-0123456789abcdef0", "create")}, H200),
    Row(OTHERS, SPOT),
    Row({"nodes.on_demand_base": 1}, MIXED),
    Row({"nodes.on_demand_share": 50}, MIXED),
    Row({"nodes.spot_strategy": "price-capacity-optimized"}, {**MIXED, "nodes.spot_strategy": "lowest-price"}),
    Row({"nodes.spot_strategy": "capacity-optimized"}, MIXED),
    Row({"nodes.spot_strategy": "capacity-optimized-prioritized"}, MIXED),
    Row({"nodes.spot_strategy": "lowest-price"}, MIXED),
    Row({"nodes.spot_strategy": "priority"}, {**MIXED, "nodes.spot_strategy": "lowest-price"}),
    Row({"nodes.spot_hours": 0}, SPOT),
    Row({"nodes.confidential": "nitro-enclaves"}, GUARDED),
    Row({"nodes.confidential": "nitro-tpm"}, GUARDED),
    Row({"nodes.confidential": "sev-snp"}, GUARDED),
    Row({"nodes.confidential": "tdx"}, GUARDED),
    Row({"nodes.prometheus_port": 9400}),
    Row({"nodes.containers": True}),
    Row({"nodes.refresh": False}),
    Row({"nodes.failed_boots": 3}),
    Row({"data_nodes": SERVED["data_nodes"]}, FAST),
    Row({"data_nodes.count": 2}, SERVED),
    Row({"data_nodes.image": By("ami-11111111111111111", "m-11111111111111111111")}, SERVED),
    Row({"data_nodes.disk_gb": 200}, SERVED),
    Row({"storage.noncurrent_days": 30}),
    Row({"storage.warm": {"size_gib": 2400}}, WAY_OUT),
    Row({"storage.warm.throughput": 1000}, WARM),
    Row({"storage.cold": [{**COLD, "class": "infrequent"}]}),
    Row({"storage.cold": [{**COLD, "class": "instant-archive"}]}, about=CLASS),
    Row({"storage.cold": [{**COLD, "class": "archive"}]}, about=CLASS),
    Row({"storage.cold": [{**COLD, "class": "deep-archive"}]}, about=CLASS),
    Row({"security.tls": "1.3"}),
    Row({"security.kms_instance": "kst-sgp11111111111111111"}),
    Row({"security.trainers": [PRINCIPAL]}),
    Row({"security.operators": [PRINCIPAL]}, {**WAY_OUT, **AUDITED}),
    Row({"security.auditors": [PRINCIPAL]}, AUDITED),
    Row({"audit.enabled": True}, {"audit.emails": AUDITED["audit.emails"]}),
    Row({"audit.retention_days": 400}, AUDITED),
    Row({"audit.lock": "compliance"}, AUDITED),
    Row({"audit.lock_days": 100}, AUDITED),
    Row({"audit.budget_usd": 1000}, AUDITED),
    Row({"audit.emails": ["others@example.com"]}, AUDITED),
    Row({"scaling.gpu_target": 85}, {**FAST, **WAY_OUT}),
    Row({"scaling.queue": {"backlog": 1}}, WAY_OUT),
    Row({"scaling.queue.attempts": 5}, QUEUED),
    Row({"scaling.schedules": SCHEDULES}, WAY_OUT),
    Row(
        {"scaling.schedules": [{**SCHEDULES[0], "time_zone": "Europe/Berlin"}]},
        {**WAY_OUT, "scaling": {"schedules": SCHEDULES}},
        about=("scaling.schedules.time_zone",),
    ),
    Row({"scaling.idle_minutes": 15}, {**WAY_OUT, "scaling": {"schedules": SCHEDULES}}),
    Row({"scaling.warmup_seconds": 900}, {**FAST, **WAY_OUT, "scaling": {"gpu_target": 85}}),
)


def leaves() -> dict[str, Any]:
    """Every key of the stack's file that holds a plain value, a list of them or a mapping to them: its type."""
    return dict(_leaves(Spec, ""))


def _leaves(model: type[BaseModel], path: str) -> Iterator[tuple[str, Any]]:
    for name, found in model.model_fields.items():
        full = f"{path}{found.alias or name}"
        if parts := list(_models(found.annotation)):
            for part in parts:
                yield from _leaves(part, f"{full}.")
        else:
            yield full, found.annotation


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """The models that a key may hold, in whatever they stand: a choice, a list, a mapping."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    elif get_origin(kind) is not Literal:
        for argument in get_args(kind):
            yield from _models(argument)


def neutral(key: str) -> bool:
    """No resource is declared by this key."""
    return any(key == one or key.startswith(f"{one}.") for one in NEUTRAL)


def choices(key: str) -> tuple[Any, ...]:
    """The words that a key may hold, or true and false; none where it holds something else."""
    return tuple(_choices(leaves().get(key)))


def _choices(kind: Any) -> Iterator[Any]:
    if kind is bool:
        yield from (True, False)
    elif get_origin(kind) is Literal:
        yield from (value for value in get_args(kind) if isinstance(value, str))
    else:
        for argument in get_args(kind):
            yield from _choices(argument)


def _paths(path: str, value: Any) -> Iterator[str]:
    """The leaves of the stack's file that a change at `path` sets."""
    match value:
        case By():
            yield from _paths(path, value.aws)
        case {**items} if items and path not in leaves():
            for key, item in items.items():
                yield from _paths(f"{path}.{key}", item)
        case [{**first}, *_]:
            yield from _paths(path, first)
        case _:
            yield path


def _given(changes: Mapping[str, Any], key: str) -> list[Any]:
    """What the changes set a leaf to."""
    found = []
    for path, value in changes.items():
        for item in value if isinstance(value, list) else [value]:
            rest = key.removeprefix(path).lstrip(".")
            if key == path and not isinstance(item, By | dict):
                found.append(item)
            elif isinstance(item, dict) and key.startswith(f"{path}.") and rest in item:
                found.append(item[rest])
    return found
