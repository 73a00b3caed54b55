"""From run to run on one node, in a cluster with a queue: what comes next, the wait for it, and what makes room."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

from trainer.console import say
from trainer.node.backlog import Backlog
from trainer.node.config import NodeConfig, Paths
from trainer.node.lifecycle import Lifecycle
from trainer.node.metrics import Sampler
from trainer.node.queue import Queue, Turn, waiting
from trainer.store import Store, StoreError

IDLE_S = 10.0
"""Between looks of a node that has no run at the queue."""


@dataclass
class Turns:
    """One node's. `current` is the run that it was last given; `leads` says whether it is the first that trains."""

    bucket: Store
    config: NodeConfig
    leads: Callable[[], bool]
    current: str = ""
    idle: bool = False
    backlog: Backlog = field(init=False)
    _queue: Queue = field(init=False)
    _counted: Queue = field(init=False)

    def __post_init__(self) -> None:
        own = Turn(self.config.run, self.config.job)
        self.current = own.run
        # The backlog looks from a thread of its own.
        self._queue, self._counted = Queue(self.bucket, own), Queue(self.bucket, own)
        told = self.config
        self.backlog = Backlog(
            told.queue, told.region, self._others, lambda: self.idle or self.leads(), unended=self._unended
        )
        self.backlog.start()

    def next(self, sampler: Sampler, lifecycle: Lifecycle) -> Turn:
        """Wait for the next run, and meanwhile tell that there is none; whoever asks the node to leave ends it."""
        said = ""
        while True:
            try:
                if turn := self._queue.next():
                    say(f"takes run {turn.run}{f', number {turn.number} of the queue' if turn.number else ''}")
                    self.current, self.idle = turn.run, False
                    return turn
                what = "no run waits in the queue: idle until one does"
            except (StoreError, ValueError, TypeError, KeyError) as error:
                what = f"can't look at the queue: {type(error).__name__}: {error}"
            if not self.idle:
                self.idle, sampler.active = True, False
                self.backlog.look()
            if what != said:
                say(what)
            said = what
            lifecycle.attend(IDLE_S)

    def _others(self) -> list[str]:
        return [run for run in self._unended() if run != self.current]

    def _unended(self) -> list[str]:
        return [turn.run for turn in waiting(self._counted.places())]


def clear(paths: Paths, run: str, dataset: str) -> None:
    """Take from the disk what a run that has ended left there, and every dataset but the one that is needed next.

    Its checkpoints and logs are in the bucket. A disk that fills up would end each run after it.
    """
    datasets = (folder for folder in (paths.scratch / "datasets").glob("*") if folder.name != dataset)
    for folder in (paths.scratch / "runs" / run, paths.logs / run, *datasets):
        shutil.rmtree(folder, ignore_errors=True)
