"""The worker processes of one generation: started with torchrun's environment, watched, stopped."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from trainer import exits
from trainer.node.peers import DONE, DRAINED, FAILED, STOPPED, Ended, Generation

GRACE_S = 110.0
"""How long workers may take to save and leave when asked: AWS takes a spot instance 120 s after its notice."""

LONGEST_REASON = 200

PR_SET_PDEATHSIG = 1  # Linux, include/uapi/linux/prctl.h

_SPAWNER = ThreadPoolExecutor(1, "spawner")
"""Starts every worker: Linux sends the parent-death signal when the *thread* that started a process ends."""


@dataclass(frozen=True)
class Job:
    """What is the same for every generation of a node's workers."""

    command: Sequence[str]
    run: str
    environment: Mapping[str, str]
    logs: Path
    scratch: Path


def environment(job: Job, generation: Generation, node_rank: int, local_rank: int) -> dict[str, str]:
    """What a worker finds in its environment: torchrun's variables, and ours."""
    member = generation.members[node_rank]
    rank = sum(before.workers for before in generation.members[:node_rank]) + local_rank
    cpus = len(os.sched_getaffinity(0))
    return {
        **job.environment,
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(generation.world),
        "LOCAL_WORLD_SIZE": str(member.workers),
        "GROUP_RANK": str(node_rank),
        "GROUP_WORLD_SIZE": str(len(generation.members)),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(generation.world),
        "MASTER_ADDR": generation.address,
        "MASTER_PORT": str(generation.port),
        "TORCHELASTIC_RUN_ID": job.run,
        "TORCHELASTIC_RESTART_COUNT": str(generation.number - 1),
        "OMP_NUM_THREADS": str(max(1, cpus // member.workers)),
        "TRAINWRIGHT_RUN": job.run,
        "TRAINWRIGHT_GENERATION": str(generation.number),
        "TRAINWRIGHT_SCRATCH": str(job.scratch),
        "TRAINWRIGHT_METRICS": str(metrics_path(job.logs, generation.number)),
        "TRAINWRIGHT_ERROR": str(_error_path(job.logs, generation.number, rank)),
    }


def metrics_path(logs: Path, generation: int) -> Path:
    """Where rank 0 of a generation writes its metrics."""
    return logs / f"{generation:06d}-metrics.jsonl"


def log_path(logs: Path, generation: int, rank: int) -> Path:
    """Where a worker's output goes."""
    return logs / f"{generation:06d}-rank{rank}.log"


def _error_path(logs: Path, generation: int, rank: int) -> Path:
    return logs / f"{generation:06d}-rank{rank}.error.json"


@dataclass
class Workers:
    """The workers of this node in one generation."""

    generation: Generation
    job: Job
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    ended: Ended | None = None
    """The first that was seen of their end: what follows from it must not hide the cause."""

    @classmethod
    def start(cls, job: Job, generation: Generation, node_rank: int) -> Workers:
        """Start one worker for each of the node's places."""
        workers = cls(generation, job)
        job.scratch.mkdir(parents=True, exist_ok=True)
        job.logs.mkdir(parents=True, exist_ok=True)
        for local_rank in range(generation.members[node_rank].workers):
            values = environment(job, generation, node_rank, local_rank)
            rank = int(values["RANK"])
            with log_path(job.logs, generation.number, rank).open("ab") as log:
                workers.processes[rank] = _SPAWNER.submit(_spawn, job.command, values, log).result()
        return workers

    def poll(self) -> Ended | None:
        """How they ended, or None while they run. One that failed, or lost its peers, has ended them all."""
        self.ended = self.ended or self._ended()
        return self.ended

    def _ended(self) -> Ended | None:
        codes = {rank: process.poll() for rank, process in self.processes.items()}
        number = self.generation.number
        for rank, code in codes.items():
            if code not in {None, exits.DONE, exits.DRAINED, exits.PEER_LOST}:
                return Ended(number, FAILED, f"rank {rank} {self._reason(rank, code)}")
        if exits.PEER_LOST in codes.values():
            return Ended(number, STOPPED)
        if any(code is None for code in codes.values()):
            return None
        drained = any(code == exits.DRAINED for code in codes.values())
        return Ended(number, DRAINED if drained else DONE)

    def drain(self) -> None:
        """Ask them to save and leave."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()

    @property
    def running(self) -> bool:
        """Whether any of them is."""
        return any(process.poll() is None for process in self.processes.values())

    def stop(self) -> None:
        """End them at once, and whatever they started: each leads a process group, which outlives it."""
        if self.poll() is None:
            self.ended = Ended(self.generation.number, STOPPED)
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _reason(self, rank: int, code: int | None) -> str:
        """What went wrong, from the worker's error file, or else from the end of its log."""
        number = self.generation.number
        died = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"exited with {code}"
        try:
            error = json.loads(_error_path(self.job.logs, number, rank).read_text())
            said = f"{error['type']}: {error['message']}"
            return f"{died}: {_short(said)}"
        except (OSError, ValueError, KeyError, TypeError):
            if died.startswith("was killed"):
                return died  # the log's last line is of before, and not the cause
            lines = log_path(self.job.logs, number, rank).read_text(errors="replace").strip().splitlines()
            return f"{died}: {_short(lines[-1])}" if lines else died


def _short(reason: str) -> str:
    """A reason's first line, cut where it runs on: the whole of it is in the worker's log."""
    line = reason.strip().split("\n")[0]
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}…"


def _spawn(command: Sequence[str], values: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    libc = ctypes.CDLL(None, use_errno=True)
    agent = os.getpid()

    def die_with_the_agent() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != agent:  # it died before the line above
            os._exit(1)

    return subprocess.Popen(
        command,
        env=values,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        process_group=0,
        preexec_fn=die_with_the_agent,  # noqa: PLW1509  it calls nothing that another thread could hold
    )


def trainer_command() -> list[str]:
    """The bundled trainer, under the interpreter that runs the agent."""
    return [sys.executable, "-m", "trainer.train"]
