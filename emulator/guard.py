"""Who may speak to the embedded cloud's servers: processes of its own user, and root.

Loopback is open to every user of the machine, and whoever reaches the API decides what nodes run, under our user.
The kernel knows whose a peer is: on loopback the peer's own end of the connection is a socket of this machine, with a
user and an inode. It answers for one socket (sock_diag(7)) in microseconds. Where it doesn't, as for a client's IPv6
socket, all are in /proc/net/tcp (proc_pid_net(5); the kernel's Documentation/networking/proc_net_tcp.rst), and to read
through those of the last minute takes milliseconds.
"""

import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

Address = tuple[str, int]

REFUSAL = "403: the embedded cloud serves only its own user, and this connection is not known to be theirs.\n"

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ANY = 4, 20, 1, 0xFFFFFFFF
"""linux/netlink.h and linux/sock_diag.h: the protocol, its only message, that it is a question; any state or cookie."""
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
    user = asked(peer, own)
    if user is not None:
        return user in (os.geteuid(), _ROOT)
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


def asked(peer: Address, own: Address) -> int | None:
    """The user of the IPv4 socket with these two ends; None if no process holds it, or the kernel doesn't answer.

    The answer repeats the ends: where the connection is gone, it can be about a listener at the peer's port.
    """
    ends = struct.pack("!HH4s12x4s12x", peer[1], own[1], socket.inet_aton(peer[0]), socket.inet_aton(own[0]))
    socket_id = ends + struct.pack("=III", 0, _ANY, _ANY)
    question = struct.pack("=BBHI", socket.AF_INET, socket.IPPROTO_TCP, 0, _ANY) + socket_id
    head = struct.pack("=IHHII", 16 + len(question), _BY_FAMILY, _REQUEST, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.sendto(head + question, (0, 0))
            answer, (sender, _) = kernel.recvfrom(4096)
    except OSError:
        return None
    if sender or len(answer) < 88 or answer[20:56] != ends:
        return None
    user, inode = struct.unpack_from("=II", answer, 80)
    return int(user) if inode else None


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
