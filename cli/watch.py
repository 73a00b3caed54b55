"""Follow a run in the terminal until it has an outcome: live where there is a terminal, line by line elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.errors import Refused
from cli.history import History
from cli.moments import Moment, moments
from cli.nodes import Pulse
from cli.report import Facts
from cli.status import TONES, outcome_line, pieces, progress_line
from cli.words import duration, plain, stamp
from trainer.node.membership import Outcome
from trainer.store import StoreError

STORE_PATIENCE_S = 60.0
"""How long a store that gives no answer is waited for."""

SETTLE_S = 10.0
"""How long the last metrics of a run that is done are waited for: an agent ships them within that."""

LINE_EVERY_S = 5.0
"""Between two lines of progress, where there is no terminal."""

SAME_FAILURES = 3
"""Boots in a row that fail at the same step, after which the next one isn't waited for."""

MOST_AT_ONCE = 20
"""Earlier moments that are told to one who comes late."""


def hopeless(history: History) -> str | None:
    """Why a run will never begin, if so: boot after boot fails at the same step, and nothing was ever formed."""
    if history.generations:
        return None
    ended = [boot for boot in history.boots.values() if boot.failed or boot.node in history.cards]
    newest = sorted(ended, key=lambda boot: boot.started)[-SAME_FAILURES:]
    failed = [boot.failed for boot in newest if boot.failed]
    if len(failed) < SAME_FAILURES or len({step["step"] for step in failed}) > 1:
        return None
    return f"{SAME_FAILURES} nodes in a row failed to boot, all at step {failed[-1]['step']}: {failed[-1]['detail']}"


def follow(
    history: History,
    console: Console,
    facts: Facts,
    *,
    limit_s: float,
    poll_s: float = 0.5,
    give_up: Callable[[History], str | None] = hopeless,
    gone: Callable[[], str | None] = lambda: None,
) -> Outcome:
    """Show the run until it has an outcome, and return that.

    `give_up` says why waiting is in vain, if so; `gone`, asked when the store gives no answer, why it never will.
    Raises `Refused` then, after `limit_s`, and when the store has given no answer for a minute.
    Ctrl-C leaves the run alone and exits with 130.
    """
    watcher = Watcher(history, facts)
    screen = Screen(console) if console.is_terminal and not console.is_dumb_terminal else Lines(console)
    deadline = time.monotonic() + limit_s
    try:
        with screen.shown():
            while not watcher.over:
                watcher.look()
                if watcher.trouble and (reason := gone()):
                    raise Refused(reason)
                screen.show(watcher)
                if history.outcome is None and (reason := give_up(history)):
                    raise Refused(f"run {facts.run} is given up: {plain(reason)}. {watcher.advice('logs')}")
                if history.outcome is None and time.monotonic() > deadline:
                    where = progress_line(history, time.time())
                    raise Refused(
                        f"run {facts.run} has no outcome after {duration(limit_s)} ({where}). {watcher.advice('watch')}"
                    )
                if not watcher.over:
                    time.sleep(poll_s)
    except KeyboardInterrupt:
        console.print(Text(f"Detached; run {facts.run} goes on. {watcher.advice('watch')}"), soft_wrap=True)
        raise SystemExit(130) from None
    assert history.outcome is not None
    console.print(Text.assemble(f"{watcher.stamp(history.outcome.ended)}  ", outcome_line(history)), soft_wrap=True)
    return history.outcome


