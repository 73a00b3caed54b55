from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from cli import watch
from cli.errors import Refused
from cli.history import History
from trainer.node.peers import Ended
from trainer.store import Entry, FileStore, Unavailable


def script(*acts: Callable[[], Any]) -> Callable[[History], None]:
    """A `give_up` that never does: it lets the next thing happen to the run each time it is asked."""
    left = iter(acts)

    def give_up(_: History) -> None:
        next(left, lambda: None)()

    return give_up


def followed(prefix: Any, facts: Any, give_up: Any, *, terminal: bool = False, limit_s: float = 10.0) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, _environ={})
    watch.follow(History(prefix.store, prefix.run), console, facts, limit_s=limit_s, poll_s=0.0, give_up=give_up)
    return console.file.getvalue()  # type: ignore[attr-defined]


def story(prefix: Any) -> Callable[[History], None]:
    one, two, _ = prefix.nodes

    def end() -> None:
        prefix.event("done", 1, 400, 90.0)
        prefix.end(91.0)

    return script(
        lambda: prefix.boot(one, 1.0),
        lambda: (prefix.boot(two, 1.2), prefix.card(one), prefix.card(two)),
        lambda: prefix.generation(1, [one, two]),
        lambda: prefix.train(1, 1, 60, 7.0),
        lambda: prefix.checkpoint(1, 50, 19.0),
        lambda: prefix.card(two, ended=Ended(1, "failed", "rank 1 was killed\x1b[2J by SIGKILL")),
        lambda: prefix.train(1, 61, 400, 20.0),
        end,
    )


