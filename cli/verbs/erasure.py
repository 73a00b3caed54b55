"""Verbs about erasing, for good and with a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.errors import Refused
from cli.verbs.options import Stack, Sure, console

app = typer.Typer(help="Erase for good what a cluster has of a run, a dataset or a person, with a certificate.")


@app.callback(invoke_without_command=True)
def erase(
    context: typer.Context,
    run: Annotated[str, typer.Option(help="A run, with its checkpoints and record.", metavar="RUN")] = "",
    dataset: Annotated[str, typer.Option(help="A dataset.", metavar="NAME")] = "",
    subject: Annotated[
        str, typer.Option(help="What is in folders subject=KEY, or tagged trainwright:subject=KEY.", metavar="KEY")
    ] = "",
    crypto: Annotated[
        bool, typer.Option("--crypto", help="All of the cluster, by the deletion of its data key; asks in any case.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the certificate goes; by default .local/erasures/.", metavar="FILE", show_default=False
        ),
    ] = None,
    listing: Annotated[
        Path | None,
        typer.Option("--list", help="Where the list of what was erased goes.", metavar="FILE", show_default=False),
    ] = None,
    stack: Stack = "local",
    sure: Sure = False,
) -> None:
    """Erase for good what a cluster has of a run, a dataset or a person, and certify that. See docs/erasure.md."""
    if context.invoked_subcommand:
        return
    from cli import erasure  # noqa: PLC0415
    from cli.erasure.cluster import at_hand  # noqa: PLC0415
    from cli.erasure.key import erase_key  # noqa: PLC0415
    from cli.erasure.scope import scope  # noqa: PLC0415

    if crypto and (run or dataset or subject or listing):
        raise Refused("--crypto erases all of the cluster: it goes with no --run, --dataset, --subject or --list")
    wanted = None if crypto else scope(run, dataset, subject)
    cluster, cloud, file = at_hand(stack, out)
    if wanted is None:
        raise typer.Exit(erase_key(cluster, cloud, console, file))
    raise typer.Exit(erasure.erase(wanted, cluster, cloud, console, file, sure=sure, listing=listing))


@app.command("verify")
def verify_erasure(
    file: Annotated[Path, typer.Argument(help="A certificate.", metavar="FILE", show_default=False)],
    subject: Annotated[str, typer.Option(help="See that it is of this subject.", metavar="KEY")] = "",
    listing: Annotated[
        Path | None, typer.Option("--list", help="See that this is its list.", metavar="FILE", show_default=False)
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Don't ask the cloud whose key signed.")] = False,
    stack: Annotated[
        str, typer.Option("--stack", "-s", help="Ask this stack's cloud; else who the shell leads to.", metavar="NAME")
    ] = "",
) -> None:
    """Check a certificate of an erasure, and say what that proves."""
    from cli.erasure import certificate  # noqa: PLC0415
    from cli.erasure.clouds import asked_for  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    if stack:
        _ = Workspace(stack).account  # leads clients to its cloud
    certificate.verify(file, console, None if offline else asked_for, subject=subject, listing=listing)
