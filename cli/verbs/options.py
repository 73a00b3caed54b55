"""What verbs have in common: options that mean the same at each, and the console."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console

WIDE = 160
"""Columns where no terminal sets them, in a pipe or a file: so many that no table of ours is folded."""

console = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDE)

Stack = Annotated[
    str, typer.Option("--stack", "-s", help="A stack: the NAME of stacks/Pulumi.NAME.yaml.", metavar="NAME")
]

Run = Annotated[str, typer.Option("--run", help="Another run of the cluster's than the one it is at.", metavar="RUN")]

Sure = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask first, as is done on a real cloud.")]

AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
