"""The verb that lists instance types."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from cli.verbs.options import console


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
