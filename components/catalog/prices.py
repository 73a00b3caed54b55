"""What a node costs: dated prices from a table beside this file, and those that a stack's file states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from components.catalog.types import instance_types, rows
from components.findings import Finding, nearest

TABLE = "prices.csv"
MOST_REGIONS = "*"
"""Stands in the table for what a source calls "most regions"; a row of the region itself comes first."""

PURCHASES = ("on-demand", "spot", "capacity-block")
"""How a node is bought. A reserved one (capacity reservation) costs what an on-demand one costs."""


@dataclass(frozen=True)
class Price:
    """USD for one node and hour. A spot price differs between a region's zones: `low` to `high`."""

    type: str
    region: str
    purchase: str
    low: float
    high: float
    date: str
    source: str


Rate = Annotated[float, Field(gt=0)]


class Rates(BaseModel):
    """Your own prices of an instance type, USD for one node and hour. They come before the catalog's."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    on_demand: Rate | None = Field(None, description="On demand, and in a capacity reservation.")
    spot: Rate | None = Field(None, description="Spot.")
    capacity_block: Rate | None = Field(None, description="In a Capacity Block for ML.")


def price(cloud: str, name: str, region: str, purchase: str, own: Mapping[str, Rates] | None = None) -> Price | None:
    """The price of a type, by the stack's file or else by the table; None where there is none with a source."""
    rate = getattr((own or {}).get(name), purchase.replace("-", "_"), None)
    if rate is not None:
        return Price(name, region, purchase, rate, rate, "not dated", "the stack's file")
    table = price_table(cloud)
    return table.get((name, region, purchase)) or table.get((name, MOST_REGIONS, purchase))


@cache
def price_table(cloud: str) -> dict[tuple[str, str, str], Price]:
    """Every price of a cloud, by type, region and purchase mode."""
    found = [
        Price(
            row["type"],
            row["region"],
            row["purchase"],
            float(row["low"]),
            float(row["high"]),
            row["date"],
            row["source"],
        )
        for row in rows(TABLE)
        if row["cloud"] == cloud
    ]
    return {(price.type, price.region, price.purchase): price for price in found}


def unpriceable(cloud: str, own: Mapping[str, Rates], added: Mapping[str, object]) -> Iterator[Finding]:
    """Prices in a stack's file of types that neither the catalog has nor the file adds."""
    known = {*instance_types(cloud), *added}
    for name in own:
        if name not in known:
            yield Finding(f"prices.{name}", f"there is no instance type '{name}' in the catalog", nearest(name, known))
