"""Datasets, jobs, and rank processes that the tests of the trainer share."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import trainer
from trainer.pack import pack

ROOT = Path(trainer.__file__).parents[1]
RANKS = Path(__file__).with_name("ranks.py")
ANSWER = "ANSWER "

TINY = {
    "name": "tiny",
    "dataset": "own-source",
    "steps": 12,
    "batch": 7,
    "micro_batch": 3,
    "learning_rate": 3e-3,
    "warmup_steps": 3,
    "model": {"layers": 2, "heads": 2, "width": 32, "context": 32},
    "checkpoint": {"every_steps": 4},
}


def environment(**more: str) -> dict[str, str]:
    """The environment of a worker process: this checkout's trainer, one thread, no agent's variables but `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINWRIGHT_", "TORCHELASTIC_"))}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"} | more


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Ranks:
    """Rank processes that stay up over many runs, since importing torch takes longer than the runs do."""

    def __init__(self, world: int, data: Path) -> None:
        self.data = data
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(RANKS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment(),
                text=True,
            )
            for _ in range(world)
        ]

    def run(
        self,
        task: str,
        world: int,
        job: dict[str, Any],
        folder: Path,
        per_rank: dict[int, dict[str, Any]] | None = None,
        per_node: int = 1,
        **values: Any,
    ) -> list[dict[str, Any]]:
        """The answers of ranks 0 to `world` - 1; `values` are the task's, `per_rank` those of single ranks.

        So many ranks `per_node` share a scratch.
        """
        port = free_port()
        for rank, process in enumerate(self.processes[:world]):
            setting = {
                "generation": 1,
                "attempt": "0",
                "rank": rank,
                "world": world,
                "local_rank": rank,
                "data": str(self.data),
                "store": str(folder / "store"),
                "scratch": str(folder / f"scratch-{rank // per_node}"),
                "metrics": str(folder / "metrics.jsonl"),
            }
            told = (
                {"task": task, "job": job, "setting": setting, "port": port} | values | (per_rank or {}).get(rank, {})
            )
            process.stdin.write(json.dumps(told) + "\n")
            process.stdin.flush()
        return [self._answer(process) for process in self.processes[:world]]

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
        for line in process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise AssertionError(f"a rank process ended with {process.wait()}")

    def close(self) -> None:
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trainer's own sources, packed in several shards."""
    folder = tmp_path_factory.mktemp("dataset")
    pack([ROOT / "trainer"], folder, "own-source", shard_tokens=20_000, exclude=["__pycache__"])
    return folder


@pytest.fixture(scope="session")
def ranks(dataset: Path) -> Iterator[Ranks]:
    """Three rank processes; a run takes the first `world` of them."""
    started = Ranks(3, dataset)
    yield started
    started.close()


@pytest.fixture
def start(dataset: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts one worker process of a job in the folder `tmp_path`; all are gone when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def worker(job: dict[str, Any], *, under: Sequence[str] = ("-m", "trainer.train"), **more: str) -> Any:
        (tmp_path / "job.json").write_text(json.dumps(job))
        command = [sys.executable, *under, "--job", "job.json", "--data", str(dataset), "--store", "store"]
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield worker
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def port() -> int:
    """A TCP port that is free now."""
    return free_port()


@pytest.fixture
def tiny() -> dict[str, Any]:
    """A job that takes a second."""
    return json.loads(json.dumps(TINY))
