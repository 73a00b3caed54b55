"""What the loop computes: the same as one big batch on one rank, whatever shares it out, cuts it off or goes wrong."""

import gc
import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainer.train import loop
from trainer.train.setting import from_environment

pytestmark = pytest.mark.torch

NEVER = {"drain_at": None}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses_of(folder: Path) -> list[float]:
    return [line["loss"] for line in lines_of(folder) if "loss" in line]


def events_of(folder: Path, name: str) -> list[dict[str, Any]]:
    return [line for line in lines_of(folder) if line.get("event") == name]


def weights_of(folder: Path, step: int) -> dict[str, Any]:
    path = folder / "store" / "checkpoints" / f"step-{step:09d}"
    return {name: torch.load(path / f"{name}.pt", weights_only=True) for name in ("model", "optimizer")}


def same(first: Any, second: Any) -> bool:
    """Whether two trees of tensors and values are equal bit for bit."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


# --- One step


@pytest.mark.parametrize(
    ("world", "batch", "micro_batch", "more"),
    [
        (2, 7, 3, {}),
        (3, 7, 2, {}),
        (3, 2, 1, {}),
        (2, 7, 1, {"sharding": "fsdp"}),
        (3, 2, 1, {"sharding": "fsdp"}),
        (2, 7, 3, {"activation_checkpointing": True}),
        (2, 7, 3, {"activation_checkpointing": True, "sharding": "fsdp"}),
    ],
)
def test_uneven_shares_give_the_gradient_of_one_big_batch(ranks, tiny, tmp_path: Path, world, batch, micro_batch, more):
    job = tiny | {"batch": batch, "micro_batch": batch, "clip": 1e9}
    values = {"path": str(tmp_path / "whole.pt"), "poison": False}
    (whole,) = ranks.run("gradients", 1, job, tmp_path, **values)
    values["path"] = str(tmp_path / "shared.pt")
    shared = ranks.run("gradients", world, job | {"micro_batch": micro_batch} | more, tmp_path, **values)
    # Float32's sums in another order: two units in the last place of a loss of 5 are 2e-7 of it.
    assert [answer["loss"] for answer in shared] == pytest.approx([whole["loss"]] * world, rel=1e-6)
    pairs = zip(torch.load(tmp_path / "whole.pt"), torch.load(tmp_path / "shared.pt"), strict=True)
    assert all(torch.allclose(one, many, rtol=1e-5, atol=1e-6) for one, many in pairs)


@pytest.mark.parametrize(("precision", "sharding"), [("fp32", "ddp"), ("fp16", "ddp"), ("fp16", "fsdp")])
def test_a_gradient_that_is_no_number_on_one_rank_moves_no_rank(ranks, tiny, tmp_path: Path, precision, sharding):
    job = tiny | {"precision": precision, "sharding": sharding}
    poison = {0: {"path": str(tmp_path / "0"), "poison": False}, 1: {"path": str(tmp_path / "1"), "poison": True}}
    answers = ranks.run("gradients", 2, job, tmp_path, per_rank=poison)
    assert [answer["moved"] for answer in answers] == [False, False]
    assert answers[0]["scale"] == answers[1]["scale"] == (1.0 if precision == "fp32" else 32768.0)
    poison[1]["poison"] = False
    assert all(answer["moved"] for answer in ranks.run("gradients", 2, job, tmp_path, per_rank=poison))


def test_a_run_whose_gradient_stays_no_number_ends_on_every_rank_with_the_reason(ranks, tiny, tmp_path: Path):
    job = tiny | {"steps": 40, "learning_rate": 1e30, "clip": 1e30}
    answers = ranks.run("train", 2, job, tmp_path, **NEVER)
    assert all("DivergedError" in answer["error"] and "for 10 steps in a row" in answer["error"] for answer in answers)


DIVERGES = {"learning_rate": 1e30, "clip": 1e30}
"""After a step or two, weights that no gradient comes from."""


def finite(folder: Path) -> set[int]:
    return {line["step"] for line in lines_of(folder) if line.get("grad_norm") is not None}


def test_a_run_that_diverges_is_not_saved_and_diverges_again_from_the_checkpoint_before(ranks, tiny, tmp_path: Path):
    """Lightning#18828: else its steps would be counted anew after each restart, and it would end well on no model."""
    job = tiny | DIVERGES | {"steps": 40, "checkpoint": {"every_steps": 1}}
    for drain_at in (7, 7, None):
        answers = ranks.run("train", 2, job, tmp_path, drain_at=drain_at)
        if drain_at:
            assert answers == [{"code": 75}] * 2
    good = finite(tmp_path)
    assert good < {1, 2, 3}
    assert {event["step"] for event in events_of(tmp_path, "checkpoint")} == good
    assert {event["step"] for event in events_of(tmp_path, "resume")} == {max(good)}
    assert all("for 10 steps in a row" in answer["error"] for answer in answers)


