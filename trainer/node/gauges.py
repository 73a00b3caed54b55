"""What a node's hardware is doing: GPUs by the driver's own tool, all else from the kernel's files below a root.

What is not there, or can't be read, is left out, and said once: a gauge that fails stops neither the others nor a run.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.console import say
from trainer.node.tools import Tools

GPU_LIMIT_S = 20.0
"""For the driver's tool: it takes a second or two on eight GPUs, and for ever on a GPU that hangs."""

GPU_FIELDS = {
    "use": "utilization.gpu",
    "memory": "memory.used",
    "memory_total": "memory.total",
    "celsius": "temperature.gpu",
    "watts": "power.draw",
}
"""What is asked of each GPU (`nvidia-smi --help-query-gpu`): percent, MiB, MiB, degrees, watts."""

FABRIC = {"fabric_in": "rx_bytes", "fabric_out": "tx_bytes", "fabric_drops": "rx_drops"}
"""Counters of an EFA device (EC2 user guide, "Monitor an Elastic Fabric Adapter on Amazon EC2")."""

OF_ERDMA = {"rx_bytes": "rx_bytes_cnt", "tx_bytes": "tx_bytes_cnt", "rx_drops": "rx_disable_drop_cnt"}
"""The same of an eRDMA device (Linux, drivers/infiniband/hw/erdma/erdma_verbs.c, `erdma_descs`)."""

Reading = Mapping[str, Any]


@dataclass
class Gauges:
    """Read again and again; what is counted by the kernel is given by the second, from the second reading on."""

    folder: Path
    """Whose disk is looked at."""
    gpus: int = 0
    root: Path = Path("/")
    clock: Callable[[], float] = time.monotonic
    _before: dict[str, float] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)

    def read(self) -> dict[str, Any]:
        """Percentages (`cpu`, `memory`, `disk`), bytes a second (`net_in`, `net_out`, `fabric_…`), and each GPU's."""
        found: dict[str, Any] = {}
        for gauge in (self._cpu, self._memory, self._disk, self._network, self._fabric, self._gpus):
            try:
                found.update(gauge())
            except (OSError, ValueError, LookupError) as error:
                self._say(f"no {gauge.__name__[1:]} gauge: {error or type(error).__name__}")
        return found

    def _cpu(self) -> Reading:
        """The share of time since the last reading that was not idle (proc_pid_stat of man-pages: `/proc/stat`)."""
        numbers = [int(number) for number in self._text("proc/stat").splitlines()[0].split()[1:9]]
        total, idle = sum(numbers), numbers[3] + numbers[4]
        passed, rested = self._grown("cpu", total), self._grown("idle", idle)
        return {"cpu": round(100 * (1 - rested / passed), 1)} if passed and rested is not None else {}

    def _memory(self) -> Reading:
        lines = (line.split(":") for line in self._text("proc/meminfo").splitlines())
        sizes = {name: int(value.split()[0]) for name, value in lines}
        return {"memory": round(100 * (1 - sizes["MemAvailable"] / sizes["MemTotal"]), 1)}

    def _disk(self) -> Reading:
        there = next(folder for folder in (self.folder, *self.folder.parents) if folder.is_dir())
        usage = shutil.disk_usage(there)
        return {"disk": round(100 * usage.used / usage.total, 1)}

    def _network(self) -> Reading:
        """What all interfaces but loopback received and sent."""
        lines = (line.split(":") for line in self._text("proc/net/dev").splitlines()[2:])
        counts = [[int(number) for number in rest.split()] for name, rest in lines if name.strip() != "lo"]
        return self._rates({"net_in": sum(c[0] for c in counts), "net_out": sum(c[8] for c in counts)})

    def _fabric(self) -> Reading:
        """What all EFA or eRDMA devices received, sent and dropped; nothing where there are none."""
        ports = list((self.root / "sys/class/infiniband").glob("*/ports/*/hw_counters"))
        if not ports:
            return {}
        return self._rates({key: sum(_count(port, counter) for port in ports) for key, counter in FABRIC.items()})

    def _gpus(self) -> Reading:
        """Each GPU's numbers, by the driver's tool. What it doesn't know of one, it writes as a word in brackets."""
        if not self.gpus:
            return {}
        query = f"--query-gpu={','.join(GPU_FIELDS.values())}"
        rows = Tools(GPU_LIMIT_S).run("nvidia-smi", query, "--format=csv,noheader,nounits").splitlines()
        return {"gpus": [dict(zip(GPU_FIELDS, map(_number, row.split(",")), strict=True)) for row in rows]}

    def _text(self, path: str) -> str:
        return (self.root / path).read_text()

    def _rates(self, counts: Mapping[str, int]) -> Reading:
        now = self.clock()
        elapsed = self._grown("clock of " + ", ".join(counts), now)
        grown = {key: self._grown(key, count) for key, count in counts.items()}
        return {key: round(more / elapsed) for key, more in grown.items() if elapsed and more is not None}

    def _grown(self, key: str, count: float) -> float | None:
        """By how much a counter grew since the last reading; None at the first, and where it began anew."""
        before = self._before.get(key)
        self._before[key] = count
        return count - before if before is not None and count >= before else None

    def _say(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            say(what)


def _count(port: Path, counter: str) -> int:
    own = port / counter
    return int((own if own.exists() else port / OF_ERDMA[counter]).read_text())


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
