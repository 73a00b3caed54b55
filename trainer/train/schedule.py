"""The learning rate as a pure function of the step: a linear rise, then half a cosine down to a tenth.

There is no state to save, and a step that is skipped (overflow in fp16, a gradient that isn't finite) doesn't shift it.
"""

from math import cos, pi

FLOOR = 0.1
"""The last step's learning rate, as a fraction of the peak."""


def learning_rate(step: int, *, peak: float, warmup_steps: int, steps: int) -> float:
    """The learning rate of optimizer step `step` (1 is the first, `steps` the last)."""
    if step <= warmup_steps:
        return peak * step / (warmup_steps + 1)
    progress = (step - warmup_steps) / max(1, steps - warmup_steps)
    return peak * (FLOOR + (1 - FLOOR) * (1 + cos(pi * progress)) / 2)
