"""What a node is tried on before it joins, beyond what `health` reads off it: its clock and limits, and its GPUs."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer.node import nccl
from trainer.node.health import Unfit
from trainer.node.tools import ToolFailed, Tools

SYSTEM_LIMIT_S = 20.0
"""For the tools that tell of the clock, each."""

CLOCK_LIMIT_S = 3 * SYSTEM_LIMIT_S
"""Seconds that `set_clock` may take."""

MOST_OFF_S = 1.0
"""How far a clock may be off. Nothing here compares clocks, but signatures, certificates and logs need them."""

FAR_OFF_S = 60.0
"""How far off no node joins: it signs requests by its clock, which clouds refuse as too old within minutes (IAM user
guide, "AWS Signature Version 4": five; OSS and S3: fifteen), and its certificates and notices are judged by it."""

LEAST_FILES = 4096
"""Descriptors a process may open: a data loader's tensors take one each (PyTorch, "Multiprocessing package", strategy
`file_descriptor`), of which 1,024, the usual default, are soon gone."""

LOOPBACK_LIMIT_S = 300.0
"""For all of it, on an image whose disk is still being filled: torch's libraries alone are gigabytes."""

COPIES = 3
"""Checkpoints that scratch is to have room for: the two that it keeps, and the one that is being written."""

BYTES_A_PARAMETER = 12
"""A float each for the weight and for Adam's two moments."""

VOCABULARY = 1 << 16
"""The largest: tokens are two bytes."""


class Amiss(Exception):
    """Something about the node that training outlives; the message says what."""


def system(gpus: int, kind: str) -> tuple[None, str]:
    """The clock, and what the agent's processes may do, in words. Raises `Amiss`."""
    files, locked = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK))
    wrong, clock = _clock(Tools(SYSTEM_LIMIT_S))
    problems = [clock] if wrong else []
    if gpus and files != resource.RLIM_INFINITY and files < LEAST_FILES:
        problems.append(f"a process may open {files} files, {LEAST_FILES} are wanted (LimitNOFILE, or ulimit -n)")
    if kind in nccl.FAST and locked != resource.RLIM_INFINITY:
        problems.append(
            f"a process may lock {locked >> 10} KiB of memory, which {kind} wants without a limit, or fails with "
            "'Cannot allocate memory' (LimitMEMLOCK=infinity, or --ulimit memlock=-1)"
        )
    if problems:
        raise Amiss("; ".join(problems))
    return None, f"{clock}, {files} files"


def set_clock() -> None:
    """See that the clock isn't far off, by setting it where it is (chronyc(1), `makestep`). Raises `Unfit`.

    Where no tool tells by how much, this can't be seen.
    """
    tools = Tools(SYSTEM_LIMIT_S)
    if _tracked(tools)[1] <= FAR_OFF_S:
        return
    tools.attempt("chronyc", "makestep")
    if (off := _tracked(tools)[1]) > FAR_OFF_S:
        raise Unfit(
            f"the clock is {off:.0f} s off, so that requests are refused: have the image's chrony set it at boot"
        )


def _tracked(tools: Tools) -> tuple[str, float]:
    """Whether chrony follows a clock, in its word, and by how many seconds this one is off; '' and 0 where none says.

    (chronyc(1), `-c tracking`.)
    """
    with suppress(ToolFailed, ValueError, IndexError):
        fields = tools.run("chronyc", "-c", "tracking").split(",")
        return fields[-1], abs(float(fields[-10]))  # from the end: older ones lack the second field
    return "", 0.0


def _clock(tools: Tools) -> tuple[bool, str]:
    """Whether the clock is wrong, and what is known of it (timedatectl(1), `show`)."""
    status, off = _tracked(tools)
    if status:
        lost = status.startswith("Not")
        return lost or off > MOST_OFF_S, "clock not synchronised (chronyc)" if lost else f"clock {off:.6f} s off"
    with suppress(ToolFailed):
        synchronised = tools.run("timedatectl", "show", "--property=NTPSynchronized", "--value") == "yes"
        return not synchronised, f"clock {'' if synchronised else 'not '}synchronised (timedatectl)"
    return False, "clock not told"


def room(job: Mapping[str, Any]) -> int:
    """Bytes that the checkpoints of a job of the bundled trainer's take on a node; 0 where that can't be told.

    Those of a sharded model are whole all the same, and lie on any node that rank 0 is on, or that goes on from one. A
    command's are its own affair.
    """
    if "command" in job:
        return 0
    model = job.get("model", {})
    layers, width = int(model.get("layers", 0)), int(model.get("width", 0))
    parameters = 12 * layers * width * width + VOCABULARY * width
    return COPIES * BYTES_A_PARAMETER * parameters


def loopback(environment: Mapping[str, str], gpus: int, kind: str, folder: Path) -> str:
    """How fast the node's GPUs reduce among themselves, in words, and over which network they would go beyond it.

    NCCL takes its network as it starts, for one node too, so that its log tells here whether it found the fabric's
    plugin, and not once the run is slow. Raises `Unfit`. The agent imports no torch: the ranks are processes of their
    own, which leave nothing behind.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    dropped = ("NCCL_DEBUG", "CUDA_VISIBLE_DEVICES")
    own = {name: value for name, value in environment.items() if not name.startswith(dropped)}
    command = [sys.executable, "-m", "trainer.train.loopback", str(gpus), str(folder), str(LOOPBACK_LIMIT_S)]
    said, code = _run(command, {**own, "NCCL_DEBUG": "INFO"}, folder / "output.log")
    log = "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("rank*.log")))
    if code:
        complaint = nccl.heard(log).complaint
        raise Unfit(f"its GPUs can't reduce among themselves: {said}{f' ({complaint})' if complaint else ''}")
    if fault := nccl.fault(kind, log):
        raise Unfit(fault)
    speed = json.loads(said)["gbytes_per_s"]
    network = ", ".join(nccl.heard(log).networks) or "a network that NCCL doesn't tell"
    return f"{f'all-reduce {speed} GB/s, ' if gpus > 1 else ''}NCCL over {network}"


def _run(command: list[str], environment: Mapping[str, str], output: Path) -> tuple[str, int]:
    """The last line of what a command said, and its code; all that it started is ended at the limit."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, process_group=0
        )
        try:
            process.wait(LOOPBACK_LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"it took longer than {LOOPBACK_LIMIT_S:g} s", 1
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = output.read_text(errors="replace").strip().splitlines() or [f"it exited with {process.returncode}"]
    return lines[-1], process.returncode
