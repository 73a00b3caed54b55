"""`trainwright preview` without an account: the engine plans a stack, and stand-ins answer in the cloud's place.

The user's login, state and settings are neither read nor written. State, plugins and a copy of the stack's file lie in
a folder that goes with the preview; the embedded cloud isn't needed.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli import engine
from cli.errors import Interrupted, Refused
from cli.words import counted, fleet
from cli.workspace import Workspace
from components.cost import cost
from components.findings import Finding
from components.plan import Plan
from tools import environment, progress, pulumi_cli

FOREIGN = ("AWS_", "ALICLOUD_", "ALIBABA_CLOUD_", "ALIBABACLOUD_", "PULUMI_", "TRAINWRIGHT_")
"""What the user's own variables begin with that lead to an account, a login or a cluster: none reaches the engine."""

SEALS = ("encryptionsalt", "encryptedkey", "secretsprovider")
"""Keys of a stack's file that say how its secrets are sealed, as the engine writes them; a copy gets its own."""

WIDEST = 100
"""Columns that a line of prose takes at most."""

OURS = "pulumi"
"""The row of what exists in the state alone: stack, component, provider."""

MEANING = (
    "Stand-ins for the provider answered in {cloud}'s place, on this machine. The whole program ran, and names and "
    "types of all properties are such as the provider's SDK takes. What the account holds was not looked at: all "
    "counts as new, and quotas, capacity, the image and what is named by its id are taken as given."
)


@dataclass(frozen=True)
class Planned:
    """What the engine would create: how many of each type, by its token. `said`: what it warned of."""

    types: Counter[str]
    said: tuple[str, ...]


def offline(workspace: Workspace, console: Console, why: str) -> None:
    """Plan the stack without an account and say what came of it; `why` tells the user why so. Raises `Refused`."""
    plan, warnings = workspace.plan()
    planned = plan_offline(workspace)
    console.print(shown(workspace, plan, warnings, planned, why, console.width))


def plan_offline(workspace: Workspace) -> Planned:
    """What the engine would create of the stack, were nothing there. Raises `Refused`, `Interrupted`."""
    with tempfile.TemporaryDirectory(prefix="trainwright-preview-") as folder:
        return plan_in(Path(folder), workspace)


def plan_in(home: Path, workspace: Workspace, *options: str, more: Mapping[str, str] = MappingProxyType({})) -> Planned:
    """As `plan_offline`, in a folder that the caller disposes of, with more options and variables for the engine."""
    copied = _copy(workspace.file)
    with progress.on_stderr() as telling:
        cli = pulumi_cli.find(telling)
        telling.phase(f"planning {workspace.stack} offline")
        environment.prepare(home, cli)
        variables = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        variables |= {**environment.embedded(home, cli), **more}
        project = yaml.safe_load((workspace.project / "Pulumi.yaml").read_text(encoding="utf-8"))
        (home / "Pulumi.yaml").write_text(yaml.safe_dump({"name": project["name"], "runtime": "python"}))
        file = home / workspace.file.name
        file.write_text(copied, encoding="utf-8")
        stack = ("--stack", workspace.stack, "--non-interactive", "--color", "never")
        _run(["pulumi", "stack", "init", *stack], home, variables)
        command = ["pulumi", "preview", "--json", "--config-file", str(file), *stack, *options]
        told = _run(command, workspace.project, variables)
    return Planned(
        Counter(str(step["newState"]["type"]) for step in told.get("steps", [])),
        tuple(_messages(told, "warning")),
    )


def shown(
    workspace: Workspace, plan: Plan, warnings: list[Finding], planned: Planned, why: str, width: int
) -> Constrain:
    """The plan as people read it: that it is one without an account, counts by kind, findings, cost."""
    width = min(width, WIDEST)
    warned = [str(warning) for warning in warnings]
    warned += [said for said in planned.said if said not in warned]
    picture = Group(
        Text.assemble((f"{workspace.stack} planned offline", "bold yellow"), f": {why}"),
        _indented(Text(MEANING.format(cloud=plan.cloud.title), style="dim")),
        *([] if workspace.local else _to_the_account(workspace.stack)),
        Text(),
        Text(fleet(plan)),
        Text(),
        Text.assemble((counted(planned.types.total(), "resource"), "bold"), " to create"),
        _indented(_by_service(planned.types)),
        Text(),
        _findings(warned),
        *([] if workspace.local else [Text(), Text(cost(plan).text(width))]),
    )
    return Constrain(picture, width)


