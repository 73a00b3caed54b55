"""Checkpoints as files: written whole or not at all, verified before use, kept on scratch and in the store.

A checkpoint is a folder `step-000000050` with its parts and a `manifest.json` that holds each part's size and SHA-256.
On scratch it is written under a temporary name: parts, fsync, manifest, fsync, rename, fsync of the parent. In the
store, where nothing can be renamed, the manifest is put last. Whatever moment a machine dies at, what bears the final
name and a manifest is whole, or is found not to be by its hashes.

Nothing here imports torch, so that the command line lists and verifies checkpoints anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from trainer import layout
from trainer.layout import MANIFEST, checkpoint_name
from trainer.store import Entry, Missing, Store, sha256_file
from trainer.train.errors import CheckpointError, DamagedError

CHECKPOINTS = "checkpoints"
"""The folder of checkpoints on scratch."""

FIND_S = 600
"""Seconds that may go by until the newest checkpoint is found, fetched and verified."""

MOST_GRACEFUL = 100
"""Generations in a row that give the workers of one their time to save: each takes seconds, and all have half an hour.
"""

VERSION = 1
PARTIAL = ".tmp"
DOOMED = ".old"
DAMAGED = ".corrupt"

Report = Callable[[str], None]


Parts = Mapping[str, Callable[[BinaryIO], object]]
"""The parts of a checkpoint: by file name, the function that writes its content."""


@dataclass(frozen=True)
class Part:
    """One file of a checkpoint; `size` is in bytes."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint holds, and all that is needed to judge whether it fits a job."""

    step: int
    """Optimizer steps done."""
    position: int
    """Samples consumed."""
    samples: int
    """Samples in the dataset: the order of data depends on it."""
    vocabulary: int
    """Tokens known to the model."""
    world: int
    """Ranks that computed the step."""
    generation: int
    torch: str
    """Version of torch that wrote it."""
    job: dict[str, Any]
    """The job, as job.json holds it."""
    parts: tuple[Part, ...] = ()
    version: int = VERSION

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    def encode(self) -> bytes:
        """The manifest as JSON."""
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """The inverse of `encode`. Raises `DamagedError`; `CheckpointError` for another version's."""
        try:
            values = json.loads(data)
            version = values["version"]
            if version == VERSION:
                parts = tuple(Part(**part) for part in values["parts"])
                if all(layout.is_file_name(part.name) for part in parts):
                    return cls(**values | {"parts": parts})
                raise DamagedError("its manifest names parts that are no plain file names")
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(f"its manifest is damaged ({error!r})") from None
        raise CheckpointError(f"its manifest is of version {version}; this trainer reads version {VERSION}")


@dataclass(frozen=True)
class Found:
    """A verified checkpoint on scratch."""

    folder: Path
    manifest: Manifest

    @property
    def sha256(self) -> str:
        """The manifest's, in hex: it stands for the hashes of all parts."""
        return hashlib.sha256(self.manifest.encode()).hexdigest()

    def page(self) -> bytes:
        """The checkpoint's page in the audit record, which outlives it."""
        told = asdict(self.manifest) | {"manifest_sha256": self.sha256}
        return json.dumps({name: value for name, value in told.items() if name != "job"}, indent=1).encode()


def steps_in(folder: Path) -> list[int]:
    """The steps of the whole checkpoints on scratch, the newest first."""
    found = [int(path.name.removeprefix("step-")) for path in folder.glob("step-" + "[0-9]" * 9)]
    return sorted(found, reverse=True)


def steps_in_store(store: Store) -> dict[int, dict[str, Entry]]:
    """The files of every checkpoint in the store, by step and name, the newest first; it counts with its manifest."""
    found: dict[int, dict[str, Entry]] = {}
    for entry in store.list(layout.CHECKPOINTS):
        folder, _, name = entry.key.removeprefix(layout.CHECKPOINTS).partition("/")
        if folder.removeprefix("step-").isdecimal():
            found.setdefault(int(folder.removeprefix("step-")), {})[name] = entry
    return dict(sorted(found.items(), reverse=True))


# --- Writing ----------------------------------------------------------------------------------------------------------


def write(folder: Path, manifest: Manifest, parts: Parts) -> Found:
    """Write a checkpoint to scratch; the manifest's parts are filled in. Raises `OSError` and what parts raise."""
    partial = folder / (checkpoint_name(manifest.step) + PARTIAL)
    discard(partial)
    partial.mkdir(parents=True)
    try:
        written = tuple(_write_part(partial / part, content) for part, content in parts.items())
        manifest = replace(manifest, parts=written)
        _write_part(partial / MANIFEST, lambda file: file.write(manifest.encode()))
        _sync_folder(partial)
        final = folder / checkpoint_name(manifest.step)
        discard(final)
        partial.rename(final)
        _sync_folder(folder)
    except Exception:
        discard(partial)
        raise
    return Found(final, manifest)


def publish(found: Found, store: Store, generation: int = 0) -> bool:
    """Copy a checkpoint from scratch to the store, its manifest last; False where the store has it already.

    Parts that an attempt cut off before has brought there whole are not sent again. Raises `StoreError`, and
    `CheckpointError` where the store doesn't hold what it was sent, or where the writer's `generation` is over: it was
    frozen, and another may be writing the same step. 0 is a writer that no agent counts.
    """
    prefix = layout.checkpoint(found.manifest.step)
    manifest = found.manifest.encode()
    _check_turn(store, generation)
    try:
        if store.get(prefix + MANIFEST) == manifest:
            return False
        store.delete(prefix + MANIFEST)
    except Missing:
        pass
    held = _sizes(store, prefix)
    for part in found.manifest.parts:
        key, path = prefix + part.name, found.folder / part.name
        if held.get(key) != part.size or not store.holds(key, path):
            _check_turn(store, generation)
            store.upload(path, key)
    _check_turn(store, generation)
    held = _sizes(store, prefix)
    for part in found.manifest.parts:
        key = prefix + part.name
        if held.get(key) != part.size:
            raise CheckpointError(f"{store.url(key)}: {held.get(key)} bytes after an upload of {part.size}")
    store.put(layout.audit_checkpoint(found.manifest.step, found.sha256), found.page(), if_absent=True)
    store.put(prefix + MANIFEST, manifest)
    return True


