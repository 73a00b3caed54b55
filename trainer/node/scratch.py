"""The hot tier: the node's instance-store disks as one file system at the scratch folder, seen to at each boot.

Disks are found by what they are, never by their place, and nothing is written to fstab: after a stop and start they are
blank, and an entry for them would keep the machine from booting (scylladb#2749). A reboot keeps what is on them.
Everything here may fail, as scratch is a folder of the root disk then, and the boot report says why.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from trainer.node.config import Paths
from trainer.node.disks import Devices, Disk
from trainer.node.tools import ToolFailed, Tools

LABEL = "tw-scratch"
"""Of file systems that are ours; XFS takes 12 characters."""

ARRAY = "trainwright"
"""The array's name, by which `/dev/md` has it."""

MAKE = {
    "mkfs.xfs": ("-f", "-q", "-K", "-L", LABEL),
    "mkfs.ext4": ("-F", "-q", "-E", "nodiscard", "-L", LABEL),
}
"""How a file system is made, best first: Amazon Linux's own is XFS, Ubuntu's is ext4, so that a Deep Learning AMI of
either has one of the two. Without a discard, which takes minutes on large disks: they come trimmed (EC2 user guide,
"SSD instance store volumes")."""

MOUNT = ("-o", "noatime,nodev,nosuid")

IMAGE_SERVICE = "opt/aws/dlami/bin/nvme_ephemeral_drives.sh"
"""What Deep Learning AMIs join the disks with themselves, as a logical volume at `/opt/dlami/nvme`, in a service
(`dlami-nvme`) that starts at each boot beside ours."""

IMAGE_WAIT_S = 60.0
"""How long such a service is waited for."""

POLL_S = 1.0
LIMIT_S = 240.0
"""For all commands together."""


class Degraded(Exception):
    """Scratch is there, but less than the node's disks could be; the message says why."""


def assemble(paths: Paths, tools: Tools | None = None) -> tuple[None, str]:
    """See to the scratch folder, and say what it is. Done once, it is left as it is. Raises `Degraded`."""
    devices = Devices(paths.root)
    paths.scratch.mkdir(parents=True, exist_ok=True)
    disks = devices.instance_store()
    if not disks:
        return None, "a folder of the root disk: there are no instance-store disks"
    if any(mount.point == paths.scratch for mount in devices.mounts()):
        return None, "mounted already"
    try:
        return None, _mounted(devices, disks, paths, tools or Tools(LIMIT_S))
    except ToolFailed as error:
        raise Degraded(f"{error}; scratch is a folder of the root disk") from None


def _mounted(devices: Devices, disks: Sequence[Disk], paths: Paths, tools: Tools) -> str:
    """Mount the disks at the scratch folder; what was done. Raises `ToolFailed` and, where it is done, `Degraded`."""
    if lent := _lent(devices, disks):
        folder = lent / "trainwright"
        folder.mkdir(exist_ok=True)
        tools.run("mount", "--bind", str(folder), str(paths.scratch))
        return f"a folder of {lent}, where the image has mounted instance-store disks"
    device, used, lacking = _device(devices, disks, tools)
    state = _with_file_system(device, paths.scratch, tools)
    found = f"{len(used)} of {len(disks)} instance-store disks, {sum(disk.size for disk in used) >> 30} GiB, {state}"
    if lacking:
        raise Degraded(f"{found}: {lacking}")
    return found


def _lent(devices: Devices, disks: Sequence[Disk]) -> Path | None:
    """Where the image itself has mounted disks, the most of them; it is waited for where it is known to."""
    names = {disk.name for disk in disks}
    until = time.monotonic() + (IMAGE_WAIT_S if (devices.root / IMAGE_SERVICE).exists() else 0)
    while True:
        mounts = [mount for mount in devices.mounts() if mount.disks and mount.disks <= names]
        if mounts:
            return max(mounts, key=lambda mount: len(mount.disks)).point
        if time.monotonic() >= until:
            return None
        time.sleep(POLL_S)


def _device(devices: Devices, disks: Sequence[Disk], tools: Tools) -> tuple[Path, Sequence[Disk], str]:
    """What holds the file system, the disks that are in it, and why not all of them are. Raises `ToolFailed`.

    An array that udev has assembled, at a reboot, goes by another name than ours: the kernel knows what it is made of.
    """
    held = {name: devices.holders(name) for name in (disk.name for disk in disks)}
    holders = frozenset[str]().union(*held.values())
    for holder in sorted(holders):
        if holder.startswith("md") and devices.under(holder) == held.keys():
            return devices.root / "dev" / holder, disks, ""
    free = [disk for disk in disks if not held[disk.name]]
    taken = f"in use by {', '.join(sorted(holders)) or 'others'}"
    if not free:
        raise ToolFailed(f"all {len(disks)} instance-store disks are {taken}")
    lacking = "" if len(free) == len(disks) else f"the others are {taken}"
    if len(free) > 1:
        try:
            return _array(devices.root / "dev/md" / ARRAY, free, tools), free, lacking
        except ToolFailed as error:
            lacking = str(error)
    largest = max(free, key=lambda disk: disk.size)
    return largest.link, [largest], lacking


def _array(array: Path, disks: Sequence[Disk], tools: Tools) -> Path:
    """The RAID-0 of these disks: the one that is on them, or else a new one. Raises `ToolFailed`."""
    links = [str(disk.link) for disk in disks]
    if not tools.attempt("mdadm", "--assemble", str(array), *links):
        level = ("--level=0", f"--raid-devices={len(links)}", f"--name={ARRAY}", "--homehost=any")
        # `--run`: not to ask whether what is on the disks may go.
        tools.run("mdadm", "--create", str(array), *level, "--run", *links)
    return array


def _with_file_system(device: Path, scratch: Path, tools: Tools) -> str:
    """Mount the device's file system if it is ours and whole, or else a new one. Raises `ToolFailed`."""
    if not tools.has("blkid"):
        raise ToolFailed("the image has no blkid")  # without it, each boot would make a new one
    if _label(device, tools) == LABEL and tools.attempt("mount", *MOUNT, str(device), str(scratch)):
        return "kept"
    make = tools.first(tuple(MAKE))
    tools.run(make, *MAKE[make], str(device))
    tools.run("mount", *MOUNT, str(device), str(scratch))
    return "made anew"


def _label(device: Path, tools: Tools) -> str:
    """The label of the device's file system, read from the device itself; '' where it has none."""
    try:
        return tools.run("blkid", "-p", "-o", "value", "-s", "LABEL", str(device))
    except ToolFailed:
        return ""
