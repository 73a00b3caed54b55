"""Verbs about a run's checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from cli.verbs.options import AsJson, Run, Stack, console

app = typer.Typer(help="A run's checkpoints in its cluster's bucket.", no_args_is_help=True)


@app.command("list")
def list_checkpoints(stack: Stack = "local", run: Run = "", as_json: AsJson = False) -> None:
    """List a run's checkpoints, the newest first; what they hold is not read."""
    from cli import checkpoints as kept  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    found = kept.listed(Workspace(stack).run(run)[1])
    if as_json:
        print(json.dumps(kept.as_json(found), indent=2))
    else:
        console.print(kept.table(found))


@app.command("verify")
def verify_checkpoints(
    stack: Stack = "local",
    run: Run = "",
    step: Annotated[
        int | None, typer.Option(help="Only the checkpoint of this step.", min=1, show_default=False)
    ] = None,
) -> None:
    """Read a run's checkpoints and compare their hashes; exit code 1 where one is damaged."""
    from cli import checkpoints as kept  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    raise typer.Exit(kept.verify(Workspace(stack).run(run)[1], console, step))


@app.command("export")
def export_checkpoint(
    to: Annotated[Path, typer.Option(help="The file to write; none is overwritten.", metavar="FILE")],
    stack: Stack = "local",
    run: Run = "",
    step: Annotated[int | None, typer.Option(help="By default the newest.", min=1, show_default=False)] = None,
    kind: Annotated[
        Literal["torch", "safetensors"], typer.Option("--format", help="safetensors needs the extra `export`.")
    ] = "torch",
) -> None:
    """Write a checkpoint's model, a plain state dict, to a file."""
    from cli import checkpoints as kept  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    kept.export(Workspace(stack).run(run)[1], console, to, step, kind)
