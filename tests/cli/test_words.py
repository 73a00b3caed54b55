from __future__ import annotations

import pytest

from cli import words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0.0 s"), (3.21, "3.2 s"), (9.97, "10 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (92, "1 min 32 s"),
     (3599.7, "1 h 00 min"), (7500, "2 h 05 min"), (273_700, "3 d 4 h"), (-2, "0.0 s")],
)  # fmt: skip
def test_a_duration_is_said_in_its_largest_units(seconds: float, said: str) -> None:
    assert words.duration(seconds) == said


def test_a_time_that_changes_has_no_fractions() -> None:
    assert [words.about(seconds) for seconds in (-1, 2.4, 59.7)] == ["0 s", "2 s", "1 min 00 s"]


def test_stamps_count_hours_only_where_there_are_some() -> None:
    assert [words.stamp(seconds) for seconds in (-3, 7.9, 61, 3753)] == ["0:00", "0:07", "1:01", "1:02:33"]


def test_a_loss_has_four_digits_and_may_be_no_number() -> None:
    assert [words.loss(value) for value in (5.6131, 2.1, 0.012345)] == ["5.613", "2.100", "0.01235"]
    assert words.loss(float("nan")) == words.loss(float("inf")) == "not finite"


def test_sizes_and_counts() -> None:
    assert [words.size(count) for count in (840, 3_140_000, 2.5e15)] == ["840 B", "3.1 MB", "2500.0 TB"]
    assert [words.counted(count, "node") for count in (0, 1, 1200)] == ["0 nodes", "1 node", "1,200 nodes"]


def test_foreign_text_can_neither_steer_the_terminal_nor_flood_it() -> None:
    assert words.plain("\x1b[2J\x1b]0;owned\x07 red\n\u202etxt") == "[2J ]0;owned red txt"
    assert len(words.plain("x" * 1000)) == 300
