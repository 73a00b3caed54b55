"""What each fault costs: time to the next optimizer step, and steps done again; beside plain torchrun on the same.

    python -m benchmarks.faults [--rounds N] [--write] [FAULT ...]

Both train the same small job with the same trainer, two nodes of one worker, on this machine; what differs is who
supervises. torchrun runs as its own documentation has it for elastic jobs: `--nnodes 1:2`, c10d rendezvous, restarts.
Times are medians of the rounds, of this machine; quote them with it. What a second round would tell nothing new of is
run once. `--write` puts the table into docs/faults.md.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.fleet import HARMED, LONG, Fleet, fleet
from benchmarks.harms import FAULTS, NAMES, Fault
from benchmarks.torchrun import Torchrun
from emulator import server
from tests.faults.pair import Pair, members
from tests.project import CHECKOUT, SMALL_JOB, wait_for

JOB = {"checkpoint": {"every_steps": 50}}
LIMIT_S = 90.0
"""How long a next step is waited for."""

SLOW_S = 40.0
"""Of what takes longer, one round tells enough."""

SOON = """
import trainer.node.standby as standby
standby.SETTLED_S = 1.0
"""
"""Workers in waiting are made sooner, which a fault waits for; in a fleet's first agent as in those that follow."""

DOCUMENT = CHECKOUT / "docs" / "faults.md"


@dataclass(frozen=True)
class Cost:
    """Seconds from a fault to the next optimizer step, None where none came, and steps that were done again.

    Where the run `ended`: seconds to its end, None where they weren't measured.
    """

    seconds: float | None
    again: int = 0
    ended: bool = False


Found = dict[str, tuple[list[Cost], list[Cost]]]
"""What was measured of ours and of torchrun, by a fault's name."""


def measured(fault: Fault, pair: Pair) -> Cost:
    """The cost to a fleet of ours, which goes from fault to fault."""
    assert fault.ours is not None
    pair.before = pair.ready(fault.nodes)
    fleet, number = pair.fleet, pair.before.number  # another fleet than before, where its run had ended
    _with_workers_in_waiting(pair)
    _between_checkpoints(lambda: fleet.steps(number))
    at = time.time()
    fault.ours(pair)
    if fault.ends:
        found = Cost(fleet.ends().ended - at, ended=True)
    elif fault.lasting_s:
        time.sleep(fault.lasting_s)
        found = _longest_pause(fleet, number, at)
    else:

        def resumed() -> list[dict[str, Any]]:
            later = range(number + 1, max(fleet.generations()) + 1)
            return [line for generation in later for line in fleet.steps(generation)]

        found = cost(resumed, lambda: fleet.steps(number) + resumed(), at, lambda: False)
    fault.after(pair)
    return found


def _with_workers_in_waiting(pair: Pair) -> None:
    """Wait until each node has a worker in waiting that has imported torch, as one has that trains for a while."""

    def settled() -> bool:
        waiting = [fleet_node.standbys() for fleet_node in (pair.fleet.nodes[name] for name in members(pair.before))]
        used = {pid: _used(pid) for pids in waiting for pid in pids}
        time.sleep(0.5)
        return all(waiting) and all(used[pid] == _used(pid) for pid in used)

    wait_for("workers in waiting", settled, 60)


def _used(pid: int) -> list[str]:
    """Processor time that a process has used (proc_pid_stat(5), `utime` and `stime`)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]


def _longest_pause(fleet: Fleet, number: int, at: float) -> Cost:
    """The longest time between two steps since then, of a generation that has gone on."""
    times = [at, *(line["time"] for line in fleet.steps(number) if line["time"] > at), time.time()]
    stopped = max(fleet.generations()) > number
    return Cost(None if stopped else max(later - earlier for earlier, later in itertools.pairwise(times)))


def measured_torchrun(fault: Fault) -> Cost:
    """The cost to torchrun's."""
    assert fault.theirs is not None
    folder = Path(tempfile.mkdtemp())
    t = Torchrun(folder, {**SMALL_JOB, **JOB, "steps": LONG})
    try:
        t.start(*"ab"[: fault.nodes])

        def begun() -> list[dict[str, Any]]:
            return [line for line in t.lines() if "loss" in line and line["world"] == fault.nodes]

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


