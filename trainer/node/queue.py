"""The cluster's queue of runs, in its bucket: an object for each, numbered, written once and never changed.

All nodes take the same next run without asking each other: it is a function of what the bucket holds. A number is
given by creating its object only where there is none, so that nothing ever comes before what is there already, and
whoever adds one has seen all before it; no clock is asked. A run that has an outcome is over, and no other is. Only
erasing a run for good changes objects: they end up empty, as the newest number would be given again without its object.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer import layout
from trainer.console import say
from trainer.node.membership import Outcome
from trainer.store import Missing, Store

READERS = 16
"""Objects read at a time: a node that boots reads the whole queue."""

ERASED = b"{}"
"""What is in a place whose run was erased: nobody's turn. No record of a run is as short."""

MOST_TRIES = 20
"""Times that a place is tried for while others take one at the same moment."""


class Crowded(Exception):
    """No place could be had for all that came at the same moment."""


@dataclass(frozen=True)
class Turn:
    """A run in its place; 0 is that of the stack's own. `submitted`: seconds since 1970, by the submitter's clock."""

    run: str
    job: Mapping[str, Any]
    number: int = 0
    by: str = ""
    submitted: float = 0.0

    def json(self) -> bytes:
        """As it stands in the bucket."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, content: bytes, number: int) -> Turn:
        """The inverse of `json`. Raises `ValueError` for anything that a node could not take.

        Its names become part of keys and of paths on a node: none may lead elsewhere.
        """
        try:
            values = json.loads(content)
            job, run = dict(values["job"]), values["run"]
            names = [run, *filter(None, (job["dataset"], job.get("code")))]
            if not all(isinstance(name, str) and layout.is_file_name(name) for name in names):
                raise ValueError("it has names that lead elsewhere")
            words = [job["launcher"], *job["command"]] if "command" in job else []
            if not all(isinstance(word, str) for word in words):
                raise ValueError("its command is no list of words")
            return cls(run, job, number, str(values["by"]), float(values["submitted"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None


@dataclass(frozen=True)
class Place:
    """A turn, and how its run ended, if it has."""

    turn: Turn
    outcome: Outcome | None = None


def first(bucket: Store, told: Turn) -> Turn:
    """The stack's own run, as the bucket has it for all alike; where it hasn't, as one was `told`.

    Raises `StoreError`, and `ValueError` where it can't be read as a run.
    """
    try:
        return Turn.parse(bucket.get(layout.OWN), 0)
    except Missing:
        return told


def line(own: Turn, submitted: Iterable[Turn]) -> list[Turn]:
    """The runs in their order, each once, at its newest place; the stack's own first, unless it was put in again."""
    newest = {turn.run: turn for turn in sorted([own, *submitted], key=lambda turn: turn.number)}
    return sorted(newest.values(), key=lambda turn: turn.number)


def waiting(places: Iterable[Place]) -> list[Turn]:
    """Those that have not ended, in order: the first is the one to train."""
    return [place.turn for place in places if place.outcome is None]


def current(places: Iterable[Place]) -> Turn:
    """The run that is at hand: the first that waits, or else the one that ended last."""

    def order(place: Place) -> tuple[bool, float]:
        return (place.outcome is not None, place.turn.number if place.outcome is None else -place.outcome.ended)

    return min(places, key=order).turn


@dataclass
class Queue:
    """The queue in the bucket, as seen by one who has the stack's `own` run. Each call may raise `StoreError`."""

    bucket: Store
    own: Turn
    _turns: dict[str, Turn | None] = field(default_factory=dict)
    _done: dict[str, Outcome] = field(default_factory=dict)
    _readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(READERS, "queue"))

    def places(self) -> list[Place]:
        """All that were ever put in, in order. What can't be read as a run is left out, by all nodes alike."""
        return self._places(self._keys())

    def next(self) -> Turn | None:
        """The run to train now, the same for all who ask."""
        return next(iter(waiting(self.places())), None)

    def outcome(self, run: str) -> Outcome | None:
        """How a run ended. One that is done stays so; a failure may be put aside."""
        if run not in self._done:
            try:
                content = self.bucket.get(f"{layout.run_prefix(run)}/{layout.OUTCOME}")
            except Missing:
                return None
            outcome = Outcome(**json.loads(content))
            if not outcome.succeeded:
                return outcome
            self._done[run] = outcome
        return self._done[run]

    def add(self, run: str, job: Mapping[str, Any], by: str) -> Turn | None:
        """Put a run at the end, and return its turn; None where it waits already. Raises `Crowded`.

        Nothing can come between the look and the place that it finds free: that would have taken this very place.
        """
        for _ in range(MOST_TRIES):
            keys = self._keys()
            if run in {turn.run for turn in waiting(self._places(keys))}:
                return None
            turn = Turn(run, job, max(map(layout.queue_number, keys), default=0) + 1, by, time.time())
            if self.bucket.put(layout.queued(turn.number), turn.json(), if_absent=True):
                return turn
        raise Crowded(f"{MOST_TRIES} places were taken by others while run {run} was put in")

    def _keys(self) -> list[str]:
        return [entry.key for entry in self.bucket.list(layout.QUEUE) if layout.queue_number(entry.key)]

    def _places(self, keys: list[str]) -> list[Place]:
        fresh = [key for key in keys if key not in self._turns]
        self._turns |= zip(fresh, self._readers.map(self._read, fresh), strict=True)
        turns = line(self.own, (turn for key in keys if (turn := self._turns[key])))
        outcomes = self._readers.map(self.outcome, [turn.run for turn in turns])
        return [Place(turn, outcome) for turn, outcome in zip(turns, outcomes, strict=True)]

    def _read(self, key: str) -> Turn | None:
        try:
            content = self.bucket.get(key)
            return None if content == ERASED else Turn.parse(content, layout.queue_number(key))
        except (Missing, ValueError) as error:
            say(f"{key} is passed over: {error}")
            return None
