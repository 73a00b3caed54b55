"""Shards come from data nodes where those are right and quick, and from the bucket wherever they are not."""

import hashlib
import json
import socket
import socketserver
import threading
import time
from dataclasses import asdict, replace

import pytest

from trainer import layout
from trainer.node import nearby, storage
from trainer.node.nearby import DataNodes
from trainer.node.serving import Record, Shelf, serving
from trainer.store import FileStore, Unavailable

SHARDS = {f"shard-{number:05}.bin": bytes([number]) * 1000 for number in range(6)}
TOKEN = "a" * 64

LIMIT_S = 30.0
"""Well beyond what a fetch takes on a busy machine, and well below what it takes to wait for what is unpatched."""


def sha256(name):
    return hashlib.sha256(SHARDS[name]).hexdigest()


class Bucket(FileStore):
    """A folder that counts what is fetched of it."""

    def __init__(self, root):
        super().__init__(root)
        self.downloads = []

    def download(self, key, path):
        self.downloads.append(key)
        super().download(key, path)


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    monkeypatch.setattr(nearby, "POLL_S", 0.02)
    made = Bucket(tmp_path / "bucket/datasets/text")
    for name, content in SHARDS.items():
        made.put(name, content)
    shards = [{"file": name, "tokens": 500, "sha256": sha256(name)} for name in SHARDS]
    made.put("index.json", json.dumps({"name": "text", "tokens": 3000, "shards": shards}).encode())
    return made


@pytest.fixture
def records(tmp_path):
    return FileStore(tmp_path / "bucket/data")


@pytest.fixture
def shelf(tmp_path):
    """A data node's, with everything on it."""
    made = Shelf(complete=True)
    for name, content in SHARDS.items():
        path = tmp_path / "served" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        made.add(sha256(name), path)
    return made


@pytest.fixture
def fetch(datasets, records, tmp_path):
    """What a node's boot report says of the dataset, which is right in any case."""

    def run(node="i-9"):
        folder, detail = storage.fetch(datasets, tmp_path / node, 5, bring=DataNodes(records, "text", node).bring)
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name in SHARDS} == SHARDS
        assert {path.name for path in folder.iterdir()} == {"index.json", *SHARDS}, "nothing unfinished is left"
        return detail.removeprefix("dataset text: 3000 tokens, 6 of 6 shards fetched, ")

    return run


def announced(records, wait_for, node="i-1"):
    wait_for("the record", lambda: records.exists(layout.data_node(node)))


def test_a_node_whose_data_node_has_all_reads_no_shard_from_the_bucket(fetch, datasets, records, shelf, wait_for):
    with serving(shelf, records, "i-1", "127.0.0.1", "text", port=0):
        announced(records, wait_for)
        assert fetch() == "6 of them from data nodes"
    assert datasets.downloads == []


def test_what_a_data_node_alters_is_refused_and_comes_from_the_bucket(
    fetch, datasets, records, shelf, wait_for, capsys
):
    """Integrity never rests on a data node: hashes are those of the bucket's own index."""
    for name in SHARDS:
        shelf.find(sha256(name)).write_bytes(b"altered")
    with serving(shelf, records, "i-1", "127.0.0.1", "text", port=0):
        announced(records, wait_for)
        token = json.loads(records.get(layout.data_node("i-1")))["token"]
        assert fetch() == "0 of them from data nodes"
    assert len(datasets.downloads) == 6
    said = capsys.readouterr().out
    assert said.count("data node i-1 is passed over: ") == 1
    assert "has SHA-256" in said
    assert token not in said


def record(records, address="127.0.0.1", port=1, **changes):
    made = Record("i-1", address, port, "text", TOKEN)
    records.put(layout.data_node("i-1"), json.dumps({**asdict(made), **changes}).encode())


def test_a_dead_data_node_costs_nothing_but_a_refused_connection(fetch, records):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        record(records, port=unused.getsockname()[1])
        started = time.monotonic()
        assert fetch() == "0 of them from data nodes"
    assert time.monotonic() - started < LIMIT_S


