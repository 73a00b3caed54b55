"""What a cluster's nodes cost, by how they are bought: pure, from a plan and the catalog's dated prices.

A price that has no source is never taken for zero: what isn't counted is named.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import Any

from components.catalog import PURCHASES, Price, price
from components.plan import Plan

HOURS = 730
"""Hours in a month: 365 days of 24 hours over 12 (AWS Pricing Calculator, "Pricing assumptions")."""

DATA = "data nodes"
"""What their line is called, beside the ways in which the others can be bought."""

RESERVED = "reserved"
MIXED = "mixed"

USE = "what depends on use or is small beside nodes: bucket, keys, endpoints, NAT gateways, traffic, logs"
"""What a plan can't know the amount of, or what no price with a source is had for."""


@dataclass(frozen=True)
class Amount:
    """USD, from `low` to `high`: spot prices differ between zones."""

    low: float
    high: float

    def times(self, factor: float) -> Amount:
        """So many of it."""
        return Amount(self.low * factor, self.high * factor)

    def rounded(self) -> list[float]:
        """Low and high, in whole cents."""
        return [round(self.low, 2), round(self.high, 2)]

    def __str__(self) -> str:
        low, high = (f"{value:,.2f}" if value < 1000 else f"{value:,.0f}" for value in (self.low, self.high))
        return low if low == high else f"{low}-{high}"


@dataclass(frozen=True)
class Line:
    """So many nodes, bought in one way. `per_hour` is None where a price has no source."""

    purchase: str
    nodes: int
    per_hour: Amount | None

    @property
    def per_month(self) -> Amount | None:
        """For a month of `HOURS`."""
        return self.per_hour.times(HOURS) if self.per_hour else None


@dataclass(frozen=True)
class Cost:
    """What a cluster costs as declared (`purchase`), and what it would cost if bought otherwise."""

    type: str
    region: str
    purchase: str
    desired: int
    max: int
    lines: tuple[Line, ...]
    prices: tuple[Price, ...]
    unknown: tuple[str, ...]
    data: Line | None = None
    """Data nodes, which come on top however the others are bought."""

    unpriced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Types that a price is missing of, and in which ways of being bought."""

    def text(self, width: int = 80) -> str:
        """An aligned table, and below it the dates of the prices and what isn't counted; a sentence if none has one."""
        if not self.prices:
            return self._no_price(width)
        sizes = f", {self.desired:,} nodes desired and {self.max:,} the most" if self.max != self.desired else ""
        head = textwrap.fill(
            f"cost of {self.type} in {self.region}, bought {self.purchase}{sizes}; a month is {HOURS} hours",
            width,
        )
        cells = [("", "nodes", "USD an hour", "USD a month")]
        for line in [*self.lines, *([self.data] if self.data else [])]:
            cells.append((line.purchase, f"{line.nodes:,}", _shown(line.per_hour), _shown(line.per_month)))
        widths = [max(len(row[column]) for row in cells) for column in range(4)]
        table = [f"  {row[0]:<{widths[0]}}" + "".join(f"  {row[i]:>{widths[i]}}" for i in (1, 2, 3)) for row in cells]
        dated = _grouped(self.prices)
        notes = [
            *(f"{', '.join(purchases)} price: {date}, from {source}" for (date, source), purchases in dated.items()),
            *(f"not counted: {unknown}" for unknown in self.unknown),
        ]
        wrapped = [textwrap.fill(note, width, initial_indent="  ", subsequent_indent="    ") for note in notes]
        return "\n".join([head, *table, *wrapped])

    def _no_price(self, width: int) -> str:
        """That the cost is unknown, and what to put into the stack's file for it to be known."""
        sizes = " to ".join(f"{size:,}" for size in sorted({self.desired, self.max}))
        told = (
            f"cost of {sizes} node{'s' if self.max > 1 else ''} of {self.type} in {self.region}: unknown, as no price "
            "has a source. Yours count once the stack's file has them, in USD for a node and hour:"
        )
        stated = ["trainwright:prices:"]
        for name, purchases in self.unpriced.items():
            rates = ", ".join(f"{purchase.replace('-', '_')}: …" for purchase in purchases)
            stated.append(f"  {name}: {{{rates}}}")
        return "\n".join([textwrap.fill(told, width), *(f"    {line}" for line in stated)])

    def outputs(self) -> dict[str, Any]:
        """What a stack exports: USD by purchase mode, each from low to high, at `desired` and at `max` nodes."""

        def by_purchase(nodes: int, factor: float) -> dict[str, list[float]]:
            known = {line.purchase: line.per_hour for line in self.lines if line.nodes == nodes}
            return {purchase: amount.times(factor).rounded() for purchase, amount in known.items() if amount}

        return {
            "currency": "USD",
            "purchase": self.purchase,
            "perHour": by_purchase(self.desired, 1),
            "perMonth": by_purchase(self.desired, HOURS),
            "perHourAtMax": by_purchase(self.max, 1),
            "perMonthAtMax": by_purchase(self.max, HOURS),
            "prices": [f"{price.purchase}: {price.date}, from {price.source}" for price in self.prices],
            "notCounted": list(self.unknown),
            **({"dataNodes": _data_outputs(self.data)} if self.data else {}),
        }


