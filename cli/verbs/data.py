"""Verbs about datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.verbs.options import Stack, console

app = typer.Typer(help="Datasets in a cluster's bucket.", no_args_is_help=True)


@app.command()
def pack(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files and folders of text; without any, the sources of Python's standard library.", metavar="[PATH…]"
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(help="The dataset's name; by default the one that the stack's job names.", metavar="NAME")
    ] = "",
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Leave out what matches this, such as 'test*'. May be repeated.", metavar="PATTERN"),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put it in the place of another of that name; no job may be reading that.")
    ] = False,
    stack: Stack = "local",
) -> None:
    """Turn files and folders of text into a dataset in the cluster's bucket. The cluster must be up."""
    from cli import datasets  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    workspace = Workspace(stack)
    target = name or workspace.plan()[0].spec.job.dataset
    bucket = workspace.bucket()
    if paths:
        packed = datasets.pack(paths, target, workspace.home, exclude or ())
    else:
        packed = datasets.pack_standard_library(workspace.home, target)
    datasets.upload(packed, bucket, console, replace=replace)
