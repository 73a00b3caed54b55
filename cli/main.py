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
checkpoints = typer.Typer(help="A run's checkpoints in its cluster's bucket.", no_args_is_help=True)
app.add_typer(checkpoints, name="checkpoints")
queue = typer.Typer(help="Runs that wait in a cluster's queue.", invoke_without_command=True)
app.add_typer(queue, name="queue")
erasing = typer.Typer(help="Erase for good what a cluster has of a run, a dataset or a person, with a certificate.")
app.add_typer(erasing, name="erase")

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

Stack = Annotated[
    str, typer.Option("--stack", "-s", help="A stack: the NAME of stacks/Pulumi.NAME.yaml.", metavar="NAME")
]

Run = Annotated[str, typer.Option("--run", help="Another run of the cluster's than the one it is at.", metavar="RUN")]

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


@app.command()
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


@app.command()
def env(stack: Stack = "local") -> None:
    """Print what `pulumi` by hand needs: eval "$(trainwright env)". With `local`, start the embedded cloud."""
    from cli.workspace import Workspace  # noqa: PLC0415

    workspace = Workspace(stack)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in workspace.environment.items()]
    print("\n".join([*(f"unset {name}" for name in workspace.unset), *exports]))


@app.command()
def watch(stack: Stack = "local", run: Run = "") -> None:
    """Follow a run live until it ends, then print its report."""
    from cli import lifecycle  # noqa: PLC0415

    raise typer.Exit(lifecycle.watch(stack, console, run))


@app.command()
def retry(stack: Stack = "local") -> None:
    """Give a run that has failed another try, from its newest checkpoint."""
    from cli import retry as retrying  # noqa: PLC0415

    retrying.retry(stack, console)


@app.command()
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


@queue.callback()
def list_queue(
    context: typer.Context,
    stack: Stack = "local",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
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


@queue.command("remove")
def remove_from_queue(
    run: Annotated[str, typer.Argument(help="The run's id.", metavar="RUN")],
    stack: Stack = "local",
    sure: Annotated[bool, typer.Option("--yes", "-y", help="Also end it where it trains now.")] = False,
) -> None:
    """Take a run out of the queue: it counts as failed, and what it has saved stays."""
    from cli import queue as queueing  # noqa: PLC0415

    queueing.remove(stack, console, run, sure=sure)


@queue.command("retry")
def retry_in_queue(
    run: Annotated[str, typer.Argument(help="The run's id.", metavar="RUN")], stack: Stack = "local"
) -> None:
    """Put a submitted run that has failed at the queue's end again; it goes on from its newest checkpoint."""
    from cli import queue as queueing  # noqa: PLC0415

    queueing.again(stack, console, run)


@app.command()
def status(
    stack: Stack = "local",
    run: Run = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Show a run's nodes, generation and progress as they are now."""
    from cli import status as standing  # noqa: PLC0415
    from cli.history import History  # noqa: PLC0415
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
        console.print(standing.status(history, alive=alive, stopped=stopped))


@app.command()
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


@app.command()
def audit(
    stack: Stack = "local",
    run: Run = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
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


@app.command()
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


@app.command()
def catalog(
    cloud: Annotated[str, typer.Option(help="A cloud that has a catalog.", metavar="NAME")] = "aws",
    region: Annotated[
        str, typer.Option(help="Only types that this region offers, with its prices.", metavar="NAME")
    ] = "",
    gpu: Annotated[bool, typer.Option("--gpu", help="Only types with NVIDIA GPUs.")] = False,
    fabric: Annotated[
        bool, typer.Option("--fabric", "--efa", help="Only types with the cloud's fast network: EFA, or eRDMA.")
    ] = False,
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

    wanted = listing.Filter(cloud, region, gpu, fabric, min_gpus, min_gpu_memory, min_memory, purchase)
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


@checkpoints.command("list")
def list_checkpoints(
    stack: Stack = "local", as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False
) -> None:
    """List a run's checkpoints, the newest first; what they hold is not read."""
    from cli import checkpoints as kept  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    found = kept.listed(Workspace(stack).run()[1])
    if as_json:
        print(json.dumps(kept.as_json(found), indent=2))
    else:
        console.print(kept.table(found))


@checkpoints.command("verify")
def verify_checkpoints(
    stack: Stack = "local",
    step: Annotated[
        int | None, typer.Option(help="Only the checkpoint of this step.", min=1, show_default=False)
    ] = None,
) -> None:
    """Read a run's checkpoints and compare their hashes; exit code 1 where one is damaged."""
    from cli import checkpoints as kept  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    raise typer.Exit(kept.verify(Workspace(stack).run()[1], console, step))


@checkpoints.command("export")
def export_checkpoint(
    to: Annotated[Path, typer.Option(help="The file to write; none is overwritten.", metavar="FILE")],
    stack: Stack = "local",
    step: Annotated[int | None, typer.Option(help="By default the newest.", min=1, show_default=False)] = None,
    kind: Annotated[
        Literal["torch", "safetensors"], typer.Option("--format", help="safetensors needs the extra `export`.")
    ] = "torch",
) -> None:
    """Write a checkpoint's model, a plain state dict, to a file."""
    from cli import checkpoints as kept  # noqa: PLC0415
    from cli.workspace import Workspace  # noqa: PLC0415

    kept.export(Workspace(stack).run()[1], console, to, step, kind)


@erasing.callback(invoke_without_command=True)
def erase(
    context: typer.Context,
    run: Annotated[str, typer.Option(help="A run, with its checkpoints and record.", metavar="ID")] = "",
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


@erasing.command("verify")
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


def main() -> None:
    """The command. An error that is the user's to mend is a clear line and exit code 1."""
    from emulator.cloud import CloudError  # noqa: PLC0415
    from tools.pulumi_cli import NoPulumiCLI  # noqa: PLC0415
    from trainer.store import StoreError  # noqa: PLC0415

    try:
        app()
    except Refused as refused:
        _end(str(refused), refused.code)
    except (NoPulumiCLI, CloudError) as error:
        _end(str(error))
    except StoreError as error:
        from cli.account import advice  # noqa: PLC0415

        _end(". ".join(filter(None, [str(error), advice(error)])))
    except Interrupted as interrupted:
        errors.print(Text(str(interrupted)), soft_wrap=True)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read the output has enough, as `head` does. Python's flush at exit must not fail on it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _end(message: str, code: int = 1) -> NoReturn:
    errors.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    sys.exit(code)
