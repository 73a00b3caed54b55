"""Where things are: the project, its stacks' files, its local folder, and the environment that `pulumi` runs in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cli import engine, variables
from cli.errors import Interrupted, Refused
from components.checks import judge
from components.clouds import CLOUDS
from components.findings import Finding, Invalid, nearest
from components.node_checks import on_one_host
from components.plan import Plan
from emulator import cloud
from tools import environment, progress, pulumi_cli
from trainer import layout
from trainer.node.queue import Queue, Turn, current, first
from trainer.store import Store

if TYPE_CHECKING:
    from cli.account import Account, Group

REPOSITORY = Path(__file__).resolve().parent.parent
NAMESPACE = "trainwright:"
NO_LOGIN = "PULUMI_ACCESS_TOKEN must be set for login"
"""What the engine says where it can't ask for one (pulumi/pulumi, `pkg/backend/httpstate`)."""

LOCAL = "local"
"""Stacks whose names start with this one live on the embedded cloud."""


@dataclass(frozen=True)
class Workspace:
    """One stack of the project that the current folder lies in, as `pulumi` sees it; of this checkout elsewhere."""

    stack: str

    @cached_property
    def project(self) -> Path:
        """The folder with the project's Pulumi.yaml."""
        here = Path.cwd()
        return next((folder for folder in (here, *here.parents) if (folder / "Pulumi.yaml").is_file()), REPOSITORY)

    @property
    def home(self) -> Path:
        """The folder that holds everything local: state, embedded cloud, reports."""
        return Path(os.environ.get("TRAINWRIGHT_HOME") or self.project / ".local").absolute()

    @property
    def local(self) -> bool:
        """Whether the stack lives on the embedded cloud."""
        return self.stack.startswith(LOCAL)

    @property
    def beginning(self) -> str:
        """The command that brings a local cluster up."""
        return "make up" if self.stack == LOCAL else f"trainwright up --stack {self.stack}"

    @property
    def ending(self) -> str:
        """The command that ends the cluster."""
        return "make down" if self.stack == LOCAL else f"trainwright down --stack {self.stack}"

    @property
    def file(self) -> Path:
        """The stack's file. Raises `Refused` where there is none."""
        folder = self.project / "stacks"
        path = folder / f"Pulumi.{self.stack}.yaml"
        if not path.is_file():
            known = [file.name.split(".")[1] for file in folder.glob("Pulumi.*.yaml")]
            raise Refused(
                f"there is no stack '{self.stack}': no such file as {path.relative_to(self.project)}. "
                f"{nearest(self.stack, known) if known else 'This project has no stack yet'}"
            )
        return path

    def plan(self) -> tuple[Plan, list[Finding]]:
        """The stack's plan and the warnings about it. Raises `Refused` with all that is wrong with its file."""
        values = stack_values(self.file)
        try:
            plan, warnings = judge(self.stack, values)
            wrong: Sequence[Finding] = tuple(on_one_host(plan)) if self.local else ()
        except Invalid as invalid:
            wrong = invalid.findings
        if wrong:
            raise Refused(f"{self.file.relative_to(self.project)}:", wrong)
        return plan, warnings

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables under which `pulumi` and the clouds' clients work, on the embedded cloud for a local stack."""
        with progress.on_stderr() as shown:
            cli = pulumi_cli.find(shown)
        if not self.local:
            return {**environment.own(cli), **self.cloud_environment(), **self.account.environment()}
        self.home.mkdir(parents=True, exist_ok=True)
        clouds = self.cloud_environment(start=True)  # before the folders: a new cloud starts with no state
        environment.prepare(self.home, cli)
        return {**environment.embedded(self.home, cli), **clouds}

    def cloud_environment(self, *, start: bool = False) -> dict[str, str]:
        """What leads clients to the embedded cloud; nothing for a stack that lives elsewhere.

        Raises `Refused` where there is no embedded cloud to be led to, and for a stack that lives elsewhere in a shell
        that leads to one.
        """
        if not self.local:
            sign = variables.embedded_sign(os.environ)
            if sign:
                raise Refused(
                    f"this shell is set up for the embedded cloud (by {sign}), but '{self.stack}' lives on a real "
                    "one: open another shell"
                )
            return {}
        had_state = (self.home / "state" / ".pulumi" / "stacks").exists()
        try:
            running, anew = cloud.start(self.home) if start else (cloud.find(self.home), False)
        except cloud.CloudError as error:
            raise Refused(str(error)) from None
        if running is None:
            raise Refused(f"the embedded cloud is not running. Bring it up, with the cluster, by `{self.beginning}`")
        if anew and had_state:
            with progress.on_stderr() as shown:
                shown.note("The embedded cloud of before has ended, with all that was in it; a new one starts empty.")
        return variables.leading(running.endpoint, os.environ)

    @property
    def unset(self) -> list[str]:
        """The user's variables that have no place in `environment`: they would lead past the embedded cloud."""
        return variables.misleading(os.environ) if self.local else []

    def pulumi(self, *arguments: str, capture: bool = False) -> str:
        """Run the Pulumi CLI on the stack; its output, if captured. Raises `Refused` where it fails, `Interrupted`."""
        command = ["pulumi", *arguments, "--stack", self.stack]
        kept = {name: value for name, value in os.environ.items() if name not in self.unset}
        done = engine.run(command, self.project, {**kept, **self.environment}, capture=capture)
        if done.interrupted:
            raise Interrupted(
                f"interrupted; `pulumi {arguments[0]}` has ended and what it did stays. Go on by the same command, or "
                f"end the cluster by `{self.ending}`"
            )
        if done.code and NO_LOGIN in done.errors:
            raise Refused(
                "there is no login with a backend of Pulumi's here. Type `pulumi login`, or `pulumi login --local` "
                f'(`eval "$(trainwright env --stack {self.stack})"` puts the CLI on PATH), then try again'
            )
        if done.code:
            said = f": {done.errors.strip()}" if capture else ""
            raise Refused(f"`pulumi {' '.join(arguments)}` ended with {done.code}{said}")
        return done.output

    def create(self) -> None:
        """Make the stack known to the engine, unless it is; a local one loses the lock of an engine that was killed."""
        self.pulumi("stack", "select", "--create", capture=True)
        for lock, pid in self._locks():
            if not _is_engine(pid):
                lock.unlink()

    @property
    def engine(self) -> int | None:
        """The process that is at work on a local stack now, if one is."""
        return next((pid for _, pid in self._locks() if _is_engine(pid)), None)

    def _locks(self) -> list[tuple[Path, int]]:
        locks = (self.home / "state").glob(f".pulumi/locks/**/{self.stack}/*.json") if self.local else ()
        return [(lock, int(json.loads(lock.read_text())["pid"])) for lock in locks]

    @property
    def beside(self) -> list[str]:
        """The other stacks that are up on the same embedded cloud."""
        files = (self.home / "state").glob(".pulumi/stacks/*/*.json") if cloud.find(self.home) else ()
        return sorted(file.stem for file in files if file.stem != self.stack and _is_up(file))

    def gone(self) -> str | None:
        """Why what the stack had is no more, where an embedded cloud has ended."""
        if self.local and cloud.find(self.home) is None:
            return f"the embedded cloud has ended, with all that was in it. `{self.beginning}` starts anew"
        return None

    @cached_property
    def outputs(self) -> Mapping[str, Any]:
        """The stack's outputs, as they were when first asked for. Raises `Refused` where it is not up."""
        _ = self.file  # a stack that has none is refused by its own name
        self.cloud_environment()  # a look starts no cloud
        absent = f"stack '{self.stack}' is not up. Bring it up with `trainwright up --stack {self.stack}`"
        try:
            outputs: dict[str, Any] = json.loads(self.pulumi("stack", "output", "--json", capture=True))
        except Refused as refused:
            raise Refused(absent if "no stack named" in str(refused) else str(refused)) from None
        if "bucket" not in outputs:
            raise Refused(absent)
        return outputs

    def bucket(self) -> Store:
        """The cluster's bucket, with the caller's own credentials for a real cloud."""
        return self.open(str(self.outputs["bucket"]))

    @property
    def declared(self) -> str:
        """The id of the run that the stack's file declared last."""
        return str(self.outputs["run"])

    @property
    def own(self) -> str:
        """The id of the run that nodes have from the stack itself: with a queue, the one that was declared with it."""
        return self.queue().own.run if "queueUrl" in self.outputs else self.declared

    def queue(self) -> Queue:
        """The cluster's queue, its own run among it."""
        bucket = self.bucket()
        return Queue(bucket, first(bucket, Turn(self.declared, {})))

    def run(self, run: str = "") -> tuple[str, Store]:
        """The id of a run, and its prefix in the bucket; by default the run that the cluster is at, or was at last.

        Raises `Refused` for one that it never had.
        """
        places = self.queue().places() if "queueUrl" in self.outputs else []
        found = run or (current(places).run if places else self.declared)
        store = self.open(str(self.outputs["bucket"]), layout.run_prefix(found))
        known = {self.declared, *(place.turn.run for place in places)}
        if found not in known:
            known |= set(self.account.folders(str(self.outputs["bucket"]), layout.run_prefix("")))
        if found not in known:
            raise Refused(f"stack '{self.stack}' has no run '{found}'. {nearest(found, known)}")
        return found, store

    def job(self, run: str, plan: Plan) -> Mapping[str, Any]:
        """A run's job: as the queue has it, or else the plan's."""
        queued = {place.turn.run: place.turn.job for place in self.queue().places()}
        return queued.get(run) or plan.run.job

    @property
    def cloud(self) -> str:
        """The cloud's name, as in the stack's file. Raises `Refused` for one that there isn't."""
        named = str(stack_values(self.file).get("cloud", next(iter(CLOUDS))))
        if named not in CLOUDS:
            named_in = self.file.relative_to(self.project)
            raise Refused(f"{named_in}: cloud: there is no cloud '{named}'. {nearest(named, CLOUDS)}")
        return named

    @cached_property
    def account(self) -> Account:
        """The account with the stack's cloud, to which clients in this process are led. Raises `Refused`."""
        from cli.account import account  # noqa: PLC0415  verbs that ask no cloud don't wait for its clients

        os.environ.update(self.cloud_environment())
        for name in self.unset:
            del os.environ[name]
        region = str(stack_values(self.file).get("region", ""))
        os.environ["AWS_DEFAULT_REGION"] = region
        return account(self.cloud, region)

    def group(self) -> Group:
        """The fleet's group, as the stack's cloud tells of it now. Raises `Refused`."""
        return self.account.group(str(self.outputs["group"]))

    def open(self, bucket: str, prefix: str = "") -> Store:
        """A prefix in a bucket of the stack's cloud and region. Raises `Refused`."""
        return self.account.store(bucket, prefix)


def _is_engine(pid: int) -> bool:
    """Whether an engine runs under this number: not one that was killed, nor another program that got its number."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith("pulumi")
    except OSError:
        return False


def _is_up(state: Path) -> bool:
    """Whether the engine's file of a stack's state has resources in it."""
    try:
        latest = json.loads(state.read_text(encoding="utf-8"))["checkpoint"]["latest"] or {}
    except (OSError, ValueError, KeyError):
        return False
    return bool(latest.get("resources"))


def stack_values(path: Path, namespace: str = NAMESPACE) -> dict[str, Any]:
    """The values of a stack's file in a namespace, without it. Raises `Refused` where it can't be read."""
    name = f"{path.parent.name}/{path.name}"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else str(name)
        raise Refused(f"{where}: not valid YAML: {error.problem}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Refused(f"{name}: {error}") from None
    config = content.get("config") if isinstance(content, dict) else None
    if not isinstance(config, dict):
        raise Refused(f"{name}: has no mapping 'config'. Start it with `config:` and put `{NAMESPACE}region:` below")
    ours = ((str(key), value) for key, value in config.items())
    return {key.removeprefix(namespace): value for key, value in ours if key.startswith(namespace)}
