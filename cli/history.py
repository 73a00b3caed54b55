"""What a run's prefix says: its nodes, generations, metrics, checkpoints and outcome, read a little at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trainer import layout
from trainer.node.membership import Outcome
from trainer.node.peers import Card, Generation
from trainer.store import Entry, Store

EARLIER_RUN_S = 60
"""A first node that boots so long after its group was created belongs to a later run on that group."""


@dataclass(frozen=True)
class Step:
    """One optimizer step, as rank 0 told it. Times in seconds since 1970; see `trainer/train/metrics.py`.

    A number that was not finite is NaN here: JSON, which has no word for it, told it as null.
    """

    time: float
    step: int
    steps: int
    loss: float
    tokens: int
    tokens_per_second: float
    step_ms: float
    generation: int
    world: int


@dataclass(frozen=True)
class Event:
    """Something that rank 0 told beside its steps: start, resume, checkpoint, drain, done."""

    time: float
    event: str
    step: int
    generation: int
    world: int
    details: dict[str, Any]


@dataclass(frozen=True)
class Boot:
    """One node's boot report: `steps` holds step, status, seconds and detail of each."""

    node: str
    started: float
    steps: list[dict[str, Any]]

    @property
    def failed(self) -> dict[str, Any] | None:
        """The step that ended the boot, if one did."""
        return next((step for step in self.steps if step["status"] == "failed"), None)

    @property
    def failure(self) -> str | None:
        """The step that ended the boot and its reason, if one did."""
        return f"{self.failed['step']}: {self.failed['detail']}" if self.failed else None

    @property
    def seconds(self) -> float:
        """What its steps took so far, in all."""
        return float(sum(step["seconds"] for step in self.steps))


@dataclass(frozen=True)
class Span:
    """What rank 0 told of one generation: from when to when (seconds since 1970), and which steps."""

    started: float
    ended: float
    first: int | None = None
    last: int | None = None

    def with_item(self, item: Step | Event) -> Span:
        """The span, grown by one more thing told."""
        started, ended = min(self.started, item.time), max(self.ended, item.time)
        if isinstance(item, Event):
            return Span(started, ended, self.first, self.last)
        return Span(started, ended, item.step if self.first is None else self.first, item.step)


DERIVED = ("taken", "steps", "events", "spans")
"""What `History` works out of the metrics once, until more of them come: a long run has a million steps."""


@dataclass
class History:
    """A run as its prefix tells it. `refresh` reads what has changed since the last time."""

    store: Store
    run: str
    cards: dict[str, Card] = field(default_factory=dict)
    beats: dict[str, str] = field(default_factory=dict)
    generations: dict[int, Generation] = field(default_factory=dict)
    formed: dict[int, float] = field(default_factory=dict)
    """When each generation's record was written, by the store's clock, in seconds since 1970."""
    boots: dict[str, Boot] = field(default_factory=dict)
    checkpoints: list[int] = field(default_factory=list)
    outcome: Outcome | None = None
    _chunks: dict[str, list[Step | Event]] = field(default_factory=dict)
    _etags: dict[str, str] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read what is new. Raises `StoreError`."""
        for entry in self._changed(layout.CONTROL):
            key = entry.key
            if key.endswith("/beat"):
                self.beats[key.split("/")[-2]] = entry.etag
            elif key == layout.OUTCOME:
                self.outcome = Outcome(**json.loads(self.store.get(key)))
            elif key.startswith(layout.GENERATIONS):
                number = layout.generation_number(key)
                self.generations[number], self.formed[number] = Generation.parse(self.store.get(key)), entry.modified
            elif key.startswith(layout.MEMBERS):
                card = Card.parse(self.store.get(key))
                self.cards[card.node] = card
        for entry in self._changed(layout.BOOT):
            boot = Boot(**json.loads(self.store.get(entry.key)))
            self.boots[boot.node] = boot
        for entry in self._changed(layout.METRICS):
            self._chunks[entry.key] = list(_parse(self.store.get(entry.key)))
            for name in DERIVED:
                self.__dict__.pop(name, None)
        keys = (entry.key for entry in self.store.list(layout.CHECKPOINTS))
        self.checkpoints = layout.complete_checkpoints(keys)

    @property
    def generation(self) -> Generation | None:
        """The newest."""
        return self.generations[max(self.generations)] if self.generations else None

    @cached_property
    def steps(self) -> list[Step]:
        """The steps that count, in order: one that was done again after a fault counts as it was last done."""
        last = {item.step: item for item in self.taken}
        return [last[step] for step in sorted(last)]

    @cached_property
    def taken(self) -> list[Step]:
        """Every step as it was taken, in order of its telling, those that were done again too."""
        return [item for item in self._items() if isinstance(item, Step)]

    @cached_property
    def events(self) -> list[Event]:
        """All events, in the order in which they were told."""
        return [item for item in self._items() if isinstance(item, Event)]

    @property
    def safe(self) -> int:
        """The last step that the user's own program has said to be safe; 0 where it said none."""
        return max((card.progress for card in self.cards.values()), default=0)

    @property
    def repeated(self) -> int:
        """Steps that were done again, because what followed the last checkpoint was lost."""
        return len(self.taken) - len(self.steps)

    @cached_property
    def spans(self) -> dict[int, Span]:
        """When each generation trained. One that told nothing is absent."""
        spans: dict[int, Span] = {}
        for item in self._items():
            spans[item.generation] = spans.get(item.generation, Span(item.time, item.time)).with_item(item)
        return spans

    @property
    def booted(self) -> float | None:
        """When the first node's boot began, in seconds since 1970."""
        return min((boot.started for boot in self.boots.values()), default=None)

    def began(self, group_created: float | None) -> float | None:
        """When the run began, in seconds since 1970: with the group, or, on a group of an earlier run, its first node.

        A group counts as this run's own where its first node booted soon after.
        """
        if group_created is None or self.booted is None:
            return self.booted if group_created is None else group_created
        return self.booted if self.booted - group_created > EARLIER_RUN_S else group_created

    @property
    def first_trained(self) -> float | None:
        """When the first optimizer step was done, in seconds since 1970."""
        return self.taken[0].time if self.taken else None

    def _items(self) -> Iterator[Step | Event]:
        for key in sorted(self._chunks):
            yield from self._chunks[key]

    def _changed(self, prefix: str) -> Iterator[Entry]:
        for entry in self.store.list(prefix):
            if self._etags.get(entry.key) != entry.etag:
                yield entry
                self._etags[entry.key] = entry.etag


def _parse(content: bytes) -> Iterator[Step | Event]:
    """The lines that are ours: not one that was cut as it was being written, nor what a user's program told."""
    for line in content.splitlines():
        try:
            values = json.loads(line)
            if "event" in values:
                known = {name: values.pop(name) for name in ("time", "event", "step", "generation", "world")}
                yield Event(**known, details=values)
            else:
                told = ((name, values[name]) for name in Step.__dataclass_fields__)
                read: dict[str, Any] = {name: math.nan if value is None else value for name, value in told}
                yield Step(**read)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
