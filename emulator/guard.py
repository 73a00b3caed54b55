"""Who may speak to the embedded cloud's servers: processes of its own user, and root.

Loopback is open to every user of the machine, and whoever reaches the API decides what nodes run, under our user.
The kernel knows whose a peer is: on loopback the peer's own end of the connection is in /proc/net/tcp as well,
with its socket's user and inode (proc_pid_net(5); the kernel's Documentation/networking/proc_net_tcp.rst).
"""

import os
import socket
import sys
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

Address = tuple[str, int]

REFUSAL = "403: the embedded cloud serves only its own user, and this connection is not known to be theirs.\n"

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED = bytes(10) + b"\xff\xff"
_ROOT = 0


class Guarded(BaseHTTPRequestHandler):
    """A request handler, put before a server's own, that refuses all requests on a connection of another user."""

    _admitted: bool | None = None

    def parse_request(self) -> bool:
        """Read the request's head; answers 403 and ends the connection if its peer may not speak to us."""
        if not super().parse_request():
            return False
        if self._admitted is None:
            self._admitted = admits(self.client_address, self.connection.getsockname())
        if not self._admitted:
            self.close_connection = True
            self.send_response(403)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(REFUSAL)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(REFUSAL.encode())
            self.wfile.flush()
        return self._admitted


def admits(peer: Address, own: Address, tables: Iterable[Path] = _TABLES) -> bool:
    """Whether the socket at `peer`, connected to `own`, is our user's or root's; an unknown one is neither."""
    for encode, table in zip((_ipv4, _ipv6), tables, strict=True):
        try:
            # The kernel makes the rows page by page as they are read: to stop at the right one saves the rest.
            with table.open("rb") as rows:
                user = owner(rows, _row(encode, peer, own))
        except OSError:
            continue
        if user is not None:
            return user in (os.geteuid(), _ROOT)
    return False


def owner(table: Iterable[bytes], ends: bytes) -> int | None:
    """The user of the socket with these two ends in one of the kernel's tables; None if no process holds it.

    A socket that was closed stays there for a while, without an inode and as if it were root's: whoever sends a
    request and closes at once must not pass as root.
    """
    row = next((row for row in table if ends in row), None)
    if row is None:
        return None
    fields = row.split()
    user, inode = int(fields[7]), int(fields[9])
    return user if inode else None


def _row(encode: Callable[[bytes], bytes], *ends: Address) -> bytes:
    """How a row of a table names a connection, with the blanks around."""
    return b" %b " % b" ".join(b"%b:%04X" % (encode(socket.inet_aton(host)), port) for host, port in ends)


def _ipv4(address: bytes) -> bytes:
    """Words in the machine's byte order."""
    words = (address[at : at + 4] for at in range(0, len(address), 4))
    return b"".join(b"%08X" % int.from_bytes(word, sys.byteorder) for word in words)


def _ipv6(address: bytes) -> bytes:
    """The same address as a client with an IPv6 socket has it."""
    return _ipv4(_MAPPED + address)
