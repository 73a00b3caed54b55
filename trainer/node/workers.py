"""The worker processes of one generation: started with torchrun's environment, watched, stopped."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from trainer import exits
from trainer.grace import GRACE_S
from trainer.node import launchers, nccl, processes
from trainer.node.peers import DONE, DRAINED, FAILED, STOPPED, Ended, Generation
from trainer.node.postmortem import ABORTED, RAISED, account, lost_peer, of_the_machine, place, short, tail
from trainer.node.standby import Standby
from trainer.node.steps import StepFailed
from trainer.pulse import DOUBT_S, FIRST_S, Pulses

STACK_S = 1.0
"""How long a worker that hangs may take to write its Python stack to its log."""

KILLED_S = 30.0
"""How long SIGKILL may take to end workers: only what is stuck in the kernel, by a driver or a disk, outlives it."""

RANKS_S = 1.0
"""Seconds between looks for a launcher's ranks."""

KEPT = 10
"""Generations whose files stay on a node, the newest among them: a run of a thousand must not fill its disk."""

OF_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""The codes of a process that SIGTERM ended, and of a shell whose command it ended."""

_SPAWNER = ThreadPoolExecutor(1, "spawner")
"""Starts every worker: its thread must not end before them (`processes.dying_with_parent`)."""


@dataclass(frozen=True)
class Job:
    """What is the same for every generation of a node's workers."""

    command: Sequence[str]
    run: str
    environment: Mapping[str, str]
    logs: Path
    scratch: Path
    launcher: str = launchers.TORCHRUN_ENV
    folder: Path | None = None
    """Where the command runs; where the agent does, if unset."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """What the user set, which stands above all but what makes a worker the one it is."""
    nccl_debug: bool = False
    """Whether what NCCL says goes to a file of each rank's own."""

    @property
    def progress_path(self) -> Path:
        """Where any worker may write how far the run is safe, as a whole number that grows; see docs/environment.md."""
        return self.scratch / "progress"

    @property
    def progress(self) -> int:
        """What stands there, 0 while that is nothing."""
        try:
            return max(0, int(self.progress_path.read_text()))
        except (OSError, ValueError):
            return 0

    @property
    def bundled(self) -> bool:
        """Whether the workers are those of the bundled trainer."""
        return self.launcher == launchers.TORCHRUN_ENV and list(self.command) == trainer_command()


