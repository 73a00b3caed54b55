"""The embedded cloud's life: one a home, whatever is started, stopped or killed, and nothing left behind."""

import contextlib
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from emulator import cloud, processes
from emulator.notices import raise_notice

HIDDEN_CHILD = "#!/bin/sh\nsetsid env -i sleep 1000 &\necho $! > $HOME/child\nexec sleep 1000\n"


def traces(home: Path) -> list[str]:
    """The processes of this machine, other than this one, that name the home in command line or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if os.fsencode(home) in text:
                found.append(f"{entry.name} {text[:200]!r}")
    return found


def stopped(pid: int) -> bool:
    """Whether every thread of a process has been stopped by a signal."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((task / "stat").read_text().rpartition(") ")[2][0] == "T" for task in tasks)


def test_a_second_start_finds_the_first_cloud_and_stop_leaves_nothing(home, new_world):
    first, started = cloud.start(home)
    assert started
    assert cloud.find(home) == first
    assert cloud.start(home) == (first, False)
    world = new_world(first)
    world.booted(world.group(HIDDEN_CHILD, nodes=2), 2)
    assert traces(home)
    cloud.stop(home)
    assert traces(home) == []
    assert [entry.name for entry in home.iterdir()] == ["state"]
    assert cloud.find(home) is None
    cloud.stop(home)


