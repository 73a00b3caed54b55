"""The variables under which `pulumi` works in this checkout, typed by hand as well as started by `make`."""

import os
import sys
from importlib.metadata import version
from pathlib import Path

from tools.pulumi_cli import LANGUAGE_HOST, PulumiCLI

PASSPHRASE = "local"  # noqa: S105 - the embedded cloud's state holds no secret; it must only be the same each time
"""Passphrase of the state below the local folder."""

PROVIDERS = ("aws", "alicloud")
"""The providers that have a stand-in in emulator/bin."""

KEPT_LOGS = 50

_REPOSITORY = Path(__file__).resolve().parent.parent
_HOST = _REPOSITORY / "tools" / "language_host"


def embedded(home: Path, cli: PulumiCLI) -> dict[str, str]:
    """The variables, on top of the user's own, for stacks that the providers' stand-ins serve.

    State, plugins and logs lie in `home`; nothing of the user's is read or written. They hold once `prepare` has run.
    The cloud's own (AWS_…) are not among them: they belong to the running embedded cloud.
    """
    return {
        **_found(cli),
        "PULUMI_HOME": str(_pulumi_home(home)),
        "PULUMI_BACKEND_URL": f"file://{_state(home)}",
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "TRAINWRIGHT_HOME": str(home),
    }


def own(cli: PulumiCLI) -> dict[str, str]:
    """The variables for stacks of a real cloud: the CLI is found; login, state and plugins stay the user's own.

    A CLI that has no language host finds ours on PATH, as the user's plugins are not ours to add to.
    """
    return _found(cli, *([str(_HOST)] if cli.needs_language_host else []))


def _found(cli: PulumiCLI, *more: str) -> dict[str, str]:
    ours = [*([] if cli.source == "path" else [str(cli.path.parent)]), *more]
    return {
        "PATH": os.pathsep.join(ours + [folder for folder in os.get_exec_path() if folder not in ours]),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        # Which Python runs a program whose Pulumi.yaml names no virtual environment, and our own plugins.
        "PULUMI_PYTHON_CMD": sys.executable,
    }


def prepare(home: Path, cli: PulumiCLI) -> None:
    """Make the folders that `embedded` names, with the stand-ins as their plugins and, if the CLI has none, our host.

    Idempotent. They are plugins and not on PATH, where the CLI would warn of each at every command.
    """
    _state(home).mkdir(parents=True, exist_ok=True)
    plugins = _pulumi_home(home) / "plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    wanted = {
        f"resource-{name}-v{version(f'pulumi-{name}')}": _REPOSITORY / "emulator" / "bin" / f"pulumi-resource-{name}"
        for name in PROVIDERS
    }
    if cli.needs_language_host:
        wanted[f"language-python-v{cli.version}"] = _HOST / LANGUAGE_HOST
    for link in plugins.glob("*/pulumi-*"):
        link.unlink()
        link.parent.rmdir()
    _forget_old_logs(_pulumi_home(home) / "logs")
    for folder, program in wanted.items():
        (plugins / folder).mkdir()
        (plugins / folder / program.name).symlink_to(program)


def _forget_old_logs(folder: Path) -> None:
    """The CLI leaves a log of every command, for ever."""
    logs = sorted(folder.glob("*"), key=lambda log: log.stat().st_mtime)
    for log in logs[:-KEPT_LOGS]:
        log.unlink(missing_ok=True)


def _state(home: Path) -> Path:
    return home / "state"


def _pulumi_home(home: Path) -> Path:
    return home / "pulumi"
