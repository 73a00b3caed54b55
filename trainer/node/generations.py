"""A node's way through the generations of a run: look, tell, turn, until the run has an outcome or the node has left.

Nothing here blocks for longer than one exchange with the store: a node that stops beating while its workers save would
be taken for dead.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException

from trainer import layout
from trainer.console import say
from trainer.grace import GRACE_S
from trainer.node.launchers import MPIRUN
from trainer.node.lifecycle import Lifecycle
from trainer.node.membership import Membership, Outcome
from trainer.node.peers import DONE, DRAINING, FAILED, QUARANTINED, READY, STOPPED, Ended, Generation
from trainer.node.postmortem import waited_in_vain
from trainer.node.rules import End, Form, Wait, decide
from trainer.node.shipping import Shipper
from trainer.node.standby import Standby
from trainer.node.steps import Dismissed
from trainer.node.workers import (
    Job,
    Workers,
    forget,
    log_path,
    metrics_path,
    nccl_path,
    shared_environment,
    spawn_standby,
)
from trainer.store import StoreError

FORMING_S = 0.5
STEADY_S = 1.0
"""Seconds between looks at the run: while nothing trains here, and while something does."""

NOTICE_S = 5.0
"""Seconds between looks for a notice, as AWS asks (EC2 user guide, "Spot Instance interruption notices")."""

PARTING_S = 6.0
"""How long workers may take to notice that their peers are gone; the trainer saves up to 5 s of what it had begun."""

LINGERING_S = 150.0
"""How long workers may go on once others of their generation were drained, where nothing gives them a time to save."""

FINISHING_S = 3600.0
"""The same where the others were done: one may have a last model to save. Where all keep a pulse, that sets the limit.
"""

TICK_S = 0.05


class Quarantined(Dismissed):
    """The others go on without this node, whose workers fail time and again; the message says why."""


@dataclass
class Generations:
    """One agent's part in a run, from its first generation on. Setting `leaving` makes it drain and end."""

    membership: Membership
    lifecycle: Lifecycle
    job: Job
    shipper: Shipper
    leaving: bool = False
    workers: Workers | None = None
    standby: Standby = field(default_factory=lambda: Standby(spawn_standby))
    _adopted: int = 0
    _turning: int = 0
    _turn_by: float | None = None
    _over_since: float | None = None
    _pulse_due: float = 0.0
    _told: Ended | None = None
    _notice_due: float = 0.0
    _said: str = ""

    def first(self) -> tuple[None, str]:
        """Wait for the first generation that has this node, for the run's outcome, or for `leaving`.

        Raises `Quarantined`.
        """
        while self._rank() is None and self.membership.outcome is None and not self.leaving:
            self._look()
            self._leave_if_quarantined()
            self._watch_for_notice()
            time.sleep(FORMING_S)
        if self.leaving:
            return None, "asked to leave"
        generation = self.membership.generation
        if generation is None or self._rank() is None:
            return None, "the run has ended"
        return None, f"generation {generation.number}: node {self._rank()} of {len(generation.members)}"

    def launch(self) -> tuple[None, str]:
        """Start the first workers."""
        self._turn()
        ranks = sorted(self.workers.processes) if self.workers else []
        return None, f"ranks {ranks} started" if ranks else "no rank starts before the others have saved"

    def follow(self) -> Outcome | None:
        """Take part until the end. Returns the run's outcome, or None where this node left before it.

        Raises `Quarantined`, and `StepFailed` where old workers can't be ended.
        """
        look_due = 0.0
        leave_by: float | None = None
        while self.membership.outcome is None:
            if self._tell():
                look_due = 0.0  # every second until the others know is a second of idle GPUs
            if self.leaving and leave_by is None:
                leave_by = time.monotonic() + GRACE_S
                self._drain("asked to leave")
                look_due = 0.0
            if time.monotonic() >= look_due:
                self._look()
                self._leave_if_quarantined()
                look_due = time.monotonic() + (STEADY_S if self.workers and self.workers.running else FORMING_S)
            if leave_by is None:
                self._turn()
                self._stop_with_the_others()
                self._end_what_hangs()
                self._keep_some_on_standby()
                self._watch_for_notice()
            elif not (self.workers and self.workers.running) or time.monotonic() >= leave_by:
                self._tell()
                self._look()
                return self.membership.outcome
            time.sleep(TICK_S)
        return self.membership.outcome

    @property
    def leads(self) -> bool:
        """Whether this node is the first of those that train."""
        return self._rank() == 0

    def stop(self) -> None:
        """End what runs, and what waits to."""
        self.standby.close()
        if self.workers:
            self.workers.stop()

    def _rank(self) -> int | None:
        generation, card = self.membership.generation, self.membership.card
        return generation.rank_of(card.node, card.incarnation) if generation else None

    def _tell(self) -> bool:
        """Put on the card how the workers ended, once."""
        ended = self.workers.poll() if self.workers else None
        if ended is None or ended == self._told:
            return False
        say(f"workers {ended.how} in generation {ended.generation}{f': {ended.reason}' if ended.reason else ''}")
        self.membership.say(ended=ended)
        self._told = ended
        return True

    def _look(self) -> None:
        """One look at the run, and what follows from it where this node leads."""
        self.membership.say(progress=self.job.progress)
        try:
            self.membership.sync()
            if self.membership.outcome:
                return
            view = self.membership.view()
            match decide(view):
                case Form() as form:
                    self.membership.form(form, _free_port(self.membership.card.address), view.step)
                    self.membership.sync()
                case End(succeeded, reason):
                    self.membership.end(succeeded=succeeded, reason=reason)
                    self.membership.sync()
                case Wait(reason):
                    self._say(reason)
        except (StoreError, ValueError, TypeError, KeyError) as error:
            self._say(f"can't look at the run: {type(error).__name__}: {error}")

    def _turn(self) -> None:
        """Bring the workers to the newest generation: end the old ones, in grace where they can save, start the new.

        Those of a graceful one start once none of an older runs on any of its nodes: they would wait for peers that
        still save, and give up before those have.
        """
        generation = self.membership.generation
        if generation is None or generation.number == self._adopted:
            return
        if generation.graceful:
            running = self.workers if self.workers and self.workers.running else None
            if self._turning != generation.number:
                self._turning, grace_s = generation.number, self._within(generation.grace_s)
                if running:
                    running.drain(grace_s)
            if (running or self.membership.saving()) and self._turn_by and time.monotonic() < self._turn_by:
                return
        if self.workers:
            self.workers.stop()
        self._turn_by, self._adopted, self.workers = None, generation.number, None
        rank = self._rank()
        if rank is None:
            say(f"generation {generation.number} goes without this node: {generation.why}")
            return
        self.membership.say(started=generation.number)
        self.workers = Workers.start(self.job, generation, rank, self.standby)
        self.standby.began()
        self.shipper.end_generation()
        self._ship(generation)
        forget(self.job.logs, generation.number)
        say(
            f"generation {generation.number} ({generation.why}): node {rank} of {len(generation.members)}, "
            f"ranks {sorted(self.workers.processes)} of {generation.world}"
        )

    def _stop_with_the_others(self) -> None:
        """End workers whose generation is over elsewhere, if they have not noticed after a while."""
        said = self.membership.ends(self._adopted)
        ends = {end.how for end in said}
        if self.workers is None or not self.workers.running or not (ends or self.workers.parted):
            self._over_since = None
            return
        if self._over_since is None:
            self._over_since = time.monotonic()
        broken = self.workers.parted or bool(ends & {FAILED, STOPPED})
        if self._turn_by and time.monotonic() < self._turn_by and not broken:
            return  # they have the time that a notice, or the next generation, gives them
        if time.monotonic() < self._over_since + self._patience(self.workers, ends, broken=broken):
            return
        if broken and FAILED not in ends:
            # The others gave up waiting for someone, and who has not noticed is it: but where a connection broke, which
            # says nothing of its two ends, only who had promised to be at something else.
            reasons = [*self.workers.said, *(end.reason for end in said)]
            self.workers.end_hung("its peers waited in vain", silent=any(map(waited_in_vain, reasons)))
        # Which node's rank made `mpirun` fail is not known: all say that it failed, so that no node alone is blamed.
        together = FAILED in ends and self.job.launcher == MPIRUN
        self.workers.stop("mpirun failed, as another node says" if together else "")

    def _patience(self, workers: Workers, ends: set[str], *, broken: bool) -> float:
        """How long workers may go on whose generation is over elsewhere, in seconds."""
        if broken:
            return PARTING_S
        if ends != {DONE}:
            return LINGERING_S
        return math.inf if workers.promising else FINISHING_S

    def _end_what_hangs(self) -> None:
        """End workers that have broken their promise of a sign of life."""
        if self.workers is None or time.monotonic() < self._pulse_due:
            return
        self._pulse_due = time.monotonic() + STEADY_S
        if hung := self.workers.hung():
            self.workers.end_hung("it broke its promise of a sign of life", hung)

    def _keep_some_on_standby(self) -> None:
        """Have the next workers wait, while those of a generation run, or run elsewhere still."""
        waits = self.workers is None and self._turning > self._adopted and self._rank() is not None
        if self.job.bundled and (waits or (self.workers and self.workers.running)):
            places = self.membership.card.workers
            self.standby.keep(places, shared_environment(self.job, places))

    def _leave_if_quarantined(self) -> None:
        generation, node = self.membership.generation, self.membership.card.node
        if generation is None or node not in generation.tally.quarantined:
            return
        reason = generation.tally.quarantined[node]
        self.membership.say(state=QUARANTINED, reason=reason)
        self.stop()
        self._look()
        raise Quarantined(reason)

    def _watch_for_notice(self) -> None:
        """On notice that the node is to go: have all ranks save the same step, and stay out of the next.

        Once nothing runs here any more, the group is told that it may end the node.
        """
        if time.monotonic() < self._notice_due:
            return
        self._notice_due = time.monotonic() + NOTICE_S
        try:
            if self.membership.card.state == READY:
                if notice := self.lifecycle.notice():
                    self._drain(*notice)
            elif not (self.workers and self.workers.running):
                self.lifecycle.settle()
        except (OSError, HTTPException, ValueError, KeyError) as error:
            self._say(f"the metadata service gives no answer on interruptions: {error}")

    def _drain(self, why: str, grace_s: float = GRACE_S) -> None:
        say(f"draining: {why}")
        grace_s = self._within(grace_s)
        self.membership.say(state=DRAINING, grace_s=grace_s)
        if self.workers:
            self.workers.drain(grace_s)

    def _within(self, grace_s: float) -> float:
        """Seconds that the workers have to save, from now on, of so many: an earlier word may leave them fewer."""
        now = time.monotonic()
        self._turn_by = min(now + grace_s, self._turn_by or math.inf)
        return max(0.0, self._turn_by - now)

    def _ship(self, generation: Generation) -> None:
        assert self.workers is not None
        node, logs = self.membership.card.node, self.job.logs
        for rank in self.workers.processes:
            stream = f"{generation.number:06d}-rank{rank}"
            self.shipper.add(log_path(logs, generation.number, rank), _log_key(node, stream))
            if self.job.nccl_debug:
                stream = f"{generation.number:06d}-nccl{rank}"
                self.shipper.add(nccl_path(logs, generation.number, rank), _log_key(node, stream))
        if 0 in self.workers.processes:
            number = generation.number
            self.shipper.add(metrics_path(logs, number), lambda chunk: layout.metrics_chunk(number, chunk))

    def _say(self, what: str) -> None:
        if what and what != self._said:
            say(what)
        self._said = what


def _log_key(node: str, stream: str) -> Callable[[int], str]:
    return lambda chunk: layout.log_chunk(node, stream, chunk)


def _free_port(address: str) -> int:
    """A port that is free now, at the address where the workers will meet."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
    return port
