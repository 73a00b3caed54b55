"""A helper program is bounded in time, takes its children with it, and its failure is one line."""

import threading
import time
from pathlib import Path

import pytest

from tools.processes import Failed, run


def test_the_last_line_is_the_answer_and_every_line_is_seen():
    lines = []
    assert run(["/bin/sh", "-c", "echo one; echo two >&2; echo"], limit=10, on_line=lines.append) == "two"
    assert lines == ["one", "two", ""]


def test_variables_are_added_to_ours_and_the_folder_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("OURS", "1")
    answer = run(["/bin/sh", "-c", "echo $OURS $ADDED $PWD"], limit=10, environment={"ADDED": "2"}, folder=tmp_path)
    assert answer == f"1 2 {tmp_path}"


def test_a_failure_is_the_programs_last_line_or_its_code():
    with pytest.raises(Failed, match=r"^no such host$"):
        run(["/bin/sh", "-c", "echo first; echo no such host; exit 1"], limit=10)
    with pytest.raises(Failed, match="/bin/false ended with code 1"):
        run(["/bin/false"], limit=10)
    with pytest.raises(Failed, match="/nowhere can't be started: No such file"):
        run(["/nowhere"], limit=10)


def gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().split()[2] == "Z"


def assert_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while not gone(pid):
        assert time.monotonic() < deadline, f"process {pid} lives on"
        time.sleep(0.02)


def test_at_the_limit_the_program_and_its_children_end():
    pids = []
    started = time.monotonic()
    with pytest.raises(Failed, match="not done after 0 seconds"):
        run(
            ["/bin/sh", "-c", "sleep 60 & echo $!; wait"],
            limit=0.4,
            on_line=lambda line: pids.append(int(line)),
        )
    assert time.monotonic() - started < 30
    assert_gone(pids[0])


def test_an_interrupt_ends_the_program_and_its_children():
    pids = []
    before = set(threading.enumerate())

    def interrupt(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(["/bin/sh", "-c", "sleep 60 & echo $!; wait"], limit=30, on_line=interrupt)
    assert_gone(pids[0])
    for thread in set(threading.enumerate()) - before:
        thread.join(5)  # its limit is 30 s: one that was not called off would still wait for that
        assert not thread.is_alive()
