from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.scales import Scale, smooth, thin, ticks, time_ticks

spans = st.tuples(st.floats(-1e3, 1e3), st.floats(1e-3, 1e7)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (0, 100, 6, [0, 20, 40, 60, 80, 100]),
        (1.7, 5.8, 6, [2, 3, 4, 5]),
        (0, 21_500, 5, [0, 5000, 10_000, 15_000, 20_000]),
    ],
)
def test_ticks_are_round(low: float, high: float, most: int, expected: list[float]) -> None:
    assert ticks(low, high, most) == expected


@given(spans, st.integers(2, 12))
def test_ticks_lie_inside_evenly_and_are_never_too_many(span: tuple[float, float], most: int) -> None:
    low, high = span
    found = ticks(low, high, most)
    slack = (high - low) * 1e-6
    assert 1 <= len(found) <= most
    assert all(low - slack <= tick <= high + slack for tick in found)
    gaps = [after - before for before, after in pairwise(found)]
    assert all(math.isclose(gap, gaps[0], rel_tol=1e-6) for gap in gaps)


def test_ticks_of_steps_are_whole_even_where_there_are_few() -> None:
    assert ticks(1, 3, 10, whole=True) == [1, 2, 3]


def test_ticks_of_nothing_are_the_one_value() -> None:
    assert ticks(2.0, 2.0, 5) == [2.0]


@given(st.floats(0.5, 3e8), st.integers(2, 12))
def test_times_are_never_labelled_too_densely(high: float, most: int) -> None:
    found = time_ticks(high, most)
    assert found[0] == 0
    assert len(found) <= most + 1


def test_times_are_in_minutes_where_a_person_would_say_minutes() -> None:
    assert time_ticks(110, 8) == [0, 15, 30, 45, 60, 75, 90, 105]
    assert time_ticks(4000, 5) == [0, 900, 1800, 2700, 3600]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=60), st.integers(1, 20))
def test_smoothing_keeps_length_and_both_ends(values: list[float], window: int) -> None:
    found = smooth(values, window)
    assert len(found) == len(values)
    assert math.isclose(found[0], values[0], abs_tol=1e-6)
    assert math.isclose(found[-1], values[-1], abs_tol=1e-6)


def test_smoothing_shifts_no_straight_line() -> None:
    assert smooth([0, 1, 2, 3, 4, 5, 6], 5) == [0, 1, 2, 3, 4, 5, 6]


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=3000), st.integers(2, 50))
def test_thinning_is_bounded_ordered_and_keeps_the_extremes(values: list[float], columns: int) -> None:
    points = [(float(at), value) for at, value in enumerate(values)]
    found = thin(points, columns)
    assert len(found) <= 4 * columns
    assert found == sorted(found)
    assert {points[0], points[-1]} <= set(found)
    assert min(y for _, y in found) == min(values)
    assert max(y for _, y in found) == max(values)


def test_a_scale_without_extent_maps_to_its_start() -> None:
    assert Scale(1, 1, 10, 90)(1) == 10
