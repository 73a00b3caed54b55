"""What the ranks are fed: together, each step's samples in the run's order, whatever number of ranks each step has."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.torch

CONTEXT = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 100 samples in two shards, each of which begins with its own number."""
    from trainer.pack import pack

    place = tmp_path_factory.mktemp("numbered")
    text = b"".join(bytes([number + 1] * CONTEXT) for number in range(100))
    (place / "text.txt").write_bytes(text + b"z")
    pack([place / "text.txt"], place / "data", "numbered", shard_tokens=60 * CONTEXT + 1)
    return place / "data"


def fed(folder: Path, position: int, world: int, job, steps: int) -> list[list[int]]:
    """By step, the first token of each sample that counts, in the order of ranks and micro-steps."""
    import torch

    from trainer.train.feed import Feed
    from trainer.train.group import Group
    from trainer.train.model import IGNORED
    from trainer.train.tokens import Tokens

    tokens = Tokens(folder, CONTEXT)
    feeds = [Feed(tokens, job, Group(rank, world, torch.device("cpu"), None)) for rank in range(world)]
    result = []
    for step in range(steps):
        micro_steps = [feed.take(position + step * job.batch) for feed in feeds]
        assert len({len(each) for each in micro_steps}) == 1
        firsts = [
            int(row[0])
            for each in micro_steps
            for rows, targets in each
            for row, target in zip(rows, targets, strict=True)
            if (target != IGNORED).all()
        ]
        result.append(firsts)
    return result


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=3),
    st.integers(0, 2**40),
    st.integers(1, 30),
)
def test_a_run_cut_anywhere_and_gone_on_with_other_ranks_consumes_each_sample_once(
    folder, batch, micro, legs, seed, ahead
):
    """facts trainer.md 2, #8: resumed runs repeated or skipped samples. So little is read ahead that it ends midway."""
    from trainer.train import feed
    from trainer.train.config import Job, Model
    from trainer.train.order import samples_at
    from trainer.train.tokens import Tokens

    job = Job(name="a", dataset="numbered", batch=batch, micro_batch=micro, seed=seed, model=Model(context=CONTEXT))
    position, consumed = 0, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed, "AHEAD", ahead)
        patch.setattr(feed, "CHUNK_BYTES", ahead * (CONTEXT + 1) * 8)
        for world, steps in legs:
            for firsts in fed(folder, position, world, job, steps):
                consumed += firsts
            position += steps * batch
    tokens = Tokens(folder, CONTEXT)
    expected = np.zeros((position, CONTEXT + 1), dtype=np.int64)
    tokens.gather(samples_at(np.arange(position), len(tokens), seed), expected)
    assert consumed == expected[:, 0].tolist()


@pytest.mark.parametrize("world", [1, 3])
def test_what_is_read_some_steps_at_once_is_the_order_one_sample_after_another(folder, world, monkeypatch):
    """A chunk holds three steps here, and the order is known for five: both end within the steps, and an epoch too."""
    from trainer.train import feed
    from trainer.train.config import Job, Model
    from trainer.train.order import samples_at

    batch, steps = 4, 40
    monkeypatch.setattr(feed, "CHUNK_BYTES", 3 * (batch // world) * (CONTEXT + 1) * 8)
    monkeypatch.setattr(feed, "AHEAD", 5 * (batch // world))
    job = Job(name="j", dataset="d", batch=batch, micro_batch=2, seed=7, model=Model(context=CONTEXT))
    firsts = [sample for step in fed(folder, 0, world, job, steps) for sample in step]
    assert firsts == [int(sample) + 1 for sample in samples_at(np.arange(batch * steps), 100, 7)]


def test_a_step_anywhere_is_read_from_there_whatever_was_read_ahead(folder):
    """Steps at hand or under way are of use only where they are the ones asked for."""
    import torch

    from trainer.train.config import Job, Model
    from trainer.train.feed import Feed
    from trainer.train.group import Group
    from trainer.train.order import samples_at
    from trainer.train.tokens import Tokens

    job = Job(name="j", dataset="d", batch=4, micro_batch=4, seed=7, model=Model(context=CONTEXT))
    feed = Feed(Tokens(folder, CONTEXT), job, Group(0, 1, torch.device("cpu"), None))
    for position in (0, 4, 8, 2, 6, 500, 508, 10**9, 0):
        [(rows, _)] = feed.take(position)
        assert rows[:, 0].tolist() == (samples_at(np.arange(position, position + 4), 100, 7) + 1).tolist()


def test_a_feed_says_while_it_reads_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """What a stalled file system then holds up must not count as a hang; see `Run.promise`."""
    from threading import Event

    import torch

    from trainer.train.config import Job, Model
    from trainer.train.feed import Feed
    from trainer.train.group import Group
    from trainer.train.tokens import Tokens

    stalled, calls, gather = Event(), [], Tokens.gather

    def stalling(self, *arguments):
        calls.append(arguments)
        if len(calls) > 1:
            stalled.wait(30)
        gather(self, *arguments)

    monkeypatch.setattr(Tokens, "gather", stalling)
    job = Job(name="j", dataset="d", batch=4, micro_batch=4, model=Model(context=CONTEXT))
    feed = Feed(Tokens(folder, CONTEXT), job, Group(0, 1, torch.device("cpu"), None))
    assert not feed.reading
    feed.take(0)
    assert feed.reading
    stalled.set()
    feed.take(4)
    feed._ahead[1].result(30)
    assert not feed.reading
