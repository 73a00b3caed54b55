"""The order of data: each sample once an epoch, the same sequence for any number of ranks, and never another one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.train.order import mix, permute, samples_at, shares

SEEDS = st.integers(0, 2**63 - 1)


def samples_in(position: int, count: int, samples: int, seed: int) -> np.ndarray:
    """The samples at `count` positions from `position` on."""
    return samples_at(np.arange(position, position + count), samples, seed)


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_permute_is_a_bijection(samples: int, key: int):
    assert sorted(permute(np.arange(samples), samples, key)) == list(range(samples))


@settings(deadline=None)
@given(st.integers(1, 300), SEEDS, st.integers(0, 5))
def test_each_epoch_has_each_sample_once(samples: int, seed: int, epoch: int):
    assert sorted(samples_in(epoch * samples, samples, samples, seed)) == list(range(samples))


@settings(deadline=None)
@given(st.integers(1, 500), SEEDS, st.integers(0, 5000), st.lists(st.integers(0, 40), max_size=8))
def test_any_cut_of_the_positions_gives_the_same_sequence(samples: int, seed: int, start: int, counts: list[int]):
    whole = samples_in(start, sum(counts), samples, seed)
    ends = np.cumsum([0, *counts])
    pieces = [samples_in(start + int(end), count, samples, seed) for end, count in zip(ends, counts, strict=False)]
    assert whole.tolist() == [sample for piece in pieces for sample in piece.tolist()]


@given(st.integers(1, 200), st.integers(1, 50), st.integers(1, 40))
def test_ranks_and_micro_steps_share_the_batch_exactly(batch: int, micro_batch: int, world: int):
    ranks = [shares(batch, micro_batch, world, rank) for rank in range(world)]
    assert [place for rank in ranks for share in rank for place in share] == list(range(batch))
    assert all(len(share) <= micro_batch for rank in ranks for share in rank)
    sizes = [sum(map(len, rank)) for rank in ranks]
    assert max(sizes) - min(sizes) <= 1
    assert len({len(rank) for rank in ranks}) == 1, "a rank with fewer micro-steps would miss collectives"


@given(st.integers(0, 2**63 - 1), st.integers(0, 10))
def test_epochs_and_seeds_differ(seed: int, epoch: int):
    first = samples_in(epoch * 1000, 1000, 1000, seed)
    assert (first != samples_in((epoch + 1) * 1000, 1000, 1000, seed)).mean() > 0.9
    assert (first != samples_in(epoch * 1000, 1000, 1000, seed + 1)).mean() > 0.9
    assert (first != np.arange(1000)).mean() > 0.9


def test_neighbours_scatter():
    """A shuffle whose neighbours stay near each other would make batches of one document."""
    order = samples_in(0, 10_000, 10_000, 1).astype(float)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05


@pytest.mark.parametrize(
    ("samples", "order"),
    [
        (1, [0, 0, 0, 0, 0]),
        (2, [1, 0, 0, 1, 1]),
        (3, [0, 1, 0, 1, 2]),
        (50, [26, 31, 25, 15, 40]),
        (1000, [616, 981, 819, 130, 859]),
        (20_000, [7058, 6452, 6842, 17048, 18566]),
        (65_536, [11751, 59977, 6842, 29059, 18566]),
        (5_000_000, [4497534, 4225681, 4220605, 196191, 4862693]),
        (2**32, [2633316976, 611180867, 2528870462, 4002489791, 1724388736]),
        (10**10, [3631326604, 3531479324, 8002623782, 8767951810, 4693299323]),
    ],
)
def test_the_order_of_a_saved_run_never_changes(samples: int, order: list[int]):
    """A checkpoint holds a position only: a release with another order would repeat and skip samples.

    These are the last two of the second epoch, and what follows, as of the first release.
    """
    assert samples_in(max(0, 2 * samples - 2), 5, samples, 1).tolist() == order


def test_the_mixing_of_numbers_never_changes():
    """The order is drawn from it, and dropout."""
    assert samples_in(5, 8, 1000, 1).tolist() == [909, 653, 35, 750, 586, 853, 572, 552]
    assert mix(1, 2, 3) == 7702586659592502839


@settings(deadline=None)
@given(st.integers(1, 200), SEEDS, st.integers(0, 2000), st.integers(1, 9), st.integers(1, 12), st.integers(1, 60))
def test_a_rank_finds_its_places_wherever_epochs_end(
    samples: int, seed: int, start: int, width: int, between: int, steps: int
):
    """A rank asks for `width` positions of each step, and leaves out those of the others."""
    positions = (start + (width + between) * np.arange(steps)[:, None] + np.arange(width)).ravel()
    whole = samples_in(start, int(positions[-1]) - start + 1, samples, seed)
    assert samples_at(positions, samples, seed).tolist() == whole[positions - start].tolist()
