"""What a node was told by its user-data, and where its files are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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

    @classmethod
    def read(cls, path: Path) -> NodeConfig:
        """From the file that the stage wrote. Raises `OSError`, `ValueError` or `KeyError` where it is unusable."""
        values = json.loads(path.read_text())
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})


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
