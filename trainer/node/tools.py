"""Commands of the image that a boot step runs: by their argument lists, never through a shell, all within one time."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

COMMAND_LIMIT_S = 120.0
"""For one command: the slowest is `mkfs`, seconds without a discard."""

SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"
"""Where tools of administration lie; a service's PATH may leave these out."""


class ToolFailed(OSError):
    """A command is missing, failed or took too long; the message names it and says what it said last."""


@dataclass
class Tools:
    """The image's commands, for `limit_s` seconds from now on."""

    limit_s: float
    started: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.started + self.limit_s - time.monotonic()

    def has(self, name: str) -> bool:
        """Whether the image has this command."""
        return self._find(name) is not None

    def first(self, names: Sequence[str]) -> str:
        """The first of these commands that the image has. Raises `ToolFailed` where it has none."""
        for name in names:
            if self.has(name):
                return name
        raise ToolFailed(f"the image has no {' and no '.join(names)}")

    def run(self, name: str, *arguments: str) -> str:
        """What the command printed. Raises `ToolFailed`."""
        tool = self._find(name)
        if tool is None:
            raise ToolFailed(f"the image has no {name}")
        limit = min(COMMAND_LIMIT_S, self.left_s)
        if limit <= 0:
            raise ToolFailed(f"no time was left for {name}: {self.limit_s:g} s are over")
        try:
            done = subprocess.run(
                [tool, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            raise ToolFailed(f"{name} took longer than {limit:.0f} s") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise ToolFailed(f"{name} failed ({done.returncode}): {said}")
        return done.stdout.strip()

    def attempt(self, name: str, *arguments: str) -> bool:
        """Whether the command, which may fail, succeeded."""
        try:
            self.run(name, *arguments)
        except ToolFailed:
            return False
        return True

    @staticmethod
    def _find(name: str) -> str | None:
        return shutil.which(name, path=os.environ.get("PATH", os.defpath) + SBIN)
