"""Boot as named steps: each with a time limit, each required or optional, each one line of the boot report."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from trainer.console import say

T = TypeVar("T")


class StepFailed(Exception):
    """A required step failed or ran out of time. `step` is its name; the message is the reason."""

    def __init__(self, step: str, reason: str) -> None:
        self.step = step
        self.reason = reason
        super().__init__(f"{step}: {reason}")


class Dismissed(Exception):
    """The node is not wanted any more: a step whose action raises it passes it on, as no failure of its own."""


@dataclass(frozen=True)
class Line:
    """One step, done. `status` is ok, failed, or degraded: failed, but the node goes on without."""

    step: str
    status: str
    seconds: float
    detail: str


@dataclass
class BootReport:
    """What a boot did, step by step. `publish` gets the node's name ('' until it is known) and the report as JSON."""

    publish: Callable[[str, bytes], None]
    node: str = ""
    started: float = field(default_factory=time.time)
    lines: list[Line] = field(default_factory=list)

    def required(self, step: str, action: Callable[[], tuple[T, str]], limit_s: float) -> T:
        """The result of a step; `action` returns it with a detail for the report. Raises `StepFailed`, `Dismissed`."""
        result = self._run(step, action, limit_s, "failed")
        if isinstance(result, StepFailed | Dismissed):
            raise result
        return result

    def optional(self, step: str, action: Callable[[], tuple[T, str]], limit_s: float, otherwise: T) -> T:
        """The result of a step, or `otherwise` where it fails; the report says why."""
        result = self._run(step, action, limit_s, "degraded")
        return otherwise if isinstance(result, StepFailed | Dismissed) else result

    def degraded(self, step: str) -> bool:
        """Whether the node goes on without an optional step, or with less of it."""
        return any((line.step, line.status) == (step, "degraded") for line in self.lines)

    def _run(
        self, step: str, action: Callable[[], tuple[T, str]], limit_s: float, on_failure: str
    ) -> T | StepFailed | Dismissed:
        begun = time.monotonic()
        outcome: list[tuple[T, str] | StepFailed | Dismissed] = []

        def act() -> None:
            try:
                outcome.append(action())
            except (StepFailed, Dismissed) as ended:
                outcome.append(ended)
            except Exception as error:
                outcome.append(StepFailed(step, f"{type(error).__name__}: {error}"))

        # A daemon thread, so that a step which never returns keeps neither the next one nor the exit waiting.
        thread = threading.Thread(target=act, name=f"step-{step}", daemon=True)
        thread.start()
        thread.join(limit_s)
        ended = outcome[0] if outcome else StepFailed(step, f"took longer than {limit_s:g} s")
        seconds = round(time.monotonic() - begun, 3)
        if isinstance(ended, StepFailed | Dismissed):
            self._add(Line(step, on_failure, seconds, ended.reason if isinstance(ended, StepFailed) else str(ended)))
            return ended
        self._add(Line(step, "ok", seconds, ended[1]))
        return ended[0]

    def _add(self, line: Line) -> None:
        self.lines.append(line)
        say(f"boot: {line.step} {line.status} in {line.seconds:.2f} s: {line.detail}")
        self.publish(self.node, self.json())

    def json(self) -> bytes:
        """The report: node, start (Unix seconds) and the lines so far."""
        report = {"node": self.node, "started": self.started, "steps": [asdict(line) for line in self.lines]}
        return json.dumps(report).encode()
