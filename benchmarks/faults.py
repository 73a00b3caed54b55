"""What each fault costs: time to the next optimizer step, and steps done again; beside plain torchrun on the same.

    python -m benchmarks.faults [--rounds N] [--write] [FAULT ...]

Both train the same small job with the same trainer, two nodes of one worker, on this machine; what differs is who
supervises. torchrun runs as its own documentation has it for elastic jobs: `--nnodes 1:2`, c10d rendezvous, restarts.
Times are medians of the rounds, of this machine; quote them with it. `--write` puts the table into docs/faults.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.fleet import LONG, PACED, Fleet, fleet, patched, power_on, told
from emulator import processes, server
from tests.project import CHECKOUT, SMALL_JOB, wait_for
from trainer.pack import pack

JOB = {"checkpoint": {"every_steps": 50}}
LIMIT_S = 90.0
"""How long a next step is waited for."""

DOCUMENT = CHECKOUT / "docs" / "faults.md"


@dataclass(frozen=True)
class Cost:
    """Seconds from a fault to the next optimizer step, None where none came, and steps that were done again."""

    seconds: float | None
    again: int = 0
    ended: bool = False


class Torchrun:
    """Two nodes under torchrun, with the attributes of a fleet that faults need."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.inits = folder, {}
        self.data, self.store = folder / "data", folder / "store"
        job = {**SMALL_JOB, **JOB, "steps": LONG}
        pack([CHECKOUT / "trainer"], self.data, job["dataset"], exclude=["__pycache__"])
        (folder / "job.json").write_text(json.dumps(job))
        self.site = patched(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def start(self, *names: str) -> None:
        """Start agents; the first one of all hosts the rendezvous."""
        for name in names:
            root = self.folder / name
            root.mkdir()
            script = root / "start"
            script.write_text(
                f"#!/bin/sh\nexec {sys.executable} -m torch.distributed.run --nnodes 1:2 --nproc-per-node 1 "
                f"--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{self.port} --rdzv-id faults --max-restarts 20 "
                f"--local-addr 127.0.0.1 -m trainer.train --job {self.folder}/job.json --data {self.data} "
                f"--store {self.store}\n"
            )
            script.chmod(0o700)
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(root),
                "PYTHONPATH": f"{self.site}:{CHECKOUT}",
                "PYTHONUNBUFFERED": "1",
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                "FLEET_PATCH_TRAIN": PACED,
                processes.ROOT_VARIABLE: str(root),
            }
            self.inits[name] = power_on(root, script, environment, len(self.inits))
            time.sleep(1)  # so that the first one is the host

    def signal(self, name: str, number: signal.Signals, module: str = "") -> None:
        """Send a signal to processes of a node: all, its workers (`trainer.train`) or its agent (`trainer.node`)."""
        for pid, command in processes.commands():
            if pid in processes.belonging_to(self.folder / name):
                agent = "torch.distributed.run" in command
                worker = "trainer.train" in command and not agent
                if not module or (agent if module == "trainer.node" else worker):
                    os.kill(pid, number)

    def lines(self) -> list[dict[str, Any]]:
        """The run's metrics."""
        path = self.store / "metrics.jsonl"
        return told([path]) if path.exists() else []

    @property
    def over(self) -> bool:
        """Whether no agent runs any more."""
        return all(init.poll() is not None for init in self.inits.values())

    def close(self) -> None:
        """End every process."""
        processes.end(lambda: processes.belonging_to(self.folder), grace=0)
        for init in self.inits.values():
            init.wait()


@dataclass(frozen=True)
class Fault:
    """One fault: what it does to our fleet and to torchrun's nodes (None: torchrun has no such thing)."""

    name: str
    ours: Callable[[Fleet], object] | None
    theirs: Callable[[Torchrun], object] | None
    outcome: str
    nodes: str = "ab"


def ours(number: signal.Signals, module: str = "", *names: str) -> Callable[[Fleet], object]:
    """Send a signal to these nodes of a fleet."""
    return lambda f: [f.nodes[name].signal(number, module) for name in names]


