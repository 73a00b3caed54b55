"""What a data node does: it serves the dataset's shards to the cluster's other nodes, and says where it does.

A shard is asked for by its SHA-256, and only what the verified index names is found: no name of a file is ever taken
from a request, and nothing is listed. There is no TLS between nodes: the security group lets nobody in but nodes of the
cluster; whoever asks must hold the token from the data node's record in the bucket, so that the right to read the
bucket is what decides; whoever is answered verifies the shard; and most of EC2's types encrypt what travels between
them (EC2 user guide, "Data protection in Amazon EC2", encryption in transit).
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer

from trainer import layout
from trainer.console import say
from trainer.store import Store, StoreError

PORT = 7470
"""Where data nodes listen; nodes let each other in on every port."""

BEAT_S = 60.0
"""Between two writings of a data node's record, which is gone from the bucket a day after the last."""

CONNECTIONS = 1024
"""Most at a time, each a thread: more are closed at once."""

TRANSFERS = 128
"""Most shards on their way at a time: who asks for more is told to wait."""

IDLE_S = 10.0
"""How long a connection may stand still."""

SLOWEST_BYTES_S = 1 << 20
"""A transfer that is slower is given up, after `IDLE_S`."""

PIECE_BYTES = 16 << 20

ISSUED = r"[0-9a-f]{64}"
"""What a record's token looks like."""


@dataclass(frozen=True)
class Record:
    """How a data node is reached, as it says itself in the bucket. `beat` counts its writings of this."""

    node: str
    address: str
    port: int
    dataset: str
    token: str
    beat: int = 0

    def json(self) -> bytes:
        """The record as it is stored."""
        return json.dumps(asdict(self)).encode()


@dataclass
class Shelf:
    """The shards that are here, by their SHA-256. Until it is `complete`, those that aren't may still come."""

    complete: bool = False
    _files: dict[str, Path] = field(default_factory=dict)

    def add(self, sha256: str, path: Path) -> None:
        """This shard is here, verified."""
        self._files[sha256] = path

    def find(self, sha256: str) -> Path | None:
        """The shard's file, or None."""
        return self._files.get(sha256)


class Server(ThreadingTCPServer):
    """Serves a shelf at an address. Raises `OSError` where that can't be bound.

    No `HTTPServer`, which asks DNS for the address's name.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, address: str, port: int, shelf: Shelf, token: str) -> None:
        self.shelf = shelf
        self.token = token
        self.transfers = threading.BoundedSemaphore(TRANSFERS)
        self._connections = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__((address, port), _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Serve it on a thread of its own, unless there are too many."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """What that thread does."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that breaks off is none of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = IDLE_S
    server_version = "trainwright"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the shard that the path names, or say why not."""
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self._refuse(HTTPStatus.UNAUTHORIZED)
            return
        path = self.server.shelf.find(self.path.removeprefix("/"))
        if path is None:
            self._refuse(HTTPStatus.NOT_FOUND if self.server.shelf.complete else HTTPStatus.SERVICE_UNAVAILABLE)
        elif self.server.transfers.acquire(blocking=False):
            try:
                self._send(path)
            finally:
                self.server.transfers.release()
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def _send(self, path: Path) -> None:
        try:
            file = path.open("rb")
        except OSError:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            end = time.monotonic() + IDLE_S + size / SLOWEST_BYTES_S
            sent = 0
            while sent < size and time.monotonic() < end:
                piece = self.connection.sendfile(file, sent, min(PIECE_BYTES, size - sent))
                if not piece:
                    return  # the file was cut short: whoever asked sees it by the hash
                sent += piece

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing: a hundred nodes ask for a thousand shards each."""


@contextmanager
def serving(
    shelf: Shelf, records: Store, node: str, address: str, dataset: str, port: int = PORT
) -> Iterator[tuple[str, int]]:
    """Serve the shelf and say so in the bucket, until the end of the block; gives the address.

    `records` is the bucket's `layout.DATA`. The token is new each time. Raises `OSError` where the address can't be
    bound.
    """
    token = secrets.token_hex(32)
    server = Server(address, port, shelf, token)
    bound: tuple[str, int] = (address, server.server_address[1])
    record = Record(node, *bound, dataset, token)
    leaving = threading.Event()
    threads = [
        threading.Thread(target=server.serve_forever, name="serving", daemon=True),
        threading.Thread(target=_say_so, args=(records, record, leaving), name="record", daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield bound
    finally:
        leaving.set()
        server.shutdown()
        server.server_close()
        threads[1].join(IDLE_S)


def _say_so(records: Store, record: Record, leaving: threading.Event) -> None:
    """Write the record again and again, and take it away in the end."""
    key = layout.data_node(record.node)
    beat = 0
    while not leaving.is_set():
        beat += 1
        try:
            records.put(key, Record(**{**asdict(record), "beat": beat}).json())
        except StoreError as error:
            say(f"where shards are served isn't known to others yet: {error}")
        leaving.wait(BEAT_S)
    try:
        records.delete(key)
    except StoreError as error:
        say(f"the record of a data node that has left stays: {error}")