def test_stopping_before_anything_was_started_makes_no_folder(tmp_path):
    cloud.stop(tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_starts_at_the_same_time_give_one_cloud(home):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(cloud.start(home))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({found.pid for found, _ in answers}) == 1
    assert sorted(started for _, started in answers) == [False, False, True]
    assert len(cloud._daemons(home.resolve())) == 1


def test_nodes_die_with_a_killed_daemon_and_the_next_start_clears_what_it_left(home, new_world):
    first, _ = cloud.start(home)
    world = new_world(first)
    (instance,) = world.booted(world.group(HIDDEN_CHILD), 1)
    child = int(world.file(instance, "root/child"))
    (home / "state" / "stale").touch()
    os.kill(first.pid, signal.SIGKILL)
    world.wait_for("the end of the nodes", lambda: processes.started(child) is None and not world.processes(instance))
    assert cloud.find(home) is None
    second, started = cloud.start(home)
    assert started
    assert second.pid != first.pid
    assert [entry.name for entry in (home / "state").iterdir()] == [cloud.MARK]
    assert not world.root(instance).exists()


def test_what_outlives_even_its_first_process_is_ended_by_the_next_start(home, new_world):
    first, _ = cloud.start(home)
    world = new_world(first)
    (instance,) = world.booted(world.group("#!/bin/sh\nsetsid sleep 1000 &\necho $! > $HOME/child\nwait\n"), 1)
    child = int(world.file(instance, "root/child"))
    os.kill(first.pid, signal.SIGSTOP)
    # A daemon that is still running when it finds its node dead would end the child itself.
    world.wait_for("the daemon's standstill", lambda: stopped(first.pid))
    for pid in [*(world.processes(instance) - {child}), first.pid]:
        # The script dies with its parent, the node's first process, and may be reaped before its turn comes.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # A killed process is there for a moment longer, in which its cloud counts as running.
    world.wait_for("the daemon's end", lambda: processes.started(first.pid) is None)
    assert processes.started(child) is not None
    cloud.start(home)
    assert processes.started(child) is None


def test_stopping_while_nodes_boot_leaves_nothing(home, new_world):
    running, _ = cloud.start(home)
    world = new_world(running)
    world.group(world.STAY, nodes=4)
    world.wait_for("a first node", lambda: any(world.nodes.iterdir()))
    cloud.stop(home)
    assert traces(home) == []
    assert [entry.name for entry in home.iterdir()] == ["state"]


def test_two_homes_do_not_disturb_each_other(world, home, new_world, tmp_path):
    (mine,) = world.booted(world.group(world.STAY), 1)
    world.wait_for("its script", lambda: len(world.processes(mine)) == 2)
    before = world.processes(mine)
    long_home = home / ("a long folder's name " * 8) / ("another " * 20)
    other, started = cloud.start(long_home)
    assert started
    assert other.endpoint != world.cloud.endpoint
    there = new_world(other)
    (theirs,) = there.booted(there.group(there.STAY), 1)
    with pytest.raises(LookupError):
        raise_notice(world.cloud.home, theirs, "spot", 0)
    os.kill(other.pid, signal.SIGKILL)
    there.wait_for("the other's end", lambda: not there.processes(theirs))
    cloud.start(long_home)
    cloud.stop(long_home)
    assert traces(long_home) == []
    assert world.processes(mine) == before
    assert cloud.find(world.cloud.home) == world.cloud


@pytest.mark.parametrize(
    "end",
    [
        lambda running: os.kill(running.pid, signal.SIGTERM),
        lambda running: (running.home / "cloud" / "cloud.json").unlink(),
    ],
    ids=["SIGTERM", "its folder removed"],
)
def test_a_daemon_ends_by_itself_with_all_nodes_on(home, new_world, end):
    running, _ = cloud.start(home)
    world = new_world(running)
    (instance,) = world.booted(world.group(world.STAY), 1)
    end(running)
    world.wait_for("the end of the daemon", lambda: processes.started(running.pid) is None, seconds=30)
    assert world.processes(instance) == set()


@pytest.mark.parametrize(
    "record",
    [
        "",
        "{",
        "[]",
        json.dumps({"endpoint": "http://127.0.0.1:1", "pid": os.getpid()}),
        json.dumps({"endpoint": "http://127.0.0.1:1", "pid": os.getpid(), "started": 1}),
    ],
    ids=["empty", "cut short", "no record", "without a start", "another start"],
)
def test_a_record_that_is_broken_or_names_a_process_number_used_again_is_no_cloud(tmp_path, record):
    (tmp_path / "cloud").mkdir()
    (tmp_path / "cloud" / "cloud.json").write_text(record)
    assert cloud.find(tmp_path) is None


@pytest.mark.parametrize("name", ["cloud", "state"])
def test_a_folder_of_the_user_s_own_is_neither_removed_nor_used(home, name):
    (home / name).mkdir(parents=True)
    (home / name / "photo").touch()
    with pytest.raises(cloud.CloudError, match=rf"{home / name} .*holds no file .*Set TRAINWRIGHT_HOME"):
        cloud.start(home)
    if name == "cloud":
        with pytest.raises(cloud.CloudError, match="may be yours"):
            cloud.stop(home)
    else:
        cloud.stop(home)
    assert [str(path.relative_to(home)) for path in sorted(home.rglob("*"))] == [name, f"{name}/photo"]
    (home / name / "photo").unlink()


def test_what_a_link_leads_to_is_not_removed(home, tmp_path):
    cloud.make_folder(tmp_path / "elsewhere")
    home.mkdir()
    (home / "state").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(cloud.CloudError, match="may be yours"):
        cloud.start(home)
    assert (tmp_path / "elsewhere" / cloud.MARK).exists()


def test_a_daemon_that_cannot_start_is_reported_with_its_last_words(home, monkeypatch, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no moto here\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(broken))
    with pytest.raises(cloud.CloudError, match="last line: no moto here"):
        cloud.start(home)
    assert traces(home) == []


def test_the_daemon_listens_on_loopback_only(world):
    world.booted(world.group(world.STAY), 1)
    folder = Path(f"/proc/{world.cloud.pid}")
    sockets = {link.readlink().name for link in (folder / "fd").iterdir() if link.exists() or link.is_symlink()}
    listening = []
    for table in ("tcp", "tcp6"):
        for line in (folder / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                listening.append(fields[1])
    assert len(listening) >= 2
    assert all(address.split(":")[0].endswith("7F") and len(address) == 13 for address in listening)
