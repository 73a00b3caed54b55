"""Token shards, read through memory maps: samples gathered straight into the caller's batch.

The page cache is what the ranks of a node share; there are no loader processes and nothing in /dev/shm. Sample `i`
is tokens [j * context, j * context + context + 1) of its shard, where `j` counts the samples of that shard alone: no
sample spans two shards, so each shard's last tokens, fewer than a sample, are not used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from trainer.train.errors import DataError

INDEX = "index.json"
VERSION = 1
DTYPE = np.dtype("<u2")


class Tokens:
    """The samples of a dataset's folder, `context` + 1 tokens each. Raises `DataError`."""

    def __init__(self, folder: Path, context: int) -> None:
        index = read_index(folder)
        self.vocabulary: int = index["vocabulary"]
        self._shards = [_samples(folder / shard["file"], shard["tokens"], context) for shard in index["shards"]]
        self._ends = np.cumsum([len(shard) for shard in self._shards])
        self._width = context + 1
        if not len(self):
            raise DataError(f"{folder}: {index['tokens']} tokens, but a sample takes {self._width}; pack more text")

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def gather(self, indices: NDArray[np.int64], batch: NDArray[np.int64]) -> None:
        """Write the samples `indices` into the rows of `batch`, of shape (len(indices), context + 1)."""
        shards = np.searchsorted(self._ends, indices, side="right")
        numbers = np.unique(shards)
        for number in numbers:
            chosen = shards == number if len(numbers) > 1 else slice(None)
            samples = self._shards[number]
            batch[chosen] = samples[indices[chosen] - (self._ends[number] - len(samples))]


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a dataset's folder. Raises `DataError` where it is absent, damaged or of another version."""
    path = folder / INDEX
    try:
        index: dict[str, Any] = json.loads(path.read_bytes())
        version, dtype = index["version"], index["dtype"]
        shapes = [(shard["file"], int(shard["tokens"])) for shard in index["shards"]]
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; `trainwright data pack` makes a dataset's folder") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: is damaged ({error!r}); fetch or pack the dataset again") from None
    if version != VERSION or dtype != "uint16" or not isinstance(index.get("vocabulary"), int):
        raise DataError(
            f"{path}: version {version} of {dtype} tokens; this trainer reads version {VERSION} of uint16 tokens"
        )
    if sum(tokens for _, tokens in shapes) != index.get("tokens"):
        raise DataError(f"{path}: its shards don't add up to its tokens; fetch or pack the dataset again")
    return index


def _samples(path: Path, tokens: int, context: int) -> NDArray[np.uint16]:
    """The samples of one shard as a view of its memory map: overlapping rows, of shape (count, context + 1)."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"{path}: the shard is missing; fetch the dataset again") from None
    if size != tokens * DTYPE.itemsize:
        raise DataError(f"{path}: {size} bytes, but its index says {tokens * DTYPE.itemsize}; fetch the dataset again")
    count = max(0, (tokens - 1) // context)
    if count == 0:
        return np.empty((0, context + 1), dtype=DTYPE)
    mapped = np.memmap(path, dtype=DTYPE, mode="r")
    stride = DTYPE.itemsize
    return as_strided(np.asarray(mapped), (count, context + 1), (context * stride, stride), writeable=False)
