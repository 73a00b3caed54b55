"""Logs and metrics on their way to the run's prefix: growing files, shipped as numbered chunks.

An object store can't append, so the newest chunk is written anew while it grows and left alone once it is large. A
reader needs the newest chunk only, and a listing stays short.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainer.console import say
from trainer.store import Store, StoreError

CHUNK_BYTES = 64 << 10
SHORTEST_S = 1.0
LONGEST_S = 10.0
"""Between looks; grows with the run's age, as nobody watches a week-old run by the second."""

MOST_BYTES_A_LOOK = 16 << 20
"""So that a worker which prints without end can't keep one look going for ever."""

KEPT_BYTES = 256 << 20
"""Of a file's end, what stays on disk, so that such a worker can't fill it either: far more than its last words."""

# Linux, include/uapi/linux/falloc.h
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 0x01, 0x02

_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class Stream:
    """One file on its way. `key` gives the key of a chunk by its number."""

    path: Path
    key: Callable[[int], str]
    chunk: int = 0
    offset: int = 0
    pending: bytes = b""
    lasting: bool = False
    """Of the node, not of one generation."""
    last: bool = False
    """Nothing more will come: to be let go once it is shipped."""
    trimmed: int = 0
    """Bytes of its beginning that the disk holds no more."""

    def ship(self, store: Store) -> None:
        """Write what has come since the last time. Raises `StoreError`; the next call then tries again."""
        sent = 0
        while sent < MOST_BYTES_A_LOOK and (fresh := self._read(CHUNK_BYTES - len(self.pending))):
            content = self.pending + fresh
            full = len(content) >= CHUNK_BYTES
            if full:  # at a line's end, so that a reader never has half a line at the end of a chunk that is done
                content = content[: content.rfind(b"\n") + 1] or content
            store.put(self.key(self.chunk), content)
            self.offset += len(content) - len(self.pending)
            sent += len(fresh)
            self.chunk, self.pending = (self.chunk + 1, b"") if full else (self.chunk, content)

    def trim(self) -> None:
        """Give the disk back what lies before the last `KEPT_BYTES`, shipped or not; sizes and offsets stay.

        A file system that can't keeps it (fallocate(2): ext4, XFS, btrfs and tmpfs can).
        """
        with suppress(OSError):
            if self.path.stat().st_size < self.trimmed + 2 * KEPT_BYTES:
                return
            with self.path.open("r+b") as file:
                end = os.fstat(file.fileno()).st_size - KEPT_BYTES
                hole = ctypes.c_int64(end)
                mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
                if _LIBC.fallocate(file.fileno(), mode, ctypes.c_int64(0), hole):
                    return
            self.trimmed = end
            if self.offset < end:
                say(
                    f"{end - self.offset} bytes of {self.path.name} aren't shipped: it grew faster than the store takes"
                )
                # The begun chunk stays as it is: from half a line at its end, `ship` would go back into the hole.
                self.offset, self.chunk, self.pending = end, self.chunk + bool(self.pending), b""

    def _read(self, most: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                return file.read(most)
        except FileNotFoundError:
            return b""


@dataclass
class Shipper:
    """Ships streams from a thread of its own until closed. Trouble with the store is waited out."""

    store: Store
    streams: list[Stream] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _started: float = field(default_factory=time.monotonic)

    def add(self, path: Path, key: Callable[[int], str], *, lasting: bool = False) -> None:
        """Ship this file too, from its beginning; one that is `lasting` until the end, others for a generation.

        A lasting one that is shipped already goes on where it is.
        """
        with self._lock:
            if lasting and any(stream.lasting and stream.path == path for stream in self.streams):
                return
            self.streams.append(Stream(path, key, lasting=lasting))

    def end_generation(self) -> None:
        """Ship what is left of the last generation's streams, then let them go; the node's own go on."""
        with self._lock:
            for stream in self.streams:
                stream.last = not stream.lasting

    def onward(self, store: Store) -> Shipper:
        """Close this one, for one to another run's prefix: what lasts goes on there from where it was here."""
        self.close()
        return Shipper(store, [replace(stream, chunk=0, pending=b"") for stream in self.streams if stream.lasting])

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._work, name="shipper", daemon=True)
        self._thread.start()

    def close(self, limit_s: float = 10.0) -> None:
        """Ship what is left, within a limit of time, and end."""
        self._closing.set()
        if self._thread:
            self._thread.join(limit_s)

    def _work(self) -> None:
        while not self._closing.wait(min(LONGEST_S, max(SHORTEST_S, (time.monotonic() - self._started) / 60))):
            self._look()
        self._look()

    def _look(self) -> None:
        with self._lock:
            streams = list(self.streams)
        for stream in streams:
            stream.trim()
        for stream in streams:
            try:
                last = stream.last
                stream.ship(self.store)
                if last:
                    with self._lock:
                        self.streams.remove(stream)
            except StoreError as error:
                say(f"shipping {stream.path.name} waits: {error}")
                return
