"""User-data: the stage (`stage.py`) with a node's configuration in it, small enough for every cloud."""

from __future__ import annotations

import base64
import json
from importlib.resources import files

from components.findings import Finding, Invalid
from components.plan import Plan

LIMIT_BYTES = 14_336
"""Ceiling for user-data before base64. EC2 takes 16,384 (EC2 user guide, "User data"); what a later value adds fits."""

DEADLINE_S = 900
"""Within which a node has its bundle or gives up."""

PLACEHOLDER = "@CONFIG@"


def node_config(plan: Plan, bucket: str, bundle_key: str, bundle_sha256: str) -> dict[str, object]:
    """What a node is told. Nothing in it is secret, and nothing changes when only the fleet's size does."""
    return {
        "cloud": plan.spec.cloud,
        "region": plan.spec.region,
        "cluster": plan.name,
        "bucket": bucket,
        "bundle": bundle_key,
        "sha256": bundle_sha256,
        "python": plan.spec.nodes.python,
        "deadline_s": DEADLINE_S,
        "run": plan.run.id,
        "workers": plan.workers,
        "gpus": plan.instance.gpus,
        "job": dict(plan.run.job),
    }


def user_data(config: dict[str, object]) -> str:
    """User-data for a node, in base64. Raises `Invalid` where it would not fit."""
    stage = files("components").joinpath("stage.py").read_text(encoding="utf-8")
    script = stage.replace(f'"{PLACEHOLDER}"', json.dumps(json.dumps(config, sort_keys=True)))
    size = len(script.encode())
    if size > LIMIT_BYTES:
        raise Invalid([Finding("job", f"user-data would be {size} bytes, above {LIMIT_BYTES}", "Shorten the job")])
    return base64.b64encode(script.encode()).decode()
