"""The Pulumi CLI as a child process that is waited for to its own end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How it ended, and what it said where that was captured. `interrupted`: Ctrl-C was pressed meanwhile."""

    code: int
    output: str
    errors: str
    interrupted: bool


def run(command: Sequence[str], folder: Path, variables: Mapping[str, str], *, capture: bool = False) -> Ended:
    """Run a command in `folder` with exactly these variables, and wait for it, through Ctrl-C too.

    A terminal sends its Ctrl-C to the engine as well, which then finishes the operations under way and writes its
    state; a second one makes it give those up. `subprocess.run` would kill it a quarter of a second after the first.
    """
    pipe = subprocess.PIPE if capture else None
    process = subprocess.Popen(command, cwd=folder, env=variables, text=True, stdout=pipe, stderr=pipe)
    interrupted = False
    while True:
        try:
            output, errors = process.communicate()
        except KeyboardInterrupt:
            interrupted = True
        else:
            return Ended(process.returncode, output or "", errors or "", interrupted)
