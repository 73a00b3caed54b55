"""Instance types: what a cloud states of each, from a dated table beside this file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

TABLES = {"aws": "aws.csv", "alicloud": "alicloud.csv"}
"""The table of each cloud."""


CONFIDENTIAL = {"aws": {"nitro-enclaves", "nitro-tpm", "sev-snp"}, "alicloud": {"tdx"}}
"""What guards memory or boot on each cloud."""


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """An instance type. Memory in GiB, NVMe in GB, network in Gbit/s; `regions` where it was seen on offer.

    What has a default here is what a type may lack. The facts are those of EC2's DescribeInstanceTypes, and what is
    alike on other clouds: `fabric_interfaces` are EFA or eRDMA ones. No `regions` means that no source states them.
    """

    name: str
    vcpus: int
    memory_gib: float
    accelerator: str = ""
    accelerator_kind: str = ""  # gpu, neuron, fpga or nothing
    accelerators: int = 0
    accelerator_memory_gib: float = 0
    network_gbps: float
    network_cards: int = 1
    interfaces_per_card: int
    fabric_interfaces: int = 0
    fabric_first_card: int = 0  # cards below it take no EFA: card 0 of p6-b300 is ENA only
    ipv4_per_interface: int
    encrypts_in_transit: bool = False
    cluster_placement: bool
    usage_classes: tuple[str, ...]  # on-demand, spot, capacity-block
    boot_modes: tuple[str, ...]  # legacy-bios, uefi
    confidential: tuple[str, ...] = ()  # nitro-tpm, nitro-enclaves, sev-snp, tdx
    bare_metal: bool = False
    ebs_mbps: int
    ebs_attachments: int
    nvme_gb: int = 0
    nvme_disks: int = 0
    architecture: str
    regions: tuple[str, ...]
    source: str
    unverified: tuple[str, ...] = ()  # names of facts that no primary source states

    @property
    def gpus(self) -> int:
        """NVIDIA GPUs; each gets one worker."""
        return self.accelerators if self.accelerator_kind == "gpu" else 0

    @property
    def max_interfaces(self) -> int:
        """Network interfaces that an instance takes, over all cards."""
        return self.network_cards * self.interfaces_per_card


def contradictions(kind: InstanceType, cloud: str = "aws") -> Iterator[str]:
    """What can't be true, or not together, of one type, in words."""
    for key in ("usage_classes", "boot_modes", *(["regions"] if cloud == "aws" else [])):
        if not getattr(kind, key):
            yield f"{key} must name at least one"
    if bool(kind.accelerators) != bool(kind.accelerator_kind) or bool(kind.accelerators) != bool(kind.accelerator):
        yield "accelerators, accelerator and accelerator_kind must be given together"
    if bool(kind.nvme_disks) != bool(kind.nvme_gb):
        yield "nvme_disks and nvme_gb must be given together"
    cards = kind.network_cards - kind.fabric_first_card
    if cloud == "aws" and kind.fabric_interfaces > cards:  # EC2 user guide, "EFA limitations": one EFA per network card
        yield f"{kind.fabric_interfaces} EFA interfaces can't lie on {cards} network cards, one on each"
    if cloud != "aws" and kind.fabric_interfaces > kind.max_interfaces:  # ECS user guide, "ERIs": an ERI is an ENI
        yield f"{kind.fabric_interfaces} eRDMA interfaces are more than the {kind.max_interfaces} that it takes in all"
    if cloud != "aws" and "capacity-block" in kind.usage_classes:
        yield "capacity-block is how AWS sells"
    if strange := sorted(set(kind.confidential) - CONFIDENTIAL[cloud]):
        yield f"{', '.join(strange)} is no word of its cloud, but {', '.join(sorted(CONFIDENTIAL[cloud]))}"
    if "nitro-tpm" in kind.confidential and "uefi" not in kind.boot_modes:  # EC2 user guide, "NitroTPM prerequisites"
        yield "nitro-tpm needs the boot mode uefi"
    if "sev-snp" in kind.confidential and kind.architecture != "x86_64":
        yield "sev-snp is a feature of x86_64"


@cache
def instance_types(cloud: str) -> dict[str, InstanceType]:
    """Every instance type of a cloud, by name."""
    return {row["type"]: _instance_type(row) for row in rows(TABLES[cloud])}


def rows(table: str) -> Iterator[dict[str, str]]:
    """The rows of a table beside this file, without its comments."""
    text = files("components.catalog").joinpath(table).read_text(encoding="utf-8")
    yield from csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))


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
        interfaces_per_card=int(row["interfaces_per_card"]),
        fabric_interfaces=int(row["fabric_interfaces"]),
        fabric_first_card=int(row["fabric_first_card"]),
        ipv4_per_interface=int(row["ipv4_per_interface"]),
        encrypts_in_transit=_yes(row["encrypts_in_transit"]),
        cluster_placement=_yes(row["cluster_placement"]),
        usage_classes=tuple(row["usage_classes"].split()),
        boot_modes=tuple(row["boot_modes"].split()),
        confidential=tuple(row["confidential"].split()),
        bare_metal=_yes(row["bare_metal"]),
        ebs_mbps=int(row["ebs_mbps"]),
        ebs_attachments=int(row["ebs_attachments"]),
        nvme_gb=int(row["nvme_gb"]),
        nvme_disks=int(row["nvme_disks"]),
        architecture=row["architecture"],
        regions=tuple(row["regions"].split()),
        source=row["source"],
        unverified=tuple(row["unverified"].split()),
    )


def _yes(word: str) -> bool:
    return {"yes": True, "no": False}[word]