def shared_environment(job: Job, workers: int, **more: str) -> dict[str, str]:
    """What each of a node's so many workers finds alike, whatever the generation; `more` stands below the user's."""
    cpus = len(os.sched_getaffinity(0))
    return {**job.environment, "OMP_NUM_THREADS": str(max(1, cpus // workers)), **more, **job.chosen}


def environment(job: Job, generation: Generation, node_rank: int, local_rank: int) -> dict[str, str]:
    """What a worker finds in its environment: torchrun's variables, and ours."""
    member = generation.members[node_rank]
    rank = sum(before.workers for before in generation.members[:node_rank]) + local_rank
    captured = nccl.captured(nccl_path(job.logs, generation.number, rank)) if job.nccl_debug else {}
    return {
        **shared_environment(job, member.workers, **captured),
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(generation.world),
        "LOCAL_WORLD_SIZE": str(member.workers),
        "GROUP_RANK": str(node_rank),
        "GROUP_WORLD_SIZE": str(len(generation.members)),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(generation.world),
        "NODE_RANK": str(node_rank),
        "NODE_IPS": ",".join(member.address for member in generation.members),
        "MASTER_ADDR": generation.address,
        "MASTER_PORT": str(generation.port),
        "TORCHELASTIC_RUN_ID": job.run,
        "TORCHELASTIC_RESTART_COUNT": str(generation.number - 1),
        "TRAINWRIGHT_RUN": job.run,
        "TRAINWRIGHT_GENERATION": str(generation.number),
        "TRAINWRIGHT_HOSTFILE": str(_hosts_path(job.logs, generation.number)),
        "TRAINWRIGHT_SCRATCH": str(job.scratch),
        "TRAINWRIGHT_PROGRESS": str(job.progress_path),
        "TRAINWRIGHT_METRICS": str(metrics_path(job.logs, generation.number)),
        "TRAINWRIGHT_ERROR": str(_error_path(job.logs, generation.number, rank)),
        "TRAINWRIGHT_PULSE": str(_pulse_path(job.logs, generation.number, rank)),
        "TRAINWRIGHT_GRACE": str(_grace_path(job.logs, generation.number)),
    }


def metrics_path(logs: Path, generation: int) -> Path:
    """Where rank 0 of a generation writes its metrics."""
    return logs / f"{generation:06d}-metrics.jsonl"


def log_path(logs: Path, generation: int, rank: int) -> Path:
    """Where a worker's output goes."""
    return logs / f"{generation:06d}-rank{rank}.log"


def nccl_path(logs: Path, generation: int, rank: int) -> Path:
    """Where what NCCL says in a worker goes, where the job asks for it."""
    return logs / f"{generation:06d}-rank{rank}.nccl.log"


def _hosts_path(logs: Path, generation: int) -> Path:
    return logs / f"{generation:06d}-hosts"


def _error_path(logs: Path, generation: int, rank: int) -> Path:
    return logs / f"{generation:06d}-rank{rank}.error.json"


def _grace_path(logs: Path, generation: int) -> Path:
    return logs / f"{generation:06d}-grace"


def forget(logs: Path, newest: int) -> None:
    """Remove what generations before the last `KEPT` have left here: their logs are in the bucket."""
    for path in logs.glob("[0-9]*-*"):
        number = path.name.partition("-")[0]
        if number.isdecimal() and int(number) <= newest - KEPT:
            path.unlink(missing_ok=True)


def _pulse_path(logs: Path, generation: int, rank: int) -> Path:
    return logs / f"{generation:06d}-rank{rank}.pulse"


@dataclass
class Workers:
    """The workers of this node in one generation."""

    generation: Generation
    job: Job
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    ended: Ended | None = None
    """The first that was seen of their end: what follows from it must not hide the cause."""
    _asked: bool = False
    _lost: dict[int, str] = field(default_factory=dict)
    """What ranks that ended by themselves said of a lost peer; empty where it was no such end."""
    _pulses: Pulses = field(default_factory=lambda: Pulses({}))
    _ranks: set[int] = field(default_factory=set)
    """A launcher's ranks that were seen while it ran."""
    _ranks_due: float = 0.0
    _stuck: set[int] = field(default_factory=set)
    """What SIGKILL has not ended: who stops once more must not wait for it once more."""

    @classmethod
    def start(cls, job: Job, generation: Generation, node_rank: int, standby: Standby | None = None) -> Workers:
        """Start one worker for each of the node's places, or one launcher; those on standby come first."""
        workers = cls(generation, job)
        job.scratch.mkdir(parents=True, exist_ok=True)
        job.logs.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # launchers alone read it, and say so where it isn't there
            _hosts_path(job.logs, generation.number).write_text(launchers.host_file(generation))
        for local_rank in range(launchers.places(job.launcher, generation.members[node_rank].workers)):
            values = environment(job, generation, node_rank, local_rank)
            rank = int(values["RANK"])
            path = log_path(job.logs, generation.number, rank)
            if standby and job.bundled and (waiting := standby.take(values, path)):
                workers.processes[rank] = waiting
                continue
            command = launchers.command(job.launcher, job.command, values, generation)
            found = launchers.environment(job.launcher, values)
            with path.open("ab") as log:
                try:
                    workers.processes[rank] = _SPAWNER.submit(_spawn, command, found, log, job.folder).result()
                except OSError as error:
                    said = f"{command[0]} can't be started: {error.strerror}"
                    workers.ended = Ended(generation.number, FAILED, f"rank {rank}: {said}", said)
                    workers.stop()
                    break
        paths = {rank: _pulse_path(job.logs, generation.number, rank) for rank in workers.processes}
        more_s = DOUBT_S if generation.tally.fruitless else 0.0
        first_s = FIRST_S if job.bundled else math.inf
        workers._pulses = Pulses(paths, stopped=workers._stopped, more_s=more_s, first_s=first_s)
        return workers

    def poll(self) -> Ended | None:
        """How they ended, or None while they run. One that failed, or lost its peers, has ended them all."""
        self.ended = self.ended or self._ended()
        return self.ended

    def _ended(self) -> Ended | None:
        codes = {rank: self._code(rank) for rank in self.processes}
        number = self.generation.number
        for rank, code in codes.items():
            if code not in {None, exits.DONE, exits.DRAINED, exits.PEER_LOST}:
                own, launcher = _error_path(self.job.logs, number, rank), self.job.launcher
                mixed = launcher != launchers.TORCHRUN_ENV
                reason, error = account(code, own, self._log(rank), mixed=mixed)
                machine = not mixed and of_the_machine(code, reason, tail(self._log(rank)))
                return Ended(number, FAILED, f"{launcher if mixed else f'rank {rank}'} {reason}", error, machine)
        if any(code is None for code in codes.values()):
            self._look_for_ranks()
            return None
        if exits.PEER_LOST in codes.values():
            told = [f"rank {rank}: {said}" for rank, said in sorted(self._lost.items()) if said]
            return Ended(number, STOPPED, next(iter(told), ""))
        drained = exits.DRAINED in codes.values()
        # A launcher waits for its ranks: DeepSpeed's exits with 0 where a signal ended the part of it that does.
        if not drained and self._ranks & self._launched():
            return Ended(number, FAILED, f"{self.job.launcher} ended and left workers behind")
        return Ended(number, DRAINED if drained else DONE)

    def _look_for_ranks(self) -> None:
        if time.monotonic() >= self._ranks_due:
            self._ranks_due = time.monotonic() + RANKS_S
            self._ranks |= processes.outermost(self._launched(), launchers.RANKS)

    def _code(self, rank: int) -> int | None:
        """Its exit code, None while it runs; or what the code would be of a script that knew ours.

        One that knows no SIGTERM and died of ours has left as it was asked to.
        """
        code = self.processes[rank].poll()
        if self._asked and code in OF_SIGTERM:
            return exits.DRAINED
        return exits.PEER_LOST if code in {RAISED, *ABORTED} and self._lost_peer(rank, code) else code

    def _lost_peer(self, rank: int, code: int) -> str:
        """What it said of a lost peer, read once. A launcher's log has all ranks' words, which tell no cause."""
        if rank not in self._lost:
            accounted = code == RAISED and _error_path(self.job.logs, self.generation.number, rank).exists()
            own = self.job.launcher == launchers.TORCHRUN_ENV and not accounted
            self._lost[rank] = lost_peer(code, tail(self._log(rank))) if own else ""
        return self._lost[rank]

    def _log(self, rank: int) -> Path:
        return log_path(self.job.logs, self.generation.number, rank)

    @property
    def parted(self) -> bool:
        """Whether one of them has lost its peers, which ends them all."""
        return any(self._code(rank) == exits.PEER_LOST for rank in self.processes)

    @property
    def said(self) -> list[str]:
        """What ranks that ended by themselves said of a lost peer."""
        return [said for said in self._lost.values() if said]

    @property
    def promising(self) -> bool:
        """Whether all that run keep a pulse, which tells when one hangs."""
        running = [rank for rank, process in self.processes.items() if process.poll() is None]
        return all(rank in self._pulses.doing for rank in running)

    def hung(self) -> dict[int, str]:
        """What the running ranks were at that have not written their pulse in the time that they promised."""
        broken = self._pulses.broken() if self.ended is None else {}
        return {rank: what for rank, what in broken.items() if self.processes[rank].poll() is None}

    def end_hung(self, why: str, ranks: Iterable[int] | None = None, *, silent: bool = True) -> None:
        """End all, since these ranks, by default all that run, hang: each first writes its stack to its log.

        Those that only wait for peers are not what failed, nor, unless `silent` ones may be, those that never promised
        anything: where there are no others, it is on another node, or lies between the nodes.
        """
        named = self.processes if ranks is None else ranks
        ranks = [rank for rank in named if self.processes[rank].poll() is None]
        if not ranks:
            return
        held_up = self._pulses.held_up(ranks)
        stacks, number = self._stacks(ranks), self.generation.number
        doing = {rank: self._pulses.doing.get(rank, "its script") for rank in ranks}
        at_fault = [rank for rank in ranks if rank not in held_up and (silent or rank in self._pulses.doing)]
        if at_fault:
            told = [f"rank {rank} hangs in {doing[rank]}, {stacks[rank]}" for rank in at_fault]
            self.ended = Ended(number, FAILED, short(f"{why}: {'; '.join(told)}"))
        else:
            verbs = {rank: "waits" if rank in held_up else "goes on" for rank in ranks}
            told = [f"rank {rank} {verbs[rank]} in {doing[rank]}, {stacks[rank]}" for rank in ranks]
            self.ended = Ended(number, STOPPED, short("; ".join(told)))
        self.stop()

    def _stopped(self, rank: int) -> bool:
        """Whether its process is stopped."""
        return rank in self.processes and processes.state(self.processes[rank].pid) == "T"

    def _stacks(self, ranks: Sequence[int]) -> dict[int, str]:
        """Where ranks are, in words. Python's faulthandler, which the trainer sets up, writes it to the log."""
        logs = {rank: self._log(rank) for rank in ranks}
        begun = {rank: log.stat().st_size for rank, log in logs.items()}
        for rank in ranks:
            with suppress(ProcessLookupError):
                self.processes[rank].send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + STACK_S
        places: dict[int, str] = {}
        while len(places) < len(ranks) and time.monotonic() < deadline:
            time.sleep(0.05)
            for rank, log in logs.items():
                if found := place(tail(log, begun[rank])):
                    places[rank] = found
        return {rank: places.get(rank, "and shows no stack") for rank in ranks}

    def drain(self, grace_s: float = GRACE_S) -> None:
        """Ask them to save and leave, and say in how many seconds; see docs/environment.md."""
        self._asked = True
        with suppress(OSError):  # a disk that is full must not keep them from being asked
            _grace_path(self.job.logs, self.generation.number).write_text(f"{grace_s:g}\n")
        if ranks := processes.outermost(self._launched(), launchers.RANKS):
            processes.send(ranks, signal.SIGTERM)  # a launcher that is asked itself leaves them no time to save
            return
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()

    def _launched(self) -> set[int]:
        """The launcher, if there is one, and all that it started here: Open MPI's ranks have groups of their own."""
        if self.job.launcher == launchers.TORCHRUN_ENV:
            return set()
        return processes.having(f"TRAINWRIGHT_HOSTFILE={_hosts_path(self.job.logs, self.generation.number)}")

    @property
    def running(self) -> bool:
        """Whether any of them is."""
        return any(process.poll() is None for process in self.processes.values())

    def stop(self, failed: str = "") -> None:
        """End them at once, and whatever they started: each leads a process group, which outlives it.

        `failed` says why, where that is a failure of theirs as well. Raises `StepFailed` where SIGKILL doesn't end one:
        the node can't start others in its place.
        """
        if self.poll() is None:
            self.ended = Ended(self.generation.number, FAILED if failed else STOPPED, failed)
        killed = self._launched() - self._stuck  # one that is ending has lost its environment, and holds its GPU still
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + KILLED_S
        while goes_on := (left := self._launched() - self._stuck) | {pid for pid in killed if processes.runs(pid)}:
            if time.monotonic() > deadline:
                break
            processes.send(left, signal.SIGKILL)
            killed |= left
            time.sleep(0.02)
        stuck = []
        for rank, process in self.processes.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                stuck.append(rank)
        for rank in stuck:
            del self.processes[rank]
        self._stuck |= goes_on
        if stuck or goes_on:
            named = f"ranks {stuck}" if stuck else f"processes {sorted(goes_on)} of {self.job.launcher}'s"
            told = f"{KILLED_S:g} s after SIGKILL, {named} still run: stuck in the kernel; the node must go"
            raise StepFailed("launch", told)


def spawn_standby(command: Sequence[str], values: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that waits for its turn to be a worker, to which it is told through its stdin."""
    return _SPAWNER.submit(_spawn, command, values, subprocess.DEVNULL, None, subprocess.PIPE).result()


def _spawn(
    command: Sequence[str],
    values: Mapping[str, str],
    log: IO[bytes] | int,
    folder: Path | None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=values,
        cwd=folder,
        stdin=stdin,
        stdout=log,
        stderr=subprocess.STDOUT,
        process_group=0,
        preexec_fn=processes.dying_with_parent(),  # noqa: PLW1509  it calls nothing that another thread could hold
    )


def trainer_command() -> list[str]:
    """The bundled trainer, under the interpreter that runs the agent."""
    return [sys.executable, "-m", "trainer.train"]
