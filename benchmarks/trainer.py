"""`make bench-trainer`: the bundled trainer against a loop written by hand, Accelerate and Lightning Fabric.

    python -m benchmarks.trainer [--rounds N] [--steps N] [--print] [PART ...]

All on this machine in this run, each contender two gloo processes of one thread. Rounds are interleaved and begin with
another contender each time, so that what disturbs the machine disturbs all alike. Machines are noisy: quote ratios, and
compare them with those of other runs on the same machine. Writes docs/trainer-bench.md, or prints alone with --print.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any

from benchmarks.readers import Reader, readers
from trainer.pack import pack

CHECKOUT = Path(__file__).parents[1]
PAGE = CHECKOUT / "docs" / "trainer-bench.md"
RANKS = 2
LIMIT_S = 300
"""Longest wait for any answer."""

NAMES = {"ours": "Trainwright", "plain": "plain DDP loop", "accelerate": "Accelerate", "fabric": "Lightning Fabric"}

LARGE: dict[str, Any] = {
    "name": "bench",
    "dataset": "bench",
    "steps": 1_000_000,
    "batch": 16,
    "micro_batch": 8,
    "checkpoint": {"every_steps": 1_000_000, "every_seconds": 1e9},
    "model": {"layers": 4, "heads": 4, "width": 256, "context": 128},
}
"""3.2 million parameters, one micro-step a rank: enough work to compare how fast it is done."""

ACCUMULATED = LARGE | {"batch": 64}
"""The same in four micro-steps."""

SMALL = LARGE | {"batch": 2, "micro_batch": 1, "model": {"layers": 2, "heads": 2, "width": 64, "context": 32}}
"""0.1 million parameters on one sample a rank: next to no work, so that what is left is a trainer's own doing."""


class Contender:
    """The rank processes of one trainer."""

    def __init__(self, name: str, job: Mapping[str, Any], data: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.json").write_text(json.dumps(job))
        arguments = [name, str(folder / "job.json"), str(data), str(folder)]
        self.ranks = ranks(["-m", "benchmarks.contenders", *arguments], folder)

    def wait_until_ready(self) -> None:
        for rank in self.ranks:
            until(rank, lambda line: line == "ready")

    def tell(self, word: str) -> list[float]:
        """What rank 0 answers once all have done what they were told."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{word}\n")
            rank.stdin.flush()
        answers = [until(rank, lambda line: line.startswith("[")) for rank in self.ranks]
        seconds: list[float] = json.loads(answers[0])
        return seconds


def ranks(arguments: Sequence[str], folder: Path) -> list[subprocess.Popen[str]]:
    """Start the processes of all ranks, with the environment that torchrun gives."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRAINWRIGHT_")},
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": str(RANKS),
        "TORCHELASTIC_RUN_ID": "bench",  # by which Fabric knows that ranks were started for it
    }
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / f"errors-{rank}.txt").open("w"),
            text=True,
        )
        for rank in range(RANKS)
    ]


def until(process: subprocess.Popen[str], wanted: Callable[[str], bool]) -> str:
    """The first line of a process for which `wanted` holds; ends the program where none comes in time."""
    assert process.stdout is not None
    limit = Timer(LIMIT_S, process.kill)
    limit.start()
    try:
        for line in process.stdout:
            if wanted(line.rstrip("\n")):
                return line
    finally:
        limit.cancel()
    sys.exit(f"{process.args}: ended, or did not answer within {LIMIT_S} s")


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


@contextmanager
def contenders(job: Mapping[str, Any], data: Path, folder: Path) -> Iterator[dict[str, Contender]]:
    """All trainers, ready to take steps of a job."""
    started = {name: Contender(name, job, data, folder / name) for name in NAMES}
    try:
        for contender in started.values():
            contender.wait_until_ready()
        yield started
    finally:
        end([rank for contender in started.values() for rank in contender.ranks])


def interleaved(measures: Mapping[str, Callable[[], list[float]]], rounds: int) -> dict[str, list[list[float]]]:
    """By name, what each round measured. Each round begins one further on; the first, which warms up, isn't kept."""
    found: dict[str, list[list[float]]] = {name: [] for name in measures}
    order = list(measures)
    for number in range(rounds + 1):
        for name in order:
            values = measures[name]()
            if number:
                found[name].append(values)
        order.append(order.pop(0))
    return found


def row(what: str, seconds: Mapping[str, list[list[float]]], shown: Callable[[float], str]) -> list[list[str]]:
    """Lines of a table: each one's best and its median of rounds' medians, and how fast ours is against it."""
    best = {name: min(min(values) for values in rounds) for name, rounds in seconds.items()}
    middle = {name: median(median(values) for values in rounds) for name, rounds in seconds.items()}
    return [
        [
            what if name == "ours" else "",
            NAMES.get(name, name),
            shown(best[name]),
            shown(middle[name]),
            *([""] * 2 if name == "ours" else [f"{one[name] / one['ours']:.2f}" for one in (best, middle)]),
        ]
        for name in seconds
    ]


def speed(what: str, job: dict[str, Any], steps: int, rounds: int, folder: Path) -> list[list[str]]:
    """Tokens a second of all contenders. In more rounds: the bests of few differ by what is aimed at."""
    pack([Path(json.__file__).parent], folder / "data", "bench")
    tokens = job["batch"] * job["model"]["context"]
    with contenders(job, folder / "data", folder) as started:
        measures = {name: lambda contender=contender: contender.tell(str(steps)) for name, contender in started.items()}
        return row(what, interleaved(measures, 3 * rounds), lambda step_s: f"{tokens / step_s:,.0f}")


