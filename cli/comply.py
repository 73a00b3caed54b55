"""`trainwright comply`: a stack of this project, or an exported state of any, held against the controls.

Exit codes, for CI: 0, nothing that is mandatory is broken; 1, something is (an exemption that has expired no longer
helps, and a control that fails itself counts as broken); 2, nothing was judged: wrong usage or settings, or a program
that doesn't run.
"""

from __future__ import annotations

import datetime
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from cli import preview
from cli.compliance import data, html, junit, sarif, table
from cli.compliance.review import Review, Subject, review
from cli.errors import Refused
from cli.workspace import LOCAL, REPOSITORY, Workspace, stack_values
from emulator.provider import foreseen
from policies import record, settings, state
from policies.controls import declared
from policies.resources import Stack
from policies.settings import InvalidSettings, Settings
from tools.environment import PROVIDERS

Format = Literal["table", "json", "sarif", "junit", "html"]

WRITERS: Mapping[Format, Callable[[Review], str]] = {
    "table": table.plain_text,
    "json": data.text,
    "sarif": sarif.text,
    "junit": junit.text,
    "html": html.page,
}

NOT_JUDGED = 2
"""Exit code."""

STDIN = "-"


@dataclass(frozen=True)
class Wanted:
    """What the command was asked for; what is empty is as the stack's file says."""

    stack: str | None = None
    state: str = ""
    frameworks: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    severity: str = ""


def comply(wanted: Wanted, form: Format, output: Path | None, console: Console) -> int:
    """Judge, and write what was found. Returns the exit code. Raises `Refused`, `Interrupted`."""
    with _not_judged():
        workspace = None if wanted.state and wanted.stack is None else Workspace(wanted.stack or LOCAL)
        asked = _settings(workspace, wanted)
        asked.select(declared(asked))  # what names no control is said before the engine is waited for
        if output and not output.absolute().parent.is_dir():
            raise Refused(f"--output: there is no folder {output.absolute().parent}. Make it first")
        if wanted.state or workspace is None:
            stack, subject = _exported(wanted.state)
        else:
            stack, subject = planned(workspace)
        if not any(resource.cloud in PROVIDERS for resource in stack.resources):
            raise Refused(f"{subject.name}: there is no resource of AWS or Alibaba Cloud in it to judge")
        found = review(stack, asked, subject, datetime.datetime.now(datetime.UTC).date())
        _tell(found, form, output, console)
    return 1 if found.failed else 0


def planned(workspace: Workspace) -> tuple[Stack, Subject]:
    """The stack as the engine plans it against the providers' stand-ins, ids and all. Raises `Refused`."""
    if stack_values(workspace.file):  # another project's program has keys of its own
        workspace.plan()  # all that is wrong with them is said at once, where the engine stops at the first kind of it
    with tempfile.TemporaryDirectory(prefix="trainwright-comply-") as folder:
        pack, written = Path(folder) / "pack", Path(folder) / "recorded.json"
        _recorder(pack, written)
        preview.plan_in(Path(folder), workspace, "--policy-pack", str(pack), more={foreseen.VARIABLE: "1"})
        if not written.exists():
            raise Refused(f"{workspace.stack}: the engine planned it, but told no policy pack of its resources")
        stack = record.read(written.read_text(encoding="utf-8"))
    how = "as the program declares them, planned without an account by the providers' stand-ins"
    return stack, Subject(workspace.stack, workspace.file.relative_to(workspace.project).as_posix(), how)


def _recorder(pack: Path, written: Path) -> None:
    """A policy pack of a few lines, so that the engine finds its Python as it finds the program's."""
    pack.mkdir()
    options = {"options": {"virtualenv": sys.prefix}} if sys.prefix != sys.base_prefix else {}
    about = {"runtime": {"name": "python", **options}, "version": "0.0.1", "description": "Records the resources."}
    (pack / "PulumiPolicy.yaml").write_text(json.dumps(about), encoding="utf-8")
    lines = (
        "import sys",
        "from pathlib import Path",
        f"sys.path.insert(0, {str(REPOSITORY)!r})",
        "from policies.record import serve",
        f"serve(Path({str(written)!r}))",
    )
    (pack / "__main__.py").write_text("\n".join(lines), encoding="utf-8")


def _exported(name: str) -> tuple[Stack, Subject]:
    if name == STDIN:
        text, called = sys.stdin.read(), "standard input"
    else:
        text, called = Path(name).read_text(encoding="utf-8"), name
    try:
        return state.read(text), Subject(called, "stdin" if name == STDIN else name, "as the state says")
    except state.NoState as error:
        raise Refused(f"{called}: {error}") from None


def _settings(workspace: Workspace | None, wanted: Wanted) -> Settings:
    """The stack's own settings, of which the command may choose other controls. Raises `InvalidSettings`."""
    prefix = f"{settings.NAMESPACE}:"
    values = stack_values(workspace.file, prefix) if workspace else {}
    chosen = {"frameworks": list(wanted.frameworks), "topics": list(wanted.topics), "severity": wanted.severity}
    values |= {name: value for name, value in chosen.items() if value}
    return settings.from_config({f"{prefix}{name}": _as_config(value) for name, value in values.items()})


def _as_config(value: Any) -> str:
    """A value of a stack's file as the engine hands it to a policy pack."""
    if isinstance(value, Mapping | list | bool):
        return json.dumps(value, default=str)
    return str(value)


def _tell(found: Review, form: Format, output: Path | None, console: Console) -> None:
    if output:
        output.write_text(WRITERS[form](found), encoding="utf-8")
        note = Text.assemble((found.headline, "bold red" if found.failed else "bold green"), f": {output}")
        Console(stderr=True, highlight=False).print(note, soft_wrap=True)
    elif form == "table":
        console.print(table.shown(found, console.width))
    else:
        print(WRITERS[form](found))


@contextmanager
def _not_judged() -> Iterator[None]:
    """Whatever keeps it from judging is an exit code of its own: CI tells it from a breach."""
    from tools.pulumi_cli import NoPulumiCLI  # noqa: PLC0415

    try:
        yield
    except BrokenPipeError:
        raise
    except (Refused, InvalidSettings, NoPulumiCLI) as error:
        raise Refused(str(error), code=NOT_JUDGED) from None
    except UnicodeDecodeError as error:
        raise Refused(f"the state is no text in UTF-8: {error.reason}", code=NOT_JUDGED) from None
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise Refused(said, code=NOT_JUDGED) from None