@dataclass
class Watcher:
    """What one who follows a run knows beyond its history: what is new, who is lost, and how the store does."""

    history: History
    facts: Facts
    pulse: Pulse = field(default_factory=Pulse)
    lost: frozenset[str] = frozenset()
    trouble: str = ""
    fresh: list[Moment] = field(default_factory=list)
    """What the last look brought."""
    _seen: set[str] = field(default_factory=set)
    _began: float = field(default_factory=time.time)
    _answered: float = field(default_factory=time.monotonic)
    _ended: float | None = None

    def look(self) -> None:
        """Read what is new. Raises `Refused` where the store has given no answer for too long."""
        self.fresh = []
        try:
            self.history.refresh()
        except StoreError as error:
            self._wait_out(error)
            return
        self._answered, self.trouble = time.monotonic(), ""
        self.lost = self.pulse.look(self.history.beats)
        told = moments(self.history, time.time(), self.lost)
        self.fresh = [moment for moment in told if moment.key not in self._seen]
        self._seen.update(moment.key for moment in self.fresh)
        if self.history.outcome and self._ended is None:
            self._ended = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the run has an outcome and nothing more is to come."""
        if self.history.outcome is None or self._ended is None:
            return False
        whole = not self.history.outcome.succeeded or any(event.event == "done" for event in self.history.events)
        return whole or time.monotonic() - self._ended > SETTLE_S

    def stamp(self, at: float) -> str:
        """A time (seconds since 1970) as counted from the run's start."""
        began = self.history.began(self.facts.group_created)
        return f"{stamp(at - (self._began if began is None else began)):>7}"

    def advice(self, verb: str) -> str:
        """How to go on from here."""
        command = f"`trainwright {verb} --stack {self.facts.stack}`"
        return f"Its nodes' logs: {command}" if verb == "logs" else f"Come back to it with {command}"

    def _wait_out(self, error: StoreError) -> None:
        silent = time.monotonic() - self._answered
        if silent > STORE_PATIENCE_S:
            raise Refused(
                f"the run's store has given no answer for {duration(silent)}: {plain(str(error))}. "
                f"{self.advice('watch')}"
            ) from None
        self.trouble = f"the store gives no answer, waiting: {plain(str(error), 160)}"


@dataclass
class Screen:
    """A live picture of the run, redrawn in place."""

    console: Console
    newest: deque[tuple[str, Moment]] = field(default_factory=lambda: deque(maxlen=8))

    def shown(self) -> AbstractContextManager[object]:
        """The time during which the picture stands."""
        self.live = Live(console=self.console, auto_refresh=False, vertical_overflow="crop")
        return self.live

    def show(self, watcher: Watcher) -> None:
        """Draw it anew."""
        now = time.time()
        history, facts = watcher.history, watcher.facts
        self.newest.extend((watcher.stamp(moment.time), moment) for moment in watcher.fresh)
        ended = history.outcome.ended if history.outcome else now
        header = Text.assemble((f"run {facts.run}", "bold"), (f"  {facts.stack}, {facts.where}", "dim"))
        header.append(f"  {watcher.stamp(ended).strip()}")
        happened = Table.grid(padding=(0, 2, 0, 0))
        for at, moment in self.newest:
            happened.add_row(Text(at, style="dim"), Text(moment.text, style=TONES[moment.tone]))
        trouble = [Text(watcher.trouble, style="red")] if watcher.trouble else []
        picture = Group(header, *pieces(history, now, watcher.lost), *trouble, Text(), happened)
        self.live.update(picture, refresh=True)


@dataclass
class Lines:
    """One line for each thing that happens, and one of progress now and then. No control characters."""

    console: Console
    _told: float = 0.0
    _trouble: str = ""
    _progress: str = ""

    def shown(self) -> AbstractContextManager[object]:
        """Nothing to set up."""
        return nullcontext()

    def show(self, watcher: Watcher) -> None:
        """Print what is new."""
        earlier = len(watcher.fresh) - MOST_AT_ONCE
        if earlier > 0:
            self._say(f"{'':>7}  {earlier:,} earlier events are not shown")
        for moment in watcher.fresh[-MOST_AT_ONCE:]:
            self._say(f"{watcher.stamp(moment.time)}  {moment.text}")
        if watcher.trouble and watcher.trouble != self._trouble:
            self._say(f"{watcher.stamp(time.time())}  {watcher.trouble}")
        self._trouble = watcher.trouble
        if time.monotonic() - self._told >= LINE_EVERY_S or watcher.over:
            self._told = time.monotonic()
            line = progress_line(watcher.history, time.time())
            if line != self._progress:
                outcome = watcher.history.outcome
                self._say(f"{watcher.stamp(outcome.ended if outcome else time.time())}  {line}")
            self._progress = line

    def _say(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)
