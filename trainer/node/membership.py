"""Heartbeats and records in the run's prefix: what a node tells the others, and what it sees of them.

A peer is alive while its beat changes, as timed by this node's own monotonic clock; wall clocks are never compared
(torch's own rendezvous evicts live nodes whose clocks differ by 15 s). Time in which the store can't be read counts
for nobody: a node that sees nothing declares no one dead.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from trainer import layout
from trainer.node.peers import Card, Ended, Generation, Tally
from trainer.node.rules import Form, View
from trainer.store import Missing, Patience, Store

DEAD_AFTER_S = 6.0
"""Observed seconds without a new beat after which a peer counts as lost: six beats."""

QUIET_AFTER_S = 3.0
"""The same for a peer whose connections broke, which is a sign of its own."""

NEVER = -math.inf
"""When a beat last changed that has not, as far as this node saw."""

HURRIED = Patience(connect_s=1, read_s=2, attempts=1)
"""For the stores of a membership: one call that is never answered must not cost the node its place."""

READERS = 16
"""Cards read at a time: when a large fleet comes up, all of them are new, and reading must not outlast a beat."""

LONGEST_GAP_S = 2.0
"""Most that one look may add to observed time, so that a pause of this node's own is not held against its peers."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    succeeded: bool
    reason: str
    ended: float


