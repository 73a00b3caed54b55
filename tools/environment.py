"""The variables under which `pulumi` works on the local stack, typed by hand as well as started by `make`."""

import os
import shutil
import sys
from pathlib import Path

from tools.pulumi_cli import LANGUAGE_HOST, PulumiCLI

PASSPHRASE = "local"  # noqa: S105 - the local stack holds no secret worth one; it must only be the same each time
"""Passphrase of the local stack's state."""


def environment(home: Path, cli: PulumiCLI, repo: Path) -> dict[str, str]:
    """The variables to set on top of one's own, for the checkout `repo` whose local folder is `home`.

    They hold once `prepare` has run. The cloud's own (AWS_…) are not among them: they belong to the running
    embedded cloud.
    """
    return {
        "PATH": os.pathsep.join(_path(cli, repo)),
        "PULUMI_HOME": str(_pulumi_home(home)),
        "PULUMI_BACKEND_URL": f"file://{_state(home)}",
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        # The providers' stand-ins are found on PATH, which a user may have told the CLI not to search.
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "false",
        # Which Python runs a program whose Pulumi.yaml names no virtual environment, and our own plugins.
        "PULUMI_PYTHON_CMD": sys.executable,
        "TRAINWRIGHT_HOME": str(home),
    }


def prepare(home: Path, cli: PulumiCLI) -> None:
    """Makes the folders that those variables name, and gives the CLI our language host if it has none.

    Idempotent. The host goes to the plugins below PULUMI_HOME: found on PATH, the CLI would warn of it each time.
    """
    _state(home).mkdir(parents=True, exist_ok=True)
    plugins = _pulumi_home(home) / "plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    wanted = plugins / f"language-python-v{cli.version}"
    for plugin in plugins.glob("language-python-v*/"):
        if plugin != wanted or not cli.needs_language_host:
            shutil.rmtree(plugin)
    if cli.needs_language_host:
        wanted.mkdir(exist_ok=True)
        _link(wanted / LANGUAGE_HOST, Path(__file__).parent / "language_host" / LANGUAGE_HOST)


def _link(link: Path, target: Path) -> None:
    """Points a link there; one that does already is left as it is, for a command that may be using it."""
    if not link.is_symlink() or link.readlink() != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _state(home: Path) -> Path:
    return home / "state"


def _pulumi_home(home: Path) -> Path:
    return home / "pulumi"


def _path(cli: PulumiCLI, repo: Path) -> list[str]:
    """PATH: the providers' stand-ins, the folder of the CLI unless it is the user's own, then the user's PATH."""
    ours = [str(repo / "emulator" / "bin")]
    if cli.source != "path":
        ours.append(str(cli.path.parent))
    return ours + [folder for folder in os.get_exec_path() if folder not in ours]
