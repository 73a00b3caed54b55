"""Shards from data nodes: how a node that boots finds those that are there, and asks them before the bucket.

Nothing rests on a data node: what comes from one is verified by the hash in the bucket's own index, and whatever goes
wrong with one sends its asker to the bucket, at once and for the rest of the boot.
"""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from trainer import layout
from trainer.console import say
from trainer.node.serving import ISSUED, SLOWEST_BYTES_S, Record
from trainer.store import UNFINISHED, Store, StoreError

WAIT_S = 60.0
"""How long data nodes are waited for that aren't there, or have nothing yet, since one last had something."""

POLL_S = 1.0

CONNECT_S = 2.0
IDLE_S = 10.0
"""How long a data node may take to be reached, and to send the next bytes; `SLOWEST_BYTES_S` on the whole."""

MOST_RECORDS = 50
"""Read of those in the bucket, newest first: one that ended without a word leaves its own behind for a day."""


class _Failed(Exception):
    """A data node is not to be asked again; the message says why."""


@dataclass
class DataNodes:
    """The data nodes of a dataset, as `node` sees them. Many threads may ask at a time."""

    records: Store
    dataset: str
    node: str
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, Record] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)
    _waiting_since: float | None = None
    _looked: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def bring(self, sha256: str, path: Path) -> bool:
        """Write the shard to `path`, verified, if a data node has it; waits for one that has not got it yet."""
        while True:
            record = self._choose(sha256)
            if record:
                try:
                    if _ask(record, sha256, path):
                        self._waiting_since = self.clock()
                        return True
                except (OSError, http.client.HTTPException, _Failed) as error:
                    self._give_up(record, error)
                    return False
            elif self._failed:
                return False
            if not self._may_wait():
                return False
            time.sleep(POLL_S)

    def _may_wait(self) -> bool:
        with self._lock:
            if self._waiting_since is None:
                self._waiting_since = self.clock()
            return self.clock() - self._waiting_since < WAIT_S

    def _choose(self, sha256: str) -> Record | None:
        """Another one for each shard and node, so that all are asked alike."""
        with self._lock:
            if not self._known and not self._failed and (self._looked is None or self._looked + POLL_S <= self.clock()):
                self._known = {record.node: record for record in _read(self.records) if record.dataset == self.dataset}
                self._looked = self.clock()
            return min(self._known.values(), key=lambda record: _weight(self.node, record.node, sha256), default=None)

    def _give_up(self, record: Record, error: Exception) -> None:
        with self._lock:
            if self._known.pop(record.node, None):
                self._failed.add(record.node)
                say(f"data node {record.node} is passed over: {type(error).__name__}: {error}")


def _weight(*names: str) -> bytes:
    return hashlib.sha256("/".join(names).encode()).digest()


def _read(records: Store) -> list[Record]:
    """The newest records in the bucket that are such; none where it doesn't answer."""
    try:
        entries = sorted(records.list(layout.DATA_NODES), key=lambda entry: entry.modified, reverse=True)
        contents = [records.get(entry.key) for entry in entries[:MOST_RECORDS]]
    except StoreError as error:
        say(f"data nodes can't be looked up: {error}")
        return []
    return [record for content in contents if (record := _parse(content))]


def _parse(content: bytes) -> Record | None:
    try:
        values = json.loads(content)
        record = Record(**{name: values[name] for name in ("node", "address", "port", "dataset", "token")})
        ipaddress.IPv4Address(record.address)
        safe = layout.is_file_name(record.node) and re.fullmatch(ISSUED, record.token) and 0 < record.port < 65536
    except (ValueError, KeyError, TypeError):
        return None
    return record if safe else None


def _ask(record: Record, sha256: str, path: Path) -> bool:
    """Whether the data node had the shard and it is at `path` now, verified; False where it is still to come.

    Raises `OSError`, `HTTPException` or `_Failed`.
    """
    connection = http.client.HTTPConnection(record.address, record.port, timeout=CONNECT_S)
    try:
        connection.connect()
        connection.sock.settimeout(IDLE_S)
        connection.request("GET", f"/{sha256}", headers={"Authorization": f"Bearer {record.token}"})
        answer = connection.getresponse()
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return False
        if answer.status != HTTPStatus.OK:
            raise _Failed(f"{answer.status} {answer.reason}")
        part = path.with_name(f"{UNFINISHED}{path.name}")
        try:
            found = _write(answer, part)
            if found != sha256:
                raise _Failed(f"what it sent as {sha256} has SHA-256 {found}")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return True
    finally:
        connection.close()


def _write(answer: http.client.HTTPResponse, part: Path) -> str:
    """The SHA-256 of what is written. Raises `TimeoutError` where it comes too slowly."""
    end = time.monotonic() + IDLE_S + (answer.length or 0) / SLOWEST_BYTES_S
    digest = hashlib.sha256()
    with part.open("wb") as file:
        while block := answer.read1(1 << 20):
            if time.monotonic() > end:
                raise TimeoutError(f"less than {SLOWEST_BYTES_S} bytes a second")
            digest.update(block)
            file.write(block)
    return digest.hexdigest()
