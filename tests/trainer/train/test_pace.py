"""How long a rank gives itself for its next step, and what it says meanwhile."""

import pytest

from trainer.train.pace import ENOUGH, LEAST_S, STEP_S, TIMES, limit


def test_nothing_is_made_of_too_few_steps():
    assert limit([]) == limit([0.01] * (ENOUGH - 1)) == STEP_S


@pytest.mark.parametrize(
    ("taken", "seconds"),
    [
        ([0.005], LEAST_S),
        ([0.005, 1.9], LEAST_S),
        ([1.0, 4.0, 1.0], TIMES * 4.0),
        ([110.0], TIMES * 110.0),
        ([130.0], STEP_S),
        ([3000.0, 1.0], STEP_S),
    ],
    ids=str,
)
def test_the_slowest_step_that_is_remembered_sets_the_limit(taken, seconds):
    assert limit([min(taken)] * ENOUGH + taken) == seconds


@pytest.mark.torch
@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_a_rank_says_at_what_it_is_and_all_give_a_step_more_time_while_one_saves(ranks, tiny, tmp_path, sharding):
    """Which of them says that it waits for peers, and which doesn't, tells who holds all up."""
    job = tiny | {"steps": 32, "sharding": sharding, "checkpoint": {"every_steps": 30}}
    for said in ranks.run("promises", 2, job, tmp_path):
        steps = {number: [] for number in range(1, 33)}
        for what, within in said:
            if what.startswith("step "):
                number, _, rest = what.removeprefix("step ").partition(", ")
                steps[int(number)].append((rest, within))
        together = ["with its peers"] if sharding == "fsdp" else ["computing"]
        assert [rest for rest, _ in steps[25]] == ["reading data", *together, "with its peers", "its end"]
        limits = {number: {within for rest, within in of if rest != "reading data"} for number, of in steps.items()}
        assert limits[1] == {3600}
        assert limits[2] == limits[20] == {600}
        assert all(10 <= within < 600 for number in range(21, 30) for within in limits[number])
        assert limits[31] == {600}, "rank 0 may still copy, and then write, the checkpoint of step 30"
        assert {within for rest, within in steps[25] if rest == "reading data"} == {600}
        assert dict(steps[30])["a copy of it"] == 600
