"""The closing report of a run, in the terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.figures import Figures, figures
from cli.history import History
from cli.moments import why
from cli.status import TONES
from cli.words import duration, loss, plain
from trainer.node.peers import Generation

MOST_GENERATIONS = 8
MOST_NODES = 6
"""That are listed one by one; the page has more."""


@dataclass(frozen=True)
class Facts:
    """What is known of a run beside its prefix, by whoever brought its cluster up."""

    stack: str
    run: str
    where: str
    """The cloud, in words: `aws us-west-2`."""
    checkpoints_url: str
    report_path: Path | None = None
    group_created: float | None = None
    """When the fleet's group was created, in seconds since 1970."""
    job: Mapping[str, Any] = field(default_factory=dict)
    """The job, as in `job.json`."""
    afterwards: str = ""
    """What stays now that the run has ended, and how to end that."""
    retry: str = ""
    """The command that gives the run another try, were it to fail; empty where none does."""


def terminal(history: History, facts: Facts, *, now: float | None = None) -> RenderableType:
    """The report, for a console. `now` (seconds since 1970) ends the wall time of a run without an outcome."""
    found = figures(history, time.time() if now is None else now, facts.group_created)
    headline = Text(found.verdict, style=f"bold {TONES[found.tone]}")
    subject = Text(f"run {facts.run} on stack {facts.stack}, {facts.where}", style="dim")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for block in (_progress(found), _cluster(history, found), _places(found, facts)):
        table.add_row()
        for label, value in block:
            table.add_row(label, Text(value))
    again = f"`{facts.retry}` gives it another try, from what is safe" if facts.retry else ""
    failed = history.outcome is not None and not history.outcome.succeeded
    end = [Text(line) for line in (again if failed else "", facts.afterwards) if line]
    end = [Text(), *end] if end else []
    return Padding(Group(headline, subject, table, *end), (1, 2))


def _progress(found: Figures) -> list[tuple[str, str]]:
    again = f", {found.repeated:,} done again" if found.repeated else ""
    rows = [("steps", f"{found.step:,} of {found.steps:,}{again}"), ("tokens", f"{found.tokens:,}")]
    if found.first_loss is not None and found.last_loss is not None:
        fall = "" if found.fall is None else f", {'down' if found.fall >= 0 else 'up'} {abs(found.fall):.0f} %"
        rows.append(("loss", f"{loss(found.first_loss)} → {loss(found.last_loss)}{fall}"))
    if found.tokens_per_second is not None:
        rows.append(("throughput", f"{found.tokens_per_second:,.0f} tokens/s (median)"))
    if not found.step:
        rows = [("steps", "none told" if not found.safe else f"none told; {found.safe:,} is safe, the program says")]
    return rows


def _cluster(history: History, found: Figures) -> list[tuple[str, str]]:
    listed = ", ".join(found.nodes[:MOST_NODES])
    more = f" and {len(found.nodes) - MOST_NODES:,} more" if len(found.nodes) > MOST_NODES else ""
    rows = [
        ("nodes", f"{len(found.nodes)}: {listed}{more}" if found.nodes else "none took part"),
        *([("world size", f"{found.world:,}")] if found.world else []),
        *_generations(history),
    ]
    if found.boot_s is not None:
        rows.append(("boot", f"{duration(found.boot_s)} from {found.boot_from} to first optimizer step"))
    if found.wall_s is not None:
        rows.append(("wall time", duration(found.wall_s)))
    return rows


def _generations(history: History) -> list[tuple[str, str]]:
    newest = [generation for _, generation in sorted(history.generations.items())][-MOST_GENERATIONS:]
    left_out = len(history.generations) - len(newest)
    lines = ([f"{left_out:,} earlier"] if left_out else []) + [_generation(generation) for generation in newest]
    labels = ["generations"] + [""] * (len(lines) - 1)
    return list(zip(labels, lines, strict=True)) if lines else [("generations", "none")]


def _generation(generation: Generation) -> str:
    return f"{generation.number}  world {generation.world}: {why(generation)}"


def _places(found: Figures, facts: Facts) -> list[tuple[str, str]]:
    newest = "none" if found.newest_checkpoint is None else f"the newest is of step {found.newest_checkpoint:,}"
    rows = [("checkpoints", plain(facts.checkpoints_url)), ("", newest)]
    if facts.report_path:
        rows.append(("report", str(facts.report_path)))
    return rows
