"""Processes: whose they are is never mistaken, and what is to end does end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator import processes

SLEEP = ["sleep", "1000"]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test starts; all are ended with it."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def on(root: Path, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env={"TRAINWRIGHT_ROOT": str(root), "PATH": os.environ["PATH"]})


def test_a_node_whose_name_begins_with_another_s_is_not_mistaken_for_it(tmp_path, started):
    one, ten = on(tmp_path / "n1", SLEEP), on(tmp_path / "n10", SLEEP)
    started += [one, ten]
    assert processes.belonging_to(tmp_path / "n1") == {one.pid}
    assert processes.belonging_to(tmp_path) == {one.pid, ten.pid}


def test_a_descendant_that_cleared_its_environment_still_belongs_to_the_node(tmp_path, started):
    process = subprocess.Popen(
        ["sh", "-c", "env -i sleep 1000 & echo $!; wait"],
        env={"TRAINWRIGHT_ROOT": str(tmp_path), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
    )
    started.append(process)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.stdout.close()
    assert processes.belonging_to(tmp_path) == {process.pid, child}
    assert processes.end(lambda: processes.belonging_to(tmp_path), grace=0) == set()
    assert processes.started(child) is None


def test_what_ignores_sigterm_is_killed_after_the_grace(tmp_path, started):
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(1000)"
    process = subprocess.Popen(
        [sys.executable, "-c", program], env={"TRAINWRIGHT_ROOT": str(tmp_path)}, stdout=subprocess.PIPE
    )
    started.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert processes.end(lambda: processes.belonging_to(tmp_path), grace=0.2) == set()
    assert process.wait() == -signal.SIGKILL


def test_what_obeys_sigterm_is_not_killed(tmp_path, started):
    process = on(tmp_path, SLEEP)
    started.append(process)
    processes.end(lambda: processes.belonging_to(tmp_path), grace=5)
    assert process.wait() == -signal.SIGTERM


def test_a_zombie_counts_as_gone(tmp_path, started):
    process = on(tmp_path, SLEEP)
    started.append(process)
    assert processes.started(process.pid) is not None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert processes.started(process.pid) is None
    assert processes.belonging_to(tmp_path) == set()


def test_a_command_s_odd_name_does_not_shift_the_fields(tmp_path, started):
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([odd, "1000"])
    started.append(process)
    assert processes.started(process.pid) >= processes.started(os.getpid())
