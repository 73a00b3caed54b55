"""Verbs about a cluster's queue of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cli.errors import Refused
from cli.verbs.options import AsJson, Stack, console

app = typer.Typer(help="Runs that wait in a cluster's queue.", invoke_without_command=True)


def submit(
    file: Annotated[
        Path | None,
        typer.Argument(help="YAML with the keys of `job`; the stack's own if absent.", metavar="[FILE]"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key, such as steps=500. May be repeated.", metavar="KEY=VALUE"),
    ] = None,
    stack: Stack = "local",
) -> None:
    """Put a job into the cluster's queue; its nodes take it when all before it have ended."""
    from cli import queue as queueing  # noqa: PLC0415

    if file is None and not settings:
        raise Refused("name a FILE with a job, or say what differs from the stack's own by --set KEY=VALUE")
    queueing.submit(stack, console, file, settings or ())


@app.callback()
def list_queue(
    context: typer.Context,
    stack: Stack = "local",
    as_json: AsJson = False,
) -> None:
    """List the runs of a cluster's queue, in order: what trains, what waits, and how the others ended."""
    if context.invoked_subcommand:
        return
    from cli import queue as queueing  # noqa: PLC0415

    found = queueing.listed(stack)
    if as_json:
        print(json.dumps(queueing.as_json(found), indent=2))
    else:
        console.print(queueing.table(found))


@app.command("remove")
def remove_from_queue(
    run: Annotated[str, typer.Argument(help="The run's id.", metavar="RUN")],
    stack: Stack = "local",
    sure: Annotated[bool, typer.Option("--yes", "-y", help="Also end it where it trains now.")] = False,
) -> None:
    """Take a run out of the queue: it counts as failed, and what it has saved stays."""
    from cli import queue as queueing  # noqa: PLC0415

    queueing.remove(stack, console, run, sure=sure)


@app.command("retry")
def retry_in_queue(
    run: Annotated[str, typer.Argument(help="The run's id.", metavar="RUN")], stack: Stack = "local"
) -> None:
    """Put a submitted run that has failed at the queue's end again; it goes on from its newest checkpoint."""
    from cli import queue as queueing  # noqa: PLC0415

    queueing.again(stack, console, run)
