"""The nodes of a run, in plain words; and which of them are gone, as far as a watcher can tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from cli.history import Boot, History
from cli.words import Tone, plain
from trainer.exits import STEP_FAILED
from trainer.node.membership import DEAD_AFTER_S, LONGEST_GAP_S
from trainer.node.peers import DONE, DRAINED, DRAINING, FAILED, QUARANTINED, Card, Generation

BOOT_STEPS = tuple(STEP_FAILED)
"""The names of a boot's steps, in order."""

NOT_ALL = {"harden"}
"""Steps that only nodes of some clusters take."""


HOUR_S = 3600
NO_CHANCE = 3
"""Boots that fail in a row, within the hour, before that is said of the run and not of its nodes alone."""


@dataclass(frozen=True)
class Node:
    """One node as people see it. `boot_s`: what its boot took so far, None where it told nothing of it."""

    node: str
    address: str
    state: str
    tone: Tone
    boot_s: float | None


def failing(history: History, now: float) -> list[Boot]:
    """The boots of the last hour, oldest first, where all that ended have failed, and so many that it is no chance."""
    recent = sorted((boot for boot in history.boots.values() if boot.started > now - HOUR_S), key=lambda b: b.started)
    failed = [boot for boot in recent if boot.failed]
    booted = any(step["step"] == BOOT_STEPS[-1] for boot in recent if not boot.failed for step in boot.steps)
    return failed if len(failed) >= NO_CHANCE and not booted else []


def broken(history: History) -> bool:
    """Whether the newest boots, however long ago, have failed, and so many that it is no chance."""
    newest = sorted(history.boots.values(), key=lambda boot: boot.started)[-NO_CHANCE:]
    return len(newest) == NO_CHANCE and all(boot.failed for boot in newest)


@dataclass
class Pulse:
    """Tells lost nodes by their beats: a node is lost once its beat has stood still for long enough.

    The first sight of a beat is no sign of life, only the start of the watch. Time in which nothing could be read
    counts for nobody.
    """

    clock: Callable[[], float] = time.monotonic
    _observed: float = 0.0
    _looked: float | None = None
    _beats: dict[str, tuple[str, float]] = field(default_factory=dict)

    def look(self, beats: Mapping[str, str]) -> frozenset[str]:
        """The nodes that are lost, by these beats and the earlier ones."""
        now = self.clock()
        if self._looked is not None:
            self._observed += min(now - self._looked, LONGEST_GAP_S)
        self._looked = now
        for node, beat in beats.items():
            if self._beats.get(node, ("", 0.0))[0] != beat:
                self._beats[node] = (beat, self._observed)
        return frozenset(node for node, (_, since) in self._beats.items() if self._observed - since > DEAD_AFTER_S)


def nodes(history: History, lost: Container[str] = ()) -> list[Node]:
    """All nodes that the run has heard of: the newest generation's in rank order, then the others, newest first."""
    members = [member.node for member in history.generation.members] if history.generation else []
    others = [node for node in {**history.cards, **history.boots} if node not in members]
    others.sort(key=lambda node: _appeared(history, node), reverse=True)
    return [_node(history, node, node in lost) for node in [*members, *others]]


def _appeared(history: History, node: str) -> tuple[float, str]:
    boot = history.boots.get(node)
    return (boot.started if boot else 0.0, node)


def _node(history: History, node: str, lost: bool) -> Node:
    card, boot = history.cards.get(node), history.boots.get(node)
    state, tone = _state(history, card, boot, lost)
    return Node(node, card.address if card else "", state, tone, boot.seconds if boot else None)


def _state(history: History, card: Card | None, boot: Boot | None, lost: bool) -> tuple[str, Tone]:
    if boot and boot.failed:
        return f"boot failed: {boot.failed['step']}", "bad"
    if card is None:
        if history.outcome:
            return "never joined", "quiet"
        if lost:
            return "lost", "bad"
        return f"booting: {_next_step(boot)}", "busy"
    if card.state == QUARANTINED:
        return f"quarantined: {plain(card.reason, 40)}", "bad"
    place = _place(history.generation, card)
    if history.outcome:
        lost = place is None
    if lost:
        return ("left", "quiet") if card.state == DRAINING else ("lost", "bad")
    if place is None:
        return ("draining", "busy") if card.state == DRAINING else ("waiting", "busy")
    return _working(history, card, place)


def _working(history: History, card: Card, place: str) -> tuple[str, Tone]:
    """The state of a live member of the newest generation."""
    assert history.generation is not None
    number = history.generation.number
    ended = card.ended if card.ended and card.ended.generation == number else None
    if ended and ended.how == FAILED:
        return f"failed: {plain(ended.reason, 40)}", "bad"
    if ended and ended.how == DONE:
        return "done", "good"
    if history.outcome:
        return "stopped", "quiet"
    if card.state == DRAINING:
        return "draining", "busy"
    if ended and ended.how == DRAINED:
        return "saved, waiting", "busy"
    if number in history.spans:
        return f"training, {place}", "good"
    if history.safe and not history.spans:
        return f"running, {place}", "good"
    return f"starting, {place}", "busy"


def _next_step(boot: Boot | None) -> str:
    last = boot.steps[-1]["step"] if boot and boot.steps else ""
    left = BOOT_STEPS[BOOT_STEPS.index(last) + 1 :] if last in BOOT_STEPS else BOOT_STEPS
    return next((step for step in left if step not in NOT_ALL), BOOT_STEPS[-1])


def _place(generation: Generation | None, card: Card) -> str | None:
    """The ranks of the node's workers, in words; None where its agent is no member."""
    number = generation.rank_of(card.node, card.incarnation) if generation else None
    if generation is None or number is None:
        return None
    first = sum(member.workers for member in generation.members[:number])
    last = first + generation.members[number].workers - 1
    return f"rank {first}" if first == last else f"ranks {first} to {last}"
