from __future__ import annotations

from typing import Any

from trainer import layout


def test_steps_done_again_count_as_last_done(prefix: Any) -> None:
    history = prefix.eventful()
    assert [step.step for step in history.steps] == list(range(1, 401))
    assert len(history.taken) == 420
    assert history.repeated == 20
    assert {step.generation for step in history.steps if 151 <= step.step <= 170} == {2}


def test_a_generation_spans_all_that_was_told_of_it(prefix: Any) -> None:
    spans = prefix.eventful().spans
    assert [(spans[number].first, spans[number].last) for number in (1, 2, 3)] == [(1, 170), (151, 220), (221, 400)]
    assert spans[1].started == prefix.began + 7.4
    assert spans[1].ended < spans[2].started < spans[2].ended < spans[3].started


def test_nothing_told_is_no_error(prefix: Any) -> None:
    history = prefix.history()
    assert (history.spans, history.booted, history.first_trained, history.repeated) == ({}, None, None, 0)


def test_a_boot_adds_up(prefix: Any) -> None:
    prefix.boot("i-1", 2.0, failed="storage", detail="no such object")
    history = prefix.history()
    assert history.booted == prefix.began + 2.0
    assert abs(history.boots["i-1"].seconds - 1.6) < 1e-9
    assert history.boots["i-1"].failure == "storage: no such object"


def test_lines_of_a_users_own_program_are_passed_over(prefix: Any) -> None:
    """`TRAINWRIGHT_METRICS` is theirs: what isn't as the bundled trainer tells it must not end the command."""
    prefix.generation(1, ["i-1"])
    prefix.lines[1] = ['{"epoch": 1}', "5", '{"event": "mine"}', "[]", "loss=3", '"event"']
    prefix.train(1, 1, 2, 1.0)
    assert [step.step for step in prefix.history().steps] == [1, 2]


def test_a_pardoned_run_is_followed_as_any_other(prefix: Any) -> None:
    prefix.generation(1, ["i-1"])
    prefix.store.put(layout.pardon(1), b'{"ended": 1.0}')
    assert list(prefix.history().generations) == [1]
