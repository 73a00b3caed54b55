"""The official download of the Pulumi CLI, made by the SDK's own installer (`pulumi.automation`).

`install` starts this file as a program of its own, because the installer has no limits on its time.
"""

import socket
import subprocess
import sys
from pathlib import Path

from tools.processes import run

LIMIT = 300.0
"""Seconds for the whole download (about 100 MB)."""

_CONNECT_LIMIT = 15.0
"""Seconds without an answer from the network, after which another way is tried."""


def install(root: Path, version: str, home: Path) -> None:
    """Installs that version below `root`, as `bin/pulumi` and its plugins.

    `home` takes what the CLI writes for itself (PULUMI_HOME). Raises Failed.
    """
    program = [sys.executable, "-m", "tools.official", str(root), version]
    run(program, limit=LIMIT, folder=Path(__file__).parent.parent, environment={"PULUMI_HOME": str(home)})


def _main(root: str, version: str) -> str | None:
    """Downloads, in the program of its own. Returns the reason for a failure."""
    from pulumi.automation import PulumiCommand  # noqa: PLC0415 - half a second that only this process should pay
    from semver import VersionInfo  # noqa: PLC0415

    socket.setdefaulttimeout(_CONNECT_LIMIT)
    try:
        PulumiCommand.install(root=root, version=VersionInfo.parse(version))
    except subprocess.CalledProcessError as error:
        lines = error.output.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), str(error))
    except OSError as error:
        return str(getattr(error, "reason", error))
    return None


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
