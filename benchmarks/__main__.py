"""Measures in interleaved rounds, ours and the floor in turn, and prints best times and their ratio.

    python -m benchmarks [--rounds N] [NAME ...]

Machines are noisy: quote the ratio of a run, not a time, and compare ratios of runs on the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cli.workspace import stack_values
from components.checks import judge
from emulator import cloud
from tests.project import CHECKOUT, SMALL_JOB, TRAINWRIGHT, Project
from trainer.pack import pack

Timed = Callable[[], float]

PLANS = 500
"""Plans that are made for one measure: one takes a fraction of a millisecond."""

MOST_NODES = 1000
"""The largest fleet that a stack may ask for."""


@dataclass(frozen=True)
class Benchmark:
    """One thing that users wait for: ours and its floor, each a function that gives seconds."""

    what: str
    floor: str
    ours_s: Timed
    floor_s: Timed


def command(*arguments: str, folder: Path = CHECKOUT) -> Timed:
    """The time of a whole process."""

    def timed() -> float:
        begun = time.perf_counter()
        subprocess.run(arguments, cwd=folder, check=True, capture_output=True)
        return time.perf_counter() - begun

    return timed


@contextmanager
def benchmarks() -> Iterator[dict[str, Benchmark]]:
    """All of them, by name, and the folder that they work in."""
    with tempfile.TemporaryDirectory() as folder:
        ours, empty = Project(Path(folder) / "ours"), Project(Path(folder) / "empty")
        (empty.folder / "__main__.py").write_text("")
        one, most = (sized(Path(folder) / str(nodes), nodes) for nodes in (1, MOST_NODES))
        try:
            yield {
                "help": Benchmark(
                    "trainwright --help",
                    "python -c pass",
                    command(TRAINWRIGHT, "--help"),
                    command(sys.executable, "-c", "pass"),
                ),
                "check": Benchmark(
                    "trainwright check",
                    "import of pydantic, yaml and typer",
                    command(TRAINWRIGHT, "check"),
                    command(sys.executable, "-c", "import pydantic, yaml, typer"),
                ),
                "preview": Benchmark(
                    "pulumi preview of the local stack",
                    "the same engine with an empty program",
                    preview(ours),
                    preview(empty),
                ),
                "offline": Benchmark(
                    "trainwright preview of prod-us-west, offline",
                    "pulumi preview with an empty program",
                    command(TRAINWRIGHT, "preview", "--offline", "--stack", "prod-us-west"),
                    preview(empty),
                ),
                "nodes": Benchmark(
                    f"trainwright preview of {MOST_NODES:,} nodes, offline",
                    "the same of 1 node",
                    command(TRAINWRIGHT, "preview", "--offline", folder=most.folder),
                    command(TRAINWRIGHT, "preview", "--offline", folder=one.folder),
                ),
                **{
                    f"plan-{nodes}": Benchmark(
                        f"{PLANS} plans of prod-us-west with {nodes:,} nodes", "with 1 node", plans(nodes), plans(1)
                    )
                    for nodes in (10, 100, MOST_NODES)
                },
                "boot": Benchmark(
                    "boot: group created to first optimizer step, two nodes",
                    "one trainer process: start to first step",
                    boot(Path(folder)),
                    first_step(Path(folder)),
                ),
            }
        finally:
            cloud.stop(ours.home)
            cloud.stop(empty.home)


def sized(folder: Path, nodes: int) -> Project:
    """A project whose fleet is of that size."""
    job = {**SMALL_JOB, "batch": MOST_NODES, "micro_batch": 1}
    return Project(folder, job, {"desired": nodes, "max": nodes})


def plans(nodes: int) -> Timed:
    """The time of deciding the shipped GPU cluster for so many nodes, from the values of its file."""
    values = stack_values(CHECKOUT / "stacks" / "Pulumi.prod-us-west.yaml")
    values["nodes"] |= {"min": 1, "desired": nodes, "max": nodes, "on_demand_base": 0}
    values["network"] |= {"cidr": "10.0.0.0/16"}
    values["job"] |= {"batch": MOST_NODES * 8}
    values.pop("scaling", None)  # its own sizes are none of these

    def timed() -> float:
        begun = time.perf_counter()
        for _ in range(PLANS):
            judge("prod-us-west", values)
        return time.perf_counter() - begun

    return timed


def preview(project: Project) -> Timed:
    """The time of a preview in the project, its cloud running and its stack known."""

    def timed() -> float:
        if cloud.find(project.home) is None:
            checked(project.pulumi("stack", "select", "--create"))
        environment = {**os.environ, **exported(project)}
        begun = time.perf_counter()
        subprocess.run(
            ["pulumi", "preview", "--stack", "local", "--non-interactive"],
            cwd=project.folder,
            env=environment,
            check=True,
            capture_output=True,
        )
        return time.perf_counter() - begun

    return timed


def exported(project: Project) -> dict[str, str]:
    """What `trainwright env` exports, read as a shell reads it."""
    dump = "import json, os; print(json.dumps(dict(os.environ)))"
    script = f"""eval "$('{TRAINWRIGHT}' env)"; exec '{sys.executable}' -c '{dump}'"""
    done = subprocess.run(["bash", "-ec", script], cwd=project.folder, check=True, capture_output=True, text=True)
    values: dict[str, str] = json.loads(done.stdout)
    return values


def boot(folder: Path) -> Timed:
    """From a new cloud to its run's first step, as the metrics and the group's own creation time say."""

    def timed() -> float:
        project = Project(folder / "boot", job={**SMALL_JOB, "steps": 20})
        try:
            checked(project.trainwright("up"))
            history = project.history()
            history.refresh()
            groups = project.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
            return float(history.steps[0].time - groups[0]["CreatedTime"].timestamp())
        finally:
            cloud.stop(project.home)
            shutil.rmtree(project.folder)

    return timed


def first_step(folder: Path) -> Timed:
    """From the start of one trainer process to its first step's line of metrics."""

    def timed() -> float:
        work = folder / "first-step"
        pack([Path(json.__file__).parent], work / "data", "json")
        job = {**SMALL_JOB, "steps": 1}
        (work / "job.json").write_text(json.dumps(job))
        begun = time.time()
        arguments = ["--job", str(work / "job.json"), "--data", str(work / "data"), "--store", str(work / "store")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRAINWRIGHT_METRICS": str(work / "metrics.jsonl")}
        environment["TRAINWRIGHT_SCRATCH"] = str(work / "scratch")
        subprocess.run(
            [sys.executable, "-m", "trainer.train", *arguments], env=environment, check=True, capture_output=True
        )
        lines = [json.loads(line) for line in (work / "metrics.jsonl").read_text().splitlines()]
        shutil.rmtree(work)
        return float(next(line["time"] for line in lines if "loss" in line) - begun)

    return timed


def checked(done: subprocess.CompletedProcess[str]) -> None:
    """Stop with what a command said where it failed."""
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (default 3)")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="one of them (default: all); an unknown name lists them"
    )
    options = parser.parse_args()
    table = Table("what", "against", "ours, best", "floor, best", "ratio", box=None, header_style="bold")
    with benchmarks() as known:
        for name in options.names or known:
            if name not in known:
                parser.error(f"there is no benchmark '{name}'; there are {', '.join(known)}")
            benchmark = known[name]
            ours, floor = [], []
            for _ in range(options.rounds):
                floor.append(benchmark.floor_s())
                ours.append(benchmark.ours_s())
            best = (min(ours), min(floor))
            table.add_row(
                benchmark.what, benchmark.floor, f"{best[0]:.2f} s", f"{best[1]:.2f} s", f"{best[0] / best[1]:.1f}"
            )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
