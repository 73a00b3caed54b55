"""A data node gives shards to whoever may read the bucket, and nothing else to anybody."""

import hashlib
import http.client
import json
import socket
import threading

import pytest

from trainer import layout
from trainer.node import serving
from trainer.node.serving import Server, Shelf
from trainer.store import FileStore, Unavailable

CONTENT = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()
TOKEN = "a" * 64


@pytest.fixture
def shelf(tmp_path):
    path = tmp_path / "shard-00000.bin"
    path.write_bytes(CONTENT)
    made = Shelf()
    made.add(SHA256, path)
    return made


@pytest.fixture
def server(shelf):
    made = Server("127.0.0.1", 0, shelf, TOKEN)
    thread = threading.Thread(target=lambda: made.serve_forever(0.01))
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def ask(server, path, token=TOKEN, method="GET"):
    connection = http.client.HTTPConnection(*server.server_address, timeout=5)
    connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token is not None else {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def test_a_shard_is_served_by_its_hash(server):
    assert ask(server, f"/{SHA256}") == (200, CONTENT)


@pytest.mark.parametrize("token", [None, "", "b" * 64, TOKEN[:-1], "ä"])
def test_nobody_is_served_without_the_token(server, token):
    """The token is in the bucket: who may not read that may not read the data (the security group alone says less)."""
    status, content = ask(server, f"/{SHA256}", token)
    assert (status, content) == (401, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/index.json",
        "/shard-00000.bin",
        "/../../../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "//etc/passwd",
        f"/{SHA256}/../{SHA256}",
        f"/{SHA256.upper()}",
        f"/{'0' * 64}",
    ],
)
def test_no_path_leads_to_anything_but_a_shard(server, shelf, path):
    """Neither to another file nor to a listing: names are never joined to a folder."""
    shelf.complete = True
    assert ask(server, path) == (404, b"")


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "HEAD"])
def test_nothing_can_be_written_or_done(server, method):
    assert ask(server, f"/{SHA256}", method=method)[0] == 501


def test_what_may_still_come_is_not_said_to_be_absent(server, shelf):
    assert ask(server, f"/{'0' * 64}")[0] == 503
    shelf.complete = True
    assert ask(server, f"/{'0' * 64}")[0] == 404


def test_a_shard_that_is_gone_from_the_disk_is_absent(server, shelf, tmp_path):
    (tmp_path / "shard-00000.bin").unlink()
    assert ask(server, f"/{SHA256}") == (404, b"")


def test_who_asks_for_more_than_there_are_transfers_is_told_to_wait(server):
    for _ in range(serving.TRANSFERS):
        server.transfers.acquire()
    assert ask(server, f"/{SHA256}")[0] == 503
    server.transfers.release()
    assert ask(server, f"/{SHA256}")[0] == 200
    assert ask(server, f"/{SHA256}")[0] == 200, "a transfer that is done frees its place"


def test_there_are_no_more_threads_than_connections_allowed(shelf, monkeypatch, wait_for):
    monkeypatch.setattr(serving, "CONNECTIONS", 2)
    server = Server("127.0.0.1", 0, shelf, TOKEN)
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    idle = [socket.create_connection(server.server_address, timeout=5) for _ in range(2)]
    try:
        third = socket.create_connection(server.server_address, timeout=5)
        assert third.recv(1) == b"", "closed at once"
        third.close()
        idle.pop().close()
        wait_for("a free place", lambda: _served(server))
    finally:
        for connection in idle:
            connection.close()
        server.shutdown()
        server.server_close()
        thread.join()


def _served(server):
    try:
        return ask(server, f"/{SHA256}")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_a_client_that_says_nothing_is_let_go(server, monkeypatch):
    assert serving._Handler.timeout == serving.IDLE_S
    monkeypatch.setattr(serving._Handler, "timeout", 0.1)
    with socket.create_connection(server.server_address, timeout=5) as silent:
        assert silent.recv(1) == b""


def test_a_client_that_takes_nothing_does_not_hold_its_transfer_for_ever(
    server, shelf, tmp_path, monkeypatch, wait_for
):
    monkeypatch.setattr(serving._Handler, "timeout", 0.1)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(64 << 20)
    shelf.add("1" * 64, large)
    with socket.create_connection(server.server_address, timeout=5) as idle:
        idle.sendall(f"GET /{'1' * 64} HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        wait_for("its transfer", lambda: server.transfers._value < serving.TRANSFERS)
        wait_for("its end", lambda: server.transfers._value == serving.TRANSFERS)


def test_a_file_that_was_cut_short_ends_its_answer(server, shelf, tmp_path, monkeypatch):
    """And doesn't keep a core busy with nothing to send."""
    path = tmp_path / "shard-00000.bin"
    real = serving.os.fstat
    monkeypatch.setattr(
        serving.os, "fstat", lambda handle: type("Stat", (), {"st_size": real(handle).st_size + 1000, "st_mode": 0})
    )
    assert path.stat().st_size == len(CONTENT)
    monkeypatch.setattr(serving, "IDLE_S", 60)
    connection = http.client.HTTPConnection(*server.server_address, timeout=30)
    connection.request("GET", f"/{SHA256}", headers={"Authorization": f"Bearer {TOKEN}"})
    with pytest.raises(http.client.IncompleteRead):
        connection.getresponse().read()
    connection.close()


def test_the_record_says_where_and_goes_with_its_node(tmp_path, shelf, wait_for):
    records = FileStore(tmp_path / "data")
    key = layout.data_node("i-1")
    with serving.serving(shelf, records, "i-1", "127.0.0.1", "text", port=0) as place:
        wait_for("the record", lambda: records.exists(key))
        said = json.loads(records.get(key))
        token = said.pop("token")
        assert said == {"node": "i-1", "address": "127.0.0.1", "port": place[1], "dataset": "text", "beat": 1}
        assert ask(type("Place", (), {"server_address": place}), f"/{SHA256}", token) == (200, CONTENT)
    assert not records.exists(key)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(place, timeout=5)


def test_a_token_is_never_used_twice(tmp_path, shelf, wait_for):
    records, tokens = FileStore(tmp_path / "data"), set()
    for _ in range(2):
        with serving.serving(shelf, records, "i-1", "127.0.0.1", "text", port=0):
            wait_for("the record", lambda: records.exists(layout.data_node("i-1")))
            tokens.add(json.loads(records.get(layout.data_node("i-1")))["token"])
    assert len(tokens) == 2


def test_the_record_is_written_again_and_again_also_past_trouble_with_the_store(tmp_path, shelf, monkeypatch, wait_for):
    monkeypatch.setattr(serving, "BEAT_S", 0.02)
    records, put, failures = FileStore(tmp_path / "data"), FileStore.put, [1, 1]

    def unsteady(store, key, data, **how):
        if failures:
            failures.pop()
            raise Unavailable("down")
        return put(store, key, data, **how)

    monkeypatch.setattr(FileStore, "put", unsteady)
    with serving.serving(shelf, records, "i-1", "127.0.0.1", "text", port=0):
        wait_for("a later beat", lambda: records.exists(layout.data_node("i-1")) and _beat(records) > 4)


def _beat(records):
    return json.loads(records.get(layout.data_node("i-1")))["beat"]
