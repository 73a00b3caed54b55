"""Interruption notices: raised by a test or a person, read by the metadata service, carried out by the node runner."""

import json
import time
from pathlib import Path
from typing import Literal, get_args

Kind = Literal["spot", "rebalance"]

CLOUD = Path("run/cloud-init/cloud-id")
"""Where a node's root folder says which cloud it is of, in cloud-init's word."""

SECONDS = {"aws": 120.0, "aliyun": 300.0}
"""How long ahead a spot node has notice (EC2 user guide, "Spot Instance interruption notices"; ECS user guide,
"Preemptible instances")."""


def raise_notice(home: Path, instance_id: str, kind: Kind, seconds: float | None = None) -> None:
    """Give a running node notice: "spot" ends it after so many seconds, by default its cloud's, "rebalance" is advice.

    Raises LookupError if the embedded cloud of this home has no such node, ValueError for another kind or a
    time in the past. A second notice of the same kind takes the first one's place.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"{kind!r} is no kind of notice: say one of {', '.join(get_args(Kind))}")
    if seconds is not None and seconds < 0:
        raise ValueError(f"A notice of {seconds} s lies in the past: give 0 or more seconds")
    nodes = home.resolve() / "cloud" / "nodes"
    if not (nodes / instance_id).is_dir():
        raise LookupError(f"The embedded cloud in {home} has no node {instance_id!r}: see the folders in {nodes}")
    if seconds is None:
        seconds = SECONDS[(nodes / instance_id / CLOUD).read_text()]
    file = path(nodes, instance_id)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(read(file) | {kind: time.time() + seconds}))
    part.replace(file)


def path(nodes: Path, instance_id: str) -> Path:
    """Where the notices of a node are kept: beside its root folder, out of its own reach."""
    return nodes / f"{instance_id}.notice.json"


def read(file: Path) -> dict[str, float]:
    """The notices in force: kind to the time that it names, in Unix seconds; empty if there are none."""
    try:
        notices: dict[str, float] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return notices
