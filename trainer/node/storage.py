"""The dataset: where it lies for the workers, complete and verified."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainer import layout
from trainer.console import say
from trainer.store import Missing, Store, StoreError, Unavailable, sha256_file

POLL_S = 1.0
FETCHES = 8
"""Shards fetched at a time."""

IMPORT_WAIT_S = 60.0
"""How long the warm tier may lag behind the bucket, where a dataset was packed a moment ago."""


Bring = Callable[[str, Path], bool]
"""Whether the shard with this SHA-256 was had from nearer than the bucket, and is at that path, verified."""

Arrived = Callable[[str, Path], None]
"""Hears of a shard by its SHA-256, as soon as it is at that path and verified."""

BUCKET, NEARBY = "bucket", "nearby"
"""Where a shard came from."""


class Corrupt(StoreError):
    """A shard is not what its dataset's index says."""


def fetch(
    datasets: Store,
    folder: Path,
    wait_s: float,
    warm: Path | None = None,
    bring: Bring | None = None,
    arrived: Arrived | None = None,
) -> tuple[Path, str]:
    """The folder with the dataset, complete and verified, and what was done in words: `warm`, or else `folder`.

    Waits up to `wait_s` for the dataset's index, which is written last. `warm` shows the bucket as a file system: where
    it has the same index and each shard's hash is right, the dataset is read there and nothing is fetched. Else shards
    come into `folder`, by `bring` or else from the bucket; one that is there already and has the right hash is kept, so
    a second boot fetches nothing. `arrived` hears of each that is in `folder`. Raises `Missing` or `Corrupt`, and
    `Unavailable` where the bucket doesn't answer, which says nothing about the dataset.
    """
    content = _await_index(datasets, wait_s)
    index = json.loads(content)
    shards = index["shards"]
    for shard in shards:
        if not layout.is_file_name(shard["file"]):
            raise Corrupt(f"{datasets.url('index.json')} names a shard {shard['file']!r}; pack the dataset again")
    described = f"dataset {index['name']}: {index['tokens']} tokens"
    lacking = _lacking(warm, content, shards) if warm else ""
    if warm and not lacking:
        return warm, f"{described}, {len(shards)} shards verified in {warm}"
    folder.mkdir(parents=True, exist_ok=True)

    def get(shard: Mapping[str, str]) -> str:
        source = _shard(datasets, folder, shard["file"], shard["sha256"], bring)
        if arrived:
            arrived(shard["sha256"], folder / shard["file"])
        return source

    with ThreadPoolExecutor(FETCHES) as pool:
        sources = list(pool.map(get, shards))
    _write(folder / "index.json", content)
    instead = f"; not from {warm}: {lacking}" if lacking else ""
    fetched = sum(map(bool, sources))
    near = f", {sources.count(NEARBY)} of them from data nodes" if bring else ""
    return folder, f"{described}, {fetched} of {len(sources)} shards fetched{near}{instead}"


def fill(
    datasets: Store,
    shared: Path,
    folder: Path,
    wait_s: float,
    bring: Bring | None = None,
    arrived: Arrived | None = None,
) -> tuple[Path, str]:
    """As `fetch`, into a folder that all nodes share: what one has fetched, the others find there and verify.

    Any number may fill it at once, as each file comes whole. Where it can't be written to, or is full, into `folder`.
    """
    try:
        return fetch(datasets, shared, wait_s, None, bring, arrived)
    except (OSError, Unavailable) as error:
        say(f"{shared} can't be filled, {folder} is: {error}")
        return fetch(datasets, folder, wait_s, None, bring, arrived)


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    part.write_bytes(content)
    part.replace(path)


def _lacking(folder: Path, content: bytes, shards: Sequence[Mapping[str, str]]) -> str:
    """What keeps a folder from being the dataset with this index, '' where it is; each shard is read in full."""

    def differs(shard: Mapping[str, str]) -> str:
        try:
            return "" if sha256_file(folder / shard["file"]) == shard["sha256"] else f"{shard['file']} is another"
        except OSError as error:
            return f"{shard['file']} can't be read ({error.strerror})"

    deadline = time.monotonic() + IMPORT_WAIT_S
    while lacking := _index_lacking(folder / "index.json", content):
        if time.monotonic() >= deadline:
            return lacking
        time.sleep(POLL_S)
    with ThreadPoolExecutor(FETCHES) as pool:
        return next(filter(None, pool.map(differs, shards)), "")


def _index_lacking(path: Path, content: bytes) -> str:
    try:
        return "" if path.read_bytes() == content else "index.json is another"
    except OSError as error:
        return f"index.json can't be read ({error.strerror})"


def _await_index(datasets: Store, wait_s: float) -> bytes:
    deadline = time.monotonic() + wait_s
    told = False
    while True:
        try:
            return datasets.get("index.json")
        except (Missing, Unavailable) as error:
            if time.monotonic() >= deadline:
                if isinstance(error, Unavailable):
                    raise
                raise Missing(f"no dataset came within {wait_s:g} s ({error}); run `trainwright data pack`") from None
            if not told:
                say(f"waiting up to {wait_s:g} s for the dataset at {datasets.url()}")
                told = True
        time.sleep(POLL_S)


def _shard(datasets: Store, folder: Path, name: str, sha256: str, bring: Bring | None) -> str:
    """Where the shard was had from, '' if it was there already."""
    path = folder / name
    if path.is_file() and sha256_file(path) == sha256:
        return ""
    if bring and bring(sha256, path):
        return NEARBY
    datasets.download(name, path)
    if (found := sha256_file(path)) != sha256:
        path.unlink()
        raise Corrupt(f"{datasets.url(name)} has SHA-256 {found}, its index says {sha256}; pack the dataset again")
    return BUCKET
