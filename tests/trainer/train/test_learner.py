"""How the learner is made: what each of the job's keys turns on, and what it costs those who don't ask for it."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.torch


def test_micro_steps_before_the_last_sum_nothing_and_gradients_lie_in_their_buckets(ranks, tiny, tmp_path: Path):
    """Accumulation that sends gradients at each micro-step pays the network once too often for each."""
    answers = ranks.run("built", 2, tiny | {"batch": 12, "micro_batch": 2}, tmp_path)
    assert [(answer["micro_steps"], answer["sums"]) for answer in answers] == [(3, 1), (3, 1)]
    assert all(answer["views"] and answer["fused"] for answer in answers)


def test_what_ranks_tell_each_other_travels_with_the_gradients(ranks, tiny, tmp_path: Path):
    """A collective of its own for three numbers would be a tenth of a small model's step."""
    answers = ranks.run("built", 2, tiny | {"batch": 12, "micro_batch": 2}, tmp_path)
    for answer in answers:
        assert (answer["drain"], answer["save"]) == (True, True)
        assert answer["all"] == ["all_reduce"] * answer["sums"], "more than the sums of gradients"


def test_sharding_leaves_each_rank_a_part_of_every_weight(ranks, tiny, tmp_path: Path):
    whole = [257 * 32, *(2 * [32, 3 * 32 * 32, 32 * 32, 32, 4 * 32 * 32, 4 * 32 * 32]), 32]
    first, second = ranks.run("built", 2, tiny | {"sharding": "fsdp"}, tmp_path)
    assert [one + other for one, other in zip(first["parts"], second["parts"], strict=True)] == whole
    assert max(first["parts"]) <= 129 * 32
    assert first["fused"]


@pytest.mark.parametrize("asked", [False, True])
def test_blocks_are_compiled_where_the_job_asks_for_it(ranks, tiny, tmp_path: Path, asked: bool):
    (answer,) = ranks.run("built", 1, tiny | {"compile": asked, "sharding": "fsdp"}, tmp_path)
    assert answer["compiled"] == [asked, asked]


def test_ranks_that_keep_nothing_ask_for_one_whole_tensor_after_another(monkeypatch):
    """A model of some hundred GB takes rank 0 minutes to copy: a collective asked for at its start would time out."""
    import torch

    from trainer.train.learner import copied

    done: list[str] = []

    class OnGpu(torch.Tensor):
        is_cuda = True

        def full_tensor(self):
            done.append("asked")
            return self

    class Stream:
        def synchronize(self):
            done.append("came")

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    parts = {"a": OnGpu([1.0]), "b": [OnGpu([2.0])]}
    assert copied(parts, keep=False) == {"a": None, "b": [None]}
    assert done == ["asked", "came"] * 2