def _to_the_account(stack: str) -> tuple[RenderableType, ...]:
    return (
        _indented(Text("To see what `up` would change in the account, sign in, then type", style="dim")),
        _indented(Text(f"  trainwright preview --stack {stack} --live", no_wrap=True, overflow="ignore")),
    )


def _findings(warned: list[str]) -> RenderableType:
    if not warned:
        return Text.assemble(("no findings", "bold"), ": the checks have nothing to say against it")
    told = (_indented(Text(one, style="yellow")) for one in warned)
    return Group(Text.assemble((counted(len(warned), "finding"), "bold"), ", none of which refuses it"), *told)


def _indented(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2))


def _by_service(types: Counter[str]) -> Table:
    """A row for each service of the cloud, what is Pulumi's own in the last one."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    services: dict[str, Counter[str]] = {}
    for token, count in types.items():
        service, kind = _kind(token)
        services.setdefault(service, Counter())[kind] += count
    for service in sorted(services, key=lambda name: (name == OURS, name)):
        kinds = sorted(services[service].items(), key=lambda item: (-item[1], item[0]))
        told = Text(", ").join(
            Text.assemble(kind, (f"\N{MULTIPLICATION SIGN}{count}" if count > 1 else "", "dim"))
            for kind, count in kinds
        )
        table.add_row(service, str(services[service].total()), told)
    return table


def _kind(token: str) -> tuple[str, str]:
    """The service and the name of a type: `aws:ec2/vpc:Vpc` is a Vpc of ec2."""
    package, module, name = token.split(":")
    if package == OURS and module == "providers":
        return OURS, "Provider"
    return (module.partition("/")[0], name) if package in environment.PROVIDERS else (OURS, name)


def _run(command: list[str], folder: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """What a command of the engine tells in JSON, if it does. Raises `Refused` with its errors, `Interrupted`."""
    done = engine.run(command, folder, variables, capture=True)
    if done.interrupted:
        raise Interrupted("interrupted; a preview changes nothing")
    try:
        told: dict[str, Any] = json.loads(done.output or "{}")
    except ValueError:
        told = {}
    if done.code:
        errors = list(_messages(told, "error")) or [done.errors.strip()]
        raise Refused("\n".join([f"`pulumi {command[1]}` ended with {done.code}:", *(f"  {line}" for line in errors)]))
    return told


def _messages(told: Mapping[str, Any], severity: str) -> list[str]:
    found = (one for one in told.get("diagnostics", []) if one["severity"] == severity)
    return [str(one["message"]).strip().removeprefix(f"{severity}: ") for one in found]


def _copy(file: Path) -> str:
    """A stack's file without its seal, else as it is, since the engine may read a value otherwise than Python's YAML.

    Raises `Refused` where it holds what only the stack's login can read.
    """
    text = file.read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    name = f"{file.parent.name}/{file.name}"
    if content.get("environment"):
        raise Refused(
            f"{name}: environment: its values lie in Pulumi ESC, which only the stack's own login reads. Preview it "
            "with --live"
        )
    for key, value in content["config"].items():
        if _sealed(value):
            raise Refused(
                f"{name}: {key}: is encrypted, so that only the stack's own login reads it. Preview it with --live"
            )
    return re.sub(rf"^({'|'.join(SEALS)}):.*\n?", "", text, flags=re.MULTILINE)


def _sealed(value: Any) -> bool:
    """Whether there is an encrypted value in it."""
    if isinstance(value, Mapping):
        return "secure" in value or any(map(_sealed, value.values()))
    return isinstance(value, list) and any(map(_sealed, value))
