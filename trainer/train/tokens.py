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

BLOCK_BYTES = 1 << 18
"""What is widened at once: tokens are copied, then widened, and are still in a core's own cache in between."""


class Tokens:
    """The samples of a dataset's folder, `context` + 1 tokens each. Raises `DataError`."""

    def __init__(self, folder: Path, context: int) -> None:
        index = read_index(folder)
        self.vocabulary: int = index["vocabulary"]
        shards = [_samples(folder / shard["file"], shard["tokens"], context) for shard in index["shards"]]
        self._shards = [shard for shard in shards if len(shard)]
        if not self._shards:
            raise DataError(f"{folder}: {index['tokens']} tokens, but a sample takes {context + 1}; pack more text")
        self._width = context + 1
        self._block = max(1, BLOCK_BYTES // self._width // np.dtype(np.int64).itemsize)
        self._ends = np.cumsum([len(shard) for shard in self._shards])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def gather(self, indices: NDArray[np.int64], batch: NDArray[np.int64]) -> None:
        """Write the samples `indices` into the rows of `batch`, of shape (len(indices), context + 1)."""
        found = self._found(indices)
        for first in range(0, len(found), self._block):
            block = found[first : first + self._block]
            batch[first : first + self._block] = block.view(DTYPE).reshape(-1, self._width)

    def _found(self, indices: NDArray[np.int64]) -> NDArray[np.void]:
        """The samples `indices`, an item each: by one call a shard, since a call costs more than a sample."""
        if len(self._shards) == 1:
            return self._shards[0][indices]
        shards = np.searchsorted(self._ends, indices, side="right")
        by_shard = np.argsort(shards, kind="stable")
        found = np.empty(len(indices), self._shards[0].dtype)
        for places in np.split(by_shard, np.flatnonzero(np.diff(shards[by_shard])) + 1):
            number = shards[places[0]]
            shard = self._shards[number]
            found[places] = shard[indices[places] - (self._ends[number] - len(shard))]
        return found


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


def _samples(path: Path, tokens: int, context: int) -> NDArray[np.void]:
    """The samples of one shard, `context` + 1 tokens each: a view of its memory map, whose items overlap."""
    sample = np.dtype((np.void, (context + 1) * DTYPE.itemsize))
    try:
        size = path.stat().st_size
        if size != (said := tokens * DTYPE.itemsize):
            raise DataError(f"{path}: {size} bytes, but its index says {said}; fetch the dataset again")
        if not (count := max(0, (tokens - 1) // context)):
            return np.empty(0, sample)
        mapped = np.asarray(np.memmap(path, dtype=DTYPE, mode="r"))
    except FileNotFoundError:
        raise DataError(f"{path}: the shard is missing; fetch the dataset again") from None
    except OSError as error:
        raise DataError(
            f"{path}: can't be mapped ({error.strerror}); allow more files and maps (ulimit -n, vm.max_map_count), or "
            "pack the dataset in larger shards"
        ) from None
    return as_strided(mapped[: context + 1].view(sample), (count,), (context * DTYPE.itemsize,), writeable=False)
