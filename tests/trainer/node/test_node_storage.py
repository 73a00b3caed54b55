"""The dataset arrives whole and verified, and once."""

import hashlib
import json
import threading

import pytest

from trainer.node import storage
from trainer.store import FileStore, Missing, Unavailable


class Counted(FileStore):
    """A folder that counts what is fetched of it, and fails the first so many reads."""

    def __init__(self, root):
        super().__init__(root)
        self.downloads, self.failures = [], 0

    def get(self, key):
        if self.failures:
            self.failures -= 1
            raise Unavailable("down")
        return super().get(key)

    def download(self, key, path):
        self.downloads.append(key)
        super().download(key, path)


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "POLL_S", 0.02)
    monkeypatch.setattr(storage, "IMPORT_WAIT_S", 0.1)
    return Counted(tmp_path / "datasets")


def pack(store, count=3):
    shards = []
    for number in range(count):
        data = bytes([number]) * 1000
        name = f"shard-{number:05}.bin"
        store.put(name, data)
        shards.append({"file": name, "tokens": 500, "sha256": hashlib.sha256(data).hexdigest()})
    store.put("index.json", json.dumps({"name": "text", "tokens": 500 * count, "shards": shards}).encode())


def test_shards_and_index_arrive(datasets, tmp_path):
    pack(datasets)
    folder, detail = storage.fetch(datasets, tmp_path / "data", 5)
    assert folder == tmp_path / "data"
    assert detail == "dataset text: 1500 tokens, 3 of 3 shards fetched"
    assert {path.name for path in folder.iterdir()} == {"index.json", *(f"shard-0000{n}.bin" for n in range(3))}
    assert (folder / "shard-00002.bin").read_bytes() == b"\x02" * 1000


def test_b12_a_second_boot_fetches_nothing(datasets, tmp_path):
    pack(datasets)
    storage.fetch(datasets, tmp_path / "data", 5)
    datasets.downloads.clear()
    assert storage.fetch(datasets, tmp_path / "data", 5)[1].endswith("0 of 3 shards fetched")
    assert datasets.downloads == []


def test_a_shard_that_was_damaged_on_disk_is_fetched_again(datasets, tmp_path):
    pack(datasets)
    folder, _ = storage.fetch(datasets, tmp_path / "data", 5)
    (folder / "shard-00001.bin").write_bytes(b"torn")
    datasets.downloads.clear()
    storage.fetch(datasets, tmp_path / "data", 5)
    assert datasets.downloads == ["shard-00001.bin"]
    assert (folder / "shard-00001.bin").read_bytes() == b"\x01" * 1000


def test_a_shard_that_is_not_what_its_index_says_is_refused_and_removed(datasets, tmp_path):
    pack(datasets)
    datasets.put("shard-00001.bin", b"altered")
    with pytest.raises(storage.Corrupt, match="its index says"):
        storage.fetch(datasets, tmp_path / "data", 5)
    assert not (tmp_path / "data/shard-00001.bin").exists()
    assert not (tmp_path / "data/index.json").exists(), "the index comes last, so that what has one is whole"


def test_a_dataset_that_is_still_packed_is_waited_for(datasets, tmp_path, capsys):
    late = threading.Timer(0.15, pack, [datasets])
    late.start()
    storage.fetch(datasets, tmp_path / "data", 10)
    late.join()
    assert "waiting up to 10 s for the dataset" in capsys.readouterr().out


def test_a_store_that_is_away_for_a_moment_is_waited_for(datasets, tmp_path):
    pack(datasets)
    datasets.failures = 3
    storage.fetch(datasets, tmp_path / "data", 10)


def test_a_dataset_that_never_comes_ends_the_step_with_what_to_do(datasets, tmp_path):
    with pytest.raises(Missing, match=r"no dataset came within 0\.1 s .*run `trainwright data pack`"):
        storage.fetch(datasets, tmp_path / "data", 0.1)


def test_a_store_that_stays_away_is_not_taken_for_a_dataset_that_is_not_there(datasets, tmp_path):
    """What follows differs: a node is replaced, or the run has failed."""
    datasets.failures = 1000
    with pytest.raises(Unavailable):
        storage.fetch(datasets, tmp_path / "data", 0.1)


