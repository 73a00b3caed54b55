"""`trainwright catalog`: the instance types that a stack may name, filtered, sorted, with what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli.errors import Refused
from components.catalog import PURCHASES, InstanceType, Price, clouds, instance_types, price, price_table
from components.clouds import CLOUDS
from components.findings import nearest


@dataclass(frozen=True)
class Filter:
    """Which types are listed. Memory in GiB; `purchase` is also that of the prices shown."""

    cloud: str = "aws"
    region: str = ""
    gpu: bool = False
    fabric: bool = False
    min_gpus: int = 0
    min_gpu_memory: float = 0
    min_memory: float = 0
    purchase: str = "on-demand"

    def takes(self, kind: InstanceType) -> bool:
        """Whether the type is listed."""
        return (
            (not self.region or not kind.regions or self.region in kind.regions)
            and (kind.gpus > 0 or not (self.gpu or self.min_gpus or self.min_gpu_memory))
            and (kind.fabric_interfaces > 0 or not self.fabric)
            and kind.gpus >= self.min_gpus
            and (kind.accelerator_memory_gib >= self.min_gpu_memory)
            and kind.memory_gib >= self.min_memory
            and self.purchase in kind.usage_classes
        )

    def price(self, kind: InstanceType) -> Price | None:
        """The type's price in the region; without a region, in the cheapest one that has a price with a source."""
        if self.region:
            return price(self.cloud, kind.name, self.region, self.purchase)
        known = [
            found
            for found in price_table(self.cloud).values()
            if (found.type, found.purchase) == (kind.name, self.purchase)
        ]
        return min(known, key=lambda found: found.low, default=None)


Listed = list[tuple[InstanceType, Price | None]]

KEYS: dict[str, Callable[[tuple[InstanceType, Price | None]], float | str]] = {
    "type": lambda listed: listed[0].name,
    "price": lambda listed: listed[1].low if listed[1] else float("inf"),
    "gpus": lambda listed: -listed[0].gpus,
    "memory": lambda listed: -listed[0].memory_gib,
    "network": lambda listed: -listed[0].network_gbps,
}
"""What the list can be sorted by: names from A to Z, prices from the cheapest, all else from the largest."""


def select(wanted: Filter, sort: str | None = None) -> Listed:
    """The types that a filter takes, each with its price. Raises `Refused` where there is none."""
    if wanted.cloud not in clouds():
        raise Refused(f"--cloud: there is no catalog of '{wanted.cloud}'. {nearest(wanted.cloud, clouds())}")
    kinds = instance_types(wanted.cloud).values()
    regions = {region for kind in kinds for region in kind.regions} | CLOUDS[wanted.cloud].regions
    if wanted.region and wanted.region not in regions:
        raise Refused(f"--region: no type is offered in '{wanted.region}'. {nearest(wanted.region, regions)}")
    found: Listed = [(kind, wanted.price(kind)) for kind in kinds if wanted.takes(kind)]
    if not found:
        every = f"trainwright catalog --cloud {wanted.cloud}"
        raise Refused(f"no instance type of {CLOUDS[wanted.cloud].title} matches; list them all with `{every}`")
    return sorted(found, key=KEYS[sort]) if sort else found


def as_json(listed: Listed, wanted: Filter) -> list[dict[str, Any]]:
    """Every fact of the types, with every price that has a source (of the region, where one is asked for)."""
    table = price_table(wanted.cloud).values()

    def prices(kind: InstanceType) -> Iterable[Price | None]:
        if wanted.region:
            return (price(wanted.cloud, kind.name, wanted.region, purchase) for purchase in PURCHASES)
        return (found for found in table if found.type == kind.name)

    return [{**asdict(kind), "prices": [asdict(found) for found in prices(kind) if found]} for kind, _ in listed]


def show(listed: Listed, wanted: Filter) -> Group:
    """The list as a table that fits 80 columns, without those that would be empty, and what its prices are."""
    cells: dict[str, list[str]] = {
        "type": [kind.name for kind, _ in listed],
        "accelerators": [_accelerators(kind) for kind, _ in listed],
        "vCPUs": [str(kind.vcpus) for kind, _ in listed],
        "GiB": [f"{kind.memory_gib:,.0f}" for kind, _ in listed],
        "Gbit/s": [f"{kind.network_gbps:,g}" for kind, _ in listed],
        CLOUDS[wanted.cloud].fabric_title: [
            f"{kind.fabric_interfaces or ''}{_doubt(kind, 'fabric_interfaces')}" for kind, _ in listed
        ],
        "TB": [f"{kind.nvme_gb / 1000:.1f}{_doubt(kind, 'nvme_gb')}" if kind.nvme_gb else "" for kind, _ in listed],
        "USD/h": [_usd(found.low) if found else "?" for _, found in listed] if any(p for _, p in listed) else [],
    }
    shown = {name: column for name, column in cells.items() if any(column)}
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for name in shown:
        words = name in {"type", "accelerators"}
        # Accelerators are what gives way where columns are few.
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "accelerators")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    where = f"in {wanted.region}" if wanted.region else "in the cheapest region known"
    doubted = any(kind.unverified for kind, _ in listed)
    sold = any({"regions", "usage_classes"} & set(kind.unverified) for kind, _ in listed)
    low = ", in its cheapest zone" if wanted.purchase == "spot" else ""
    note = "GiB: memory." + (" TB: local NVMe." if "TB" in shown else "")
    if dates := sorted({found.date for _, found in listed if found}):
        prices = f"{wanted.purchase} {where}{low}; ?: no price with a source; prices as of: {', '.join(dates)}"
        note += f" USD/h: {prices}."
    else:
        note += f" No {wanted.purchase} price of these{f' in {wanted.region}' * bool(wanted.region)} has a source."
    if doubted:
        note += f" {'Elsewhere, ' if dates else ''}?: no primary source."
    if sold:
        note += (
            f" None states which regions offer these types{' or sell them so' if wanted.purchase == 'spot' else ''}."
        )
    return Group(table, Text(""), Text(note, style="dim"))


def _accelerators(kind: InstanceType) -> str:
    memory = f"{kind.accelerator_memory_gib:.3g} GiB"
    return f"{kind.accelerators} x {memory} {kind.accelerator}" if kind.accelerators else ""


def _doubt(kind: InstanceType, fact: str) -> str:
    """A mark on what no primary source states."""
    return "?" if fact in kind.unverified else ""


def _usd(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}"
