"""How a run stands: its nodes, generation and progress, as the terminal shows them and as programs read them."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Container, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cli.account import Group as Fleet
from cli.figures import figures, time_left
from cli.history import Boot, History, Step
from cli.moments import why
from cli.nodes import Node, broken, failing, nodes
from cli.words import about, counted, duration, loss, plain

TONES = {"good": "green", "busy": "cyan", "bad": "red", "quiet": "dim"}
"""What the terminal's own palette gives each tone, so that it reads on dark and light grounds."""

MOST_NODES = 12
"""That a table shows; those beyond are summed up."""


def status(
    history: History,
    *,
    now: float | None = None,
    alive: Collection[str] | None = None,
    stopped: bool = False,
    retry: str = "",
) -> RenderableType:
    """How the run stands, for a console.

    `alive` are the instances that the fleet's group has now; where that isn't known, nodes show what they last said.
    `stopped` is a fleet that launches none; `retry`, the command that gives the run another try, where one does.
    """
    at = time.time() if now is None else now
    standing = [outcome_line(history, retry)] if history.outcome or not stopped else []
    failed = failing(history, at)
    if stopped:
        standing.append(stopped_line(history))
    elif history.outcome is None and failed:
        standing = [failing_line(failed)]
    elif history.outcome is None and alive is not None and not alive:
        standing = [Text("no node is left: the run stands still until the group has some again", style="red")]
    return Group(Text(f"run {history.run}", style="bold"), *pieces(history, at, gone(history, alive)), *standing)


def is_stopped(history: History, group: Fleet) -> bool:
    """Whether the fleet launches none for its breaker: it may not, or it is to have none though the run goes on.

    That it is so for the breaker shows in the newest boots: a fleet at zero by a schedule had others.
    """
    return group.stopped or (group.wanted == 0 and history.outcome is None and broken(history))


def gone(history: History, alive: Collection[str] | None) -> frozenset[str]:
    """The nodes that the run has heard of and the fleet's group has no more; none where that isn't known."""
    members = (member.node for member in history.generation.members) if history.generation else ()
    heard = {*history.cards, *history.boots, *members}
    return frozenset() if alive is None else frozenset(heard.difference(alive))


def as_json(
    history: History, *, now: float | None = None, alive: Collection[str] | None = None, stopped: bool = False
) -> dict[str, Any]:
    """The same for programs: plain values, names as in the figures, times in seconds; null for what isn't finite."""
    at = time.time() if now is None else now
    found = asdict(figures(history, at))
    took_part = found.pop("nodes")
    newest = history.generation
    return {
        "run": history.run,
        **{name: _finite(value) for name, value in found.items() if name not in {"tone", "boot_s"}},
        "outcome": asdict(history.outcome) if history.outcome else None,
        "generation": {"number": newest.number, "world": newest.world, "why": newest.why} if newest else None,
        "nodes": [
            {"node": node.node, "address": node.address, "state": node.state, "boot_s": node.boot_s}
            for node in nodes(history, gone(history, alive))
        ],
        "took_part": list(took_part),
        "failing": [boot.failure for boot in failing(history, at)],
        "stopped": stopped,
        "checkpoints": history.checkpoints,
    }


def pieces(history: History, now: float, lost: Container[str] = ()) -> list[RenderableType]:
    """The parts of a status, from top to bottom: nodes, generation, progress."""
    return [Text(), _node_table(nodes(history, lost)), Text(), _generation_line(history), *_progress(history, now)]


def progress_line(history: History, now: float) -> str:
    """Where the run is, in one line."""
    steps = history.steps
    if not steps:
        return safe(history) or "no step yet"
    return f"step {steps[-1].step:,}/{steps[-1].steps:,} · {_readings(history, steps, now)}"


def safe(history: History) -> str:
    """How far an own program, which need not tell of its steps, has said to be safe; empty where it hasn't."""
    return f"step {history.safe:,} is safe" if history.safe else ""


