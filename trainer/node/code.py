"""The user's own code on a node: fetched by its hash, verified, unpacked whole or not at all."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from trainer import layout
from trainer.store import Store, StoreError, sha256_file


class Altered(StoreError):
    """The file in the bucket is not what the job names."""


def fetch(bucket: Store, sha256: str, folder: Path) -> Path:
    """The code of this hash, below `folder` in a folder named by it; one that is there already is kept.

    Raises `StoreError`: `Missing`, or `Altered`.
    """
    code = folder / sha256
    if code.is_dir():
        return code
    partial = code.with_suffix(".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    packed = partial.with_suffix(".tar")
    bucket.download(layout.code(sha256), packed)
    if (found := sha256_file(packed)) != sha256:
        packed.unlink()
        raise Altered(f"{bucket.url(layout.code(sha256))} has SHA-256 {found}, the job names {sha256}")
    with tarfile.open(packed) as archive:
        archive.extractall(partial, filter="data")  # nothing outside the folder, no links that lead there
    packed.unlink()
    partial.rename(code)
    return code
