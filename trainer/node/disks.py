"""What the kernel says of block devices: instance-store disks, what is built of them, what is mounted. Reads only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

INSTANCE_STORE = "nvme-*Amazon*Instance_Storage*"
"""Links that udev makes for instance-store disks, by their model and serial number. EBS volumes are
`nvme-Amazon_Elastic_Block_Store_…`; metadata doesn't list NVMe disks (aws-parallelcluster#195), and `/dev/nvme1n1` may
be another disk after the next boot (EC2 user guide, "Device names for volumes")."""

DISK = re.compile(r"nvme\d+n\d+")
PARTITION = re.compile(r"(nvme\d+n\d+)p\d+")
SECTOR_BYTES = 512
"""Of `/sys/class/block/*/size`, whatever the disk's own sectors are (kernel documentation, "sysfs-block")."""


@dataclass(frozen=True)
class Disk:
    """An instance-store disk: its stable link, and the kernel's name of the moment."""

    link: Path
    name: str
    size: int
    """In bytes."""


@dataclass(frozen=True)
class Mount:
    """A mounted file system, and the disks that it lies on in the end."""

    point: Path
    kind: str
    disks: frozenset[str]


@dataclass(frozen=True)
class Devices:
    """The block devices of the machine below `root`."""

    root: Path

    def instance_store(self) -> list[Disk]:
        """Its instance-store disks: whole ones, each once, whatever links lead to it."""
        found: dict[str, Path] = {}
        for link in sorted((self.root / "dev/disk/by-id").glob(INSTANCE_STORE)):
            target = link.resolve()
            if target.exists() and target.parent == (self.root / "dev").resolve() and DISK.fullmatch(target.name):
                found.setdefault(target.name, link)
        return [Disk(link, name, self._size(name)) for name, link in found.items()]

    def holders(self, name: str) -> frozenset[str]:
        """What is built on a device or on its partitions: arrays, logical volumes."""
        folder = self._block / name
        return frozenset(path.name for path in (*folder.glob("holders/*"), *folder.glob(f"{name}p*/holders/*")))

    def under(self, name: str) -> frozenset[str]:
        """The disks that a device lies on in the end; itself, where it is one."""
        if parts := [path.name for path in (self._block / name / "slaves").glob("*")]:
            return frozenset(disk for part in parts for disk in self.under(part))
        partition = PARTITION.fullmatch(name)
        return frozenset({partition[1] if partition else name})

    def mounts(self) -> Iterator[Mount]:
        """What is mounted from a block device or over the network (kernel documentation, "proc.rst", mountinfo)."""
        try:
            lines = (self.root / "proc/self/mountinfo").read_text().splitlines()
        except OSError:
            return
        for line in lines:
            before, _, after = line.partition(" - ")
            fields = before.split()
            device = self.root / "sys/dev/block" / fields[2]
            disks = self.under(device.resolve().name) if device.exists() else frozenset[str]()
            yield Mount(self.root / _unescaped(fields[4]).lstrip("/"), after.split()[0], disks)

    @property
    def _block(self) -> Path:
        return self.root / "sys/class/block"

    def _size(self, name: str) -> int:
        try:
            return int((self._block / name / "size").read_text()) * SECTOR_BYTES
        except (OSError, ValueError):
            return 0


def _unescaped(point: str) -> str:
    """Blanks in mount points are written in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