@pytest.fixture
def answering(records):
    """A data node that behaves as a function of its connection does."""
    servers = []

    def make(behave):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.recv(4096)
                behave(self.request)

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
        servers.append(server)
        record(records, port=server.server_address[1])

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def hold(connection, content=b"", over=0.0):
    """Send this, byte by byte, then keep still until the other side is gone."""
    for number in range(len(content)):
        connection.sendall(content[number : number + 1])
        time.sleep(over)
    connection.settimeout(5)
    connection.recv(1)


HEAD = b"HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n"


@pytest.mark.parametrize(
    "behave",
    [
        lambda connection: None,
        hold,
        lambda connection: hold(connection, HEAD),
        lambda connection: hold(connection, HEAD + b"\1"),
        lambda connection: connection.sendall(HEAD + b"\1" * 10),
        lambda connection: connection.sendall(HEAD.replace(b"1000", b"-5") + b"\1" * 10),
        lambda connection: connection.sendall(b"nonsense\r\n\r\n"),
        lambda connection: connection.sendall(b"HTTP/1.0 401 Unauthorized\r\n\r\n"),
        lambda connection: connection.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n"),
        lambda connection: connection.sendall(b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"),
    ],
    ids=["hangs up", "silent", "head only", "stalls", "truncated", "bad length", "nonsense", "401", "404", "302"],
)
def test_whatever_is_wrong_with_a_data_node_the_bucket_is_read_at_once(fetch, datasets, answering, monkeypatch, behave):
    monkeypatch.setattr(nearby, "IDLE_S", 0.2)
    answering(behave)
    started = time.monotonic()
    assert fetch() == "0 of them from data nodes"
    assert len(datasets.downloads) == 6
    assert time.monotonic() - started < LIMIT_S


def test_a_data_node_that_trickles_is_given_up(fetch, answering, monkeypatch):
    """No single read takes long: the whole does."""
    monkeypatch.setattr(nearby, "IDLE_S", 0.3)
    answering(_trickle)
    started = time.monotonic()
    assert fetch() == "0 of them from data nodes"
    assert time.monotonic() - started < LIMIT_S


def _trickle(connection):
    connection.sendall(HEAD)
    try:
        for _ in range(3000):
            connection.sendall(b"\1")
            time.sleep(0.02)
    except OSError:
        pass


def test_a_data_node_that_is_still_fetching_is_waited_for(fetch, datasets, records, shelf, wait_for):
    """So that nodes that boot together read the bucket once, whoever is first."""
    arriving = Shelf()
    with serving(arriving, records, "i-1", "127.0.0.1", "text", port=0):
        announced(records, wait_for)
        for delay, name in enumerate(SHARDS, start=1):
            threading.Timer(0.05 * delay, arriving.add, [sha256(name), shelf.find(sha256(name))]).start()
        assert fetch() == "6 of them from data nodes"
    assert datasets.downloads == []


def test_a_data_node_that_comes_later_than_its_askers_is_waited_for(fetch, datasets, records, shelf):
    def come():
        with serving(shelf, records, "i-1", "127.0.0.1", "text", port=0):
            done.wait(10)

    done = threading.Event()
    late = threading.Timer(0.2, come)
    late.start()
    try:
        assert fetch() == "6 of them from data nodes"
    finally:
        done.set()
        late.join()


def test_data_nodes_that_never_come_or_never_get_on_are_not_waited_for_longer_than_said(
    fetch, records, wait_for, monkeypatch
):
    monkeypatch.setattr(nearby, "WAIT_S", 0.2)
    started = time.monotonic()
    assert fetch("i-8") == "0 of them from data nodes"
    with serving(Shelf(), records, "i-1", "127.0.0.1", "text", port=0):
        announced(records, wait_for)
        assert fetch("i-9") == "0 of them from data nodes"
    assert time.monotonic() - started < LIMIT_S


def test_one_of_several_that_fails_leaves_the_others(fetch, records, shelf, wait_for):
    record(records, port=1)
    records.put(layout.data_node("i-0"), records.get(layout.data_node("i-1")).replace(b"i-1", b"i-0"))
    with serving(shelf, records, "i-2", "127.0.0.1", "text", port=0):
        announced(records, wait_for, "i-2")
        assert fetch() in {f"{count} of them from data nodes" for count in range(1, 7)}


def test_nodes_ask_all_data_nodes_alike():
    weights = nearby._weight
    names, shards, askers = ["i-1", "i-2", "i-3"], [f"{n:064x}" for n in range(100)], [f"i-{n}" for n in range(10, 20)]
    chosen = [min(names, key=lambda name: weights(node, name, shard)) for node in askers for shard in shards]
    assert all(250 < chosen.count(name) < 420 for name in names)
    first = [min(names, key=lambda name: weights(node, name, shards[0])) for node in askers]
    assert len(set(first)) > 1, "not all ask the same one for the same shard"


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "other"},
        {"address": "example.org"},
        {"address": "127.0.0.1/x"},
        {"address": None},
        {"port": 0},
        {"port": 70000},
        {"port": "x"},
        {"token": "a\r\nX: y"},
        {"token": ["a"]},
        {"node": "../x"},
        {"node": None},
    ],
)
def test_nothing_is_asked_by_a_record_that_is_not_one(records, changes):
    """What is read from the bucket names no host, header or file of its writer's choice."""
    record(records, **changes)
    nodes = DataNodes(records, "text", "i-9")
    assert nodes._choose("0" * 64) is None


