"""The node's scratch folder and the dataset in it."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainer import layout
from trainer.node.console import say
from trainer.store import Missing, Store, StoreError, Unavailable, sha256_file

POLL_S = 1.0
FETCHES = 8
"""Shards fetched at a time."""


class Corrupt(StoreError):
    """A shard is not what its dataset's index says."""


def fetch(datasets: Store, folder: Path, wait_s: float) -> tuple[Path, str]:
    """The dataset below `folder`, complete and verified, and what was done in words.

    Waits up to `wait_s` for the dataset's index, which is written last. A shard that is there already and has the
    right hash is kept, so a second boot fetches nothing. Raises `Missing` or `Corrupt`.
    """
    content = _await_index(datasets, wait_s)
    index = json.loads(content)
    folder.mkdir(parents=True, exist_ok=True)
    shards = index["shards"]
    with ThreadPoolExecutor(FETCHES) as pool:
        fetched = list(pool.map(lambda shard: _shard(datasets, folder, shard["file"], shard["sha256"]), shards))
    (folder / "index.json").write_bytes(content)
    return folder, f"dataset {index['name']}: {index['tokens']} tokens, {sum(fetched)} of {len(fetched)} shards fetched"


def _await_index(datasets: Store, wait_s: float) -> bytes:
    deadline = time.monotonic() + wait_s
    told = False
    while True:
        try:
            return datasets.get("index.json")
        except (Missing, Unavailable) as error:
            if time.monotonic() >= deadline:
                raise Missing(f"no dataset came within {wait_s:g} s ({error}); run `trainwright data pack`") from None
            if not told:
                say(f"waiting up to {wait_s:g} s for the dataset at {datasets.url()}")
                told = True
        time.sleep(POLL_S)


def _shard(datasets: Store, folder: Path, name: str, sha256: str) -> bool:
    if not layout.is_file_name(name):
        raise Corrupt(f"{datasets.url('index.json')} names a shard {name!r}; pack the dataset again")
    path = folder / name
    if path.is_file() and sha256_file(path) == sha256:
        return False
    datasets.download(name, path)
    if (found := sha256_file(path)) != sha256:
        path.unlink()
        raise Corrupt(f"{datasets.url(name)} has SHA-256 {found}, its index says {sha256}; pack the dataset again")
    return True
