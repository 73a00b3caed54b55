"""The network that gradients take: which interface holds the node's address, and what fast devices there are."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from trainer.node import nccl

# Linux, include/uapi/linux/sockios.h
SIOCGIFADDR = 0x8915
SIOCGIFNETMASK = 0x891B

VENDORS = {"0x1d0f": "efa", "0x1ded": "erdma"}
"""PCI vendors, Amazon and Alibaba, and what their devices are (Linux, drivers/infiniband/hw/efa and hw/erdma)."""


@dataclass(frozen=True)
class Fabric:
    """`kind` is efa, erdma or tcp; `devices` counts the first two; `interface` carries TCP."""

    kind: str
    devices: int
    interface: str

    def environment(self) -> dict[str, str]:
        """What workers need to find it."""
        return nccl.settings(self.kind, self.devices, self.interface)


class Short(Exception):
    """The node has fewer fast devices than its interfaces give it; the message says what to do."""


def find(address: str, efa: int = 0, root: Path = Path("/")) -> Fabric:
    """The fabric of the node with this IP address, which is to have so many EFA devices.

    Raises `OSError` where no interface reaches it, and `Short` where EFA devices are lacking: with fewer, or none, NCCL
    would go on without a word, and the whole gang at this node's pace (dstack#3069).
    """
    devices = sorted((root / "sys/class/infiniband").glob("*"))
    kinds = [VENDORS.get(_vendor(device), "") for device in devices if _active(device)]
    found = max(VENDORS.values(), key=kinds.count)
    count = kinds.count(found)
    if kinds.count("efa") < efa:
        raise Short(
            f"{kinds.count('efa')} EFA devices are in /sys/class/infiniband and active, but the node's interfaces give "
            f"it {efa}: use an image with the EFA driver, or set nodes.fabric to tcp"
        )
    return Fabric(found if count else "tcp", count, interface_of(address, _interfaces()))


def _vendor(device: Path) -> str:
    """A device's PCI vendor; other vendors' serve other ends, as those through which NVSwitches are managed do."""
    try:
        return (device / "device/vendor").read_text().strip()
    except OSError:
        return ""


def _active(device: Path) -> bool:
    """Whether its port is, by the kernel's word (Linux, Documentation/ABI/stable/sysfs-class-infiniband, `state`)."""
    states = [port.read_text() for port in device.glob("ports/*/state")]
    return all("ACTIVE" in state for state in states)


def interface_of(address: str, interfaces: dict[str, ipaddress.IPv4Interface]) -> str:
    """The interface that has the address, or else the one whose network holds it (as loopback's does)."""
    wanted = ipaddress.IPv4Address(address)
    for name, interface in interfaces.items():
        if interface.ip == wanted:
            return name
    for name, interface in interfaces.items():
        if wanted in interface.network:
            return name
    raise OSError(f"no network interface has the address {address}")


def _interfaces() -> dict[str, ipaddress.IPv4Interface]:
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                address, mask = (_query(probe, name, request) for request in (SIOCGIFADDR, SIOCGIFNETMASK))
            except OSError:
                continue  # an interface without an IPv4 address
            found[name] = ipaddress.IPv4Interface(f"{address}/{mask}")
    return found


def _query(probe: socket.socket, name: str, request: int) -> str:
    answer = fcntl.ioctl(probe.fileno(), request, struct.pack("256s", name.encode()[:15]))
    return socket.inet_ntoa(answer[20:24])
