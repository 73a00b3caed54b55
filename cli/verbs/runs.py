"""Verbs about one run of a cluster's, by default the one that it is at."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cli.verbs.options import AsJson, Run, Stack, console


def watch(stack: Stack = "local", run: Run = "") -> None:
    """Follow a run live until it ends, then print its report."""
    from cli import lifecycle  # noqa: PLC0415

    raise typer.Exit(lifecycle.watch(stack, console, run))


def retry(stack: Stack = "local") -> None:
    """Give a run that has failed another try, from its newest checkpoint."""
    from cli import retry as retrying  # noqa: PLC0415

    retrying.retry(stack, console)


def status(
    stack: Stack = "local",
    run: Run = "",
    as_json: AsJson = False,
) -> None:
    """Show a run's nodes, generation and progress as they are now."""
    from cli import status as standing  # noqa: PLC0415
    from cli.history import History  # noqa: PLC0415
    from cli.retry import again  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    workspace = Workspace(stack)
    run, store = workspace.run(run)
    history = History(store, run)
    history.refresh()
    group = workspace.group()
    alive, stopped = group.instances, standing.is_stopped(history, group)
    if as_json:
        print(json.dumps(standing.as_json(history, alive=alive, stopped=stopped), indent=2))
    else:
        console.print(standing.status(history, alive=alive, stopped=stopped, retry=again(workspace, run)))


def logs(
    stack: Stack = "local",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as logs grow, until the run ends.")] = False,
    node: Annotated[str, typer.Option(help="Only nodes whose id starts so.", metavar="ID")] = "",
    stream: Annotated[
        str, typer.Option(help="Only streams whose name holds this, such as agent or rank0.", metavar="NAME")
    ] = "",
    run: Run = "",
) -> None:
    """Print what a run's agents and workers said."""
    from cli import logs as printing  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    _, store = Workspace(stack).run(run)
    printing.show(store, console, follow=follow, node=node, stream=stream)


def audit(
    stack: Stack = "local",
    run: Run = "",
    as_json: AsJson = False,
) -> None:
    """Print a run's audit record: who declared what, its nodes and their cost, what it saved, how it ended."""
    from cli import audit as record  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    run, store = Workspace(stack).run(run)
    read = record.read(store, run)
    if as_json:
        print(json.dumps(record.as_json(read), indent=2))
    else:
        record.show(read, console)
