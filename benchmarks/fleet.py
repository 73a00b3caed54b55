"""A small fleet on loopback, without Pulumi: real agents and real workers, and ways to harm them.

Each node has a root folder, a metadata service and a first process of the embedded cloud's, on a core of its own, and
reaches the store through a gate that can be shut or narrowed. Tests and benchmarks of faults share it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import boto3

from emulator import notices, processes
from emulator.instances import Instance
from emulator.metadata import Ec2Metadata, MetadataService
from emulator.nodes import node_environment
from tests.project import CHECKOUT, SMALL_JOB, wait_for
from trainer import layout
from trainer.node.membership import Outcome
from trainer.node.peers import Card, Generation
from trainer.pack import pack
from trainer.store import S3Store
from trainer.train.checkpoint import steps_in_store

RUN = "r-1"
LONG = 1_000_000
"""Steps of a run that ends with its test."""

PATCHED = """import os, sys
for kind in ("node", "train"):
    if any(word in sys.orig_argv for word in (f"trainer.{kind}", f"trainer.{kind}.standby")):
        exec(os.environ[f"FLEET_PATCH_{kind.upper()}"])
"""
PACED = """
import os, time
import trainer.train.loop as loop
advance = loop.Run.advance
loop.Run.advance = lambda run, asked: time.sleep(0.02) or advance(run, asked)
"""
"""Python runs it first in every process of a node: a fault that no signal can make is written into the process.

Steps are paced, since workers that never rest leave no time to those that start.
"""
HARMED = """
import errno, os, pathlib, time
import trainer.train.checkpoint as checkpoint
import trainer.train.feed as feed
import trainer.train.loop as loop

whole_advance = loop.Run.advance
now = {}

def watched(run, asked):
    now["run"] = run
    return whole_advance(run, asked)

def harmed(name, whole):
    wanted = pathlib.Path(os.environ["TRAINWRIGHT_ROOT"], name)

    def step(*given):
        if wanted.exists():
            if name == "raises":
                raise ArithmeticError("a user's mistake")
            if now["run"].within_s < loop.STEP_S:
                wanted.unlink()
                time.sleep(3600)
        return whole(*given)

    return step

write_part = checkpoint._write_part

def cut(path, content):
    if pathlib.Path(os.environ["TRAINWRIGHT_ROOT"], "full").exists():
        path.write_bytes(b"what still fitted")
        raise OSError(errno.ENOSPC, "No space left on device")
    return write_part(path, content)

checkpoint._write_part = cut
loop.Run.advance = watched
loop.compute = harmed("raises", harmed("hangs-computing", loop.compute))
feed.Feed.take = harmed("hangs-reading", feed.Feed.take)
"""
"""A worker that does as a file in its node's root is called: it finds the disk full, raises, or hangs once, in its own
code. It hangs in a step whose time goes by those before, not among a generation's first or while rank 0 saves."""


class Gate:
    """A way to the server at `endpoint` that passes everything, nothing (`shut`), or each piece after `delay_s`."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._target = (parts.hostname, parts.port)
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.shut = False
        self.delay_s = 0.0
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        Thread(target=self._serve, name="gate", daemon=True).start()

    def close(self) -> None:
        """Break every connection, and listen no more; a gate that is only `shut` breaks those that are used."""
        self._listener.close()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.shut:
                client.close()
                continue
            server = socket.create_connection(self._target)
            self._open |= {client, server}
            for ends in ((client, server), (server, client)):
                Thread(target=self._relay, args=ends, daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (piece := source.recv(1 << 16)) and not self.shut:
                time.sleep(self.delay_s)
                target.sendall(piece)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._open.discard(one)


@dataclass
class Group:
    """What a node's metadata service asks the cloud's API: whether its group is to keep the node."""

    ending: set[str] = field(default_factory=set)
    """Nodes that it ends."""

    def target_state(self, instance: Instance) -> str:
        """The state that it wants a node in."""
        return "Terminated" if instance.id in self.ending else "InService"


@dataclass
class Node:
    """One node: its files, and its first process, whose end is the node's."""

    name: str
    root: Path
    notice: Path
    init: subprocess.Popen[bytes]
    service: MetadataService

    def processes(self, module: str = "") -> list[int]:
        """Its processes, or those that run this module; who waits to be a worker isn't one yet."""
        waiting = self.standbys()
        taken = [pid for pid, command in self._commands() if f"{module}.standby" in command and pid not in waiting]
        return [pid for pid, command in self._commands() if not module or module in command or pid in taken]

    def standbys(self) -> list[int]:
        """Its processes that wait to be workers: those that don't write a worker's log."""
        found = [pid for pid, command in self._commands() if "trainer.train.standby" in command]
        return [pid for pid in found if not _logs_a_rank(pid)]

    def _commands(self) -> list[tuple[int, list[str]]]:
        own = processes.belonging_to(self.root)
        return [(pid, command) for pid, command in processes.commands() if pid in own]

    def signal(self, number: signal.Signals, module: str = "") -> list[int]:
        """Send a signal to them; which they were. A node that is killed whole has ended by then."""
        pids = self.processes(module)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGKILL and not module:
            self.init.wait(30)
        return pids

    def log(self, name: str = "agent") -> str:
        """One of its logs."""
        path = self.root / f"var/log/trainwright/{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""


