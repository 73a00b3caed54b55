"""What the clouds offer and what it costs: instance types and prices, from dated tables beside this file."""

from __future__ import annotations

from components.catalog.overrides import Facts, Overrides, described, faults
from components.catalog.prices import PURCHASES, Price, Rates, price, price_table, unpriceable
from components.catalog.types import CONFIDENTIAL, TABLES, InstanceType, instance_types
from components.findings import Finding, nearest

__all__ = [
    "CONFIDENTIAL",
    "PURCHASES",
    "Facts",
    "InstanceType",
    "Overrides",
    "Price",
    "Rates",
    "clouds",
    "faults",
    "find",
    "instance_types",
    "price",
    "price_table",
    "unpriceable",
]


def clouds() -> list[str]:
    """The clouds that have a catalog."""
    return sorted(TABLES)


def find(cloud: str, name: str, region: str, path: str, overrides: Overrides | None = None) -> InstanceType | Finding:
    """The type called `name`, or the finding that says why it can't be had in `region`."""
    known, stated = instance_types(cloud), overrides or {}
    if name in stated:
        found = described(cloud, name, stated[name])
        if isinstance(found, Finding):
            return found
    elif name in known:
        found = known[name]
    else:
        fix = nearest(name, {*known, *stated})
        return Finding(path, f"there is no instance type '{name}' in the catalog", fix)
    if found.regions and region not in found.regions:
        return Finding(path, f"{name} is not offered in {region}", f"It is in {', '.join(found.regions)}")
    return found
