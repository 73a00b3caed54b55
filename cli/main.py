"""The `trainwright` command: its verbs, and how it says that something can't be done."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from cli.errors import Interrupted, Refused

app = typer.Typer(
    help="GPU training clusters: declared with Pulumi, checked before launch, trained on to the end.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(help="Datasets in a cluster's bucket.", no_args_is_help=True)
app.add_typer(data, name="data")

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

Stack = Annotated[
    str, typer.Option("--stack", "-s", help="A stack: the NAME of stacks/Pulumi.NAME.yaml.", metavar="NAME")
]

Sure = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask first, as is done on a real cloud.")]


@app.callback(invoke_without_command=True)
def versioned(version: Annotated[bool, typer.Option("--version", help="Print the version, and end.")] = False) -> None:
    """Take the options that belong to no verb."""
    if version:
        from importlib.metadata import version as installed  # noqa: PLC0415

        print(installed("trainwright"))
        raise typer.Exit


@app.command()
def up(stack: Stack = "local", sure: Sure = False) -> None:
    """Bring a cluster up and follow its run to the end; `local` needs no account."""
    from cli import lifecycle  # noqa: PLC0415  each verb loads only what it needs: --help answers at once

    raise typer.Exit(lifecycle.up(stack, console, sure=sure))


@app.command()
def down(stack: Stack = "local", sure: Sure = False) -> None:
    """Destroy a cluster; with `local`, end the embedded cloud too."""
    from cli import lifecycle  # noqa: PLC0415

    lifecycle.down(stack, console, sure=sure)


@app.command()
def preview(stack: Stack = "local") -> None:
    """Show what `up` would change, and leave it at that; `local` needs no account."""
    from cli import lifecycle  # noqa: PLC0415

    lifecycle.preview(stack, console)


@app.command()
def check(stack: Stack = "local") -> None:
    """Check a stack's file, without an account and without Pulumi."""
    from cli.words import counted  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415
    from components.cost import cost  # noqa: PLC0415

    workspace = Workspace(stack)
    plan, warnings = workspace.plan()
    for warning in warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    fleet = f"{counted(plan.fleet.desired, 'node')} of {plan.instance.name}, {counted(plan.workers, 'worker')} each"
    console.print(Text(f"{stack}: {fleet}, in {plan.spec.region}; run {plan.run.id}"), soft_wrap=True)
    if not workspace.local:
        console.print(cost(plan).text(min(console.width, 120)), markup=False)


@app.command()
def env(stack: Stack = "local") -> None:
    """Print what `pulumi` by hand needs: eval "$(trainwright env)". With `local`, start the embedded cloud."""
    from cli.workspace import Workspace  # noqa: PLC0415

    workspace = Workspace(stack)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in workspace.environment.items()]
    print("\n".join([*(f"unset {name}" for name in workspace.unset), *exports]))


@app.command()
def watch(stack: Stack = "local") -> None:
    """Follow a run live until it ends, then print its report."""
    from cli import lifecycle  # noqa: PLC0415

    raise typer.Exit(lifecycle.watch(stack, console))


@app.command()
def retry(stack: Stack = "local") -> None:
    """Give a run that has failed another try, from its newest checkpoint."""
    from cli import retry as retrying  # noqa: PLC0415

    retrying.retry(stack, console)


@app.command()
def status(
    stack: Stack = "local", as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False
) -> None:
    """Show a run's nodes, generation and progress as they are now."""
    from cli import status as standing  # noqa: PLC0415
    from cli.history import History  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    workspace = Workspace(stack)
    run, store = workspace.run()
    history = History(store, run)
    history.refresh()
    alive = workspace.group().instances
    if as_json:
        print(json.dumps(standing.as_json(history, alive=alive), indent=2))
    else:
        console.print(standing.status(history, alive=alive))


@app.command()
def logs(
    stack: Stack = "local",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as logs grow, until the run ends.")] = False,
    node: Annotated[str, typer.Option(help="Only nodes whose id starts so.", metavar="ID")] = "",
    stream: Annotated[
        str, typer.Option(help="Only streams whose name holds this, such as agent or rank0.", metavar="NAME")
    ] = "",
) -> None:
    """Print what a run's agents and workers said."""
    from cli import logs as printing  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    _, store = Workspace(stack).run()
    printing.show(store, console, follow=follow, node=node, stream=stream)


@app.command()
def catalog(
    cloud: Annotated[str, typer.Option(help="A cloud that has a catalog.", metavar="NAME")] = "aws",
    region: Annotated[
        str, typer.Option(help="Only types that this region offers, with its prices.", metavar="NAME")
    ] = "",
    gpu: Annotated[bool, typer.Option("--gpu", help="Only types with NVIDIA GPUs.")] = False,
    efa: Annotated[bool, typer.Option("--efa", help="Only types with EFA.")] = False,
    min_gpus: Annotated[int, typer.Option(help="Only types with that many GPUs.", min=0)] = 0,
    min_gpu_memory: Annotated[float, typer.Option(help="Only types whose GPUs have that much, GiB.", min=0)] = 0,
    min_memory: Annotated[float, typer.Option(help="Only types with that much memory, GiB.", min=0)] = 0,
    purchase: Annotated[
        Literal["on-demand", "spot", "capacity-block"], typer.Option(help="Only types sold so, with those prices.")
    ] = "on-demand",
    sort: Annotated[
        Literal["type", "price", "gpus", "memory", "network"] | None,
        typer.Option(help="Largest first; by price, cheapest first."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with every fact and price.")] = False,
) -> None:
    """List the instance types that a stack may name, and what they cost."""
    from cli import catalog as listing  # noqa: PLC0415

    wanted = listing.Filter(cloud, region, gpu, efa, min_gpus, min_gpu_memory, min_memory, purchase)
    listed = listing.select(wanted, sort)
    if as_json:
        print(json.dumps(listing.as_json(listed, wanted), indent=2))
    else:
        console.print(listing.show(listed, wanted))


@data.command()
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


def main() -> None:
    """The command. An error that is the user's to mend is a clear line and exit code 1."""
    from emulator.cloud import CloudError  # noqa: PLC0415
    from tools.pulumi_cli import NoPulumiCLI  # noqa: PLC0415
    from trainer.store import StoreError  # noqa: PLC0415

    try:
        app()
    except (Refused, NoPulumiCLI, CloudError) as error:
        _end(str(error))
    except StoreError as error:
        from cli.aws import advice  # noqa: PLC0415

        _end(". ".join(filter(None, [str(error), advice(error.__cause__)])))
    except Interrupted as interrupted:
        errors.print(Text(str(interrupted)), soft_wrap=True)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read the output has enough, as `head` does. Python's flush at exit must not fail on it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _end(message: str) -> NoReturn:
    errors.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    sys.exit(1)
