from __future__ import annotations

from typing import Any

import pytest

from cli.figures import figures, time_left


def test_the_figures_of_an_eventful_run(prefix: Any) -> None:
    history = prefix.eventful()
    found = figures(history, 0.0, prefix.began)
    assert (found.verdict, found.tone) == ("Trained to the end", "good")
    assert found.nodes == prefix.nodes
    assert (found.world, found.generations, found.repeated) == (2, 3, 20)
    assert (found.step, found.steps, found.tokens, found.newest_checkpoint) == (400, 400, 400 * 4096, 400)
    assert (found.first_loss, found.last_loss) == (history.steps[0].loss, history.steps[-1].loss)
    assert found.fall is not None
    assert 60 < found.fall < 70
    assert found.boot_s == pytest.approx(7.8, abs=0.1)
    assert found.wall_s == history.outcome.ended - prefix.began


def test_without_the_groups_creation_the_first_boot_begins_the_run(prefix: Any) -> None:
    prefix.boot("i-1", 5.0)
    found = figures(prefix.history(), prefix.began + 9.0)
    assert (found.boot_s, found.wall_s) == (None, 4.0)
    assert (found.verdict, found.fall, found.tokens_per_second) == ("Not training yet", None, None)


def test_a_loss_that_is_no_number_has_no_fall(prefix: Any) -> None:
    history = prefix.short()
    found = figures(history, 0.0)
    assert type(found)(**{**vars(found), "last_loss": float("nan")}).fall is None
    assert type(found)(**{**vars(found), "first_loss": 0.0}).fall is None


def test_time_left_follows_the_newest_generations_pace(prefix: Any) -> None:
    prefix.train(1, 1, 100, 0.0, step_s=5.0)
    assert time_left(prefix.history().steps[:1]) is None
    prefix.train(2, 101, 160, 600.0, step_s=0.5)
    assert time_left(prefix.history().steps) == pytest.approx(240 * 0.5, rel=0.2)
    assert time_left([]) is None