@pytest.mark.parametrize("content", [b"", b"torn {", b"[]", b"{}", b"\xff", b"null"])
def test_a_record_that_is_torn_is_no_record(content):
    assert nearby._parse(content) is None


def test_a_record_of_a_newer_trainer_is_read():
    values = {**asdict(Record("i-1", "10.0.0.1", 7470, "text", TOKEN)), "more": 1}
    assert nearby._parse(json.dumps(values).encode()) == Record("i-1", "10.0.0.1", 7470, "text", TOKEN)


def test_old_records_do_not_crowd_out_new_ones(records, monkeypatch):
    monkeypatch.setattr(nearby, "MOST_RECORDS", 2)
    listed = [replace(entry, modified=modified) for entry, modified in _entries(records)]
    monkeypatch.setattr(records, "list", lambda prefix: listed)
    assert {found.node for found in nearby._read(records)} == {"i-1", "i-2"}


def _entries(records):
    for number, modified in enumerate([100, 300, 200]):
        made = Record(f"i-{number}", "127.0.0.1", 1, "text", TOKEN)
        records.put(layout.data_node(made.node), made.json())
        (entry,) = [entry for entry in records.list(layout.DATA_NODES) if made.node in entry.key]
        yield entry, modified


def test_a_store_that_does_not_answer_leaves_the_bucket_to_be_read(fetch, records, monkeypatch, capsys):
    def down(_):
        raise Unavailable("down")

    monkeypatch.setattr(records, "list", down)
    monkeypatch.setattr(nearby, "WAIT_S", 0.1)
    assert fetch() == "0 of them from data nodes"
    assert "data nodes can't be looked up: down" in capsys.readouterr().out


def test_no_proxy_of_the_environment_sees_a_shard(fetch, records, shelf, wait_for, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving(shelf, records, "i-1", "127.0.0.1", "text", port=0):
        announced(records, wait_for)
        assert fetch() == "6 of them from data nodes"


def test_many_nodes_at_once_are_served(datasets, records, shelf, wait_for, tmp_path):
    with serving(shelf, records, "i-1", "127.0.0.1", "text", port=0):
        announced(records, wait_for)
        nodes = [DataNodes(records, "text", f"i-{number}") for number in range(20)]
        results = []

        def boot(number):
            folder = tmp_path / f"node-{number}"
            results.append(storage.fetch(datasets, folder, 5, bring=nodes[number].bring)[1])

        threads = [threading.Thread(target=boot, args=[number]) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 20
    assert all("6 of them from data nodes" in result for result in results)
    assert datasets.downloads == []
