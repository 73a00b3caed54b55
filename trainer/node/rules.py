"""The rules by which generations follow each other. Pure; no clocks, no store.

The leader, the oldest live node that is ready, decides when a next generation is due; the others adopt it. Liveness,
and how long things have been so, is the observer's business (`membership`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainer.grace import GRACE_S
from trainer.node.peers import (
    DONE,
    DRAINED,
    DRAINING,
    FAILED,
    READY,
    STOPPED,
    Card,
    Ended,
    Generation,
    Member,
    Tally,
)

FRUITLESS_LIMIT = 3
"""Generations in a row that may fail without a new checkpoint, before the run is given up."""

LOSSES_LIMIT = 20
"""Generations in a row that may lose a node, or end by a node's own fault, without a new checkpoint: far more, for
neither is the job's."""

BLAME_LIMIT = 3
"""Generations in a row that one node may fail while no other does; one fewer where no checkpoint came in between."""

QUORUM_WAIT_S = 60.0
"""How long the first generation waits for all desired nodes, once there are enough to train."""

QUORUM_LIMIT_S = 7200.0
"""How long nodes wait for enough of them to train, before the run is given up: they are paid for while they wait."""

JOIN_SETTLE_S = 2.0
"""How long a newcomer is watched before the others stop for it: several often come at once."""

JOINING_S = 1800.0
"""How long workers may take to save where nodes only join: no machine is taken away, and a large model takes its time.
"""


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
    """How long this node has led and seen fewer than `least` nodes ready, and nothing train."""
    unsure: frozenset[str] = frozenset()
    """Nodes that may be alive or dead: their beats were there at this node's first look and have not changed yet."""
    quiet: frozenset[str] = frozenset()
    """Nodes that have missed some beats, though not enough of them to be lost without other signs."""
    ran_s: float = 0.0
    """How long ago the run's first generation was formed."""
    most_s: float = math.inf
    """How long that may be at the most (`job.hours`)."""

    @property
    def tally(self) -> Tally:
        """What the current generation carries on."""
        return self.current.tally if self.current else Tally()

    @property
    def ended(self) -> dict[str, Ended]:
        """How the workers of the current generation's members ended, of those that said so."""
        members = self.current.members if self.current else ()
        cards = (card for member in members if (card := self.cards.get(member.node)))
        return {card.node: card.ended for card in cards if card.ended and card.ended.generation == self._number}

    @property
    def live(self) -> frozenset[str]:
        """Who is alive. One that is quiet while its peers' connections break needs no more time to be found dead."""
        ended = self.ended
        if {end.how for end in ended.values()} != {STOPPED}:
            return self.alive
        members = {member.node for member in self.current.members} if self.current else set()
        return self.alive - (self.quiet & (members - ended.keys()))

    @property
    def _number(self) -> int:
        return self.current.number if self.current else 0

    @property
    def ready(self) -> list[Card]:
        """Live nodes that take part, in rank order."""
        live = self.live
        able = (card for node, card in self.cards.items() if node in live and card.state == READY)
        return sorted(
            (card for card in able if card.node not in self.tally.quarantined), key=lambda card: card.seniority
        )

    @property
    def leads(self) -> bool:
        """Whether this node is the one that decides: the oldest that is live and ready, once it can tell who is."""
        ready = self.ready
        unsure = any(self.cards[node].state == READY for node in self.unsure if node in self.cards)
        return bool(ready) and ready[0].node == self.me and not unsure

    @property
    def trains(self) -> bool:
        """Whether the current generation is whole, and all its workers run."""
        members = self.current.members if self.current else ()
        return bool(members) and not self.ended and all(_present(self, member) for member in members)

    @property
    def newcomers(self) -> frozenset[str]:
        """Ready nodes that the current generation doesn't have."""
        members = {member.node for member in self.current.members} if self.current else set()
        return frozenset(card.node for card in self.ready) - members


