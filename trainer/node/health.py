"""Whether a node is fit to train: what must hold before it joins, cheap checks first."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

LEAST_FREE_BYTES = 1 << 30

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108

LEAST_SHARED_BYTES = 1 << 30
"""What NCCL is to be given for its exchange between the GPUs of a node (its user guide: `--shm-size=1g`); Docker gives
64 MiB unasked, on which a job dies of a bus error. Nothing else here needs any: data is read through the page cache."""

CPU = Path("/proc/cpuinfo")

TOOL_LIMIT_S = 30
"""Within which a tool answers: a GPU that hangs must not hang the boot."""

XIDS = {
    48: "a double-bit ECC error",
    64: "a row of its memory could not be remapped",
    79: "it fell off the bus",
    95: "an uncontained ECC error",
}
"""What the driver reports that is the hardware's, and that no restart of a job mends (NVIDIA, "XID Errors"); others,
such as 13, 31 and 43, are mostly a program's own."""

MANAGER = "nvidia-fabricmanager"
"""The service that sets up NVSwitch. Without it CUDA fails (error 802), or goes over PCIe (facts: B4)."""

STARTING_S = 60
"""How long that service may take to start."""

RETRY_S = 1.0


class Unfit(Exception):
    """The node must not join; the message says why."""


def check(scratch: Path, gpus: int, nvswitch: bool = False, room: int = 0, tdx: bool = False) -> str:
    """What the node has, in words; `gpus` and `nvswitch` are what its instance type has.

    `room` is what its checkpoints take, in bytes; `tdx` says that it is to be a trust domain. Raises `Unfit`.
    """
    if tdx and "tdx_guest" not in _flags():
        raise Unfit(
            "the node is no TDX trust domain, so that its memory isn't encrypted: use an image that boots as one"
        )
    free, least = shutil.disk_usage(scratch).free, max(LEAST_FREE_BYTES, room)
    if free < least:
        raise Unfit(f"{scratch} has {free >> 20} MiB free, too little for checkpoints: {least >> 20} MiB is the least")
    if gpus:
        _check_gpus(gpus)
    if gpus > 1:
        _check_shared_memory()
    fabric = f", {_check_nvswitch()}" if nvswitch else ""
    cpus = len(os.sched_getaffinity(0))
    domain = ", a TDX trust domain" if tdx else ""
    return f"{gpus} GPUs{fabric}, {cpus} CPUs, {free >> 30} GiB of scratch free{domain}"


def too_small(scratch: Path, room: int) -> str:
    """Why no checkpoints that take so many bytes fit on the disk at `scratch`, were it empty; '' where they do."""
    total = shutil.disk_usage(scratch).total
    if total >= room:
        return ""
    return (
        f"{scratch} has {total >> 20} MiB in all, too little for checkpoints: the model's take {room >> 20} MiB; set a "
        "larger nodes.disk_gb, or a type with instance storage"
    )


def count_gpus() -> int:
    """GPUs that the driver lists, 0 where there is no driver."""
    return sum(line.startswith("GPU ") for line in _ask("nvidia-smi", "-L").splitlines())


def _flags() -> set[str]:
    """What the kernel says of the processor (Linux, Documentation/arch/x86/tdx.rst: a guest has `tdx_guest`)."""
    found = re.search(r"^flags\s*:(.*)$", CPU.read_text(), re.MULTILINE)
    return set(found[1].split()) if found else set()


def _check_gpus(gpus: int) -> None:
    """All are there, none has memory that waits for a repair, or is past it, and none has failed since the boot."""
    if (found := count_gpus()) != gpus:
        raise Unfit(f"{found} GPUs answer nvidia-smi, but the instance type has {gpus}: a GPU or its driver is lost")
    columns = "gpu_bus_id,remapped_rows.pending,remapped_rows.failure"
    for line in _ask("nvidia-smi", f"--query-remapped-rows={columns}", "--format=csv,noheader").splitlines():
        bus, *states = (part.strip() for part in line.split(","))
        if any(re.fullmatch("Yes|[1-9][0-9]*", state) for state in states):
            raise Unfit(f"the memory of GPU {bus} has rows that are broken, or wait to be remapped by a reset")
    for bus, xid in re.findall(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),", _ask("dmesg")):
        if what := XIDS.get(int(xid)):
            raise Unfit(f"GPU {bus} has reported Xid {xid} since the node's boot: {what}")


def _check_shared_memory() -> None:
    """There is room in it for NCCL."""
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
    if free < LEAST_SHARED_BYTES:
        raise Unfit(f"{SHARED_MEMORY} has {free >> 20} MiB free, NCCL needs 1024 MiB; give it more (`--shm-size=1g`)")


def _check_nvswitch() -> str:
    """Fabric manager runs, is of the driver's version (its user guide), and has brought up every NVLink."""
    state = _ask("systemctl", "is-active", MANAGER).strip()
    deadline = time.monotonic() + STARTING_S
    while state == "activating" and time.monotonic() < deadline:
        time.sleep(RETRY_S)
        state = _ask("systemctl", "is-active", MANAGER).strip()
    if state != "active":
        raise Unfit(f"{MANAGER} is {state or 'not there'}: use an image that has it and starts it")
    said = re.search(r"version is\s*:\s*(\S+)", _ask("nv-fabricmanager", "--version"))
    version = said[1] if said else "none that it tells"
    driver, *_ = _ask("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split() or ["unknown"]
    if version != driver:
        raise Unfit(f"{MANAGER}'s version is {version}, the driver's {driver}: use an image that has both alike")
    links = re.findall(r"^\s*Link \d+:.*$", _ask("nvidia-smi", "nvlink", "--status"), re.MULTILINE)
    if down := sum("inactive" in link.lower() for link in links):
        raise Unfit(f"{down} of {len(links)} NVLinks are inactive")
    return f"{len(links)} NVLinks"


def _ask(tool: str, *arguments: str) -> str:
    """What a tool prints; nothing where it isn't there."""
    path = shutil.which(tool)
    if path is None:
        return ""
    command = [path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False).stdout
