"""Stub jobs: small scripts that stand where the trainer would, and ways to wait for what they do."""

import os
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.node.peers import Generation, Member
from trainer.node.workers import Job


def _wait_for(what: str, probe: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.02)
    return answer


@pytest.fixture
def wait_for() -> Callable[..., Any]:
    """The first true answer of a probe; fails the test after so many seconds."""
    return _wait_for


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """Whether a process has ended (or waits to be reaped)."""

    def probe(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return True

    return probe


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., Job]:
    """A job whose workers run this Python text."""

    def make(text: str, folder: Path | None = None, **environment: str) -> Job:
        place = folder or tmp_path
        place.mkdir(parents=True, exist_ok=True)
        script = place / "job.py"
        script.write_text(textwrap.dedent(text))
        values = {"PATH": os.environ["PATH"], **environment}
        return Job([sys.executable, "-S", str(script)], "r-1", values, place / "logs", place / "scratch")

    return make


@pytest.fixture
def make_generation() -> Callable[..., Generation]:
    """A generation of nodes `a`, `b`, … with so many workers each."""

    def make(*workers: int, number: int = 1) -> Generation:
        members = tuple(Member("abcdef"[i], f"10.0.0.{i + 1}", f"{i}", count) for i, count in enumerate(workers))
        return Generation(number, members, 4321, "first", graceful=False, step=0)

    return make
