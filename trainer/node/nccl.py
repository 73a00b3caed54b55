"""Settings of NCCL, gloo and libfabric by the node's fabric, each with its reason; and which network NCCL then took.

They are few. On EFA, aws-ofi-nccl knows the instance types and sets what each needs by itself (its
`src/platform-aws.cpp`: buffer and chunk sizes, topology, tuner, for p4d to p6), so that nothing here depends on the
type. On eRDMA the number of devices decides, which is the type's. What older guides set is left out, as it does
nothing or harm now (aws-ofi-nccl, `doc/efa-env-var.md`). A user's `job.environment` stands above all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

EVERYWHERE = "everywhere"
EFA = "efa"
ERDMA = "erdma"
SMALL = "erdma, without jumbo frames"
ALONE = "erdma, one device"
SEVERAL = "erdma, several devices"

INTERFACE = "<interface>"
"""In a value: the interface that has the node's address."""

PAI = "the vendor's value: Alibaba Cloud PAI user guide, on distributed training over eRDMA"

OF_THE_NODE = ("environment", "nccl_debug", "hours")
"""Keys of a job that the agent heeds, and the trainer needn't know."""

FAMILIES = ("NCCL_", "FI_", "OFI_NCCL_", "GLOO_", "RDMAV_", "IBV_", "TORCH_NCCL_", "TORCH_FR_")
"""How the names of settings begin that decide how gradients travel."""


@dataclass(frozen=True)
class Setting:
    """A variable, where it is set, and why."""

    name: str
    value: str
    where: str
    reason: str


SETTINGS = (
    Setting(
        "NCCL_SOCKET_IFNAME",
        INTERFACE,
        EVERYWHERE,
        "The interface of the node's address, by which ranks find each other; NCCL may else take Docker's.",
    ),
    Setting("GLOO_SOCKET_IFNAME", INTERFACE, EVERYWHERE, "The same for gloo, which else asks for the host's name."),
    Setting(
        "FI_EFA_USE_HUGE_PAGE",
        "0",
        EFA,
        "A data loader's fork fails with `Cannot allocate memory` where huge pages run out (aws-ofi-nccl, "
        "`doc/efa-env-var.md`).",
    ),
    Setting("NCCL_IB_HCA", "erdma", ERDMA, f"The devices to use ({PAI})."),
    Setting("NCCL_NET_PLUGIN", "none", ERDMA, f"NCCL's own transport is the one for eRDMA ({PAI})."),
    Setting("NCCL_IB_QPS_PER_CONNECTION", "8", ERDMA, f"Queue pairs of a connection ({PAI})."),
    Setting("NCCL_MIN_NCHANNELS", "16", ERDMA, f"Channels of a communicator, at the least ({PAI})."),
    Setting("NCCL_IB_GID_INDEX", "1", ALONE, f"The device's RoCE v2 address over IPv4 ({PAI})."),
    Setting(
        "NCCL_IB_GID_INDEX",
        "-1",
        SEVERAL,
        "The index differs from device to device: NCCL 2.21 and newer find each one's, by the two settings below.",
    ),
    Setting(
        "NCCL_PROTO",
        "^LL128",
        SMALL,
        "LL128 needs jumbo frames on eRDMA, or data is corrupted (ECS user guide, on eRDMA on GPU-accelerated "
        "instances).",
    ),
    Setting("NCCL_IB_ADDR_FAMILY", "AF_INET", SEVERAL, "Of a device's addresses, one over IPv4."),
    Setting("NCCL_IB_ROCE_VERSION_NUM", "2", SEVERAL, "And of those, one of RoCE v2."),
)
"""All of them."""


def settings(kind: str, devices: int, interface: str, *, jumbo: bool = False) -> dict[str, str]:
    """What workers find in their environment on a fabric of this kind (efa, erdma or tcp).

    `jumbo`: whether eRDMA's frames are.
    """
    places = {EVERYWHERE, kind}
    if kind == ERDMA:
        places.add(ALONE if devices == 1 else SEVERAL)
        places |= set() if jumbo else {SMALL}
    return {one.name: one.value.replace(INTERFACE, interface) for one in SETTINGS if one.where in places}


def captured(file: Path) -> dict[str, str]:
    """What has NCCL tell in one rank's file which network, rings and plugins it took."""
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(file)}


def told(ours: Mapping[str, str], chosen: Mapping[str, str], inherited: Mapping[str, str]) -> str:
    """What is set, and by whom, for the boot report: by the fabric, by `job.environment`, by the image.

    Of `chosen`, whose other variables are anybody's, only those of the families above are given with their values.
    """
    image = {name: value for name, value in inherited.items() if name.startswith(FAMILIES)}
    parts = (
        (_listed({name: value for name, value in ours.items() if name not in chosen}), "by the fabric"),
        (_listed(chosen), "by job.environment"),
        (_listed({name: value for name, value in image.items() if name not in {*ours, *chosen}}), "by the image"),
    )
    return "; ".join(f"{listed} {who}" for listed, who in parts if listed)


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" if name.startswith(FAMILIES) else name for name, value in values.items())


FAST = {EFA: "libfabric|ofi", ERDMA: "^ib$"}
"""What the network is called that uses a fabric's devices: aws-ofi-nccl's is `AWS Libfabric` or `Libfabric`, by its
version (nccl#527, nccl#1597); eRDMA's is NCCL's own for verbs."""

FIXES = {
    EFA: "use an image with EFA's software, in which aws-ofi-nccl is, or name the folder of libnccl-net.so in "
    "job.environment, as LD_LIBRARY_PATH",
    ERDMA: "use an image with the eRDMA driver and its provider in rdma-core",
}

CHOICES = {"NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE"}
"""By which a user takes another network on purpose."""


def expected(kind: str, chosen: Mapping[str, str]) -> str:
    """The fabric whose devices NCCL has to use: the node's, unless the user chose the network."""
    return kind if CHOICES.isdisjoint(chosen) else "tcp"


@dataclass(frozen=True)
class Heard:
    """What NCCL's log says of its network: those that ranks use, and its first complaint of a plugin."""

    networks: tuple[str, ...]
    complaint: str


def heard(log: str) -> Heard:
    """What is in a log that NCCL wrote with `NCCL_DEBUG=INFO`, of any of its versions since 2.4."""
    networks = dict.fromkeys(re.findall(r"NCCL INFO Using network (.+?)\s*$", log, re.MULTILINE))
    return Heard(tuple(networks), next(_complaints(log), ""))


def _complaints(log: str) -> Iterator[str]:
    """A plugin's warnings before what is only said of its absence: they are why it failed."""
    for form in (r"NCCL WARN (NET/OFI .+?)\s*$", r"NCCL INFO (NET/Plugin ?: (?:No plugin|Could not) .+?)\s*$"):
        yield from (match[1] for match in re.finditer(form, log, re.MULTILINE))


def fault(kind: str, log: str) -> str:
    """Why a node of this fabric must not join, by NCCL's log; nothing where its devices are used, or no log tells.

    Without its plugin NCCL goes over TCP at a twentieth of the speed, and says so in this log alone (nccl#959,
    aws-ofi-nccl#67).
    """
    found = heard(log)
    slow = [name for name in found.networks if not re.search(FAST.get(kind, ""), name, re.IGNORECASE)]
    if not slow:
        return ""
    why = f" ({found.complaint})" if found.complaint else ""
    return f"NCCL uses the network {slow[0]} and not the node's {kind} devices{why}: {FIXES[kind]}"
