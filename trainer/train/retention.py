"""Which checkpoints stay. In the store, the others go only once a newer one stands there; scratch keeps the fewest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer import layout
from trainer.layout import MANIFEST, checkpoint_name
from trainer.store import Store
from trainer.train import checkpoint
from trainer.train.checkpoint import DAMAGED

FEWEST = 2
"""Newest checkpoints that stay whatever their age: the last may turn out to be damaged. Scratch keeps no more."""

DAY_S = 86_400


@dataclass(frozen=True)
class Retention:
    """The newest `keep` stay, and of these the ones not older than `days`, if that isn't 0, but never under two.

    Age is counted back from the newest one's writing, by the store's clock: no two clocks are compared, and a run that
    stands still loses nothing.
    """

    keep: int
    days: float = 0.0

    def outlived(self, written: Mapping[int, float]) -> list[int]:
        """The steps that go, of whole checkpoints by step and when they were written (seconds since 1970)."""
        steps = sorted(written, reverse=True)
        oldest = written[steps[0]] - self.days * DAY_S if steps and self.days else float("-inf")
        kept = [step for place, step in enumerate(steps[: self.keep]) if place < FEWEST or written[step] >= oldest]
        return [step for step in steps if step not in kept]


def clear(folder: Path, keep: int = FEWEST) -> None:
    """Remove all but the `keep` newest whole checkpoints on scratch, and those set aside as damaged before the newest.

    Whether the store has them is not asked: while it is away, newer ones would pile up until none could be written.
    Raises `OSError`.
    """
    steps = checkpoint.steps_in(folder)
    damaged = [path for path in folder.glob(f"*{DAMAGED}") if steps and path.stem < checkpoint_name(steps[0])]
    for path in [*damaged, *(folder / checkpoint_name(step) for step in steps[keep:])]:
        checkpoint.discard(path)


def prune(folder: Path, store: Store, retention: Retention, generation: int = 0) -> None:
    """Clear scratch, and remove from the store what is not to be kept, or was left unfinished before the newest one.

    To be called after `checkpoint.publish`, by whom alone writes checkpoints here: so the one that a run went on from
    stays until a newer one is whole in the store. Where the writer's `generation` is followed by another, what is
    unfinished there may be the other's upload, and the store is left alone. Raises `StoreError`, `OSError`.
    """
    clear(folder)
    if checkpoint.followed(store, generation):
        return
    held = checkpoint.steps_in_store(store)
    whole = {step: files[MANIFEST].modified for step, files in held.items() if MANIFEST in files}
    outlived = retention.outlived(whole)
    for step, files in held.items():
        if step in outlived or (whole and step < max(whole) and step not in whole):
            for name in sorted(files, key=lambda name: name != MANIFEST):
                store.delete(files[name].key)
    store.abandon(layout.CHECKPOINTS)
