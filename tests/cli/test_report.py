from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from cli import report


def printed(history: Any, facts: Any, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(report.terminal(history, facts, now=0.0))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_says_all_that_a_run_came_to(prefix: Any, facts: Any, width: int) -> None:
    text = printed(prefix.eventful(), facts, width)
    one, two, three = prefix.nodes
    for said in (
        "Trained to the end", "run local-7f3a on stack local, embedded cloud on this machine",
        "400 of 400, 20 done again", "1,638,400", "down 66 %", "tokens/s (median)", one, two, three,
        f"2  world 1: {two}: lost", "from group created to first optimizer step", "wall time",
        facts.checkpoints_url, "the newest is of step 400", str(facts.report_path),
    ):  # fmt: skip
        assert said in text
    assert all(len(line) <= width for line in text.splitlines())


def test_a_run_that_never_trained_says_so_without_figures(prefix: Any, facts: Any) -> None:
    text = printed(prefix.barren("no such dataset"), facts, 80)
    assert "Failed: no such dataset" in text
    assert "none took part" in text
    assert "tokens/s" not in text


def test_many_generations_are_summed_up(prefix: Any, facts: Any) -> None:
    for number in range(1, 31):
        prefix.generation(number, ["i-1"], "i-1: rank 0 exited with 1")
    text = printed(prefix.history(), facts, 80)
    assert "22 earlier" in text
    assert "30  world 1: i-1: rank 0 exited with 1" in text


def test_a_loss_that_became_no_number_is_said_without_a_fall(prefix: Any, facts: Any) -> None:
    prefix.generation(1, ["i-1"])
    prefix.train(1, 1, 9, 1.0)
    prefix.diverge(1, 10, 4.0)
    text = printed(prefix.history(), facts, 80)
    assert "→ not finite\n" in "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_an_own_program_without_metrics_ends_well_as_far_as_it_said(prefix: Any, facts: Any) -> None:
    prefix.generation(1, ["i-1"])
    prefix.card("i-1", progress=60)
    prefix.end(9.0)
    text = printed(prefix.history(), facts, 80)
    assert "Ended well" in text
    assert "none told; 60 is safe, the program says" in text


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_failed_run_alone_is_told_how_to_go_on(prefix: Any, facts: Any, succeeded: bool) -> None:
    prefix.end(9.0, succeeded=succeeded)
    command = "trainwright retry --stack local"
    assert (command in printed(prefix.history(), replace(facts, retry=command), 120)) is not succeeded
    assert "another try" not in printed(prefix.history(), facts, 120)


def test_what_stays_is_the_last_line(prefix: Any, facts: Any) -> None:
    text = printed(prefix.eventful(), replace(facts, afterwards="make down ends the cluster"), 80)
    assert text.rstrip().splitlines()[-1].strip() == "make down ends the cluster"
