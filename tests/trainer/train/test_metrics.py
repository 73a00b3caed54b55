"""Each line is whole, whatever cut the last writer off, and only rank 0 writes."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

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


def test_a_disk_that_is_full_costs_the_record_and_not_the_run(tmp_path: Path, capsys):
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/full")
    with Metrics(path) as metrics:
        metrics.event("start", step=0)
        metrics.step(**STEP)
        path.unlink()
    said = capsys.readouterr().out
    assert said.count("No space left on device; steps and events that can't be written there are lost") == 1
    assert "loss 5.5" in said, "people read on"


def test_a_folder_that_can_not_be_made_is_tried_again(tmp_path: Path):
    (tmp_path / "log").write_text("in the way")
    path = tmp_path / "log" / "metrics.jsonl"
    with Metrics(path) as metrics:
        metrics.event("start", step=0)
        (tmp_path / "log").unlink()
        metrics.event("resume", step=1)
    assert json.loads(path.read_text())["event"] == "resume"


def test_a_line_that_found_no_room_to_its_end_spoils_no_other(tmp_path: Path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    with Metrics(path) as metrics:
        metrics.event("start", step=0)
        file = metrics._file
        monkeypatch.setattr(metrics, "_file", SimpleNamespace(write=lambda content: file.write(content[:9])))
        metrics.event("cut", step=1)
        monkeypatch.setattr(metrics, "_file", file)
        metrics.event("done", step=2)
    first, cut, last = path.read_text().splitlines()
    assert (json.loads(first)["event"], len(cut), json.loads(last)["event"]) == ("start", 9, "done")


def test_a_console_that_is_full_ends_nothing(tmp_path: Path, monkeypatch):
    with suppress(OSError), open("/dev/full", "w") as full:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", full)
        with Metrics(tmp_path / "metrics.jsonl") as metrics:
            metrics.event("start", step=0)
            metrics.event("done", step=0)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