@dataclass
class Fleet:
    """Nodes that train one run, on a server (of the embedded cloud) at `endpoint`."""

    folder: Path
    endpoint: str
    job: dict[str, Any] = field(default_factory=dict)
    least: int = 1
    workers: int = 1
    patches: dict[str, str] = field(default_factory=dict)
    """Python text to run first in each agent (`node`) and each worker (`train`)."""
    config: dict[str, Any] = field(default_factory=dict)
    """What nodes are told beside the rest."""
    nodes: dict[str, Node] = field(default_factory=dict)
    group: Group = field(default_factory=Group)
    _launched: int = 0
    _records: dict[int, Generation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.job = {**SMALL_JOB, "steps": LONG, **self.job}
        self.gate = Gate(self.endpoint)
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=self.endpoint, **keys)
        self.bucket = S3Store(f"faults-{uuid.uuid4().hex[:12]}", client=client)
        self.store = S3Store(self.bucket.bucket, layout.run_prefix(RUN), client)
        client.create_bucket(Bucket=self.bucket.bucket)
        self.data = self.folder / "data"
        pack([CHECKOUT / "trainer"], self.data, self.job["dataset"], exclude=["__pycache__"])
        for path in self.data.iterdir():
            self.bucket.upload(path, f"{layout.dataset_prefix(self.job['dataset'])}/{path.name}")
        self.site = patched(self.folder)

    # --- Nodes

    def start(self, *names: str, desired: int | None = None) -> None:
        """Boot nodes, the eldest first; one that ended before comes back as itself, as an agent started anew does."""
        if desired:
            sizes = {"min": self.least, "desired": desired, "max": 9}
            self.bucket.put(layout.FLEET, json.dumps(sizes).encode())
        for name in names:
            self.nodes[name] = self._boot(name)

    def _boot(self, name: str) -> Node:
        root = self.folder / name
        script, config = root / "start", root / "node.json"
        address = f"127.{20 + os.getpid() % 200}.0.{ord(name[0])}"
        first = name not in self.nodes
        if first:
            (root / "tmp").mkdir(parents=True)
            self._launched += 1
            told = {"cloud": "aws", "region": "us-east-1", "cluster": "faults", "bucket": self.bucket.bucket}
            told |= {"run": RUN, "workers": self.workers, "gpus": 0, "job": self.job, **self.config}
            config.write_text(json.dumps(told))
            script.write_text(f"#!/bin/sh\nexec {sys.executable} -m trainer.node {config}\n")
            script.chmod(0o700)
            launched = datetime.now(UTC) + timedelta(seconds=self._launched)
            about = Instance(
                name, "", "aws", "us-east-1", "us-east-1a", "", "", "m6a.large", "ami-0", "x86_64", address, "",
                launched, True, None, False, True, b"",
            )  # fmt: skip
            notice = notices.path(self.folder, name)
            service = MetadataService(Ec2Metadata(about, self.group, notice), address)  # type: ignore[arg-type]
        else:
            notice, service = self.nodes[name].notice, self.nodes[name].service
        environment = node_environment("aws", root, service.url, self.gate.endpoint) | {
            "PYTHONPATH": f"{self.site}:{CHECKOUT}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "FLEET_PATCH_NODE": self.patches.get("node", ""),
            "FLEET_PATCH_TRAIN": self.patches.get("train", "") + PACED,  # which imports torch: seconds
        }
        number = list({**self.nodes, name: None}).index(name)
        return Node(name, root, notice, power_on(root, script, environment, number), service)

    def notice(self, name: str, kind: notices.Kind, seconds: float) -> None:
        """Have the metadata service announce something; unlike on the cloud, nothing follows from it by itself."""
        node = self.nodes[name]
        raised = notices.read(node.notice) | {kind: time.time() + seconds}
        part = node.notice.with_suffix(".part")
        part.write_text(json.dumps(raised))
        part.replace(node.notice)

    def harm(self, name: str, kind: str) -> None:
        """Have a worker of this node do as `HARMED` has it, where that is among the patches."""
        (self.nodes[name].root / kind).touch()

    def close(self) -> None:
        """End every process and service."""
        processes.end(lambda: processes.belonging_to(self.folder), grace=0)
        for node in self.nodes.values():
            node.init.wait()
            node.service.close()
        self.gate.close()

    # --- What the run says

    def generations(self) -> dict[int, Generation]:
        """All, by number."""
        for entry in self.store.list(layout.GENERATIONS):
            number = layout.generation_number(entry.key)
            if number not in self._records:
                self._records[number] = Generation.parse(self.store.get(entry.key))
        return self._records

    def outcome(self) -> Outcome | None:
        """How the run ended, once it has."""
        exists = self.store.exists(layout.OUTCOME)
        return Outcome(**json.loads(self.store.get(layout.OUTCOME))) if exists else None

    def card(self, name: str) -> Card:
        """What a node says of itself."""
        return Card.parse(self.store.get(layout.card(name)))

    def lines(self, generation: int | None = None) -> list[dict[str, Any]]:
        """Metrics of one generation or of all so far, from the nodes' own files, in order of generations and time."""
        name = "*" if generation is None else f"{generation:06d}"
        files = (node.root.glob(f"var/log/trainwright/{name}-metrics.jsonl") for node in self.nodes.values())
        return told(path for found in files for path in found)

    def steps(self, generation: int | None = None) -> list[dict[str, Any]]:
        """The steps among them."""
        return [line for line in self.lines(generation) if "loss" in line]

    def events(self, event: str, generation: int | None = None) -> list[dict[str, Any]]:
        """The events of one kind among them."""
        return [line for line in self.lines(generation) if line.get("event") == event]

    def checkpoints(self) -> list[int]:
        """Steps of the whole checkpoints in the store."""
        held = steps_in_store(self.store).items()
        return sorted(step for step, keys in held if any(key.endswith(layout.MANIFEST) for key in keys))

    # --- Waiting

    def trains(self, *names: str, after: int = 0, steps: int = 3, limit_s: float = 120) -> Generation:
        """Wait for a generation later than `after`, of just these nodes, that has taken steps; the generation."""

        def found() -> Generation | None:
            for number, generation in sorted(self.generations().items(), reverse=True):
                members = {member.node for member in generation.members}
                if number > after and members == set(names) and len(self.steps(number)) >= steps:
                    return generation
            return None

        generation: Generation = self._wait(f"{', '.join(names)} train", found, limit_s)
        return generation

    def saved(self, beyond: int = 0, limit_s: float = 120) -> int:
        """Wait for a checkpoint of a step beyond this one in the store; the newest."""
        made = self._wait("a checkpoint", lambda: [s for s in self.checkpoints() if s > beyond], limit_s)
        return int(made[-1])

    def ends(self, limit_s: float = 120) -> Outcome:
        """Wait for the run's end; how it was."""
        outcome: Outcome = self._wait("the end", self.outcome, limit_s)
        return outcome

    def _wait(self, what: str, condition: Any, limit_s: float) -> Any:
        try:
            return wait_for(what, condition, limit_s, poll_s=0.2)
        except AssertionError as error:
            said = "\n".join(f"--- {name}\n{node.log()[-1500:]}" for name, node in self.nodes.items())
            raise AssertionError(f"{error}\n{said}") from None


def patched(folder: Path) -> Path:
    """A folder which, on PYTHONPATH, makes Python run the patches in its environment."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(PATCHED)
    return site


def _logs_a_rank(pid: int) -> bool:
    """Whether a process writes a worker's log."""
    try:
        return "-rank" in Path(f"/proc/{pid}/fd/1").readlink().name
    except OSError:
        return False


def power_on(root: Path, script: Path, environment: dict[str, str], number: int) -> subprocess.Popen[bytes]:
    """Run a node's script on the `number`th core; the process that it ends with, as it ends with this process."""
    cores = sorted(os.sched_getaffinity(0))
    core = cores[number % len(cores)]
    with (root / "console.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-S", "-m", "emulator.init", str(os.getpid()), str(core), str(script)],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def told(files: Iterable[Path]) -> list[dict[str, Any]]:
    """The lines of metrics files, in order of generations and time; one that is being written is left out."""
    lines = []
    for path in files:
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
    return sorted(lines, key=lambda line: (line["generation"], line["time"]))


@contextlib.contextmanager
def fleet(folder: Path, endpoint: str, **values: Any) -> Iterator[Fleet]:
    """A fleet whose processes and files end with the block."""
    made = Fleet(folder, endpoint, **values)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
