"""The network that gradients take: which interface holds the node's address, and what fast devices there are."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

# Linux, include/uapi/linux/sockios.h
SIOCGIFADDR = 0x8915
SIOCGIFNETMASK = 0x891B


@dataclass(frozen=True)
class Fabric:
    """`kind` is efa, erdma or tcp; `devices` counts the first two; `interface` carries TCP."""

    kind: str
    devices: int
    interface: str

    def environment(self) -> dict[str, str]:
        """What workers need to find it. The fast devices need nothing: NCCL's plugin sets itself up."""
        return {"GLOO_SOCKET_IFNAME": self.interface, "NCCL_SOCKET_IFNAME": self.interface}


def find(address: str, root: Path = Path("/")) -> Fabric:
    """The fabric of the node with this IP address. Raises `OSError` where no interface reaches it."""
    devices = [path.name for path in sorted((root / "sys/class/infiniband").glob("*"))]
    kind = "erdma" if any(name.startswith("erdma") for name in devices) else "efa" if devices else "tcp"
    return Fabric(kind, len(devices), interface_of(address, _interfaces()))


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
