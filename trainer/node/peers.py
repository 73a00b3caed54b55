"""Who trains together: generations, and the rules by which the leader forms the next one. Pure; no clocks, no store.

A generation is one membership of a run. The leader, the oldest live node that is ready, decides when a next one is
due; the others adopt it. Liveness, and how long things have been so, is the observer's business (`membership`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")

READY = "ready"
DRAINING = "draining"

DONE = "done"
DRAINED = "drained"
FAILED = "failed"
STOPPED = "stopped"
"""Ended because workers elsewhere had: not the cause."""

FRUITLESS_LIMIT = 3
"""Generations in a row that may fail without a new checkpoint, before the run is given up."""

QUORUM_WAIT_S = 60.0
"""How long the first generation waits for all desired nodes, once there are enough to train."""

QUORUM_LIMIT_S = 7200.0
"""How long nodes wait for enough of them to train, before the run is given up: they are paid for while they wait."""

JOIN_SETTLE_S = 2.0
"""How long a newcomer is watched before the others stop for it: several often come at once."""


@dataclass(frozen=True)
class Ended:
    """How a node's workers ended in one generation: done, drained, failed or stopped."""

    generation: int
    how: str
    reason: str = ""


@dataclass(frozen=True)
class Card:
    """What a node says of itself. `incarnation` is new with each start of its agent."""

    node: str
    address: str
    launched: str
    incarnation: str
    workers: int
    state: str = READY
    ended: Ended | None = None

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
class Generation:
    """One membership. `step` is the newest checkpoint when it was formed; `fruitless` counts failures without one."""

    number: int
    members: tuple[Member, ...]
    port: int
    why: str
    graceful: bool
    step: int
    fruitless: int = 0

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
        return _made(cls, {**values, "members": tuple(_made(Member, member) for member in values["members"])})


@dataclass(frozen=True)
class View:
    """What one node sees. `waited_s`: since it came; `joined_s`: since newcomers last changed."""

    me: str
    cards: Mapping[str, Card]
    alive: frozenset[str]
    least: int
    desired: int
    current: Generation | None
    waited_s: float
    joined_s: float
    step: int
    short_s: float = 0.0
    """Since fewer nodes than `least` are ready."""
    unsure: frozenset[str] = frozenset()
    """Nodes that may be alive or dead: their beats were there at this node's first look and have not changed yet."""

    @property
    def ready(self) -> list[Card]:
        """Live nodes that take part, in rank order."""
        ready = (card for node, card in self.cards.items() if node in self.alive and card.state == READY)
        return sorted(ready, key=lambda card: card.seniority)

    @property
    def leads(self) -> bool:
        """Whether this node is the one that decides: the oldest that is live and ready, once it can tell who is."""
        ready = self.ready
        unsure = any(self.cards[node].state == READY for node in self.unsure if node in self.cards)
        return bool(ready) and ready[0].node == self.me and not unsure

    @property
    def newcomers(self) -> frozenset[str]:
        """Ready nodes that the current generation doesn't have."""
        members = {member.node for member in self.current.members} if self.current else set()
        return frozenset(card.node for card in self.ready) - members


@dataclass(frozen=True)
class Form:
    """Form a generation of all that are ready. `graceful`: the old one's workers are given time to save."""

    members: tuple[Member, ...]
    why: str
    graceful: bool
    fruitless: int = 0


@dataclass(frozen=True)
class End:
    """End the run."""

    succeeded: bool
    reason: str


@dataclass(frozen=True)
class Wait:
    """Nothing to do; `reason` says what is waited for, empty where all is well or another node leads."""

    reason: str = ""


def decide(view: View) -> Form | End | Wait:
    """What this node should do now."""
    if not view.leads:
        return Wait()
    ready = view.ready
    if view.short_s >= QUORUM_LIMIT_S:
        waited = f"{len(ready)} nodes were ready and {view.least} are needed, for {QUORUM_LIMIT_S / 3600:g} hours"
        return End(succeeded=False, reason=waited)
    if view.current is None:
        if len(ready) >= view.desired or (len(ready) >= view.least and view.waited_s >= QUORUM_WAIT_S):
            return Form(_members(ready), "first", graceful=False)
        return Wait(f"{len(ready)} of {view.desired} nodes are ready")
    return _next(view, view.current, ready)


def _next(view: View, current: Generation, ready: list[Card]) -> Form | End | Wait:
    ended = {
        member.node: card.ended
        for member in current.members
        if (card := view.cards.get(member.node)) and card.ended and card.ended.generation == current.number
    }
    if len(ended) == len(current.members) and all(end.how == DONE for end in ended.values()):
        return End(succeeded=True, reason="every worker ended well")
    failed = {node: end.reason for node, end in ended.items() if end.how == FAILED}
    stopped = [node for node, end in ended.items() if end.how == STOPPED]
    drained = [
        member.node
        for member in current.members
        if (member.node in ended and ended[member.node].how == DRAINED) or _draining(view, member.node)
    ]
    fruitless = 0 if view.step > current.step else current.fruitless
    # One that was draining when this node came has left, or is about to: as it was going to.
    lost = [
        member.node
        for member in current.members
        if not _present(view, member) and not (_draining(view, member.node) and member.node in view.unsure)
    ]
    if failed or stopped or lost:
        # The end of one node's workers ends all of them. Who has not said so yet will, or is lost and the cause.
        silent = [member.node for member in current.members if member.node not in {*ended, *lost}]
        if silent and not lost:
            return Wait(f"waiting for the workers of {', '.join(silent)} to end")
        fruitless += view.step <= current.step
        # A lost node makes its peers' workers fail: it is the cause, and what they say is noise.
        reasons = [f"{node}: lost" for node in lost] or [f"{node}: {reason}" for node, reason in failed.items()]
        reasons = reasons or [f"{', '.join(stopped)}: their connections broke"]
        if fruitless >= FRUITLESS_LIMIT:
            tale = f"{fruitless} generations in a row ended without a new checkpoint; last: {'; '.join(reasons)}"
            return End(succeeded=False, reason=tale)
        why, graceful = "; ".join(reasons), False
    elif drained:
        why, graceful = f"{', '.join(drained)}: drained", True
    elif view.newcomers and view.joined_s >= JOIN_SETTLE_S:
        why, graceful = f"{', '.join(sorted(view.newcomers))}: joined", True
    else:
        return Wait()
    if len(ready) < view.least:
        return Wait(f"{len(ready)} nodes are ready, {view.least} are needed ({why})")
    return Form(_members(ready), why, graceful, fruitless)


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    """A record of what it knows in `values`: a newer trainer may have written more."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})


def _present(view: View, member: Member) -> bool:
    card = view.cards.get(member.node)
    return member.node in view.alive and card is not None and card.incarnation == member.incarnation


def _draining(view: View, node: str) -> bool:
    card = view.cards.get(node)
    return card is not None and card.state == DRAINING


def _members(ready: list[Card]) -> tuple[Member, ...]:
    return tuple(Member(card.node, card.address, card.incarnation, card.workers) for card in ready)
