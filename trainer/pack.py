"""Text into token shards: any folder of UTF-8 files becomes a dataset that `trainer.train.tokens` reads.

The tokenizer is the identity on bytes: a token is a byte, and one more token ends each document. Nothing is drawn by
chance: the same text packs into the same shards, on any machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

END_OF_DOCUMENT = 256
VOCABULARY = 257
SHARD_TOKENS = 1 << 24
"""Tokens in a shard unless told otherwise: 32 MiB, a good size for one request to an object store."""


class PackError(Exception):
    """The text can't be packed: no such path, or no text in it."""


def pack(
    paths: Sequence[Path],
    destination: Path,
    name: str,
    *,
    shard_tokens: int = SHARD_TOKENS,
    exclude: Sequence[str] = (),
) -> dict[str, Any]:
    """Pack the UTF-8 text in `paths` (files or folders) into `destination`; return what its index.json holds.

    Folders are read in order of their files' relative paths. `exclude` holds shell patterns, matched with each file's
    and folder's name and with its path below the folder given. Files that are no UTF-8 text are left out; the index's
    `skipped` counts them. The index is written last, and an older one removed first: a folder with an index is whole.
    Raises `PackError`.
    """
    destination.mkdir(parents=True, exist_ok=True)
    (destination / "index.json").unlink(missing_ok=True)
    for old in destination.glob("shard-*.bin"):
        old.unlink()
    shards = _Shards(destination, shard_tokens)
    documents = skipped = 0
    try:
        for path in _files(paths, exclude):
            text = _read(path)
            if not _is_text(text):
                skipped += 1
            elif text:
                shards.write(text)
                documents += 1
    finally:
        shards.close()
    if not documents:
        raise PackError(f"{', '.join(map(str, paths))}: no UTF-8 text to pack ({skipped} binary files skipped)")
    index = {
        "version": 1,
        "name": name,
        "tokenizer": "bytes",
        "vocabulary": VOCABULARY,
        "dtype": "uint16",
        "tokens": sum(shard["tokens"] for shard in shards.written),
        "documents": documents,
        "skipped": skipped,
        "shards": shards.written,
    }
    temporary = destination / ".index.json.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(index, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(destination / "index.json")
    return index


class _Shards:
    """A stream of tokens, cut into files of `limit` tokens each."""

    def __init__(self, folder: Path, limit: int) -> None:
        if limit < 1:
            raise PackError(f"shard_tokens: must be at least 1, not {limit}")
        self.written: list[dict[str, Any]] = []
        self._folder = folder
        self._limit = limit
        self._file: Any = None
        self._digest = hashlib.sha256()
        self._tokens = 0

    def write(self, text: bytes) -> None:
        """Append one document and the token that ends it."""
        tokens = np.empty(len(text) + 1, dtype="<u2")
        tokens[:-1] = np.frombuffer(text, dtype=np.uint8)
        tokens[-1] = END_OF_DOCUMENT
        while len(tokens):
            if self._file is None:
                self._file = (self._folder / self._name()).open("wb")
            room = self._limit - self._tokens
            part = tokens[:room].data
            self._file.write(part)
            self._digest.update(part)
            self._tokens += len(tokens[:room])
            tokens = tokens[room:]
            if self._tokens == self._limit:
                self.close()

    def close(self) -> None:
        """End the current shard, if one is open, and make it durable."""
        if self._file is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self.written.append({"file": self._name(), "tokens": self._tokens, "sha256": self._digest.hexdigest()})
        self._file, self._digest, self._tokens = None, hashlib.sha256(), 0

    def _name(self) -> str:
        return f"shard-{len(self.written):05d}.bin"


def _files(paths: Iterable[Path], exclude: Sequence[str]) -> Iterator[Path]:
    """The regular files in `paths`, folders in order of relative path. Links to folders are not followed."""
    for root in paths:
        if root.is_file():
            yield root
        elif root.is_dir():
            yield from sorted(_walk(root, exclude), key=lambda path: path.relative_to(root).as_posix())
        else:
            raise PackError(f"{root}: there is no such file or folder")


def _walk(root: Path, exclude: Sequence[str]) -> Iterator[Path]:
    def kept(path: Path) -> bool:
        relative = path.relative_to(root).as_posix()
        return not any(fnmatch(path.name, pattern) or fnmatch(relative, pattern) for pattern in exclude)

    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if kept(here / name)]
        yield from (path for path in map(here.joinpath, names) if kept(path) and path.is_file())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PackError(f"{path}: can't be read ({error.strerror}); make it readable or exclude it") from None


def _is_text(content: bytes) -> bool:
    """Whether `content` is UTF-8 without the zero bytes that mark binary files."""
    if b"\0" in content:
        return False
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
