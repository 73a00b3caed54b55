"""The guard: another user of the machine reaches neither the API nor a node's metadata, however it tries."""

import os
import socket
import sys
from http.server import ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest

from emulator import guard

NOBODY = 65534
PEER, OWN = ("127.0.0.1", 0xA1D7), ("127.10.0.5", 0x9B59)
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
MAPPED = "0000000000000000FFFF0000"

pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the made-up tables are of a little-endian machine")


def row(local, remote, user, inode, state="01"):
    return f"   1: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {user:>5}        0 {inode} 1 0 100\n"


def admits(tmp_path, *rows, six=()):
    tables = tmp_path / "tcp", tmp_path / "tcp6"
    for table, lines in zip(tables, (rows, six), strict=True):
        table.write_text(HEAD + "".join(lines))
    return guard.admits(PEER, OWN, tables)


@pytest.mark.parametrize(("user", "admitted"), [(os.geteuid(), True), (0, True), (NOBODY, False)])
def test_a_socket_is_its_user_s(tmp_path, user, admitted):
    peer = row("0100007F:A1D7", "05000A7F:9B59", user, 77)
    assert admits(tmp_path, peer) == admitted
    mapped = row(f"{MAPPED}0100007F:A1D7", f"{MAPPED}05000A7F:9B59", user, 77)
    assert admits(tmp_path, six=[mapped]) == admitted


@pytest.mark.parametrize(
    "other",
    [
        row("0100007F:A1D7", "05000A7F:9B5A", 0, 77),
        row("0100007F:A1D8", "05000A7F:9B59", 0, 77),
        row("0200007F:A1D7", "05000A7F:9B59", 0, 77),
        row("05000A7F:9B59", "0100007F:A1D7", 0, 77),
        row("0100007F:A1D7", "00000000:0000", 0, 77, state="0A"),
    ],
    ids=["another server", "another port", "another address", "our own end", "a listener"],
)
def test_only_the_very_connection_counts(tmp_path, other):
    assert not admits(tmp_path, other)
    assert not admits(tmp_path, other, row("0100007F:A1D7", "05000A7F:9B59", NOBODY, 77))


@pytest.mark.parametrize("state", ["04", "05", "06"])
def test_a_closed_socket_that_the_kernel_lists_as_root_s_is_nobody_s(tmp_path, state):
    assert not admits(tmp_path, row("0100007F:A1D7", "05000A7F:9B59", 0, 0, state))


def test_without_the_kernel_s_tables_nobody_passes(tmp_path):
    assert not guard.admits(PEER, OWN, (tmp_path / "none", tmp_path / "none6"))


@pytest.fixture
def connection():
    """Both ends of a connection on loopback: the client's, and the server's."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        served, _ = listener.accept()
        with served:
            yield client, served


def test_the_kernel_says_whose_a_connection_is_as_long_as_a_process_holds_it(connection):
    client, served = connection
    ends = client.getsockname(), served.getsockname()
    assert guard.asked(*ends) == os.geteuid()
    client.close()
    assert guard.asked(*ends) is None


def test_a_listener_at_the_peers_port_is_not_taken_for_a_connection_that_is_gone():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert guard.asked(listener.getsockname(), OWN) is None


@pytest.mark.parametrize("answers", [True, False], ids=["asked", "looked up"])
def test_who_holds_a_connection_passes_whether_or_not_the_kernel_answers(connection, monkeypatch, answers):
    if not answers:
        monkeypatch.setattr(guard, "_SOCK_DIAG", 31)  # a protocol that there is not
    client, served = connection
    assert guard.admits(client.getsockname(), served.getsockname())


class Counting(guard.Guarded):
    """Counts what passes the guard."""

    passed = 0

    def do_GET(self):
        type(self).passed += 1
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def server():
    """A guarded server that listens, but handles only what it is told to."""
    Counting.passed = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Counting) as made:
        made.daemon_threads = False
        yield made


def test_who_asks_and_hangs_up_before_being_looked_at_is_refused(server):
    with socket.create_connection(server.server_address) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
    server.handle_request()
    server.server_close()
    assert Counting.passed == 0


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_our_own_requests_pass_over_either_family(server, family):
    host, port = server.server_address
    try:
        client = socket.socket(family)
    except OSError:
        pytest.skip("needs a machine with IPv6")
    thread = Thread(target=server.handle_request)
    thread.start()
    with client:
        if family == socket.AF_INET6:
            client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        client.connect((host if family == socket.AF_INET else f"::ffff:{host}", port))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b" 204 " in client.recv(1000)
    thread.join()
    assert Counting.passed == 1


HEADERS = "Host: x\r\nContent-Length: 0\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\nConnection: close\r\n"


def ask(url, request, user):
    """One request by a process of that user, forked, as another user may not be able to read this Python."""
    where = urlsplit(url)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setuid(user)
            with socket.socket() as client:
                client.settimeout(10)
                client.connect((where.hostname, where.port))
                client.sendall(f"{request} HTTP/1.1\r\n{HEADERS}\r\n".encode())
                while part := client.recv(4096):
                    os.write(writing, part)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    head, _, body = answer.partition("\n\n")
    return int(head.split()[1]), body


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to ask as another user")
def test_another_user_is_refused_by_the_api_and_the_metadata_service_while_ours_is_served(world):
    (instance,) = world.booted(world.group(world.STAY), 1)
    asked = [(world.cloud.endpoint, "GET /moto-api/config"), (world.metadata(instance), "PUT /latest/api/token")]
    for url, request in asked:
        assert ask(url, request, NOBODY) == (403, guard.REFUSAL)
        assert ask(url, request, os.geteuid())[0] // 100 == 2
