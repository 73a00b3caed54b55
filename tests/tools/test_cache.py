"""A cache entry is there whole or not at all, and is filled by one process at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import cache
from tools.processes import Failed

REPO = Path(__file__).parents[2]

HOLDER = """
import sys, time
from pathlib import Path
from tools import cache
with cache.lock(Path(sys.argv[1]), limit=5, on_wait=lambda: None):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the entry's lock."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "entry")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPO) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_folder_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.folder() == tmp_path / ".cache" / "trainwright"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.folder() == tmp_path / ".cache" / "trainwright"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache.folder() == Path("/elsewhere/trainwright")


def test_an_entry_is_not_there_before_it_is_whole(tmp_path):
    entry = tmp_path / "entry"

    def make(root):
        (root / "first").write_text("1")
        assert not entry.exists()
        (root / "second").write_text("2")

    cache.fill(entry, make)
    assert sorted(path.name for path in entry.iterdir()) == ["first", "second"]
    assert entry.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("failure", [Failed("no network"), KeyboardInterrupt()])
def test_a_failed_or_interrupted_fill_leaves_nothing(tmp_path, failure):
    def make(root):
        (root / "half").write_text("1")
        raise failure

    with pytest.raises(type(failure)):
        cache.fill(tmp_path / "entry", make)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_fill_left_is_cleared_and_a_broken_entry_replaced(tmp_path):
    (tmp_path / "entry.partial-dead").mkdir()
    (tmp_path / "entry").mkdir()
    (tmp_path / "entry" / "broken").write_text("")
    (tmp_path / "other.partial-x").mkdir()
    cache.fill(tmp_path / "entry", lambda root: (root / "whole").touch())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entry", "other.partial-x"]
    assert [path.name for path in (tmp_path / "entry").iterdir()] == ["whole"]


def test_the_wait_for_a_lock_is_announced_once_and_ends_at_its_limit(tmp_path, holder):
    waits = []
    with (
        pytest.raises(Failed, match=r"held .*entry\.lock"),
        cache.lock(tmp_path / "entry", limit=0.5, on_wait=lambda: waits.append(1)),
    ):
        pytest.fail("two held the lock")
    assert waits == [1]


def test_a_killed_holder_gives_its_lock_back(tmp_path, holder):
    def kill() -> None:
        holder.kill()

    with cache.lock(tmp_path / "entry", limit=10, on_wait=kill):
        assert holder.wait(30) != 0