def theirs(number: signal.Signals, module: str = "", *names: str) -> Callable[[Torchrun], object]:
    """The same under torchrun."""
    return lambda t: [t.signal(name, number, module) for name in names]


KILL, STOP, TERM = signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM
WORKER, AGENT = "trainer.train", "trainer.node"
SAME = "goes on; same result"

FAULTS = [
    Fault("worker killed", ours(KILL, WORKER, "b"), theirs(KILL, WORKER, "b"), SAME),
    Fault("agent killed", ours(KILL, AGENT, "b"), theirs(KILL, AGENT, "b"), f"{SAME}; its workers die with it"),
    Fault("node killed", ours(KILL, "", "b"), theirs(KILL, "", "b"), SAME),
    Fault("leader's node killed", ours(KILL, "", "a"), theirs(KILL, "", "a"), f"{SAME}; the next oldest leads"),
    Fault("two of three nodes killed", ours(KILL, "", "a", "b"), None, SAME, nodes="abc"),
    Fault("node frozen", ours(STOP, "", "b"), theirs(STOP, "", "b"), f"{SAME}; taken back when it thaws"),
    Fault(
        "worker hangs",
        ours(STOP, WORKER, "b"),
        theirs(STOP, WORKER, "b"),
        f"{SAME}; rank, phase and stack are told; collectives give up after 60 s",
    ),
    Fault("spot notice", lambda f: f.notice("b", "spot", 120), None, f"{SAME}; all save the same step, no step lost"),
    Fault("agent asked to leave", ours(TERM, AGENT, "b"), theirs(TERM, AGENT, "b"), f"{SAME}; no step lost"),
    Fault("node joins", lambda f: f.start("b"), lambda t: t.start("b"), f"{SAME}; no step lost", nodes="a"),
    Fault("rebalance recommendation", None, None, "noted; nothing stops"),
    Fault("store away, then slow", None, None, "trains on; saves as soon as it can; nobody is taken for dead"),
    Fault("scratch full", None, None, "trains on; the failed save is told, what stood before stands"),
    Fault("newest checkpoint cut or altered", None, None, "set aside; goes on from the one before"),
    Fault("clocks differ by 15 min", None, None, "no effect"),
    Fault("code raises", None, None, "one more try, then the run has failed with what was raised"),
    Fault(
        "one node fails again and again", None, None, "in quarantine, with a reason; it ends with 78, and is replaced"
    ),
]
NAMES = [fault.name for fault in FAULTS]


def measured(fault: Fault, endpoint: str) -> Cost:
    """The cost to a fleet of ours."""
    assert fault.ours is not None
    with fleet(Path(tempfile.mkdtemp()), endpoint, job=JOB) as f:
        f.start(*fault.nodes, desired=len(fault.nodes))
        before = f.trains(*fault.nodes)
        f.saved(beyond=f.steps(before.number)[-1]["step"])
        _between_checkpoints(lambda: f.steps(before.number))
        at = time.time()
        fault.ours(f)
        return cost(
            lambda: [line for line in f.steps() if line["generation"] > before.number], f.steps, at, lambda: False
        )


def measured_torchrun(fault: Fault) -> Cost:
    """The cost to torchrun's."""
    assert fault.theirs is not None
    folder = Path(tempfile.mkdtemp())
    t = Torchrun(folder)
    try:
        t.start(*fault.nodes)

        def begun() -> list[dict[str, Any]]:
            return [line for line in t.lines() if "loss" in line and line["world"] == len(fault.nodes)]

        wait_for("torchrun's nodes train", lambda: len(begun()) > 60, 120)
        _between_checkpoints(begun)
        at = time.time()
        fault.theirs(t)

        def resumed() -> list[dict[str, Any]]:
            lines = t.lines()
            again = [
                i for i, line in enumerate(lines) if line.get("event") in {"start", "resume"} and line["time"] > at
            ]
            return [line for line in lines[again[0] :] if "loss" in line] if again else []

        return cost(resumed, lambda: [line for line in t.lines() if "loss" in line], at, lambda: t.over)
    finally:
        t.close()
        shutil.rmtree(folder, ignore_errors=True)


