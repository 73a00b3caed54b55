"""A cluster's own verbs: brought up and down, looked at before, and reached by hand."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer
from rich.text import Text

from cli.verbs.options import AsJson, Stack, Sure, console


def up(stack: Stack = "local", sure: Sure = False) -> None:
    """Bring a cluster up and follow its run to the end; `local` needs no account."""
    from cli import lifecycle  # noqa: PLC0415

    raise typer.Exit(lifecycle.up(stack, console, sure=sure))


def down(stack: Stack = "local", sure: Sure = False) -> None:
    """Destroy a cluster; with `local`, end the embedded cloud too."""
    from cli import lifecycle  # noqa: PLC0415

    lifecycle.down(stack, console, sure=sure)


def preview(
    stack: Stack = "local",
    live: Annotated[
        bool | None,
        typer.Option(
            "--live/--offline",
            help="Compare with the account, or plan without one against stand-ins. By default, live where the cloud's "
            "credentials are found.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show what `up` would change, and leave it at that; needs no account."""
    from cli import lifecycle  # noqa: PLC0415

    lifecycle.preview(stack, console, live=live)


def check(stack: Stack = "local") -> None:
    """Check a stack's file, without an account and without Pulumi."""
    from cli.words import fleet  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415
    from components.cost import cost  # noqa: PLC0415

    workspace = Workspace(stack)
    plan, warnings = workspace.plan()
    for warning in warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    console.print(Text(f"{stack}: {fleet(plan)}"), soft_wrap=True)
    if not workspace.local:
        console.print(cost(plan).text(min(console.width, 120)), markup=False)


def leftovers(stack: Stack = "local", as_json: AsJson = False) -> None:
    """List what bears the cluster's tag though the stack's state doesn't know it, and how to remove it; 1 if any."""
    from cli import leftovers as left  # noqa: PLC0415

    found = left.find(stack)
    if as_json:
        print(json.dumps(left.as_json(found), indent=2))
    else:
        left.show(found, console)
    raise typer.Exit(1 if found.left else 0)


def env(stack: Stack = "local") -> None:
    """Print what `pulumi` by hand needs: eval "$(trainwright env)". With `local`, start the embedded cloud."""
    from cli.workspace import Workspace  # noqa: PLC0415

    workspace = Workspace(stack)
    _ = workspace.file  # a stack that has none is refused by its name, before anything is fetched or started
    exports = [f"export {name}={shlex.quote(value)}" for name, value in workspace.environment.items()]
    print("\n".join([*(f"unset {name}" for name in workspace.unset), *exports]))