def outcome_line(history: History, retry: str = "") -> Text:
    """How the run ended, or that it hasn't. `retry` is the command by which it may go on, where there is one."""
    if history.outcome is None:
        return Text("the run goes on", style="dim")
    if history.outcome.succeeded:
        return Text("the run is done", style="bold green")
    again = f". `{retry}` gives it another try" if retry else ""
    return Text(f"the run failed: {plain(history.outcome.reason)}{again}", style="bold red")


def failing_line(failed: Sequence[Boot]) -> Text:
    """That no boot succeeds any more, why the last one failed, and what comes of it."""
    return Text(
        f"{len(failed)} boots failed within an hour and none succeeded, the last at {plain(str(failed[-1].failure))}. "
        "At nodes.failed_boots of them the fleet is set to zero",
        style="bold red",
    )


def stopped_line(history: History) -> Text:
    """That the fleet launches no more nodes, why the last one failed, and what brings it back."""
    failed = sorted((boot for boot in history.boots.values() if boot.failed), key=lambda boot: boot.started)
    last = f", the last at {plain(str(failed[-1].failure))}" if failed else ""
    return Text(
        f"the fleet is stopped and launches no nodes: too many failed to boot{last}. "
        "Once that is mended, bring it back by `trainwright retry`",
        style="bold red",
    )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _node_table(shown: Sequence[Node]) -> RenderableType:
    if not shown:
        return Text("no node has reported yet", style="dim")
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("node", no_wrap=True)
    table.add_column("address", no_wrap=True)
    table.add_column("state", overflow="fold")
    table.add_column("boot", justify="right", no_wrap=True)
    for node in shown[:MOST_NODES]:
        boot = "" if node.boot_s is None else duration(node.boot_s)
        cells = (Text(plain(node.node)), Text(plain(node.address)), Text(node.state, style=TONES[node.tone]))
        table.add_row(*cells, boot)
    rest = Counter(node.state.split(",")[0].split(":")[0] for node in shown[MOST_NODES:])
    if rest:
        table.add_row(Text(f"and {rest.total():,} more", style="dim"), "", Text(_summed(rest), style="dim"), "")
    return table


def _summed(states: Counter[str]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in states.most_common(4))


def _generation_line(history: History) -> Text:
    generation = history.generation
    if generation is None:
        return Text("waiting for the first generation", style="dim")
    line = Text(f"generation {generation.number}", style="bold")
    line.append(f" · {counted(len(generation.members), 'node')} · world {generation.world}", style="not bold")
    cause = "" if generation.number == 1 else f" · {why(generation)}"
    return line.append(cause, style="not bold dim")


def _progress(history: History, now: float) -> list[RenderableType]:
    steps = history.steps
    if not steps:
        return [Text(progress_line(history, now), style="dim")] if history.generation else []
    last = steps[-1]
    row = Table.grid(expand=True, padding=(0, 2, 0, 0))
    row.add_column(ratio=1)
    row.add_column(no_wrap=True)
    bar = ProgressBar(last.steps, last.step, style="bright_black", complete_style="cyan", finished_style="green")
    row.add_row(bar, f"{last.step:,}/{last.steps:,}")
    return [row, Text(_readings(history, steps, now))]


def _readings(history: History, steps: Sequence[Step], now: float) -> str:
    last = steps[-1]
    readings = [f"loss {loss(last.loss)}", f"{last.tokens_per_second:,.0f} tokens/s"]
    saved = [event for event in history.events if event.event == "checkpoint"]
    if saved:
        age = "" if history.outcome else f", {about(now - saved[-1].time)} ago"
        readings.append(f"checkpoint at {saved[-1].step:,}{age}")
    left = time_left(steps)
    if left is not None and not history.outcome and last.step < last.steps:
        readings.append(f"{about(left)} left")
    return " · ".join(readings)
