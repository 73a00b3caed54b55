"""A growing file arrives whole, in order, in chunks that a reader can take one by one."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.node import shipping
from trainer.node.shipping import CHUNK_BYTES, Shipper, Stream
from trainer.store import FileStore, Unavailable


class Shaky(FileStore):
    """A folder that refuses to be written to while it is down."""

    down = False
    puts = 0

    def put(self, key, data, *, if_absent=False):
        if self.down:
            raise Unavailable("down")
        self.puts += 1
        return super().put(key, data, if_absent=if_absent)


def key(chunk):
    return f"log/{chunk:06}"


def shipped(store):
    return [store.get(entry.key) for entry in store.list("log/")]


PIECES = st.lists(st.tuples(st.integers(0, 200), st.sampled_from([b"\n", b"", b"a\nb"])), max_size=30)


@settings(max_examples=60, deadline=None)
@given(PIECES, st.lists(st.booleans(), min_size=30, max_size=30), st.integers(1, 300))
def test_whatever_comes_in_whatever_pieces_arrives_whole_and_in_order(tmp_path_factory, pieces, up, chunk):
    folder = tmp_path_factory.mktemp("shipping")
    store, path = Shaky(folder / "store"), folder / "log"
    stream, original = Stream(path, key), shipping.CHUNK_BYTES
    shipping.CHUNK_BYTES = chunk
    try:
        for (length, end), is_up in zip(pieces, up, strict=False):
            with path.open("ab") as file:
                file.write(b"x" * length + end)
            store.down = not is_up
            try:
                stream.ship(store)
            except Unavailable:
                assert store.down
        store.down = False
        stream.ship(store)
    finally:
        shipping.CHUNK_BYTES = original
    chunks = shipped(store)
    assert b"".join(chunks) == (path.read_bytes() if path.exists() else b"")
    for done in chunks[:-1]:
        assert done.endswith(b"\n") or b"\n" not in done, "half a line at the end of a chunk that is done"
        assert len(done) <= chunk


def test_chunks_that_are_done_are_left_alone(tmp_path):
    store, path = Shaky(tmp_path / "store"), tmp_path / "log"
    line = b"x" * 99 + b"\n"
    path.write_bytes(line * 1000)
    stream = Stream(path, key)
    stream.ship(store)
    first = store.list("log/")[0]
    with path.open("ab") as file:
        file.write(line * 5)
    stream.ship(store)
    assert store.list("log/")[0] == first
    assert len(shipped(store)) == 2
    assert len(shipped(store)[0]) == CHUNK_BYTES // 100 * 100


def test_nothing_new_writes_nothing(tmp_path):
    store, path = Shaky(tmp_path / "store"), tmp_path / "log"
    stream = Stream(path, key)
    stream.ship(store)
    path.write_bytes(b"one\n")
    stream.ship(store)
    stream.ship(store)
    assert store.puts == 1


def test_a_worker_that_prints_without_end_cannot_hold_up_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "MOST_BYTES_A_LOOK", 3 * CHUNK_BYTES)
    store, path = Shaky(tmp_path / "store"), tmp_path / "log"
    path.write_bytes(b"x\n" * (10 * CHUNK_BYTES))
    stream = Stream(path, key)
    stream.ship(store)
    assert 3 <= store.puts <= 4
    for _ in range(10):
        stream.ship(store)
    assert b"".join(shipped(store)) == path.read_bytes()


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(shipping, "SHORTEST_S", 0.02)


def test_a_worker_that_prints_without_end_cannot_fill_the_disk(tmp_path, monkeypatch):
    """What is far back goes, shipped or not; the end stays, which tells how a worker ended, and where it is."""
    monkeypatch.setattr(shipping, "KEPT_BYTES", 1 << 20)
    path, store = tmp_path / "log", FileStore(tmp_path / "store")
    shipper = Shipper(store)
    shipper.add(path, key)
    path.write_bytes(b"begin\n" + b"x" * (2 << 20) + b"\nthe end\n")
    size = path.stat().st_size
    shipper._look()
    assert path.stat().st_size == size
    assert path.stat().st_blocks * 512 < size - (1 << 19)
    assert path.read_bytes().endswith(b"x\nthe end\n")
    assert b"".join(shipped(store)) == path.read_bytes()[-(1 << 20) :], "the hole is no part of a log"
    with path.open("ab") as worker:  # it goes on writing where it was
        worker.write(b"more\n")
    shipper._look()
    assert b"".join(shipped(store)).endswith(b"the end\nmore\n")


def test_no_byte_of_a_hole_is_shipped_after_half_a_chunk(tmp_path, monkeypatch):
    """A chunk that is done ends with a line, and what it cuts off is read again: but not where that is gone."""
    monkeypatch.setattr(shipping, "KEPT_BYTES", 1 << 20)
    path, store = tmp_path / "log", FileStore(tmp_path / "store")
    shipper = Shipper(store)
    shipper.add(path, key)
    path.write_bytes(b"begin\nhalf a line")
    shipper._look()
    with path.open("ab") as worker:
        worker.write(b"x" * (3 << 20) + b"\nthe end\n")
    shipper._look()
    assert shipped(store)[0] == b"begin\nhalf a line"
    assert b"".join(shipped(store)[1:]) == path.read_bytes()[-(1 << 20) :]


def test_a_shipper_ships_what_is_added_while_it_runs_and_the_rest_when_it_closes(tmp_path, fast):
    store = Shaky(tmp_path / "store")
    shipper = Shipper(store)
    shipper.start()
    for name in ("one", "two"):
        path = tmp_path / name
        path.write_bytes(name.encode())
        shipper.add(path, lambda chunk, name=name: f"{name}/{chunk}")
    deadline = time.monotonic() + 30
    while not store.exists("two/0") and time.monotonic() < deadline:
        time.sleep(0.01)
    (tmp_path / "one").write_bytes(b"one, and more")
    shipper.close()
    assert (store.get("one/0"), store.get("two/0")) == (b"one, and more", b"two")
    assert not [thread for thread in threading.enumerate() if thread.name == "shipper"]


def test_an_outage_is_waited_out_and_said(tmp_path, fast, capsys):
    store, path = Shaky(tmp_path / "store"), tmp_path / "log"
    path.write_bytes(b"line\n")
    store.down = True
    shipper = Shipper(store)
    shipper.add(path, key)
    shipper.start()
    time.sleep(0.1)
    store.down = False
    shipper.close()
    assert shipped(store) == [b"line\n"]
    assert "shipping log waits: down" in capsys.readouterr().out


def test_closing_takes_no_longer_than_it_may(tmp_path, fast):
    """A store that hangs must not keep a node from ending."""
    release, returned = threading.Event(), threading.Event()

    class Hung(FileStore):
        def put(self, key, data, *, if_absent=False):
            release.wait(20)
            returned.set()
            return True

    path = tmp_path / "log"
    path.write_bytes(b"line\n")
    shipper = Shipper(Hung(tmp_path))
    shipper.add(path, key)
    shipper.start()
    shipper.close(limit_s=0.2)
    assert not returned.is_set()
    release.set()