def test_without_a_terminal_each_event_is_one_plain_line(
    prefix: Any, facts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LINE_EVERY_S", 0.0)
    text = followed(prefix, facts, story(prefix))
    lines = text.splitlines()
    assert all(character.isprintable() for line in lines for character in line)
    for said in (
        f"0:05  {prefix.nodes[0]}: booted in 4.6 s",
        "generation 1: 2 nodes, world 2",
        "0:19  checkpoint at step 50 (3.1 MB)",
        f"{prefix.nodes[1]}: rank 1 was killed [2J by SIGKILL",
        "1:30  all 400 steps done",
        "1:31  the run is done",
    ):
        assert sum(line.endswith(said) for line in lines) == 1, said
    assert any("step 60/400 · loss" in line and "tokens/s" in line and "left" in line for line in lines)
    assert lines[-1].endswith("the run is done")


def test_a_terminal_gets_the_same_story_live_and_no_foreign_escapes(prefix: Any, facts: Any) -> None:
    text = followed(prefix, facts, story(prefix), terminal=True)
    for said in ("run local-7f3a", "training, rank 0", "400/400", "checkpoint at step 50", "the run is done"):
        assert said in text
    assert "\x1b[2J" not in text


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_that_diverges_is_followed_to_its_end(prefix: Any, facts: Any, terminal: bool) -> None:
    prefix.generation(1, [prefix.nodes[0]])
    prefix.train(1, 1, 9, 1.0)
    end = script(lambda: prefix.diverge(1, 10, 4.0), lambda: prefix.end(9.0, succeeded=False, reason="loss not finite"))
    assert "loss not finite ·" in followed(prefix, facts, end, terminal=terminal)


def test_one_who_comes_late_is_not_flooded(prefix: Any, facts: Any) -> None:
    for step in range(1, 101):
        prefix.event("checkpoint", 1, step, float(step))
    prefix.event("done", 1, 100, 101.0)
    prefix.end(102.0)
    lines = followed(prefix, facts, script()).splitlines()
    assert "81 earlier events are not shown" in lines[0]
    assert len(lines) < watch.MOST_AT_ONCE + 4


def test_a_run_that_has_ended_is_told_in_times_before_its_end(prefix: Any, facts: Any) -> None:
    prefix.train(1, 1, 60, 7.0)
    prefix.end(19.0, succeeded=False, reason="no progress")
    lines = followed(prefix, facts, script()).splitlines()
    assert [line.split()[0] for line in lines] == ["0:19", "0:19"]


def test_a_failed_outcome_is_returned_and_said(prefix: Any, facts: Any) -> None:
    text = followed(prefix, facts, script(lambda: prefix.end(9.0, succeeded=False, reason="no progress")))
    assert text.splitlines()[-1].endswith("the run failed: no progress")


def test_a_run_that_is_done_is_watched_until_its_last_metrics_came(
    prefix: Any, facts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = watch.Watcher(History(prefix.store, prefix.run), facts)
    prefix.train(1, 1, 399, 1.0)
    prefix.end(99.0)
    watcher.look()
    assert not watcher.over
    prefix.event("done", 1, 400, 98.0)
    watcher.look()
    assert watcher.over


def test_metrics_that_never_come_are_not_waited_for_for_ever(
    prefix: Any, facts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SETTLE_S", 0.0)
    prefix.end(9.0)
    assert "the run is done" in followed(prefix, facts, script())


def test_the_limit_ends_the_wait_and_says_how_to_go_on(prefix: Any, facts: Any) -> None:
    prefix.train(1, 1, 60, 7.0)
    with pytest.raises(Refused, match=r"no outcome after 0.0 s \(step 60/400 .*`trainwright watch --stack local`"):
        followed(prefix, facts, watch.hopeless, limit_s=0.0)


def test_three_boots_in_a_row_that_fail_alike_end_the_wait(prefix: Any, facts: Any) -> None:
    prefix.boot("i-0", 0.0, upto="identify")
    for number in range(1, 4):
        assert watch.hopeless(prefix.history()) is None
        prefix.boot(f"i-{number}", float(number), failed="storage", detail="no such\nobject")
    with pytest.raises(Refused, match="3 nodes in a row failed to boot, all at step storage: no such object") as raised:
        followed(prefix, facts, watch.hopeless)
    assert "\n" not in str(raised.value)


def test_boots_that_fail_differently_or_not_all_are_no_reason_to_give_up(prefix: Any) -> None:
    for number, step in enumerate(("storage", "storage", "fabric")):
        prefix.boot(f"i-{number}", float(number), failed=step)
    assert watch.hopeless(prefix.history()) is None
    prefix.boot("i-3", 3.0, failed="fabric")
    prefix.boot("i-4", 4.0)
    prefix.card("i-4")
    prefix.boot("i-5", 5.0, failed="fabric")
    assert watch.hopeless(prefix.history()) is None


def test_a_run_that_once_had_a_generation_is_left_to_its_nodes(prefix: Any) -> None:
    for number in range(3):
        prefix.boot(f"i-{number}", float(number), failed="storage")
    assert watch.hopeless(prefix.history())
    prefix.generation(1, ["i-9"])
    assert watch.hopeless(prefix.history()) is None


class Flaky(FileStore):
    """Gives no answer to some looks."""

    silent = 3

    def list(self, prefix: str = "") -> list[Entry]:
        if self.silent:
            self.silent -= 1
            raise Unavailable("s3://bucket: connection refused")
        return super().list(prefix)


def test_a_store_that_is_silent_for_a_while_is_one_line(prefix: Any, facts: Any) -> None:
    prefix.store = Flaky(prefix.store.root)
    prefix.event("done", 1, 400, 8.0)
    prefix.end(9.0)
    text = followed(prefix, facts, script())
    assert text.count("the store gives no answer, waiting: s3://bucket: connection refused") == 1
    assert "the run is done" in text


def test_a_store_that_stays_silent_ends_the_wait(prefix: Any, facts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STORE_PATIENCE_S", -1.0)
    prefix.store = Flaky(prefix.store.root)
    with pytest.raises(Refused, match=r"no answer for .*connection refused.*Come back"):
        followed(prefix, facts, script())


def test_ctrl_c_leaves_the_run_alone(prefix: Any, facts: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    console = Console(file=io.StringIO(), width=80)
    history = History(prefix.store, prefix.run)
    with pytest.raises(SystemExit) as left:
        watch.follow(history, console, facts, limit_s=9.0, poll_s=0.0, give_up=script(interrupt))
    assert left.value.code == 130
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "run local-7f3a goes on. Come back to it with `trainwright watch --stack local`" in said
