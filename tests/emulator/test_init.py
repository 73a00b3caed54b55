"""A node's first process: how it ends says how the user-data ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.init import CANNOT_RUN

SOURCE = Path(__file__).resolve().parents[2]


def run(root: Path, script: str, daemon: int | None = None) -> "subprocess.CompletedProcess[str]":
    user_data = root / "user-data"
    user_data.write_text(script)
    user_data.chmod(0o700)
    core = min(os.sched_getaffinity(0))
    return subprocess.run(
        [sys.executable, "-S", "-m", "emulator.init", str(daemon or os.getpid()), str(core), str(user_data)],
        cwd=SOURCE,
        env={"TRAINWRIGHT_ROOT": str(root), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("#!/bin/sh\nexit 7\n", 7, "exit code 7"),
        ("#!/bin/sh\nkill -9 $$\n", 137, "killed by SIGKILL"),
        ("#!/no/such/interpreter\n", CANNOT_RUN, "cannot be run"),
    ],
)
def test_a_failed_user_data_ends_the_node_with_its_code(tmp_path, script, code, words):
    ended = run(tmp_path, script)
    assert ended.returncode == code
    assert words in ended.stdout
    assert ended.stderr == ""


def test_nothing_runs_once_the_daemon_is_gone(tmp_path):
    ended = run(tmp_path, "#!/bin/sh\ntouch ran\n", daemon=1)
    assert ended.returncode == 1
    assert not (tmp_path / "ran").exists()
