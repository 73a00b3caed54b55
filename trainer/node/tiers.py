"""The node's tiers at a boot: scratch and warm, then what the job needs in them, from the bucket or from nearer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer import layout
from trainer.console import say
from trainer.node import code, scratch, storage, warm
from trainer.node.config import NodeConfig, Paths
from trainer.node.nearby import DataNodes
from trainer.node.steps import BootReport
from trainer.node.storage import Arrived, Bring
from trainer.store import Missing, Store, open_store

SCRATCH_LIMIT_S = scratch.LIMIT_S + scratch.IMAGE_WAIT_S + 30
WARM_LIMIT_S = warm.LIMIT_S + 30
"""Limits of the steps, in seconds."""

DATASET_WAIT_S = 900
"""How long a dataset is waited for that nobody has packed yet."""

LACKING = (Missing, code.Altered, storage.Corrupt)
"""What the bucket can't meet a job's needs by."""


def code_folder(paths: Paths) -> Path:
    """Where the user's own code lies, in a folder for each hash."""
    return paths.root / "opt/trainwright/code"


@dataclass(frozen=True)
class Tiers:
    """Those of a node, for the job that it is told."""

    config: NodeConfig
    paths: Paths
    bucket: Store

    def set_up(self, report: BootReport) -> Path | None:
        """See to scratch and to the warm tier, none of which a node needs; the dataset's folder in the latter."""
        report.optional("scratch", lambda: scratch.assemble(self.paths), SCRATCH_LIMIT_S, None)
        if not self.config.warm:
            return None
        mounted = report.optional("warm", lambda: warm.mount(self.config.warm, self.paths), WARM_LIMIT_S, None)
        return mounted / layout.dataset_prefix(self.config.job["dataset"]) if mounted else None

    def needs(self, node: str, shown: Path | None, fails: Callable[[str], bool]) -> tuple[Path | None, str]:
        """What the job needs. With a queue, a run whose needs the bucket can't meet `fails`, and makes way for others.

        Both times that it is asked: once may be this node's own fault, as of its disk.
        """

        def met(wait_s: float) -> tuple[Path | None, str]:
            return self.fetch(self._nearby(node), shown=shown, wait_s=wait_s)

        try:
            return met(DATASET_WAIT_S)
        except LACKING as error:
            if not self.config.queue:
                raise
            say(f"tries once more: {error}")
        try:
            return met(0.0)
        except LACKING as error:
            if not fails(str(error)):
                raise
            return None, f"the run fails: {error}"

    def fetch(
        self,
        bring: Bring | None = None,
        arrived: Arrived | None = None,
        shown: Path | None = None,
        wait_s: float = DATASET_WAIT_S,
    ) -> tuple[Path | None, str]:
        """The folder with the job's dataset, None where it asks for none, and what was done in words; also its code.

        `shown` is the dataset's folder in the warm tier; see `storage.fetch`.
        """
        self.paths.scratch.mkdir(parents=True, exist_ok=True)
        if sha256 := self.config.job.get("code"):
            code.fetch(self.bucket, sha256, code_folder(self.paths))
        name = self.config.job["dataset"]
        if not name:
            return None, "no dataset asked for"
        datasets = open_store(self.bucket.url(layout.dataset_prefix(name)))
        folder = self.paths.scratch / "datasets" / name
        if shown and not warm.shows_bucket(self.config.warm):
            return storage.fill(datasets, shown, folder, wait_s, bring, arrived)
        return storage.fetch(datasets, folder, wait_s, shown, bring, arrived)

    def _nearby(self, node: str) -> Bring | None:
        if not self.config.data_nodes:
            return None
        return DataNodes(open_store(self.bucket.url(layout.DATA)), self.config.job["dataset"], node).bring