@dataclass(frozen=True)
class Form:
    """Form a generation of these. `graceful`: the old one's workers are given time to save, `grace_s` at most."""

    members: tuple[Member, ...]
    why: str
    graceful: bool
    tally: Tally = field(default_factory=Tally)
    grace_s: float = GRACE_S


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
    if view.current is None:
        if len(ready) >= view.desired or (len(ready) >= view.least and view.waited_s >= QUORUM_WAIT_S):
            return Form(_members(ready), "first", graceful=False)
        return _short(view) or Wait(f"{len(ready)} of {view.desired} nodes are ready")
    decision = _next(view, view.current, ready)
    if view.ran_s >= view.most_s and not isinstance(decision, End):
        return End(succeeded=False, reason=f"it has run for {view.most_s / 3600:g} hours, the most by job.hours")
    if isinstance(decision, Form) and len(decision.members) < max(view.least, 1):
        if _quarantines(decision, view):
            return replace(decision, members=())
        needed = f"{len(decision.members)} nodes are ready, {view.least} are needed ({decision.why})"
        return _short(view) or Wait(needed)
    if isinstance(decision, Form) and decision.members[0].node != view.me:
        return replace(decision, members=())  # this node is out, and the next to lead finds a port of its own
    return decision


def _quarantines(form: Form, view: View) -> bool:
    """Whether it puts a node in quarantine, which must learn of it whoever goes on, or it is never replaced."""
    return form.tally.quarantined.keys() > view.tally.quarantined.keys()


def _short(view: View) -> End | None:
    """The end of a run that has waited for nodes too long."""
    if view.short_s < QUORUM_LIMIT_S:
        return None
    waited = f"{len(view.ready)} nodes were ready and {view.least} are needed, for {QUORUM_LIMIT_S / 3600:g} hours"
    return End(succeeded=False, reason=waited)


def _next(view: View, current: Generation, ready: list[Card]) -> Form | End | Wait:
    ended = view.ended
    if current.members and len(ended) == len(current.members) and all(end.how == DONE for end in ended.values()):
        return End(succeeded=True, reason="every worker ended well")
    failed = {node: end for node, end in ended.items() if end.how == FAILED}
    stopped = [node for node, end in ended.items() if end.how == STOPPED]
    drained = [
        member.node
        for member in current.members
        if (member.node in ended and ended[member.node].how == DRAINED) or _draining(view, member.node)
    ]
    tally = current.tally
    if view.step > current.step:
        tally = replace(tally, fruitless=0, losses=0, error="")
    if not current.members:
        return Form(_members(ready), "nodes were waited for", graceful=False, tally=tally)
    # One that was draining when this node came has left, or is about to: as it was going to.
    lost = [
        member.node
        for member in current.members
        if not _present(view, member) and not (_draining(view, member.node) and member.node in view.unsure)
    ]
    # The end of one node's workers ends all of them. Who has not said so yet will, or is lost and the cause.
    silent = [member.node for member in current.members if member.node not in {*ended, *lost}]
    # Workers agree on a drain, so that one may have left before the card of the node that was asked says so.
    unasked = drained and not any(_draining(view, node) for node in drained)
    if lost:
        return _after_loss(lost, ready, tally)
    if silent and (failed or stopped or unasked):
        return Wait(f"waiting for the workers of {', '.join(silent)} to end")
    if drained and not unasked:
        return _after_drain(view, drained, failed, tally)
    if failed or stopped:
        return _after_failure(view, current, failed, stopped, tally)
    if unasked:
        return _after_leaving(view, current, drained, tally)
    if view.newcomers and view.joined_s >= JOIN_SETTLE_S:
        joined = f"{', '.join(sorted(view.newcomers))}: joined"
        return Form(_members(ready), joined, graceful=True, tally=tally, grace_s=JOINING_S)
    return Wait()


def _after_loss(lost: list[str], ready: list[Card], tally: Tally) -> Form | End:
    """A lost node makes its peers' workers fail: it is the cause, and what they say is noise."""
    why = "; ".join(f"{node}: lost" for node in lost)
    tally = replace(tally, losses=tally.losses + 1)
    return _lossy(tally, why) or Form(_members(ready), why, graceful=False, tally=tally)


def _lossy(tally: Tally, why: str) -> End | None:
    """The end of a run whose nodes are lost, or fail, faster than it saves."""
    if tally.losses < LOSSES_LIMIT:
        return None
    tale = f"{tally.losses} times a node was lost before there was a new checkpoint; last: {why}; save more often"
    return End(succeeded=False, reason=tale)


