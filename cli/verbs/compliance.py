"""The verb that holds a stack against the controls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cli.verbs.options import console


def comply(
    stack: Annotated[
        str | None,
        typer.Option("--stack", "-s", help="A stack, planned offline.", metavar="NAME", show_default="local"),
    ] = None,
    state: Annotated[
        str,
        typer.Option(
            help="Judge this state instead, as `pulumi stack export` writes it; - is standard input.", metavar="FILE"
        ),
    ] = "",
    framework: Annotated[
        list[str] | None, typer.Option(help="Only controls mapped to this. May be repeated.", metavar="NAME")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only controls of this topic. May be repeated.", metavar="NAME")
    ] = None,
    severity: Annotated[
        Literal["low", "medium", "high", "critical"] | None,
        typer.Option(help="Only controls this severe, or more.", show_default=False),
    ] = None,
    kind: Annotated[
        Literal["table", "json", "sarif", "junit", "html"], typer.Option("--format", help="How to write it.")
    ] = "table",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.", metavar="FILE")] = None,
) -> None:
    """Hold a stack against the controls, without an account: 1 where one is broken, 2 where none could be judged."""
    from cli import comply as judging  # noqa: PLC0415

    wanted = judging.Wanted(stack, state, tuple(framework or ()), tuple(topic or ()), severity or "")
    raise typer.Exit(judging.comply(wanted, kind, output, console))
