"""What the clouds offer: instance types, from a dated table beside this file."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from components.findings import Finding, nearest


@dataclass(frozen=True)
class InstanceType:
    """An instance type. Memory in GiB, NVMe in GB, network in Gbit/s; `regions` where it was seen on offer."""

    name: str
    vcpus: int
    memory_gib: float
    accelerator: str
    accelerator_kind: str  # gpu, neuron, fpga or nothing
    accelerators: int
    accelerator_memory_gib: float
    network_gbps: float
    network_cards: int
    efa_interfaces: int
    nvme_gb: int
    nvme_disks: int
    architecture: str
    regions: tuple[str, ...]
    source: str

    @property
    def gpus(self) -> int:
        """NVIDIA GPUs; each gets one worker."""
        return self.accelerators if self.accelerator_kind == "gpu" else 0


def clouds() -> list[str]:
    """The clouds that have a catalog."""
    return sorted(
        path.name.removesuffix(".csv") for path in files("components.catalog").iterdir() if path.name.endswith(".csv")
    )


@cache
def instance_types(cloud: str) -> dict[str, InstanceType]:
    """Every instance type of a cloud, by name."""
    text = files("components.catalog").joinpath(f"{cloud}.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {row["type"]: _instance_type(row) for row in rows}


def find(cloud: str, name: str, region: str, path: str) -> InstanceType | Finding:
    """The type called `name`, or the finding that says why it can't be had in `region`."""
    known = instance_types(cloud)
    if name not in known:
        return Finding(path, f"there is no instance type '{name}' in the catalog", nearest(name, known))
    found = known[name]
    if region not in found.regions:
        return Finding(path, f"{name} is not offered in {region}", f"It is in {', '.join(found.regions)}")
    return found


def _instance_type(row: dict[str, str]) -> InstanceType:
    return InstanceType(
        name=row["type"],
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gib"]),
        accelerator=row["accelerator"],
        accelerator_kind=row["accelerator_kind"],
        accelerators=int(row["accelerators"]),
        accelerator_memory_gib=float(row["accelerator_memory_gib"]),
        network_gbps=float(row["network_gbps"]),
        network_cards=int(row["network_cards"]),
        efa_interfaces=int(row["efa_interfaces"]),
        nvme_gb=int(float(row["nvme_gb"])),
        nvme_disks=int(row["nvme_disks"]),
        architecture=row["architecture"],
        regions=tuple(row["regions"].split()),
        source=row["source"],
    )