def test_a_run_that_ends_while_it_diverges_is_not_done(ranks, tiny, tmp_path: Path):
    answers = ranks.run("train", 2, tiny | DIVERGES | {"steps": 6}, tmp_path, **NEVER)
    assert all("DivergedError: step 6: the gradient was not finite" in answer["error"] for answer in answers)
    assert not (tmp_path / "store" / "checkpoints" / "step-000000006").exists()


def test_a_step_that_is_skipped_on_weights_of_use_is_saved_with_the_next_or_the_last(ranks, tiny, tmp_path: Path):
    """fp16's scaler skips a step whenever its scale was too large, be it the last one."""
    job = tiny | {"steps": 8, "checkpoint": {"every_steps": 3}}
    assert ranks.run("train", 2, job, tmp_path, overflows=[3, 8], **NEVER) == [{"code": 0}] * 2
    assert {event["step"] for event in events_of(tmp_path, "checkpoint")} >= {4, 8}
    assert 3 not in {event["step"] for event in events_of(tmp_path, "checkpoint")}


# --- A whole run


def test_loss_falls_on_real_text(ranks, tiny, tmp_path: Path):
    job = tiny | {"steps": 60, "batch": 16, "micro_batch": 16, "learning_rate": 1e-2}
    assert ranks.run("train", 1, job, tmp_path, **NEVER) == [{"code": 0}]
    losses = losses_of(tmp_path)
    assert 5 < losses[0] < 6, "a new model knows nothing: the log of 257 tokens"
    assert losses[-1] < losses[0] * 2 / 3
    steps = [line for line in lines_of(tmp_path) if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 61))
    assert [line["tokens"] for line in steps] == [step * 16 * 32 for step in range(1, 61)]


@pytest.mark.parametrize(
    "how",
    [
        {"precision": "fp32"},
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"precision": "fp16", "sharding": "fsdp", "activation_checkpointing": True},
        # One block and one shape of batches, by the compiler's first half: the other takes a minute of C++.
        {"compile": True, "batch": 8, "micro_batch": 4, "layers": 1, "backend": "aot_eager"},
        pytest.param({"compile": True}, marks=pytest.mark.slow),
        pytest.param({"compile": True, "sharding": "fsdp", "activation_checkpointing": True}, marks=pytest.mark.slow),
    ],
)
def test_a_run_cut_twice_computes_bit_for_bit_what_an_uncut_one_does(ranks, tiny, tmp_path: Path, how: dict[str, Any]):
    backend = {"backend": how.pop("backend", "inductor")}
    tiny["model"] |= {"dropout": 0.1, "layers": how.pop("layers", 2)}
    job = tiny | how
    assert ranks.run("train", 2, job, tmp_path / "uncut", **NEVER, **backend) == [{"code": 0}] * 2
    # Asked on one rank each time, so that the other only follows; the second cut comes one step after the resume.
    for rank, drain_at in ((1, 5), (0, 1)):
        asked = {0: {"drain_at": None}, 1: {"drain_at": None}} | {rank: {"drain_at": drain_at}}
        assert ranks.run("train", 2, job, tmp_path / "cut", per_rank=asked, **backend) == [{"code": 75}] * 2
    assert ranks.run("train", 2, job, tmp_path / "cut", **NEVER, **backend) == [{"code": 0}] * 2
    assert [event["step"] for event in events_of(tmp_path / "cut", "drain")] == [5, 6]
    assert [event["step"] for event in events_of(tmp_path / "cut", "resume")] == [5, 6]
    assert losses_of(tmp_path / "cut") == losses_of(tmp_path / "uncut")
    assert same(weights_of(tmp_path / "cut", 12), weights_of(tmp_path / "uncut", 12))


