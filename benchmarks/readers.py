"""Ways to read shuffled samples in batches: ours, and those that `benchmarks.trainer` compares it with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.contenders import Samples, endless
from trainer.train.config import Job, Model
from trainer.train.feed import Feed
from trainer.train.group import Group
from trainer.train.tokens import DTYPE, INDEX, VERSION, Tokens

SAMPLES = 20_000
CONTEXT = 128
BATCH = 256


class Reader(Protocol):
    """Reads for so many seconds; the seconds that a sample took."""

    def __call__(self, *, seconds: float) -> float: ...


class Files(Dataset[Tensor]):
    """One `.npy` file a sample."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.npy"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, item: int) -> Tensor:
        return torch.from_numpy(np.load(self.paths[item]).astype(np.int64))


def reading(batch: Callable[[], object]) -> Reader:
    """A reader of batches, its first left out: it starts workers and fills queues."""

    def read(*, seconds: float) -> float:
        batch()
        began, batches = time.perf_counter(), 0
        while (taken := time.perf_counter() - began) < seconds:
            batch()
            batches += 1
        return taken / (batches * BATCH)

    return read


@contextmanager
def readers(folder: Path) -> Iterator[dict[str, Reader]]:
    """All of them over the same samples, by name; files lie in `folder`, warm in the page cache."""
    torch.set_num_threads(1)
    files = folder / "files"
    files.mkdir()
    tokens = np.random.default_rng(1).integers(0, 257, SAMPLES * CONTEXT + 1).astype(DTYPE)
    tokens.tofile(folder / "shard.bin")
    shards = [{"file": "shard.bin", "tokens": len(tokens)}]
    index = {"version": VERSION, "dtype": "uint16", "vocabulary": 257, "tokens": len(tokens), "shards": shards}
    (folder / INDEX).write_text(json.dumps(index))
    rows = np.stack([tokens[start : start + CONTEXT + 1] for start in range(0, SAMPLES * CONTEXT, CONTEXT)])
    for number, sample in enumerate(rows):
        np.save(files / f"{number:05d}.npy", sample)
    memory = torch.from_numpy(rows.astype(np.int64))

    job = Job(name="bench", dataset="bench", batch=BATCH, micro_batch=BATCH, model=Model(context=CONTEXT))
    feed = Feed(Tokens(folder, CONTEXT), job, Group(0, 1, torch.device("cpu"), None))
    positions = iter(range(0, 1 << 62, BATCH))

    def loader(samples: Dataset[Tensor], workers: int) -> Reader:
        batches = endless(
            DataLoader(
                samples, BATCH, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=workers > 0
            )
        )
        return reading(lambda: next(batches))

    def shuffled() -> Iterator[Tensor]:
        while True:
            for chosen in torch.randperm(SAMPLES).split(BATCH)[:-1]:
                yield memory[chosen]

    in_memory = shuffled()
    yield {
        "ours": reading(lambda: feed.take(next(positions))),
        ".npy a sample, DataLoader, 2 workers": loader(Files(files), 2),
        ".npy a sample, DataLoader, no workers": loader(Files(files), 0),
        "mapped shards, DataLoader, 2 workers": loader(Samples(folder, CONTEXT), 2),
        "mapped shards, DataLoader, no workers": loader(Samples(folder, CONTEXT), 0),
        "tensors in memory, DataLoader, no workers": loader(Rows(memory), 0),
        "one tensor in memory, indexed by hand": reading(lambda: next(in_memory)),
    }


class Rows(Dataset[Tensor]):
    """Samples held in main memory."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> Tensor:
        return self.rows[item]
