"""Saving without stopping: of a copy of the state, which a thread writes, uploads and prunes while training goes on."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, BinaryIO

import torch

from trainer import layout
from trainer.store import open_store
from trainer.train import checkpoint
from trainer.train.checkpoint import Found, Manifest
from trainer.train.errors import CheckpointError
from trainer.train.learner import State
from trainer.train.retention import Retention, clear, prune

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a disk answers that has no room."""


@dataclass(frozen=True)
class Outcome:
    """How a save ended: `error` is empty where it stands on scratch and in the store."""

    step: int
    key: str
    size: int
    stall_ms: float
    error: str = ""


class Saver:
    """Saves to `folder` and then to the store at `url`, one checkpoint at a time; there it keeps what `retention` says.

    On a disk that is full it makes room once, down to the newest checkpoint that is there.
    """

    def __init__(self, folder: Path, url: str, retention: Retention) -> None:
        self._folder = folder
        self._url = url
        self._retention = retention
        self._thread: Thread | None = None
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()

    @property
    def busy(self) -> bool:
        """Whether the last save is still under way."""
        return self._thread is not None and self._thread.is_alive()

    def save(self, manifest: Manifest, state: State, stall_ms: float = 0.0) -> None:
        """Save, in the background, a state that nobody writes to; taking that copy held training up for `stall_ms`.

        Raises `CheckpointError` while an earlier save is under way.
        """
        if self.busy:
            raise CheckpointError(f"step {manifest.step}: an earlier checkpoint is still being saved")
        self._start(partial(self._write, manifest, state), manifest.step, stall_ms, manifest.generation)

    def publish(self, found: Found, generation: int = 0) -> None:
        """Upload, in the background, a checkpoint that scratch has and the store may lack after a crash.

        `generation` is the one that does it, not the one that wrote it.
        """
        self._start(lambda: found, found.manifest.step, 0.0, generation)

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

    def _start(self, make: Callable[[], Found], step: int, stall_ms: float, generation: int) -> None:
        told = (make, step, stall_ms, generation)
        self._thread = Thread(target=self._run, args=told, name="checkpoint", daemon=True)
        self._thread.start()

    def _run(self, make: Callable[[], Found], step: int, stall_ms: float, generation: int) -> None:
        key = layout.checkpoint(step)
        try:
            found = make()
            store = open_store(self._url)
            if checkpoint.publish(found, store, generation):
                prune(self._folder, store, self._retention, generation)
                self._outcomes.put(Outcome(step, key, found.manifest.size, stall_ms))
        except Exception as error:  # training goes on, and the loop records what went wrong
            reason = f"{type(error).__name__}: {error}"
            self._outcomes.put(Outcome(step, key, 0, stall_ms, f"checkpoint of step {step} was not saved: {reason}"))

    def _write(self, manifest: Manifest, state: State) -> Found:
        parts = {name: partial(_write_state, part) for name, part in state.items()}
        clear(self._folder)
        try:
            return checkpoint.write(self._folder, manifest, parts)
        except OSError as error:
            if error.errno not in FULL:
                raise
        clear(self._folder, keep=1)
        return checkpoint.write(self._folder, manifest, parts)


def _write_state(part: Mapping[str, Any], file: BinaryIO) -> None:
    """`torch.save`, which closes its archive when a write fails, and by the error of that hides the file's own."""
    try:
        torch.save(part, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