@pytest.fixture
def warm(datasets, tmp_path):
    """The bucket's dataset as a file system shows it."""
    pack(datasets)
    folder = tmp_path / "warm/datasets/text"
    folder.mkdir(parents=True)
    for path in datasets.root.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_a_dataset_that_the_warm_tier_shows_whole_is_read_there(datasets, warm, tmp_path):
    folder, detail = storage.fetch(datasets, tmp_path / "data", 5, warm)
    assert folder == warm
    assert detail == f"dataset text: 1500 tokens, 3 shards verified in {warm}"
    assert datasets.downloads == []
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda warm: (warm / "shard-00001.bin").write_bytes(b"torn"), "shard-00001.bin is another"),
        (lambda warm: (warm / "shard-00002.bin").unlink(), "shard-00002.bin can't be read"),
        (lambda warm: (warm / "index.json").write_text("{}"), "index.json is another"),
        (lambda warm: (warm / "index.json").unlink(), "index.json can't be read"),
    ],
)
def test_what_the_warm_tier_shows_is_believed_by_its_hashes_alone(datasets, warm, tmp_path, spoil, why):
    """What a node wrote there, or what FSx has not imported yet, is no dataset: the bucket is the truth."""
    spoil(warm)
    folder, detail = storage.fetch(datasets, tmp_path / "data", 5, warm)
    assert folder == tmp_path / "data"
    assert f"3 of 3 shards fetched; not from {warm}: {why}" in detail
    assert len(datasets.downloads) == 3


def test_a_warm_tier_that_lags_behind_the_bucket_is_waited_for(datasets, warm, tmp_path, monkeypatch):
    """Else every node of a new cluster would fetch what it is about to be shown."""
    monkeypatch.setattr(storage, "IMPORT_WAIT_S", 10)
    content = (warm / "index.json").read_bytes()
    (warm / "index.json").unlink()
    late = threading.Timer(0.15, (warm / "index.json").write_bytes, [content])
    late.start()
    assert storage.fetch(datasets, tmp_path / "data", 5, warm)[0] == warm
    late.join()


def test_an_index_that_leads_out_of_its_folder_is_refused_before_the_warm_tier_is_read(datasets, warm, tmp_path):
    index = {"name": "text", "tokens": 1, "shards": [{"file": "../../secret", "sha256": "0"}]}
    datasets.put("index.json", json.dumps(index).encode())
    (warm / "index.json").write_bytes(datasets.get("index.json"))
    with pytest.raises(storage.Corrupt, match="names a shard"):
        storage.fetch(datasets, tmp_path / "data", 5, warm)


def test_a_shared_folder_is_filled_by_the_first_and_verified_by_the_others(datasets, tmp_path):
    pack(datasets)
    shared = tmp_path / "warm/datasets/text"
    folder, _ = storage.fill(datasets, shared, tmp_path / "scratch", 5)
    assert folder == shared
    assert len(datasets.downloads) == 3
    folder, detail = storage.fill(datasets, shared, tmp_path / "scratch", 5)
    assert (folder, len(datasets.downloads)) == (shared, 3)
    assert "0 of 3 shards fetched" in detail
    assert sorted(path.name for path in shared.iterdir()) == [
        "index.json",
        *(f"shard-{number:05}.bin" for number in range(3)),
    ], "nothing half-written is left"


def test_many_nodes_may_fill_a_shared_folder_at_once(datasets, tmp_path):
    pack(datasets)
    shared, done = tmp_path / "warm", []

    def node(number):
        done.append(storage.fill(datasets, shared, tmp_path / f"scratch{number}", 5)[0])

    threads = [threading.Thread(target=node, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [shared] * 4
    for shard in json.loads((shared / "index.json").read_text())["shards"]:
        assert hashlib.sha256((shared / shard["file"]).read_bytes()).hexdigest() == shard["sha256"]


def test_a_shared_folder_that_takes_no_writes_costs_only_the_fetch(datasets, tmp_path, capsys):
    pack(datasets)
    (tmp_path / "warm").write_text("no folder")
    folder, _ = storage.fill(datasets, tmp_path / "warm/datasets", tmp_path / "scratch", 5)
    assert folder == tmp_path / "scratch"
    assert "can't be filled" in capsys.readouterr().out