def test_a_run_cut_on_three_ranks_goes_on_bit_for_bit(ranks, tiny, tmp_path: Path):
    """With three ranks the order in which a sum is taken depends on where a gradient lies in its bucket."""
    ranks.run("train", 3, tiny, tmp_path / "uncut", **NEVER)
    ranks.run("train", 3, tiny, tmp_path / "cut", drain_at=5)
    ranks.run("train", 3, tiny, tmp_path / "cut", **NEVER)
    assert same(weights_of(tmp_path / "cut", 12), weights_of(tmp_path / "uncut", 12))


def test_another_world_size_computes_the_same_within_rounding(ranks, tiny, tmp_path: Path):
    ranks.run("train", 2, tiny, tmp_path / "uncut", **NEVER)
    for world, drain_at in ((2, 4), (1, 4), (3, None)):
        ranks.run("train", world, tiny, tmp_path / "cut", drain_at=drain_at)
    assert [(event["world_before"], event["world"]) for event in events_of(tmp_path / "cut", "resume")] == [
        (2, 1),
        (1, 3),
    ]
    assert losses_of(tmp_path / "cut") == pytest.approx(losses_of(tmp_path / "uncut"), abs=1e-5)
    cut, uncut = weights_of(tmp_path / "cut", 12)["model"], weights_of(tmp_path / "uncut", 12)["model"]
    assert all(torch.allclose(cut[name], uncut[name], rtol=0, atol=1e-4) for name in uncut)


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_ranks_wait_for_one_that_compiles_for_longer_than_a_collective_may_take(ranks, tiny, tmp_path: Path, sharding):
    """A node that is new compiles what its peers' caches hold: each generation with it would end in its first step."""
    tiny["model"]["layers"] = 1
    job = tiny | {"steps": 2, "sharding": sharding, "compile": True}
    slow = {"work_s": 4, "backend": "", **NEVER}
    assert ranks.run("train", 2, job, tmp_path, per_rank={1: {"late_at": 1}}, **slow) == [{"code": 0}] * 2


@pytest.mark.parametrize(("compiles", "late_at"), [(True, 2), (False, 1)])
def test_but_not_once_it_has_compiled_nor_where_nothing_is_compiled(ranks, tiny, tmp_path: Path, compiles, late_at):
    tiny["model"]["layers"] = 1
    slow = {"work_s": 1, "backend": "", **NEVER}
    job = tiny | {"steps": 3, "compile": compiles}
    first, _ = ranks.run("train", 2, job, tmp_path, per_rank={1: {"late_at": late_at}}, **slow)
    assert "Timed out waiting" in first["error"]


def test_a_sharded_run_goes_on_with_any_number_of_ranks_and_unsharded(ranks, tiny, tmp_path: Path):
    """Its checkpoints are whole, like any other's: a run outgrows a GPU, or a fleet shrinks, in the midst of it."""
    ranks.run("train", 2, tiny, tmp_path / "uncut", **NEVER)
    ways = [(2, "fsdp", 3), (3, "fsdp", 3), (1, "ddp", 3), (2, "fsdp", None)]
    for world, sharding, drain_at in ways:
        ranks.run("train", world, tiny | {"sharding": sharding}, tmp_path / "cut", drain_at=drain_at)
    assert [event["world"] for event in events_of(tmp_path / "cut", "resume")] == [3, 1, 2]
    assert losses_of(tmp_path / "cut") == pytest.approx(losses_of(tmp_path / "uncut"), abs=1e-5)
    cut, uncut = weights_of(tmp_path / "cut", 12), weights_of(tmp_path / "uncut", 12)
    assert all(torch.allclose(cut["model"][name], uncut["model"][name], rtol=0, atol=1e-4) for name in uncut["model"])
    moments = (weights["optimizer"]["optimizer"]["state"] for weights in (cut, uncut))
    for one, other in zip(*(list(state.values()) for state in moments), strict=True):
        assert all(torch.allclose(one[name], other[name], rtol=0, atol=1e-4) for name in ("exp_avg", "exp_avg_sq"))


def test_ranks_agree_on_rank_zeros_checkpoint_whatever_lies_on_their_own_scratch(ranks, tiny, tmp_path: Path):
    ranks.run("train", 2, tiny, tmp_path, drain_at=8)
    stale = tmp_path / "scratch-1" / "checkpoints"
    (tmp_path / "scratch-0" / "checkpoints").rename(tmp_path / "lost")
    stale.mkdir(parents=True)
    (tmp_path / "lost" / "step-000000004").rename(stale / "step-000000004")
    assert ranks.run("train", 2, tiny, tmp_path, **NEVER) == [{"code": 0}] * 2
    assert [event["step"] for event in events_of(tmp_path, "resume")] == [8]


