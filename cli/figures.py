"""The figures that sum a run up, for the closing report, the page and programs alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cli.history import History, Step
from cli.words import Tone, plain

RATE_STEPS = 50
"""The newest steps by which the time left is told."""


@dataclass(frozen=True)
class Figures:
    """A run in numbers. None where there is nothing to say yet; times by the clocks of those who told."""

    verdict: str
    tone: Tone
    nodes: tuple[str, ...]
    """That were members of a generation, in order of first appearance."""
    world: int
    generations: int
    step: int
    steps: int
    tokens: int
    first_loss: float | None
    last_loss: float | None
    tokens_per_second: float | None
    """Median over steps."""
    boot_s: float | None
    boot_from: str
    """What its seconds are counted from."""
    """From the group's creation to the first optimizer step."""
    wall_s: float | None
    """From the group's creation, or else the first boot, to the outcome."""
    safe: int
    """The last step that the user's own program has said to be safe; 0 where it said none."""
    repeated: int
    """Steps done again."""
    newest_checkpoint: int | None

    @property
    def fall(self) -> float | None:
        """By how much of its first value the loss fell, in percent; negative where it rose."""
        if self.first_loss is None or self.last_loss is None or not self.first_loss:
            return None
        fall = 100 * (1 - self.last_loss / self.first_loss)
        return fall if math.isfinite(fall) else None


def figures(history: History, now: float, group_created: float | None = None) -> Figures:
    """The figures of a run, as far as it has come at `now`. Both times in seconds since 1970."""
    steps, outcome, newest = history.steps, history.outcome, history.generation
    members = (member.node for _, generation in sorted(history.generations.items()) for member in generation.members)
    first, began = history.first_trained, history.began(group_created)
    last = steps[-1] if steps else None
    verdict, tone = _verdict(history, last)
    rates = [step.tokens_per_second for step in steps if math.isfinite(step.tokens_per_second)]
    return Figures(
        verdict=verdict,
        tone=tone,
        nodes=tuple(dict.fromkeys(members)),
        world=newest.world if newest else 0,
        generations=len(history.generations),
        step=last.step if last else 0,
        steps=last.steps if last else 0,
        tokens=last.tokens if last else 0,
        first_loss=steps[0].loss if steps else None,
        last_loss=last.loss if last else None,
        tokens_per_second=median(rates) if rates else None,
        boot_from="group created" if began == group_created else "first node's start",
        boot_s=first - began if first is not None and began is not None else None,
        wall_s=None if began is None else (outcome.ended if outcome else now) - began,
        safe=history.safe,
        repeated=history.repeated,
        newest_checkpoint=history.checkpoints[-1] if history.checkpoints else None,
    )


def time_left(steps: Sequence[Step]) -> float | None:
    """Seconds until the last step, at the pace of the newest ones of this generation; None before its second."""
    recent = [step for step in steps[-RATE_STEPS:] if step.generation == steps[-1].generation]
    if len(recent) < 2:
        return None
    pace = (recent[-1].time - recent[0].time) / (len(recent) - 1)
    return max(pace, 0.0) * (recent[-1].steps - recent[-1].step)


def _verdict(history: History, last: Step | None) -> tuple[str, Tone]:
    if history.outcome is None:
        return ("Still training" if last else "Running" if history.safe else "Not training yet"), "busy"
    if history.outcome.succeeded:
        return ("Trained to the end" if last else "Ended well"), "good"
    return f"Failed: {plain(history.outcome.reason)}", "bad"
