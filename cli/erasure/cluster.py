"""What has to be known of a cluster to erase something of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cli.erasure.clouds import cloud_of
from cli.erasure.scope import Cloud
from cli.workspace import Workspace
from trainer.node.queue import Queue


@dataclass(frozen=True)
class Cluster:
    """A cluster as its stack tells of it. `run`: the one that its nodes have from the stack itself; `window_days`: how
    long a key of it waits to be gone; `queue`: where it has one.
    """

    stack: str
    local: bool
    region: str
    bucket: str
    groups: tuple[str, ...]
    run: str
    data_key: str
    evidence_key: str = ""
    audit_bucket: str = ""
    warm: bool = False
    window_days: int = 7
    queue: Queue | None = field(default=None, compare=False)
    cloud: str = "aws"

    @staticmethod
    def of(workspace: Workspace) -> Cluster:
        """The stack's, as it is up; clients are led to its cloud. Raises `Refused`."""
        outputs = workspace.outputs
        spec = workspace.plan()[0].spec
        queue = workspace.queue() if "queueUrl" in outputs else None
        return Cluster(
            workspace.stack,
            workspace.local,
            spec.region,
            str(outputs["bucket"]),
            tuple(str(outputs[name]) for name in ("group", "dataGroup") if name in outputs),
            queue.own.run if queue else str(outputs["run"]),
            str(outputs["keyArn"]),
            str(outputs.get("evidenceKeyArn", "")),
            str(outputs.get("auditBucket", "")),
            spec.storage.warm is not None,
            30 if spec.production else 7,
            queue,
            spec.cloud,
        )


def at_hand(stack: str, out: Path | None) -> tuple[Cluster, Cloud, Path]:
    """The stack's cluster, its cloud, and where its certificate goes: a file whose name tells of no person."""
    workspace = Workspace(stack)
    cluster = Cluster.of(workspace)
    name = f"erasure-{stack}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    return cluster, cloud_of(workspace.account), out or workspace.home / "erasures" / name
