"""Each line is whole, whatever cut the last writer off, and only rank 0 writes."""

import json
from pathlib import Path

from trainer.train.metrics import Metrics

STEP = {"step": 1, "steps": 2, "loss": 5.5, "lr": 1e-3, "grad_norm": 1.0, "tokens_per_second": 10.0, "step_ms": 1.0}


def test_lines_carry_time_generation_and_world(tmp_path: Path, capsys):
    path = tmp_path / "new" / "metrics.jsonl"
    with Metrics(path, generation=3, world=2) as metrics:
        metrics.step(**STEP)
        metrics.event("done", step=2)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["generation"] for line in lines] == [3, 3]
    assert [line["world"] for line in lines] == [2, 2]
    assert (lines[0]["loss"], lines[1]["event"]) == (5.5, "done")
    assert all(line["time"] > 1e9 for line in lines)
    assert "loss 5.5" in capsys.readouterr().out


def test_a_line_cut_short_by_a_kill_spoils_no_other(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step"')
    with Metrics(path) as metrics:
        metrics.event("resume", step=1)
    first, cut, new = path.read_text().splitlines()
    assert (json.loads(first)["step"], cut, json.loads(new)["event"]) == (1, '{"step"', "resume")


def test_a_loss_that_is_no_number_is_still_json(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    with Metrics(path) as metrics:
        metrics.step(**STEP | {"loss": float("nan"), "grad_norm": float("inf")})

    def refuse(text: str) -> float:
        raise AssertionError(f"{text} is not JSON")

    line = json.loads(path.read_text(), parse_constant=refuse)
    assert (line["loss"], line["grad_norm"]) == (None, None)


def test_other_ranks_write_nothing(capsys):
    with Metrics(None) as metrics:
        metrics.step(**STEP)
        metrics.event("done")
    assert capsys.readouterr().out == ""
