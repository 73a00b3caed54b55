"""User-data: the stage (`stage.py`) with a node's configuration in it, small enough for every cloud."""

from __future__ import annotations

import base64
import json
from importlib.resources import files

from components.egress import measured
from components.findings import Finding, Invalid
from components.plan import Plan
from components.scaling import namespace

LIMIT_BYTES = 14_336
"""Ceiling for user-data before base64. EC2 takes 16,384 (EC2 user guide, "User data"); what a later value adds fits."""

DEADLINE_S = 900
"""Within which a node has its bundle or gives up."""

SHARED = ("cloud", "region", "cluster", "bucket", "bundle", "sha256", "python", "deadline_s")
"""What nodes of every kind are told alike."""

PLACEHOLDER = "@CONFIG@"


def node_config(
    plan: Plan, bucket: str, bundle_key: str, bundle_sha256: str, warm: str = "", queue: str = ""
) -> dict[str, object]:
    """What a node is told. Nothing in it is secret, and nothing changes when only the fleet's size does.

    `warm` is what the warm tier is mounted from, and `queue` the URL of the queue, where there is one.
    """
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
        **_expected(plan),
        **({"namespace": namespace(bucket)} if measured(plan.spec) else {}),
        **({"data_nodes": True} if plan.data else {}),
        **({"warm": warm} if warm else {}),
        **({"queue": queue} if queue else {}),
    }


def data_config(plan: Plan, bucket: str, bundle_key: str, bundle_sha256: str) -> dict[str, object]:
    """What a data node is told: what the stage and the dataset need, whatever else of the job changes."""
    told = node_config(plan, bucket, bundle_key, bundle_sha256)
    dataset = plan.spec.job.dataset
    shared = {key: told[key] for key in SHARED}
    return {**shared, "role": "data", "run": dataset, "workers": 0, "gpus": 0, "job": {"dataset": dataset}}


def _expected(plan: Plan) -> dict[str, object]:
    """What a node's boot is held to beside its GPUs, and the hook that it ends; nothing where there is none of it."""
    expected = {
        plan.cloud.fabric: plan.pool.fabric_devices,
        "nvswitch": plan.switched,
        "hook": plan.hook,
        "harden": plan.checks_tokens,
        "tdx": plan.pool.confidential == "tdx",
        "prometheus": plan.spec.nodes.prometheus_port,
    }
    return {name: value for name, value in expected.items() if value}


def user_data(config: dict[str, object]) -> str:
    """User-data for a node, in base64. Raises `Invalid` where it would not fit."""
    stage = files("components").joinpath("stage.py").read_text(encoding="utf-8")
    script = stage.replace(f'"{PLACEHOLDER}"', json.dumps(json.dumps(config, sort_keys=True)))
    size = len(script.encode())
    if size > LIMIT_BYTES:
        raise Invalid([Finding("job", f"user-data would be {size} bytes, above {LIMIT_BYTES}", "Shorten the job")])
    return base64.b64encode(script.encode()).decode()