@dataclass
class Membership:
    """This node's part in a run. `sync` is the one call that talks to the store."""

    store: Store
    fleet: Store
    card: Card
    clock: Callable[[], float] = time.monotonic
    generation: Generation | None = None
    outcome: Outcome | None = None
    most_s: float = math.inf
    """How long the run may take, from its first generation on, or the first after it was given another try."""
    _ran_s: float = 0.0
    _cards: dict[str, Card] = field(default_factory=dict)
    _etags: dict[str, str] = field(default_factory=dict)
    _beats: dict[str, tuple[str, float]] = field(default_factory=dict)
    _counter: int = 0
    _observed: float = 0.0
    _looked: float | None = None
    _published: Card | None = None
    _newcomers: tuple[frozenset[str], float] = (frozenset(), 0.0)
    _sizes: tuple[int, int] = (1, 1)
    _short_since: float | None = None
    _readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(READERS, "cards"))

    def say(
        self,
        *,
        state: str = "",
        started: int = 0,
        ended: Ended | None = None,
        reason: str = "",
        progress: int = 0,
        grace_s: float | None = None,
    ) -> None:
        """Change what this node's card says, from the next `sync` on."""
        card = self.card
        self.card = replace(
            card,
            state=state or card.state,
            started=started or card.started,
            ended=ended or card.ended,
            reason=reason or card.reason,
            progress=max(progress, card.progress),
            grace_s=card.grace_s if grace_s is None else grace_s,
        )

    def sync(self) -> None:
        """Beat, then look: one write and one listing, and a read for each thing that changed. Raises `StoreError`."""
        if self._published != self.card:
            self.store.put(layout.card(self.card.node), self.card.json())
            self._published = self.card
        self._counter += 1
        self.store.put(layout.beat(self.card.node), f"{self.card.incarnation} {self._counter}".encode())
        listed = {entry.key: entry for entry in self.store.list(layout.CONTROL)}
        entries = {key: entry.etag for key, entry in listed.items()}
        self._note_beats(entries)
        # Both by the store's clock: no node's own is asked, and whoever leads next counts on.
        first = listed.get(layout.generation(1 + layout.pardoned(entries)))
        self._ran_s = listed[layout.beat(self.card.node)].modified - first.modified if first else 0.0
        changed = [key for key in entries if key.endswith("/card.json") and self._etags.get(key) != entries[key]]
        for key, content in zip(changed, self._readers.map(self.store.get, changed), strict=True):
            card = Card.parse(content)
            self._cards[card.node], self._etags[key] = card, entries[key]
        self._cards[self.card.node] = self.card
        numbers = [layout.generation_number(key) for key in entries if key.startswith(layout.GENERATIONS)]
        if numbers and (self.generation is None or max(numbers) > self.generation.number):
            newest = Generation.parse(self.store.get(layout.generation(max(numbers))))
            pardoned = layout.pardon(newest.number) in entries
            self.generation = replace(newest, tally=Tally()) if pardoned else newest
        if layout.OUTCOME in entries:
            self.read_outcome()

    def read_outcome(self) -> None:
        """Look whether the run has ended, without showing this node to the others. Raises `StoreError`."""
        try:
            self.outcome = Outcome(**json.loads(self.store.get(layout.OUTCOME)))
        except Missing:
            self.outcome = None

    def view(self) -> View:
        """What this node sees as of the last `sync`."""
        me, now = self.card.node, self._observed
        alive = {node for node, (_, advanced) in self._beats.items() if now - advanced <= DEAD_AFTER_S}
        quiet = {node for node, (_, advanced) in self._beats.items() if now - advanced > QUIET_AFTER_S}
        never = {node for node, (_, advanced) in self._beats.items() if advanced == NEVER}
        view = View(
            me=me,
            cards=dict(self._cards),
            alive=frozenset(alive | {me}),
            least=1,
            desired=1,
            current=self.generation,
            waited_s=now,
            joined_s=0.0,
            step=0,
            unsure=frozenset(never - {me}) if now <= DEAD_AFTER_S else frozenset(),
            quiet=frozenset(quiet - {me}),
            ran_s=self._ran_s,
            most_s=self.most_s,
        )
        if view.newcomers != self._newcomers[0]:
            self._newcomers = (view.newcomers, now)
        view = replace(view, joined_s=now - self._newcomers[1])
        if not view.leads:
            self._short_since = None  # another node's wait is not this one's
            return view
        least, desired = self._read_sizes()
        if len(view.ready) >= least or view.trains:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        short_s = 0.0 if self._short_since is None else now - self._short_since
        told = max(card.progress for card in self._cards.values())
        step = max(newest_checkpoint(self.store), told) if self.generation else 0
        return replace(view, least=least, desired=desired, short_s=short_s, step=step)

    def ends(self, number: int) -> set[Ended]:
        """How workers of that generation have ended, on whatever node."""
        ends = (card.ended for card in self._cards.values())
        return {end for end in ends if end is not None and end.generation == number}

    def saving(self) -> set[str]:
        """Other members of the newest generation where workers of an older one still run, of those that may be alive.

        A beat that was there at the first look counts as of then: its node may be saving, or dead.
        """
        if self.generation is None:
            return set()
        others = {member.node for member in self.generation.members} - {self.card.node}
        cards = {node: card for node in others if (card := self._cards.get(node))}
        busy = {node for node, card in cards.items() if 0 < card.training < self.generation.number}
        beaten = {node: max(self._beats.get(node, ("", NEVER))[1], 0.0) for node in busy}
        return {node for node, advanced in beaten.items() if self._observed - advanced <= DEAD_AFTER_S}

    def form(self, form: Form, port: int, step: int) -> None:
        """Write the next generation, unless another node was first; the next `sync` reads whichever it was."""
        number = self.generation.number + 1 if self.generation else 1
        record = Generation(number, form.members, port, form.why, form.graceful, step, form.tally, form.grace_s)
        self.store.put(layout.generation(number), record.json(), if_absent=True)

    def end(self, *, succeeded: bool, reason: str) -> None:
        """Write the run's outcome, unless it has one."""
        content = json.dumps({"succeeded": succeeded, "reason": reason, "ended": time.time()}).encode()
        self.store.put(layout.OUTCOME, content, if_absent=True)

    def _note_beats(self, entries: Mapping[str, str]) -> None:
        """What was there at the first look may be a dead node's last beat; what comes or changes later shows life."""
        now, first = self.clock(), self._looked is None
        self._observed += 0.0 if self._looked is None else min(now - self._looked, LONGEST_GAP_S)
        self._looked = now
        for key, etag in entries.items():
            node = key.removeprefix(layout.MEMBERS).removesuffix("/beat")
            if key.endswith("/beat") and self._beats.get(node, ("", 0.0))[0] != etag:
                self._beats[node] = (etag, NEVER if first else self._observed)

    def _read_sizes(self) -> tuple[int, int]:
        """Fewest nodes that train, and nodes wanted. Raises `StoreError`: a node that doesn't know decides nothing."""
        try:
            sizes = json.loads(self.fleet.get(layout.FLEET))
            self._sizes = (sizes["min"], sizes["desired"])
        except Missing:
            pass  # a run by hand, without a cluster: whoever is there trains
        return self._sizes


def newest_checkpoint(store: Store) -> int:
    """The step of the newest checkpoint that counts (has its manifest), 0 without one."""
    return max(layout.complete_checkpoints(entry.key for entry in store.list(layout.CHECKPOINTS)), default=0)
