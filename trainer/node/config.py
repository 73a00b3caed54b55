"""What a node was told by its user-data, and where its files are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class NodeConfig:
    """The configuration in user-data. `workers`: worker processes on this node; `gpus`: what its instance type has."""

    cloud: str
    region: str
    cluster: str
    bucket: str
    run: str
    workers: int
    gpus: int
    job: Mapping[str, Any]
    warm: str = ""
    """What the warm tier is mounted from, `NAME@tcp:/MOUNT` or `nfs:ADDRESS:/PATH`; nothing where there is none."""
    role: Literal["train", "data"] = "train"
    """`data` is a node that serves the dataset to the others; of `job` it is told the dataset alone."""
    data_nodes: bool = False
    """Whether there are such."""
    namespace: str = ""
    """Where this cluster's metrics go: CloudWatch's namespace, or the id of CloudMonitor's application group; nothing
    where they go to the run's prefix alone."""
    queue: str = ""
    """URL of the queue whose backlog brings nodes, where the cluster has one: its runs are trained after the stack's
    own, which is `run` unless the bucket has another (`queue.first`)."""

    efa: int = 0
    """EFA devices that its interfaces give it."""
    erdma: int = 0
    """The same of eRDMA."""
    nvswitch: bool = False
    """Whether its GPUs meet over NVSwitch, which NVIDIA's fabric manager sets up."""
    hook: str = ""
    """The hook of its group that it ends itself when it is to go and is done; nothing where there is none."""
    jumbo: bool = False
    """Whether its eRDMA devices carry jumbo frames, which goes with their MTU."""
    harden: bool = False
    """Whether it is to see that its instance metadata takes tokens alone: metadata must be closed."""
    tdx: bool = False
    """Whether it is to be a trust domain, of Intel's TDX."""
    prometheus: int = 0
    """The port at which it shows its metrics to Prometheus; 0 where it shows none."""
    failed: str = ""
    """URL of the queue that counts failed boots, where the cloud doesn't."""

    @classmethod
    def read(cls, path: Path) -> NodeConfig:
        """From the file that the stage wrote. Raises `OSError`, `ValueError` or `KeyError` where it is unusable."""
        values = json.loads(path.read_text())
        told = [field.name for field in fields(cls) if field.name in values or field.default is MISSING]
        return cls(**{name: values[name] for name in told})


@dataclass(frozen=True)
class Paths:
    """Where a node's files are, all below one root: `/` on an instance."""

    root: Path

    @classmethod
    def here(cls) -> Paths:
        """This node's."""
        return cls(Path(os.environ.get("TRAINWRIGHT_ROOT", "/")))

    @property
    def logs(self) -> Path:
        """Logs of the agent and of its workers."""
        return self.root / "var/log/trainwright"

    @property
    def state(self) -> Path:
        """What must survive a restart of the agent."""
        return self.root / "var/lib/trainwright"

    @property
    def scratch(self) -> Path:
        """The fast local disk, or a folder of the root disk where there is none."""
        return self.root / "mnt/scratch"

    @property
    def warm(self) -> Path:
        """Where the warm tier is mounted, on nodes of clusters that have one."""
        return self.root / "mnt/warm"