def test_a_run_that_is_done_ends_at_once_and_completes_its_upload(ranks, tiny, tmp_path: Path):
    ranks.run("train", 1, tiny, tmp_path, **NEVER)
    (tmp_path / "store" / "checkpoints" / "step-000000012" / "manifest.json").unlink()
    assert ranks.run("train", 1, tiny, tmp_path, **NEVER) == [{"code": 0}]
    assert len(losses_of(tmp_path)) == 12
    assert (tmp_path / "store" / "checkpoints" / "step-000000012" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"seed": 2}, "has seed 1, but the job 2"), ({"dataset": "other"}, "has dataset own-source, but the job other")],
)
def test_another_jobs_checkpoint_is_refused_on_every_rank(ranks, tiny, tmp_path: Path, change, message: str):
    ranks.run("train", 2, tiny, tmp_path, drain_at=2)
    answers = ranks.run("train", 2, tiny | change, tmp_path, **NEVER)
    assert all(answer["error"].startswith("CheckpointError") and message in answer["error"] for answer in answers)


def test_a_store_that_fails_is_recorded_while_training_goes_on_and_fails_the_end(ranks, tiny, tmp_path: Path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "checkpoints").write_text("in the way")
    answers = ranks.run("train", 2, tiny, tmp_path, **NEVER)
    assert all("CheckpointError: checkpoint of step 12 was not saved" in answer["error"] for answer in answers)
    assert len(losses_of(tmp_path)) == 12
    assert {event["step"] for event in events_of(tmp_path, "checkpoint-failed")} >= {4, 12}
    assert (tmp_path / "scratch-0" / "checkpoints" / "step-000000012").is_dir()
    (tmp_path / "store" / "checkpoints").unlink()
    assert ranks.run("train", 2, tiny, tmp_path, **NEVER) == [{"code": 0}] * 2


def test_a_drain_whose_checkpoint_the_store_doesnt_take_is_no_failure(ranks, tiny, tmp_path: Path):
    """Nodes would be blamed, and a few changes of the fleet in a row would end the run."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "checkpoints").write_text("in the way")
    assert ranks.run("train", 2, tiny, tmp_path, drain_at=2) == [{"code": 75}] * 2
    assert [event["step"] for event in events_of(tmp_path, "checkpoint-failed")] == [2]


# --- As a text


def test_the_loop_reads_in_one_sitting_and_knows_no_cloud():
    lines = Path(loop.__file__).read_text().splitlines()
    assert len(lines) < 300
    clouds = r"\b(aws|amazon|ec2|s3|boto3?|imds|efa|alibaba|alicloud|aliyun|ecs|oss|erdma|lustre|nas)\b"
    assert [line for line in lines if re.search(clouds, line, re.IGNORECASE)] == []


@pytest.mark.parametrize(("reading", "seconds"), [(False, 12.0), (True, loop.STEP_S)])
def test_a_rank_whose_data_stalls_has_time_whatever_it_is_at(reading: bool, seconds: float):
    """Its own file system would else get a node the blame, as numpy reads with Python's lock held."""
    promised = []
    pulse = SimpleNamespace(promise=lambda what, within_s: promised.append((what, within_s)))
    run = SimpleNamespace(step=3, within_s=12.0, pulse=pulse, feed=SimpleNamespace(reading=reading))
    loop.Run.promise(run, "computing")
    assert promised == [("step 3, computing", seconds)]


def test_the_collector_of_cycles_runs_while_a_run_trains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It is stopped while torch is imported. Older torch leaves each checkpoint that it saves in a cycle."""
    seen = []

    def finish():
        seen.append((gc.isenabled(), gc.get_freeze_count() > 0))

    idle = SimpleNamespace(promise=lambda *_: None, wait=lambda _: True)
    run = SimpleNamespace(step=1, pulse=idle, saver=idle, finish=finish)
    for name, stand_in in (("joined", nullcontext), ("Metrics", nullcontext), ("Run", lambda *_: run)):
        monkeypatch.setattr(loop, name, lambda *arguments, _made=stand_in, **_: _made(*arguments[:1]))
    setting = from_environment({}, run="r", data=tmp_path, store=str(tmp_path))
    gc.disable()
    try:
        loop.train(SimpleNamespace(steps=1, deterministic=False), setting, found=lambda: None, asked=lambda: False)
    finally:
        gc.enable()
        gc.unfreeze()
    assert seen == [(True, True)]