def followed(store: Store, generation: int) -> bool:
    """Whether another generation has been formed since."""
    return generation > 0 and store.exists(layout.generation(generation + 1))


def _check_turn(store: Store, generation: int) -> None:
    """Raise `CheckpointError` where a generation's workers are to write no more.

    Those that follow may be graceful: then they have time to save, until one follows that isn't.
    """
    for number in range(generation, generation + MOST_GRACEFUL):
        if not followed(store, number):
            return
        if not json.loads(store.get(layout.generation(number + 1)))["graceful"]:
            break
    raise CheckpointError(f"generation {generation} is over, and another goes on from an older checkpoint")


def _sizes(store: Store, prefix: str) -> dict[str, int]:
    return {entry.key: entry.size for entry in store.list(prefix)}


def _write_part(path: Path, content: Callable[[BinaryIO], object]) -> Part:
    with path.open("xb") as file:
        content(file)
        file.flush()
        os.fsync(file.fileno())
    return Part(path.name, path.stat().st_size, sha256_file(path))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def discard(folder: Path) -> None:
    """Remove a folder, if it is there, so that no moment shows a part of it under a checkpoint's name."""
    if folder.suffix not in (PARTIAL, DOOMED) and folder.exists():
        doomed = folder.with_name(folder.name + DOOMED)
        discard(doomed)
        folder = folder.rename(doomed)
    if folder.exists():
        shutil.rmtree(folder)


# --- Reading ----------------------------------------------------------------------------------------------------------


def find(folder: Path, store: Store, report: Report) -> Found | None:
    """The newest checkpoint that verifies, brought to scratch if need be; None where there is none.

    One that is damaged is reported in a sentence and set aside under another name, so that no restart meets it again;
    the next older takes its place. Raises `StoreError`, and `CheckpointError` for a manifest of another version.
    """
    for leftover in (*folder.glob(f"step-*{PARTIAL}"), *folder.glob(f"step-*{DOOMED}")):
        discard(leftover)
    local = [(step, 1) for step in steps_in(folder)]
    remote = [(step, 0) for step, files in steps_in_store(store).items() if MANIFEST in files]
    for step, is_local in sorted(local + remote, reverse=True):
        path = folder / checkpoint_name(step)
        try:
            return Found(path, verify(path)) if is_local else fetch(folder, store, step)
        except DamagedError as error:
            place = str(path) if is_local else store.url(layout.checkpoint(step))
            report(f"{place}: {error}; set aside as {DAMAGED}, going on with an older checkpoint")
            if is_local:
                _set_aside(path)
            else:
                _set_aside_in_store(store, step)
    return None


def verify(folder: Path) -> Manifest:
    """The manifest of a folder whose parts have the sizes and SHA-256 that it says. Raises `DamagedError`."""
    manifest = _manifest(folder)
    for part in manifest.parts:
        path = folder / part.name
        size = path.stat().st_size if path.is_file() else None
        if size != part.size:
            raise DamagedError(f"{part.name} has {size or 0} bytes, its manifest says {part.size}")
        if sha256_file(path) != part.sha256:
            raise DamagedError(f"{part.name} was altered: its SHA-256 is not the manifest's")
    return manifest


def verify_in_store(store: Store, step: int) -> Manifest:
    """The manifest of a checkpoint of the store, once each part was read there and has the SHA-256 that it says.

    Raises `DamagedError` and `StoreError`.
    """
    prefix = layout.checkpoint(step)
    try:
        manifest = Manifest.decode(store.get(prefix + MANIFEST))
        for part in manifest.parts:
            if store.sha256(prefix + part.name) != part.sha256:
                raise DamagedError(f"{part.name} was altered: its SHA-256 is not the manifest's")
    except Missing as error:
        raise DamagedError(f"incomplete ({error})") from None
    return manifest


def fetch(folder: Path, store: Store, step: int) -> Found:
    """A checkpoint of the store, copied to scratch and verified there. Raises `DamagedError` and `StoreError`."""
    partial = folder / (checkpoint_name(step) + PARTIAL)
    discard(partial)
    partial.mkdir(parents=True)
    try:
        prefix = layout.checkpoint(step)
        store.download(prefix + MANIFEST, partial / MANIFEST)
        for part in _manifest(partial).parts:
            store.download(prefix + part.name, partial / part.name)
        manifest = verify(partial)
    except Missing as error:
        discard(partial)
        raise DamagedError(f"incomplete ({error})") from None
    except Exception:
        discard(partial)
        raise
    final = folder / checkpoint_name(step)
    partial.rename(final)
    return Found(final, manifest)


def _manifest(folder: Path) -> Manifest:
    try:
        return Manifest.decode((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise DamagedError("its manifest is missing") from None


def _set_aside(folder: Path) -> None:
    aside = folder.with_name(folder.name + DAMAGED)
    if aside.exists():
        shutil.rmtree(aside)
    folder.rename(aside)


def _set_aside_in_store(store: Store, step: int) -> None:
    """Without its manifest a checkpoint doesn't count; its parts can be looked into until they are pruned."""
    key = layout.checkpoint(step) + MANIFEST
    try:
        store.put(key + DAMAGED, store.get(key))
    except Missing:
        return
    store.delete(key)
