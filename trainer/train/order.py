"""Which sample stands where: the order of data as a pure function of seed and position.

A run's position is one integer, the number of samples consumed. Sample `i` of the run is found without any state: each
epoch is a permutation of all samples, drawn from (seed, epoch) by a Feistel network, in memory that grows with the
square root of their number. Nothing here knows the number of ranks but `shares`, which cuts one step's samples into
what each rank computes: the sequence of samples is the same for any world size and across restarts.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

ROUNDS = 6
"""Feistel rounds. Four make a pseudo-random permutation (Luby and Rackoff, 1988); two more cover small domains."""

_MASK64 = (1 << 64) - 1


def mix(*values: int) -> int:
    """One well-mixed 64-bit number from whole numbers; their order matters (the finaliser of SplitMix64)."""
    state = 0
    for value in values:
        state = (state + value + 0x9E3779B97F4A7C15) & _MASK64
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK64
        state ^= state >> 31
    return state


def permute(offsets: Indices, samples: int, key: int) -> Indices:
    """Where a permutation of [0, samples) sends `offsets`; `key` chooses the permutation.

    The network permutes the next even power of two; values that land beyond `samples` are sent through it again until
    they don't (cycle walking), fewer than four times on average.
    """
    half = max(1, ((samples - 1).bit_length() + 1) // 2)
    rounds = _rounds(half, key)
    values = _feistel(offsets, half, rounds)
    beyond = np.flatnonzero(values >= samples)
    while len(beyond):
        again = _feistel(values[beyond], half, rounds)
        values[beyond] = again
        beyond = beyond[np.flatnonzero(again >= samples)]
    return values


def samples_at(positions: Indices, samples: int, seed: int) -> Indices:
    """The samples at these positions of the run, which rise, in the order of a dataset of `samples` samples."""
    order = np.empty_like(positions)
    start = 0
    while start < len(positions):
        epoch = int(positions[start]) // samples
        first = epoch * samples
        end = int(np.searchsorted(positions, first + samples))
        order[start:end] = permute(positions[start:end] - first, samples, mix(seed, epoch))
        start = end
    return order


def shares(batch: int, micro_batch: int, world: int, rank: int) -> list[range]:
    """The places in a step's batch that `rank` computes, one range a micro-step, each at most `micro_batch` long.

    Ranks get contiguous shares that differ by one sample at most, cut into micro-steps as equal. All have as many
    micro-steps, some of them empty where samples are few: each takes part in every collective.
    """
    first, end = batch * rank // world, batch * (rank + 1) // world
    largest = -(-batch // world)
    micro_steps = -(-largest // micro_batch)
    cuts = [first + (end - first) * number // micro_steps for number in range(micro_steps + 1)]
    return [range(low, high) for low, high in pairwise(cuts)]


def _feistel(values: Indices, half: int, rounds: Indices) -> Indices:
    """A permutation of [0, 4**half): each round mixes one half of the bits into the other."""
    left, right = values >> half, values & ((1 << half) - 1)
    spare = np.empty_like(left)
    for mixed in rounds:
        mixed.take(right, out=spare, mode="wrap")  # which, unlike "raise", needs no buffer (numpy.take's Notes)
        spare ^= left
        left, right, spare = right, spare, left
    left <<= half
    left |= right
    return left


@lru_cache(maxsize=1)
def _rounds(half: int, key: int) -> Indices:
    """What each round mixes in for every value of a half, of shape (ROUNDS, 2**half); kept for the rest of an epoch.

    Looking up costs less than computing, where a half is small, as it is: 2**17 values for ten billion samples.
    """
    high, mask = np.uint64(32), np.uint64((1 << half) - 1)
    keys = np.array([mix(key, number) for number in range(ROUNDS)], dtype=np.uint64)
    mixed = np.arange(1 << half, dtype=np.uint64) ^ keys[:, None]
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> high
    mixed *= np.uint64(0x94D049BB133111EB)
    return (mixed >> high & mask).astype(np.int64)