def _between_checkpoints(steps: Callable[[], list[dict[str, Any]]]) -> None:
    """Wait until half of an interval has gone since the last checkpoint: a fault's fair moment."""
    every = JOB["checkpoint"]["every_steps"]
    wait_for("half an interval", lambda: every // 2 <= steps()[-1]["step"] % every < every * 3 // 4, 60, poll_s=0.05)


def cost(
    resumed: Callable[[], list[dict[str, Any]]],
    steps: Callable[[], list[dict[str, Any]]],
    at: float,
    over: Callable[[], bool],
) -> Cost:
    """Wait for the first step after a fault."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if after := resumed():
            last = max(line["step"] for line in steps() if line["time"] < after[0]["time"])
            return Cost(after[0]["time"] - at, max(0, last - after[0]["step"] + 1))
        if over():
            return Cost(None, ended=True)
        time.sleep(0.2)
    return Cost(None)


def shown(costs: list[Cost]) -> tuple[str, str]:
    """Seconds and steps of the rounds, in words."""
    if not costs:
        return "", ""
    went_on = [one for one in costs if one.seconds is not None]
    if not went_on:
        return ("the job ends" if all(one.ended for one in costs) else f"not within {LIMIT_S:g} s"), ""
    seconds = statistics.median(one.seconds for one in went_on if one.seconds is not None)
    some = f" ({len(went_on)} of {len(costs)})" if len(went_on) < len(costs) else ""
    return f"{seconds:.1f} s{some}", f"{statistics.median(one.again for one in went_on):.0f}"


def table(found: dict[str, tuple[list[Cost], list[Cost]]]) -> Iterator[str]:
    """The table, in Markdown."""
    yield "| fault | what comes of it | next step after | steps again | torchrun: next step after | steps again |"
    yield "|---|---|--:|--:|--:|--:|"
    for fault in FAULTS:
        mine, other = found.get(fault.name, ([], []))
        yield f"| {' | '.join((fault.name, fault.outcome, *shown(mine), *shown(other)))} |"


def document(found: dict[str, tuple[list[Cost], list[Cost]]], rounds: int) -> str:
    """The page."""
    return "\n".join(
        [
            "# Faults",
            "",
            "Generated by `make bench-faults`. Each fault is provoked by a test of `tests/faults` as well, which also",
            "holds what was computed again to be what was computed before.",
            "",
            *table(found),
            "",
            f"Medians of {rounds} round{'s' * (rounds > 1)} on {os.cpu_count()} cores without a GPU, torch "
            f"{torch.__version__}, gloo, two nodes of one worker;",
            f"a checkpoint every {JOB['checkpoint']['every_steps']} steps, each fault half-way between two. torchrun: "
            "`--nnodes 1:2 --rdzv-backend c10d --max-restarts 20`,",
            "the same trainer and a shared folder as its store. An empty cell: torchrun has no such thing, or nothing",
            "stops that would have to start again. A spot notice is looked for every 5 s, which is in its time.",
            f"The machine's load average was {os.getloadavg()[0]:.1f} when the last fault was over.",
            "",
        ]
    )


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"put the table into {DOCUMENT.relative_to(CHECKOUT)}")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"some of: {', '.join(NAMES)}")
    options = parser.parse_args(None if arguments is None else list(arguments))
    if unknown := set(options.faults) - set(NAMES):
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    found: dict[str, tuple[list[Cost], list[Cost]]] = {}
    endpoint = server.serve()
    for turn in range(options.rounds):
        for fault in FAULTS:
            if options.faults and fault.name not in options.faults:
                continue
            mine, other = found.setdefault(fault.name, ([], []))
            mine += [measured(fault, endpoint)] if fault.ours else []
            other += [measured_torchrun(fault)] if fault.theirs else []
            if fault.ours:
                last = shown(mine[-1:]), shown(other[-1:])
                print(
                    f"round {turn + 1}: {fault.name}: ours {' '.join(last[0])}, torchrun {' '.join(last[1])}",
                    flush=True,
                )
    page = document(found, options.rounds)
    print(page)
    if options.write:
        DOCUMENT.write_text(page)


if __name__ == "__main__":
    main()
