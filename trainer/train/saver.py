"""Saving without stopping: rank 0 copies its state, and a thread writes, uploads and prunes while training goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from trainer import layout
from trainer.store import open_store
from trainer.train import checkpoint
from trainer.train.checkpoint import Found, Manifest
from trainer.train.errors import CheckpointError
from trainer.train.learner import State


@dataclass(frozen=True)
class Outcome:
    """How a save ended: `error` is empty where it stands on scratch and in the store."""

    step: int
    key: str
    size: int
    stall_ms: float
    error: str = ""


class Saver:
    """Saves to `folder` and then to the store at `url`, one checkpoint at a time, and keeps the newest `keep`."""

    def __init__(self, folder: Path, url: str, keep: int) -> None:
        self._folder = folder
        self._url = url
        self._keep = keep
        self._thread: Thread | None = None
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()

    @property
    def busy(self) -> bool:
        """Whether the last save is still under way."""
        return self._thread is not None and self._thread.is_alive()

    def save(self, manifest: Manifest, state: State) -> None:
        """Copy `state`, which takes the time that training stalls, and save the copy in the background.

        Raises `CheckpointError` while an earlier save is under way.
        """
        if self.busy:
            raise CheckpointError(f"step {manifest.step}: an earlier checkpoint is still being saved")
        began = time.perf_counter()
        copy = {name: copied(part) for name, part in state.items()}
        stall_ms = (time.perf_counter() - began) * 1e3
        self._start(partial(self._write, manifest, copy), manifest.step, stall_ms)

    def publish(self, found: Found) -> None:
        """Upload, in the background, a checkpoint that scratch has and the store may lack after a crash."""
        self._start(lambda: found, found.manifest.step, 0.0)

    def outcomes(self) -> list[Outcome]:
        """How the saves since the last call ended."""
        found = []
        while True:
            try:
                found.append(self._outcomes.get_nowait())
            except Empty:
                return found

    def wait(self, seconds: float) -> bool:
        """Wait for the save under way, if there is one, for so long at most; whether none is left."""
        if self._thread is not None:
            self._thread.join(max(0.0, seconds))
        return not self.busy

    def _start(self, make: Callable[[], Found], step: int, stall_ms: float) -> None:
        self._thread = Thread(target=self._run, args=(make, step, stall_ms), name="checkpoint", daemon=True)
        self._thread.start()

    def _run(self, make: Callable[[], Found], step: int, stall_ms: float) -> None:
        key = layout.checkpoint(step)
        try:
            found = make()
            store = open_store(self._url)
            if checkpoint.publish(found, store):
                checkpoint.prune(self._folder, store, self._keep)
                self._outcomes.put(Outcome(step, key, found.manifest.size, stall_ms))
        except Exception as error:  # training goes on, and the loop records what went wrong
            reason = f"{type(error).__name__}: {error}"
            self._outcomes.put(Outcome(step, key, 0, stall_ms, f"checkpoint of step {step} was not saved: {reason}"))

    def _write(self, manifest: Manifest, state: State) -> Found:
        parts = {name: partial(torch.save, part) for name, part in state.items()}
        return checkpoint.write(self._folder, manifest, parts)


def copied(tree: Any) -> Any:
    """A copy, in main memory, of nested mappings and sequences of tensors and plain values."""
    if isinstance(tree, Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, Mapping):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(copied(value) for value in tree)
    return tree
