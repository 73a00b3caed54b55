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
    62: "its microcontroller halted",
    64: "a row of its memory could not be remapped",
    74: "an NVLink to another GPU or a switch failed",
    79: "it fell off the bus",
    95: "an uncontained ECC error",
    119: "its system processor (GSP) does not answer",
    120: "its system processor (GSP) failed",
    140: "an ECC error that it could not recover from",
}
"""What the driver reports that no restart of a job mends, but a reset of the GPU or another one (NVIDIA, "XID Errors",
"Analyzing Xid Errors with the Xid Catalog": resolution other than RESTART_APP and IGNORE); others, such as 13, 31 and
43, are mostly a program's own."""

KERNEL_LOG = Path("/dev/kmsg")

LONGEST_RECORD, MOST_RECORDS = 8192, 1 << 16
"""Bytes of one, and more of them than the kernel holds: what it says meanwhile must not keep the reader for ever."""

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
    told = f", {_check_gpus(gpus)}" if gpus else ""
    if gpus > 1:
        _check_shared_memory()
    fabric = f", {_check_nvswitch()}" if nvswitch else ""
    cpus = len(os.sched_getaffinity(0))
    domain = ", a TDX trust domain" if tdx else ""
    return f"{gpus} GPUs{told}{fabric}, {cpus} CPUs, {free >> 30} GiB of scratch free{domain}"


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


def _check_gpus(gpus: int) -> str:
    """All are there, none has memory that waits for a repair, or is past it, and none has failed since the boot.

    What was looked at, in words.
    """
    if (found := count_gpus()) != gpus:
        raise Unfit(f"{found} GPUs answer nvidia-smi, but the instance type has {gpus}: a GPU or its driver is lost")
    memory = _check_memory()
    log = _ask("dmesg") or _kernel_log()
    for bus, xid in re.findall(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),", log):
        if what := XIDS.get(int(xid)):
            raise Unfit(f"GPU {bus} has reported Xid {xid} since the node's boot: {what}")
    return memory if log else f"{memory}, their errors unknown (neither dmesg nor {KERNEL_LOG} can be read)"


def _check_memory() -> str:
    """No GPU's memory has rows, or on a GPU that remaps none (T4, V100) pages, that are broken or to be replaced.

    NVIDIA, "GPU Memory Error Management" and "Dynamic Page Retirement"; columns as in `nvidia-smi
    --help-query-remapped-rows` and `--help-query-gpu`. ECC errors are those since the driver was loaded.
    """
    for bus, states in _query("--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure"):
        if any(re.fullmatch("Yes|[1-9][0-9]*", state) for state in states):
            raise Unfit(f"the memory of GPU {bus} has rows that are broken, or wait to be remapped by a reset")
    asked = "--query-gpu=gpu_bus_id,retired_pages.pending,ecc.errors.uncorrected.volatile.total"
    known = False
    for bus, states in _query(asked):
        pending, errors = (*states, "", "")[:2]
        known |= errors.isdecimal()
        if pending == "Yes":
            raise Unfit(f"the memory of GPU {bus} has pages that wait to be retired by a restart")
        if pending == "No" and errors.isdecimal() and int(errors):
            raise Unfit(f"the memory of GPU {bus} has had {errors} ECC errors that could not be corrected")
    return "ECC" if known else "no ECC told"


def _query(columns: str) -> list[tuple[str, list[str]]]:
    """A GPU's bus id and its other columns, of each that answers."""
    rows = (line.split(",") for line in _ask("nvidia-smi", columns, "--format=csv,noheader").splitlines())
    return [(bus.strip(), [state.strip() for state in states]) for bus, *states in rows]


def _kernel_log() -> str:
    """What the kernel has said since the boot (Linux, Documentation/ABI/testing/dev-kmsg: a record at each read)."""
    records: list[bytes] = []
    try:
        log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    for _ in range(MOST_RECORDS):
        try:
            records.append(os.read(log, LONGEST_RECORD))
        except BrokenPipeError:
            continue  # it was overwritten before it was read
        except OSError:
            break  # EAGAIN: there are no more
        if not records[-1]:
            break
    os.close(log)
    return b"".join(records).decode(errors="replace")


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
