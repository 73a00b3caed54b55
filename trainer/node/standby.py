"""Workers in waiting: a generation that follows another doesn't wait until its workers have imported torch.

Each costs its share of main memory, about 0.3 GiB, and no GPU's. Only for the bundled trainer: what another program
would do before its turn, nobody knows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

SETTLED_S = 10.0
"""Seconds that a generation's workers have run before others are made: their own start is not to be slowed."""

ROOM_BYTES = 2 << 30
"""Of main memory, for each that is made."""

COMMAND = [sys.executable, "-m", "trainer.train.standby"]

MEMORY = Path("/proc/meminfo")

Spawn = Callable[[Sequence[str], Mapping[str, str]], "subprocess.Popen[bytes]"]
"""Starts a command in an environment, with a pipe as its stdin."""


@dataclass
class Standby:
    """A node's. `memory` is where the kernel says how much is available."""

    spawn: Spawn
    memory: Path = MEMORY
    clock: Callable[[], float] = time.monotonic
    waiting: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _since: float | None = None

    def began(self) -> None:
        """New workers have started."""
        self._since = self.clock()

    def keep(self, count: int, environment: Mapping[str, str]) -> None:
        """Have so many wait, once what runs has settled and where memory has room; at most one is made at each call.

        `environment` is what is the same for all workers of the node: some of it is read while torch is imported.
        """
        self.waiting = [process for process in self.waiting if process.poll() is None]
        settled = self._since is None or self.clock() >= self._since + SETTLED_S
        if settled and len(self.waiting) < count and _available(self.memory) >= ROOM_BYTES:
            with suppress(OSError):  # a process less; whoever needs it starts one itself
                self.waiting.append(self.spawn(COMMAND, environment))

    def take(self, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes] | None:
        """Make one that waits the worker that this environment says; None where none waits."""
        told = json.dumps({"environment": dict(environment), "log": str(log)}).encode() + b"\n"
        while self.waiting:
            process = self.waiting.pop(0)
            assert process.stdin is not None
            try:
                with process.stdin as pipe:
                    pipe.write(told)
            except OSError:
                process.kill()
                process.wait()
            else:
                return process
        return None

    def close(self) -> None:
        """End those that wait."""
        for process in self.waiting:
            process.kill()
        for process in self.waiting:
            process.wait()
            if process.stdin:
                with suppress(OSError):
                    process.stdin.close()
        self.waiting = []


def _available(memory: Path) -> int:
    """Bytes of main memory that are available (proc_meminfo of man-pages); 0 where that can't be told."""
    try:
        lines = memory.read_text().splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else 0