def overhead(options: argparse.Namespace, folder: Path) -> list[list[str]]:
    """Milliseconds of a step that has next to nothing to compute.

    In short turns: a processor's clock changes from one half second to the next, by more than trainers differ.
    """
    pack([Path(json.__file__).parent], folder / "data", "bench")
    with contenders(SMALL, folder / "data", folder) as started:
        measures = {
            name: lambda contender=contender: contender.tell(str(2 * options.steps))
            for name, contender in started.items()
        }
        return row("step, ms", interleaved(measures, 10 * options.rounds), lambda step_s: f"{step_s * 1e3:.2f}")


def start(options: argparse.Namespace, folder: Path) -> list[list[str]]:
    """Seconds from the start of the processes to the end of the first step, imports included."""
    pack([Path(json.__file__).parent], folder / "data", "bench")

    def first_step(name: str) -> list[float]:
        place = folder / f"{name}-{time.monotonic_ns()}"
        began = time.perf_counter()
        if name == "ours":
            place.mkdir()
            (place / "job.json").write_text(json.dumps(LARGE))
            worker = ["-m", "trainer.train", "--job", "job.json", "--data", str(folder / "data"), "--store", "store"]
            started, wanted = ranks(worker, place), "step 1/"
        else:
            started, wanted = Contender(name, LARGE, folder / "data", place).ranks, "ready"
        try:
            until(started[0], lambda line: line.startswith(wanted))
            return [time.perf_counter() - began]
        finally:
            end(started)

    measures = {name: lambda name=name: first_step(name) for name in NAMES}
    return row("start, s", interleaved(measures, options.rounds), lambda seconds: f"{seconds:.2f}")


def data(options: argparse.Namespace, folder: Path) -> list[list[str]]:
    """Samples a second of our reader and of others."""
    with readers(folder) as known:

        def a_sample(reader: Reader) -> list[float]:
            return [reader(seconds=1.0)]

        measures = {name: lambda reader=reader: a_sample(reader) for name, reader in known.items()}
        return row("samples/s", interleaved(measures, options.rounds), lambda seconds: f"{1 / seconds:,.0f}")


def save(options: argparse.Namespace, folder: Path) -> list[list[str]]:
    """Milliseconds that training loses to a checkpoint."""
    pack([Path(json.__file__).parent], folder / "data", "bench")
    contender = Contender("ours", LARGE, folder / "data", folder / "ours")
    try:
        contender.wait_until_ready()
        found = [contender.tell("save") for _ in range(options.rounds + 1)][1:]
    finally:
        end(contender.ranks)
    stall, lost, blocking = ([[values[place]] for values in found] for place in range(3))
    seconds = {
        "ours": stall,
        "ours, with slower steps beside": lost,
        "blocking, read back": blocking,
    }
    return row("save, ms", seconds, lambda seconds: f"{seconds * 1e3:,.1f}")


PARTS: dict[str, tuple[str, Callable[[argparse.Namespace, Path], list[list[str]]]]] = {
    "tokens": (
        "Tokens a second, a 3.2 million parameter GPT, fp32. Aim: 0.97 of the best peer.",
        lambda options, folder: [
            *speed("one micro-step", LARGE, options.steps, options.rounds, folder / "1"),
            *speed("four micro-steps", ACCUMULATED, max(1, options.steps // 4), options.rounds, folder / "4"),
        ],
    ),
    "overhead": (
        "A step of a 0.1 million parameter GPT on one sample a rank: what is left is a trainer's own doing. "
        "Aim: not to be told from the plain loop's.",
        overhead,
    ),
    "start": ("From the start of two processes to the end of their first step. Aim: ahead of both frameworks.", start),
    "data": (
        "Samples of 129 tokens read in shuffled order, in batches of 256, until they are a tensor of int64. "
        "Aim: 100 times one `.npy` file a sample through a DataLoader of two workers.",
        data,
    ),
    "save": (
        "What a checkpoint of 39 MB costs training: the copy that holds it up, against the same files written with "
        "fsync and read back to be verified while training waits. Aim: a fifth.",
        save,
    ),
}


def page(found: Mapping[str, list[list[str]]]) -> str:
    """The Markdown page."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "accelerate", "lightning-fabric"))
    lines = [
        "# The trainer beside others",
        "",
        "Written by `make bench-trainer`; do not edit. Each contender is two processes of one thread, on gloo, with "
        "the same model, data, batch, fused AdamW and clipping, on one machine in one run, in interleaved rounds. Ours "
        "is the real loop, with its schedule, metrics and votes; the others are as lean as their documentation allows. "
        "Ratios are ours against theirs, above 1 where ours is faster.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}; {machine()}; Python {platform.python_version()}, {versions}.",
    ]
    for name, rows in found.items():
        lines += ["", f"## {name.capitalize()}", "", PARTS[name][0], ""]
        lines += ["| | | best | median | ratio of bests | ratio of medians |", "|---|---|--:|--:|--:|--:|"]
        lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """This machine, in words."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].split(":")[1].strip() if models else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{len(os.sched_getaffinity(0))} cores of {model}, {memory} GiB"


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trainer", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default 7)")
    parser.add_argument("--steps", type=int, default=10, help="steps a round (default 10)")
    parser.add_argument("--print", action="store_true", help="print the page instead of writing it")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.parts or PARTS:
            print(f"measuring: {name}", file=sys.stderr, flush=True)
            (Path(folder) / name).mkdir()
            found[name] = PARTS[name][1](options, Path(folder) / name)
    text = page(found)
    print(text)
    if not options.print and not options.parts:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
