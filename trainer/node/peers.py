"""What nodes say of themselves, and the generations that they form: the records in the run's prefix.

A generation is one membership of a run. By which rules one follows another is the business of `rules`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from trainer.grace import GRACE_S

T = TypeVar("T")

READY = "ready"
DRAINING = "draining"
QUARANTINED = "quarantined"

DONE = "done"
DRAINED = "drained"
FAILED = "failed"
STOPPED = "stopped"
"""Ended because workers elsewhere had: not the cause."""


@dataclass(frozen=True)
class Ended:
    """How a node's workers ended in one generation: done, drained, failed or stopped."""

    generation: int
    how: str
    reason: str = ""
    error: str = ""
    """What a worker's own code raised, in one line; empty for what another try may well mend."""
    machine: bool = False
    """Whether what it says is the node's fault, and none of its code's."""


@dataclass(frozen=True)
class Card:
    """What a node says of itself. `incarnation` is new with each start of its agent."""

    node: str
    address: str
    launched: str
    incarnation: str
    workers: int
    state: str = READY
    started: int = 0
    """The last generation whose workers it has started."""
    ended: Ended | None = None
    reason: str = ""
    """Why it is in quarantine."""
    progress: int = 0
    """How far its workers say that the run is safe, where they keep no checkpoints of ours."""
    grace_s: float = GRACE_S
    """Where it drains: how long its workers may take to save, from when it says so."""

    @property
    def training(self) -> int:
        """The generation whose workers run here, as far as it says; 0 where none do."""
        return self.started if self.ended is None or self.ended.generation < self.started else 0

    @property
    def seniority(self) -> tuple[str, str]:
        """Orders nodes: the smallest leads."""
        return (self.launched, self.node)

    def json(self) -> bytes:
        """The card as it is stored."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, content: bytes) -> Card:
        """The inverse of `json`."""
        values = json.loads(content)
        ended = values.get("ended")
        return _made(cls, {**values, "ended": _made(Ended, ended) if ended else None})


@dataclass(frozen=True)
class Member:
    """A node's place in a generation; its position is its node rank."""

    node: str
    address: str
    incarnation: str
    workers: int


@dataclass(frozen=True)
class Tally:
    """What a run carries from one generation to the next."""

    fruitless: int = 0
    """Failures in a row without a new checkpoint."""
    losses: int = 0
    """Losses and faults of nodes since the newest checkpoint."""
    error: str = ""
    """What workers raised at the last failure, if no checkpoint has come since."""
    blamed: Mapping[str, int] = field(default_factory=dict)
    """Nodes whose workers alone failed, or by a fault of the node's, and in how many generations in a row."""
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Nodes that take part no more, and why."""


@dataclass(frozen=True)
class Generation:
    """One membership. `step` is the newest checkpoint when it was formed.

    One without members ends the workers of the last, until there are enough nodes again.
    """

    number: int
    members: tuple[Member, ...]
    port: int
    why: str
    graceful: bool
    step: int
    tally: Tally = Tally()
    grace_s: float = GRACE_S
    """Where it is graceful: how long the workers of the last may take to save."""

    @property
    def address(self) -> str:
        """Where the workers meet: the first member's address."""
        return self.members[0].address

    @property
    def world(self) -> int:
        """Workers in all."""
        return sum(member.workers for member in self.members)

    def rank_of(self, node: str, incarnation: str) -> int | None:
        """The node's rank, or None where this agent is no member."""
        for rank, member in enumerate(self.members):
            if (member.node, member.incarnation) == (node, incarnation):
                return rank
        return None

    def json(self) -> bytes:
        """The record as it is stored."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, content: bytes) -> Generation:
        """The inverse of `json`."""
        values = json.loads(content)
        members = tuple(_made(Member, member) for member in values["members"])
        return _made(cls, {**values, "members": members, "tally": _made(Tally, values.get("tally", {}))})


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    """A record of what it knows in `values`: a newer trainer may have written more."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})
