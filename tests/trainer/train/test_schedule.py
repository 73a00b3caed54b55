"""The learning rate rises to its peak, falls to a tenth, and is a function of the step alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.train.schedule import FLOOR, learning_rate


@given(st.integers(1, 300), st.integers(0, 400))
def test_it_rises_then_falls_and_stays_within_bounds(steps: int, warmup_steps: int):
    rates = [learning_rate(step, peak=2.0, warmup_steps=warmup_steps, steps=steps) for step in range(1, steps + 1)]
    assert all(0 < rate <= 2.0 for rate in rates)
    rise, fall = rates[:warmup_steps], rates[warmup_steps:]
    assert rise == sorted(rise)
    assert fall == sorted(fall, reverse=True)


def test_the_last_step_has_a_tenth_of_the_peak():
    assert learning_rate(100, peak=1.0, warmup_steps=10, steps=100) == pytest.approx(FLOOR)
