"""A project folder of its own, for tests and benchmarks: the real engine, the real command, a small job."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from cli.history import History
from cli.workspace import LOCAL
from emulator import cloud, places, processes
from trainer import layout
from trainer.store import S3Store

CHECKOUT = Path(__file__).resolve().parents[1]
TRAINWRIGHT = str(Path(sys.executable).with_name("trainwright"))

SMALL_JOB = {
    "name": "small",
    "dataset": "python-stdlib",
    "steps": 150,
    "batch": 8,
    "micro_batch": 4,
    "learning_rate": 3e-3,
    "model": {"layers": 1, "heads": 2, "width": 32, "context": 64},
    "checkpoint": {"every_steps": 50},
}
"""Milliseconds a step, so that a test waits for clouds and not for arithmetic."""


@dataclass
class Project:
    """A project folder with one stack; its file is the shipped one, unchanged, where `job` is None."""

    folder: Path
    job: dict[str, Any] | None = field(default_factory=lambda: dict(SMALL_JOB))
    nodes: dict[str, Any] = field(default_factory=lambda: {"desired": 2, "max": 4})
    stack: str = LOCAL

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        shutil.copy(CHECKOUT / "__main__.py", self.folder)
        project = yaml.safe_load((CHECKOUT / "Pulumi.yaml").read_text())
        project["runtime"]["options"]["virtualenv"] = sys.prefix
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
        (self.folder / "stacks").mkdir()
        self.write()

    @property
    def home(self) -> Path:
        return self.folder / ".local"

    @property
    def file(self) -> Path:
        return self.folder / "stacks" / f"Pulumi.{self.stack}.yaml"

    @property
    def is_up(self) -> bool:
        """Whether the stack has outputs, by the engine's file: to ask the engine itself takes a second of a core."""
        try:
            state = json.loads((self.home / f"state/.pulumi/stacks/trainwright/{self.stack}.json").read_text())
        except (OSError, ValueError):  # there is none yet, or it is being written
            return False
        resources = (state["checkpoint"]["latest"] or {}).get("resources", [])
        return any("bucket" in resource.get("outputs", {}) for resource in resources if "parent" not in resource)

    def write(self) -> None:
        """The stack's file as the attributes say."""
        shipped = CHECKOUT / "stacks" / self.file.name
        if self.job is None:
            shutil.copy(shipped, self.file)
            return
        stack = yaml.safe_load(shipped.read_text())
        stack["config"]["trainwright:nodes"] |= self.nodes
        stack["config"]["trainwright:job"] = self.job
        self.file.write_text(yaml.safe_dump(stack))

    def trainwright(self, *arguments: str, limit_s: float = 600) -> subprocess.CompletedProcess[str]:
        return self._run([TRAINWRIGHT, *arguments, *self._named()], self._clean(), limit_s)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """The command in the background, in a session of its own, its output in a file."""
        with (self.folder / "output.txt").open("wb") as output:
            return subprocess.Popen(
                [TRAINWRIGHT, *arguments, *self._named()],
                cwd=self.folder,
                env=self._clean(),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def pulumi(self, *arguments: str, limit_s: float = 300) -> subprocess.CompletedProcess[str]:
        """The engine, as typed by hand in the documented environment."""
        options = f"--stack {self.stack} --non-interactive --color never"
        command = f'eval "$("{TRAINWRIGHT}" env --stack {self.stack})" && exec pulumi "$@" {options}'
        return self._run(["bash", "-ec", command, "pulumi", *arguments], self._clean(), limit_s)

    def outputs(self) -> dict[str, Any]:
        done = self.pulumi("stack", "output", "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = yaml.safe_load(done.stdout)
        return found

    def client(self, service: str) -> Any:
        running = cloud.find(self.home)
        assert running is not None, "the embedded cloud is not running"
        return boto3.client(
            service,
            endpoint_url=running.endpoint,
            region_name="us-west-2" if self.stack == LOCAL else places.REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def history(self) -> History:
        outputs = self.outputs()
        store = S3Store(outputs["bucket"], layout.run_prefix(outputs["run"]), self.client("s3"))
        return History(store, outputs["run"])

    def instances(self) -> list[str]:
        """Ids of the instances that run now."""
        reservations = self.client("ec2").describe_instances(
            Filters=[{"Name": "instance-state-name", "Values": ["running"]}]
        )["Reservations"]
        return [instance["InstanceId"] for item in reservations for instance in item["Instances"]]

    def kill_node(self, node: str) -> None:
        """Kill every process of a node at once, as a power cut would."""
        root = self.home / "cloud" / "nodes" / node
        for pid in processes.belonging_to(root):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def left_running(self) -> list[str]:
        """Command lines of processes that name this project's folder, in their arguments or environment."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                content = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(self.folder).encode() in content:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def _run(self, command: list[str], environment: dict[str, str], limit_s: float) -> subprocess.CompletedProcess[str]:
        """The command's end. One that takes longer than only a hang would fails with the last that it said."""
        try:
            return subprocess.run(
                command, cwd=self.folder, env=environment, text=True, capture_output=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired as expired:
            said = b"\n".join(part for part in (expired.stdout, expired.stderr) if isinstance(part, bytes)).decode()
            pytest.fail(f"{' '.join(command)}: not within {limit_s:g} s. It said last:\n{said[-4000:]}", pytrace=False)

    def _named(self) -> list[str]:
        """The option that names the stack, where it isn't the one that needs none."""
        return [] if self.stack == LOCAL else ["--stack", self.stack]

    @staticmethod
    def _clean() -> dict[str, str]:
        """The environment of a user who has set nothing of ours."""
        ours = re.compile(r"^(TRAINWRIGHT_|PULUMI_|AWS_|PYTEST_)")
        return {name: value for name, value in os.environ.items() if not ours.match(name)} | {"COLUMNS": "160"}


def wait_for(what: str, condition: Callable[[], Any], limit_s: float = 300, poll_s: float = 0.3) -> Any:
    """The condition's first true value. Fails with `what` where there is none in time, which only a hang takes."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(poll_s)
    raise AssertionError(f"not within {limit_s:g} s: {what}")
