"""Nodes that plain torchrun supervises, as its documentation has it for elastic jobs, to be harmed as a fleet is."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.fleet import PACED, patched, power_on, told
from emulator import processes
from tests.project import CHECKOUT
from trainer.pack import pack


class Torchrun:
    """Two nodes under torchrun that train a job, with the attributes of a fleet that faults need."""

    def __init__(self, folder: Path, job: Mapping[str, Any]) -> None:
        self.folder = folder
        self.inits: dict[str, subprocess.Popen[bytes]] = {}
        self.data, self.store = folder / "data", folder / "store"
        pack([CHECKOUT / "trainer"], self.data, job["dataset"], exclude=["__pycache__"])
        (folder / "job.json").write_text(json.dumps(job))
        self.site = patched(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def start(self, *names: str) -> None:
        """Start agents; the first one of all hosts the rendezvous."""
        for name in names:
            root = self.folder / name
            root.mkdir()
            script = root / "start"
            script.write_text(
                f"#!/bin/sh\nexec {sys.executable} -m torch.distributed.run --nnodes 1:2 --nproc-per-node 1 "
                f"--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{self.port} --rdzv-id faults --max-restarts 20 "
                f"--local-addr 127.0.0.1 -m trainer.train --job {self.folder}/job.json --data {self.data} "
                f"--store {self.store}\n"
            )
            script.chmod(0o700)
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(root),
                "PYTHONPATH": f"{self.site}:{CHECKOUT}",
                "PYTHONUNBUFFERED": "1",
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                "FLEET_PATCH_TRAIN": PACED,
                processes.ROOT_VARIABLE: str(root),
            }
            self.inits[name] = power_on(root, script, environment, len(self.inits))
            time.sleep(1)  # so that the first one is the host

    def signal(self, name: str, number: signal.Signals, module: str = "") -> None:
        """Send a signal to processes of a node: all, its workers (`trainer.train`) or its agent (`trainer.node`)."""
        for pid, command in processes.commands():
            if pid in processes.belonging_to(self.folder / name):
                agent = "torch.distributed.run" in command
                worker = "trainer.train" in command and not agent
                if not module or (agent if module == "trainer.node" else worker):
                    os.kill(pid, number)

    def lines(self) -> list[dict[str, Any]]:
        """The run's metrics."""
        path = self.store / "metrics.jsonl"
        return told([path]) if path.exists() else []

    @property
    def over(self) -> bool:
        """Whether no agent runs any more."""
        return all(init.poll() is not None for init in self.inits.values())

    def close(self) -> None:
        """End every process."""
        processes.end(lambda: processes.belonging_to(self.folder), grace=0)
        for init in self.inits.values():
            init.wait()
