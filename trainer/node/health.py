"""Whether a node is fit to train: what must hold before it joins, cheap checks first."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

LEAST_FREE_BYTES = 1 << 30


class Unfit(Exception):
    """The node must not join; the message says why."""


def check(scratch: Path, gpus: int) -> str:
    """What the node has, in words; `gpus` is what its instance type has. Raises `Unfit`."""
    free = shutil.disk_usage(scratch).free
    if free < LEAST_FREE_BYTES:
        raise Unfit(f"{scratch} has {free >> 20} MiB free, too little for a checkpoint: 1024 MiB is the least")
    if gpus and (found := count_gpus()) != gpus:
        raise Unfit(f"{found} GPUs answer nvidia-smi, but the instance type has {gpus}: a GPU or its driver is lost")
    cpus = len(os.sched_getaffinity(0))
    return f"{gpus} GPUs, {cpus} CPUs, {free >> 30} GiB of scratch free"


def count_gpus() -> int:
    """GPUs that the driver lists, 0 where there is no driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30, check=False)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