def cost(plan: Plan) -> Cost:
    """What the plan's nodes cost: as declared first, then for each way in which their type can be bought."""
    nodes, instance = plan.spec.nodes, plan.instance
    prices = {
        purchase: price(plan.spec.cloud, instance.name, plan.spec.region, purchase, plan.spec.prices)
        for purchase in PURCHASES
        if purchase in instance.usage_classes
    }
    chosen = str(nodes.capacity)
    ways = [chosen, *(purchase for purchase in prices if purchase != chosen)]
    sizes = sorted({plan.fleet.desired, plan.fleet.max})
    data_price = _data_price(plan)
    lines = [Line(way, size, _per_hour(plan, way, size, prices)) for way in ways for size in sizes]
    missing = tuple(purchase for purchase, found in prices.items() if not found)
    unpriced = {instance.name: missing} if missing else {}
    if plan.data and not data_price:
        unpriced.setdefault(plan.data.instance.name, ("on-demand",))
    return Cost(
        type=instance.name,
        region=plan.spec.region,
        purchase=chosen,
        desired=plan.fleet.desired,
        max=plan.fleet.max,
        lines=tuple(lines),
        prices=tuple(found for found in (*prices.values(), data_price) if found),
        unknown=tuple(_unknown(plan, missing, data_price)),
        data=_data_line(plan.data.fleet.desired, data_price) if plan.data else None,
        unpriced=unpriced,
    )


def _data_price(plan: Plan) -> Price | None:
    """Of one data node, by the name of its line."""
    if plan.data is None:
        return None
    found = price(plan.spec.cloud, plan.data.instance.name, plan.spec.region, "on-demand", plan.spec.prices)
    return replace(found, purchase=DATA) if found else None


def _data_line(nodes: int, found: Price | None) -> Line:
    return Line(DATA, nodes, Amount(found.low, found.high).times(nodes) if found else None)


def _data_outputs(line: Line) -> dict[str, Any]:
    hour, month = line.per_hour, line.per_month
    return {"perHour": hour.rounded() if hour else None, "perMonth": month.rounded() if month else None}


def _per_hour(plan: Plan, way: str, size: int, prices: dict[str, Price | None]) -> Amount | None:
    """What `size` nodes bought in a way cost in an hour."""
    if way == MIXED:
        return _mixed(plan, size, prices.get("on-demand"), prices.get("spot"))
    # EC2 user guide, "Capacity Reservation pricing and billing": charged at the On-Demand rate, used or not; ECS user
    # guide, "Immediate capacity reservations": at the pay-as-you-go one
    found = prices.get("on-demand" if way == RESERVED else way)
    return Amount(found.low, found.high).times(size) if found else None


def _mixed(plan: Plan, size: int, on_demand: Price | None, spot: Price | None) -> Amount | None:
    """A mixed fleet: a base on demand, and a share above it; rounded down and up, as no document says what EC2 does."""
    if not on_demand or not spot:
        return None
    nodes = plan.spec.nodes
    base = min(nodes.on_demand_base, size)
    share = (size - base) * nodes.on_demand_share / 100
    counts = [base + floor(share), base + ceil(share)]
    return Amount(
        min(count * on_demand.low + (size - count) * spot.low for count in counts),
        max(count * on_demand.high + (size - count) * spot.high for count in counts),
    )


def _unknown(plan: Plan, missing: Iterable[str], data_price: Price | None) -> Iterator[str]:
    """What isn't counted, and why."""
    name, nodes = plan.instance.name, plan.spec.nodes
    if purchases := ", ".join(missing):
        yield (
            f"{name} in {plan.spec.region} bought {purchases}: no price has a source; "
            f"state it below prices.{name} in the stack's file"
        )
    if plan.data and not data_price:
        data = plan.data.instance.name
        yield f"data nodes: no price of {data} has a source; state it below prices.{data} in the stack's file"
    if nodes.alternatives:
        yield f"nodes of {', '.join(nodes.alternatives)}, which may be bought instead, at their own prices"
    beside = f" and {plan.data.disk_gb:,} GiB a data node" if plan.data else ""
    yield f"root disks, {nodes.disk_gb:,} GiB a node{beside}: no price of {plan.cloud.disks} has a source"
    if warm := plan.spec.storage.warm:
        yield (
            f"the file system, {warm.size_gib:,} GiB at {warm.throughput} MB/s for each TiB: no price of "
            f"{plan.cloud.warm} has a source"
        )
    yield USE


def _shown(amount: Amount | None) -> str:
    return str(amount) if amount else "unknown"


def _grouped(prices: Iterable[Price]) -> dict[tuple[str, str], list[str]]:
    """Purchase modes by the date and source of their prices."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for found in prices:
        grouped.setdefault((found.date, found.source), []).append(found.purchase)
    return grouped
