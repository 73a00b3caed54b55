"""The network that gradients take: which interface holds the node's address, and what fast devices there are."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer.node import nccl
from trainer.node.tools import ToolFailed, Tools

TOOL_LIMIT_S = 10.0

# Linux, include/uapi/linux/sockios.h
SIOCGIFADDR = 0x8915
SIOCGIFNETMASK = 0x891B

MTU, JUMBO_MTU = 1400, 8500
"""Of an eRDMA device's interface, without and with jumbo frames; any other corrupts data (ECS user guide, "Enable eRDMA
on GPU-accelerated instances"; facts: N12)."""

VENDORS = {"0x1d0f": "efa", "0x1ded": "erdma"}
"""PCI vendors, Amazon and Alibaba, and what their devices are (Linux, drivers/infiniband/hw/efa and hw/erdma)."""


@dataclass(frozen=True)
class Fabric:
    """`kind` is efa, erdma or tcp; `devices` counts the first two; `interface` carries TCP.

    `jumbo`: whether eRDMA's frames are.
    """

    kind: str
    devices: int
    interface: str
    jumbo: bool = False

    def environment(self) -> dict[str, str]:
        """What workers need to find it."""
        return nccl.settings(self.kind, self.devices, self.interface, jumbo=self.jumbo)


class Short(Exception):
    """The node's fast devices are fewer than its interfaces give it, or not as they must be; the message says why."""


def find(
    address: str,
    efa: int = 0,
    root: Path = Path("/"),
    erdma: int = 0,
    jumbo: bool = False,
    tools: Tools | None = None,
) -> Fabric:
    """The fabric of the node with this IP address, which is to have so many EFA or eRDMA devices.

    Raises `OSError` where no interface reaches it, and `Short` where devices are lacking: with fewer, or none, NCCL
    would go on without a word, and the whole gang at this node's pace (dstack#3069). Sets the MTU that eRDMA needs,
    with jumbo frames or without. An EFA device's frames are its own, whatever the MTU of its interface, if it has one
    (Linux, drivers/infiniband/hw/efa/efa_verbs.c, `efa_query_port`), so that there is none to look at.
    """
    devices = [device for device in sorted((root / "sys/class/infiniband").glob("*")) if _active(device)]
    kinds = [VENDORS.get(_vendor(device), "") for device in devices]
    found = max(VENDORS.values(), key=kinds.count)
    count = kinds.count(found)
    if kinds.count("efa") < efa:
        raise Short(
            f"{kinds.count('efa')} EFA devices are in /sys/class/infiniband and active, but the node's interfaces give "
            f"it {efa}: use an image with the EFA driver, or set nodes.fabric to tcp"
        )
    if kinds.count("erdma") < erdma:
        raise Short(
            f"{kinds.count('erdma')} eRDMA devices are in /sys/class/infiniband and active, but the node's interfaces "
            f"give it {erdma}: use an image with the eRDMA driver, or set nodes.fabric to tcp"
        )
    if erdma:
        ours = [device for device, kind in zip(devices, kinds, strict=True) if kind == "erdma"]
        _suit([_netdev(device, root) for device in ours], jumbo, root, tools or Tools(TOOL_LIMIT_S))
    kind = found if count else "tcp"
    return Fabric(kind, count, interface_of(address, _interfaces()), jumbo and kind == "erdma")


def _suit(names: Sequence[str], jumbo: bool, root: Path, tools: Tools) -> None:
    """See that eRDMA's interfaces have the MTU that goes with their frames, and no IPv6. Raises `Short`."""
    wanted = JUMBO_MTU if jumbo else MTU
    for name in names:
        own = root / "sys/class/net" / name / "mtu"
        if own.read_text().strip() != str(wanted):
            with suppress(ToolFailed):
                tools.run("ip", "link", "set", "dev", name, "mtu", str(wanted))
        if (found := own.read_text().strip()) != str(wanted):
            raise Short(
                f"{name}, an eRDMA interface, has an MTU of {found} and not of {wanted}, which its frames need or data "
                f"is corrupted: have the image set it (`ip link set dev {name} mtu {wanted}`)"
            )
        if addresses := _global_ipv6(name, root):
            raise Short(
                f"{name}, an eRDMA interface, has the IPv6 address {addresses[0]}, which eRDMA can't carry: use a "
                "vSwitch without IPv6, or an image that configures none"
            )


def _netdev(device: Path, root: Path) -> str:
    """The interface of an eRDMA device: the one whose address its GUID is made of (Linux, drivers/infiniband/hw/erdma,
    `addrconf_addr_eui48`). Raises `Short`.
    """
    guid = (device / "node_guid").read_text().strip().replace(":", "")
    first = int(guid[:2], 16) ^ 2
    address = ":".join((f"{first:02x}", guid[2:4], guid[4:6], guid[10:12], guid[12:14], guid[14:16]))
    for net in sorted((root / "sys/class/net").glob("*")):
        try:
            if (net / "address").read_text().strip() == address:
                return net.name
        except OSError:
            continue  # no device, such as `bonding_masters`
    raise Short(f"no network interface has {device.name}'s address {address}: use an image with the eRDMA driver")


def _global_ipv6(name: str, root: Path) -> list[str]:
    """An interface's IPv6 addresses that lead beyond its link (proc: `/proc/net/if_inet6`)."""
    try:
        lines = [line.split() for line in (root / "proc/net/if_inet6").read_text().splitlines()]
    except OSError:
        return []  # a kernel without IPv6
    found = [ipaddress.IPv6Address(int(line[0], 16)) for line in lines if line[5] == name]
    return [str(address) for address in found if not address.is_link_local]


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