def shown(costs: list[Cost], rounds: int) -> tuple[str, str]:
    """Seconds and steps of so many rounds, or fewer, in words."""
    if not costs:
        return "", ""
    went_on = [one for one in costs if one.seconds is not None]
    few = f" ({len(costs)} round{'s' * (len(costs) > 1)})" if len(costs) < rounds else ""
    if not went_on:
        return ("the job ends" if all(one.ended for one in costs) else f"not within {LIMIT_S:g} s") + few, ""
    seconds = statistics.median(one.seconds for one in went_on if one.seconds is not None)
    some = f" ({len(went_on)} of {len(costs)})" if len(went_on) < len(costs) else few
    if all(one.ended for one in went_on):
        return f"the run ends, {seconds:.1f} s{some}", ""
    return f"{seconds:.1f} s{some}", f"{statistics.median(one.again for one in went_on):.0f}"


def table(found: Found, rounds: int) -> Iterator[str]:
    """The table, in Markdown."""
    yield "| fault | what comes of it | next step after | steps again | torchrun: next step after | steps again |"
    yield "|---|---|--:|--:|--:|--:|"
    for fault in FAULTS:
        mine, other = found.get(fault.name, ([], []))
        yield f"| {' | '.join((fault.name, fault.outcome, *shown(mine, rounds), *shown(other, rounds)))} |"


def document(found: Found, rounds: int) -> str:
    """The page."""
    every = JOB["checkpoint"]["every_steps"]
    text = f"""
        Medians of {rounds} round{"s" * (rounds > 1)} where a cell says no other number, on {os.cpu_count()} cores
        without a GPU, torch {torch.__version__}, gloo, two nodes of one worker, a checkpoint every {every} steps. Run
        once: what stops nothing, whose time is the longest between two steps while it lasts; and of torchrun what ended
        or gave nothing within {LIMIT_S:g} s in the first round, or took longer than {SLOW_S:g} s. Each fault comes
        half-way between two checkpoints. One fleet of ours goes from fault to fault, each of which finds a worker in
        waiting on each node, as it does on nodes that have trained for ten seconds; torchrun's nodes start anew for
        each. torchrun: `--nnodes 1:2 --rdzv-backend c10d --max-restarts 20`, the same trainer and a shared folder as
        its store. An empty cell: it was not run there, as torchrun has no such thing or does nothing about it. A node
        that joins is timed from its power-on, while the others train. Notices are looked for every 5 s, which is in
        their times; the notice is EC2's. The machine's load average was {os.getloadavg()[0]:.1f} when the last fault
        was over.
    """
    return "\n".join(
        [
            "# Faults",
            "",
            "Generated by `make bench-faults`. Each fault is provoked by a test of `tests/faults` as well, which also",
            "holds what was computed again to be what was computed before.",
            "",
            *table(found, rounds),
            "",
            *textwrap.wrap(" ".join(text.split()), 120, break_on_hyphens=False),
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
    found: Found = {fault.name: ([], []) for fault in FAULTS if fault.name in (options.faults or NAMES)}
    endpoint, began = server.serve(), time.monotonic()
    with ExitStack() as fleets:
        patches = {"node": SOON, "train": HARMED}
        pair = Pair(lambda: fleets.enter_context(fleet(Path(tempfile.mkdtemp()), endpoint, job=JOB, patches=patches)))
        for turn in range(options.rounds):
            for fault in FAULTS:
                mine, other = found.get(fault.name, ([], []))
                for who, costs, measure in (
                    ("ours", mine, fault.ours and partial(measured, fault, pair)),
                    ("torchrun", other, fault.theirs and partial(measured_torchrun, fault)),
                ):
                    if fault.name not in found or not measure or (turn and not _again(fault, costs)):
                        continue
                    try:
                        costs.append(measure())
                        said = " ".join(shown(costs[-1:], 1))
                    except AssertionError as error:  # the others may be had all the same
                        said = f"not measured, {error}"
                        pair.anew()
                    passed = time.monotonic() - began
                    print(f"{passed:4.0f} s, round {turn + 1}: {fault.name}: {who} {said}", flush=True)
    page = document(found, options.rounds)
    print(page)
    if options.write:
        DOCUMENT.write_text(page)


def _again(fault: Fault, costs: list[Cost]) -> bool:
    """Whether a fault is worth another round: its time may vary, and is no wait that everyone can see."""
    return not fault.lasting_s and all(one.seconds is not None and one.seconds < SLOW_S for one in costs)


if __name__ == "__main__":
    main()