def _after_drain(view: View, drained: list[str], failed: Mapping[str, Ended], tally: Tally) -> Form:
    """Who was asked to leave does so in the time that its node has. How its workers ended then counts for nothing."""
    draining = [node for node in drained if _draining(view, node)]
    grace_s = min(view.cards[node].grace_s for node in draining)
    why = "; ".join([f"{', '.join(drained)}: drained", *(f"{node}: {end.reason}" for node, end in failed.items())])
    return Form(_members(view.ready), why, graceful=True, tally=tally, grace_s=grace_s)


def _after_leaving(view: View, current: Generation, left: list[str], tally: Tally) -> Form | End:
    """Another try for workers that drained though nobody had asked them to; none where they do nothing else."""
    why = f"{', '.join(left)}: left as if asked to drain, which nobody was"
    tally = replace(tally, fruitless=tally.fruitless + (view.step <= current.step))
    if tally.fruitless >= FRUITLESS_LIMIT:
        return _fruitless(tally.fruitless, why)
    return Form(_members(view.ready), why, graceful=True, tally=tally)


def _fruitless(times: int, why: str) -> End:
    return End(succeeded=False, reason=f"{times} generations in a row ended without a new checkpoint; last: {why}")


def _after_failure(
    view: View, current: Generation, failed: Mapping[str, Ended], stopped: list[str], tally: Tally
) -> Form | End:
    """Another try, without a node that alone fails time and again; or none, where it would end as this one did.

    A node of its own fault makes its peers' workers fail: it is the cause, and what they say is noise. Its generation
    counts like one that lost a node, and so it is one node's fault where no other is there to compare.
    """
    faulty = {node: end for node, end in failed.items() if end.machine}
    if len(faulty) == len(current.members) > 1:
        faulty = {}  # what befalls all at once is none of one node's
    told = "; ".join(f"{node}: {end.reason}" for node, end in (faulty or failed).items())
    said = next((f" ({view.ended[node].reason})" for node in stopped if view.ended[node].reason), "")
    why = told or f"{', '.join(stopped)}: their connections broke{said}"
    barren = view.step <= current.step
    fruitless, losses = tally.fruitless + (barren and not faulty), tally.losses + bool(faulty)
    errors = [] if faulty else [end.error for end in failed.values() if end.error]
    again = tally.error in errors if tally.error else False
    accused = faulty or (failed if stopped else {})
    blamed = {node: tally.blamed.get(node, 0) + 1 for node in accused}
    tally = replace(tally, fruitless=fruitless, losses=losses, blamed=blamed)
    sure = bool(faulty) or (len(failed) == 1 and not again)
    out = _out(view, blamed, BLAME_LIMIT - (barren or fruitless > 0), sure=sure)
    for node in out:
        reason = f"its workers failed {blamed[node]} times in a row, no other's did; last: {failed[node].reason}"
        tally = replace(tally, quarantined={**tally.quarantined, node: reason})
        why += f"; {node}: quarantined"
    if not out:
        if again:
            return End(succeeded=False, reason=f"a second try raised the same error: {why}")
        if fruitless >= FRUITLESS_LIMIT:
            return _fruitless(fruitless, why)
    left = [card for card in view.ready if card.node not in out]
    tally = replace(tally, error=errors[0] if errors else "")
    return _lossy(tally, why) or Form(_members(left), why, graceful=False, tally=tally)


def _out(view: View, blamed: Mapping[str, int], limit: int, *, sure: bool) -> list[str]:
    """Who is to leave: who has been blamed as often as the limit says.

    Where that is `sure` also one that is needed, whose replacement the others wait for. It isn't where several fail, or
    as the job's own code does each time.
    """
    out: list[str] = []
    for node, times in blamed.items():
        needed = len(view.ready) - len(out) <= max(view.least, 1)
        if times >= limit and (sure or not needed):
            out.append(node)
    return out


def _present(view: View, member: Member) -> bool:
    card = view.cards.get(member.node)
    return member.node in view.live and card is not None and card.incarnation == member.incarnation


def _draining(view: View, node: str) -> bool:
    card = view.cards.get(node)
    return card is not None and card.state == DRAINING


def _members(ready: list[Card]) -> tuple[Member, ...]:
    return tuple(Member(card.node, card.address, card.incarnation, card.workers) for card in ready)
