"""The `trainwright` command: its verbs, and how it says that something can't be done."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from cli.errors import Refused

app = typer.Typer(
    help="GPU training clusters on AWS and Alibaba Cloud: checked before launch, trained on to the end.",
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


@app.command()
def up(stack: Stack = "local") -> None:
    """Bring a cluster up and follow its run to the end; `local` needs no account."""
    from cli import lifecycle  # noqa: PLC0415  each verb loads only what it needs: --help answers at once

    raise typer.Exit(lifecycle.up(stack, console))


@app.command()
def down(stack: Stack = "local") -> None:
    """Destroy a cluster; with `local`, end the embedded cloud too."""
    from cli import lifecycle  # noqa: PLC0415

    lifecycle.down(stack, console)


@app.command()
def check(stack: Stack = "local") -> None:
    """Check a stack's file, without an account or the engine."""
    from cli.workspace import Workspace  # noqa: PLC0415
    from components.cost import cost  # noqa: PLC0415

    workspace = Workspace(stack)
    plan, warnings = workspace.plan()
    for warning in warnings:
        console.print(f"warning: {warning}", markup=False)
    nodes = f"{plan.fleet.desired} nodes of {plan.instance.name}, {plan.workers} workers each"
    console.print(f"{stack}: {nodes}, in {plan.spec.region}; run {plan.run.id}", markup=False)
    if not workspace.local:
        console.print(cost(plan).text(min(console.width, 120)), markup=False)


@app.command()
def env(stack: Stack = "local") -> None:
    """Print the environment in which `pulumi` works by hand: eval "$(trainwright env)". Starts the embedded cloud."""
    from cli.workspace import Workspace  # noqa: PLC0415

    for name, value in Workspace(stack).environment.items():
        print(f"export {name}={shlex.quote(value)}")


@app.command()
def watch(stack: Stack = "local") -> None:
    """Follow a run live until it ends, then print its report."""
    from cli import lifecycle  # noqa: PLC0415

    raise typer.Exit(lifecycle.watch(stack, console))


@app.command()
def status(
    stack: Stack = "local", as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False
) -> None:
    """Show a run's nodes, generation and progress as they are now."""
    from cli import watch as watching  # noqa: PLC0415
    from cli.history import History  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    run, store = Workspace(stack).run()
    history = History(store, run)
    history.refresh()
    if as_json:
        print(json.dumps(watching.as_json(history), indent=2))
    else:
        console.print(watching.status(history))


@app.command()
def logs(
    stack: Stack = "local",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as logs grow, until the run ends.")] = False,
    node: Annotated[str, typer.Option(help="Only this node's.", metavar="ID")] = "",
    stream: Annotated[str, typer.Option(help="Only streams whose name holds this, such as agent or rank0.")] = "",
) -> None:
    """Print the logs of a run's agents and workers."""
    from cli import logs as printing  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    _, store = Workspace(stack).run()
    printing.show(store, console, follow=follow, node=node, stream=stream)


@app.command()
def catalog(
    cloud: Annotated[str, typer.Option(help="The cloud.")] = "aws",
    region: Annotated[str, typer.Option(help="Only types that this region offers, with its prices.")] = "",
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
    paths: Annotated[list[Path], typer.Argument(help="Files and folders of text.", metavar="PATH…")],
    name: Annotated[str, typer.Option(help="The dataset's name; by default the one that the stack's job names.")] = "",
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave out what matches this pattern, such as 'test*'. May be repeated.")
    ] = None,
    stack: Stack = "local",
) -> None:
    """Turn any folder of text into token shards in the cluster's bucket."""
    from cli import datasets  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    workspace = Workspace(stack)
    target = name or workspace.plan()[0].spec.job.dataset
    packed = datasets.pack(paths, target, workspace.home, exclude or ())
    datasets.upload(packed, workspace.bucket(), console)


def main() -> None:
    """The command. An error that is the user's to mend is a clear line and exit code 1."""
    from tools.pulumi_cli import NoPulumiCLI  # noqa: PLC0415
    from trainer.store import StoreError  # noqa: PLC0415

    try:
        app()
    except Refused as refused:
        errors.print(f"[bold red]error:[/] {_escaped(refused)}")
    except (NoPulumiCLI, StoreError) as error:
        errors.print(f"[bold red]error:[/] {_escaped(error)}")
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)
    else:
        return
    sys.exit(1)


def _escaped(error: Exception) -> str:
    return str(error).replace("[", "\\[")
