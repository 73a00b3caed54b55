"""The first page of a run's audit record: what was declared for it. Pure: who did is known only as it is declared."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from components import layout
from components.bundle import Bundle
from components.catalog import price
from components.plan import Plan

SIZES = {"nodes": {"min", "desired", "max"}}
"""What may change while a run goes on and is no other launch: the generations tell which nodes there were."""

WAYS = {"mixed": ("on-demand", "spot"), "reserved": ("on-demand",)}
"""At which prices nodes may be bought, by `nodes.capacity`, where not at those of its name; see components/cost.py."""


def launch(plan: Plan, bundle: Bundle) -> dict[str, Any]:
    """What the nodes of the plan's run are launched with. USD are of one node and hour, from low to high."""
    spec = plan.spec
    nodes = spec.nodes
    return {
        "cluster": plan.name,
        "run": plan.run.id,
        "cloud": spec.cloud,
        "region": spec.region,
        "spec_sha256": digest(spec.model_dump(mode="json", exclude=SIZES)),
        "bundle_sha256": bundle.sha256,
        "code_sha256": plan.code.sha256 if plan.code else None,
        "job": dict(plan.run.job),
        "nodes": {
            "types": [kind.name for _, kind in plan.types],
            "image": nodes.image,
            "capacity": nodes.capacity,
            "workers": plan.workers,
            "gpus": plan.instance.gpus,
            "fabric": plan.pool.fabric,
            "zones": [subnet.zone for subnet in plan.subnets],
        },
        "usd_per_node_hour": {kind.name: _prices(plan, kind.name) for _, kind in plan.types},
    }


def key(launched: dict[str, Any]) -> str:
    """Where it goes in the bucket: named by content, so that another launch is another page."""
    return layout.launch(launched["run"], digest(launched)[:12])


def _prices(plan: Plan, kind: str) -> dict[str, list[float]]:
    """What a node of this type costs an hour, for each way in which it may be bought that has a price."""
    spec = plan.spec
    ways = WAYS.get(spec.nodes.capacity, (spec.nodes.capacity,))
    found = {way: price(spec.cloud, kind, spec.region, way, spec.prices) for way in ways}
    return {way: [amount.low, amount.high] for way, amount in found.items() if amount}


def digest(values: dict[str, Any]) -> str:
    """The SHA-256 of plain values, in hex."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
