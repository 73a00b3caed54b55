from __future__ import annotations

import io
import json
from collections.abc import Collection
from typing import Any

import pytest
from rich.console import Console

from cli import status
from cli.account import Group
from trainer.node.peers import Ended


def printed(history: Any, now: float, alive: Collection[str] | None = None, *, stopped: bool = False) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(status.status(history, now=now, alive=alive, stopped=stopped))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_under_way_shows_nodes_generation_and_progress(prefix: Any) -> None:
    prefix.boot("i-1", 1.0)
    prefix.card("i-1")
    prefix.generation(1, ["i-1"])
    at = prefix.train(1, 1, 120, 6.0)
    prefix.checkpoint(1, 100, at - 4)
    text = printed(prefix.history(), prefix.began + at)
    for said in ("training, rank 0", "generation 1", "world 1", "120/400", "checkpoint at 100, 4 s ago", "left",
                 "the run goes on"):  # fmt: skip
        assert said in text


def test_a_run_that_is_over_has_no_time_left(prefix: Any) -> None:
    text = printed(prefix.eventful(), prefix.began + 500)
    assert "the run is done" in text
    assert "left" not in text
    assert "ago" not in text


def test_an_own_program_without_metrics_shows_what_it_said_is_safe(prefix: Any) -> None:
    prefix.generation(1, ["i-1"])
    prefix.card("i-1", progress=60)
    text = printed(prefix.history(), prefix.began)
    assert "step 60 is safe" in text
    assert "no step yet" not in text
    assert status.progress_line(prefix.history(), prefix.began) == "step 60 is safe"
    read = status.as_json(prefix.history(), now=0.0)
    assert (read["verdict"], read["safe"]) == ("Running", 60)


def test_a_failed_run_is_told_how_to_go_on(prefix: Any) -> None:
    prefix.end(9.0, succeeded=False, reason="boom")
    console = Console(file=io.StringIO(), width=120)
    console.print(status.status(prefix.history(), retry="trainwright retry --stack a"))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "the run failed: boom. `trainwright retry --stack a` gives it another try" in said


def test_the_first_generation_has_no_reason_to_tell(prefix: Any) -> None:
    prefix.generation(1, ["i-1"])
    assert "generation 1 · 1 node · world 1\n" in printed(prefix.history(), prefix.began)


@pytest.mark.parametrize("width", [80, 120])
def test_no_id_is_ever_cut_short(prefix: Any, width: int) -> None:
    for node in prefix.nodes:
        prefix.boot(node, 1.0)
        prefix.card(node, ended=Ended(1, "failed", "rank 1 exited with 1: " + "woe " * 20))
    prefix.generation(1, list(prefix.nodes))
    console = Console(file=io.StringIO(), width=width)
    console.print(status.status(prefix.history(), now=prefix.began))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(node in text for node in prefix.nodes)
    assert text.count("4.6 s") == len(prefix.nodes)


def test_nothing_reported_yet_is_said(prefix: Any) -> None:
    text = printed(prefix.history(), prefix.began)
    assert "no node has reported yet" in text
    assert "waiting for the first generation" in text


def test_nodes_beyond_a_screenful_are_summed_up(prefix: Any) -> None:
    names = [f"i-{number:02d}" for number in range(64)]
    for name in names:
        prefix.card(name)
    prefix.generation(1, names)
    prefix.train(1, 1, 2, 1.0, world=64)
    text = printed(prefix.history(), prefix.began)
    assert "and 52 more" in text
    assert "52 training" in text
    assert len(text.splitlines()) < 24


def test_programs_read_plain_json(prefix: Any) -> None:
    history = prefix.eventful()
    read = json.loads(json.dumps(status.as_json(history, now=0.0)))
    assert read["run"] == "local-7f3a"
    assert read["generation"] == {"number": 3, "world": 2, "why": f"{prefix.nodes[2]}: joined"}
    assert (read["step"], read["steps"], read["repeated"]) == (400, 400, 20)
    assert read["outcome"]["succeeded"] is True
    assert [node["state"] for node in read["nodes"]] == ["done", "done", "lost"]
    assert read["took_part"] == list(prefix.nodes)


def test_a_run_not_begun_is_json_too(prefix: Any) -> None:
    read = status.as_json(prefix.history(), now=0.0)
    assert (read["generation"], read["outcome"], read["nodes"], read["first_loss"]) == (None, None, [], None)


def test_a_node_that_the_group_has_no_more_is_lost(prefix: Any) -> None:
    for node in ("i-1", "i-2"):
        prefix.card(node)
    prefix.boot("i-3", 1.0, upto="storage")
    prefix.generation(1, ["i-1", "i-2"])
    prefix.train(1, 1, 2, 5.0)
    read = status.as_json(prefix.history(), now=0.0, alive={"i-1"})
    assert {node["node"]: node["state"] for node in read["nodes"]} == {
        "i-1": "training, rank 0", "i-2": "lost", "i-3": "lost",
    }  # fmt: skip
    assert "the run goes on" in printed(prefix.history(), prefix.began, {"i-1"})


def test_a_cluster_without_nodes_is_said_to_stand_still(prefix: Any) -> None:
    prefix.card("i-1")
    prefix.generation(1, ["i-1"])
    prefix.train(1, 1, 2, 5.0)
    text = printed(prefix.history(), prefix.began, frozenset())
    assert "no node is left: the run stands still" in text
    assert "the run goes on" not in text
    assert "training, rank" not in text


def test_nodes_that_left_after_the_end_change_nothing_about_it(prefix: Any) -> None:
    history = prefix.eventful()
    assert printed(history, prefix.began, frozenset()) == printed(history, prefix.began)


def test_a_loss_that_is_not_finite_is_null_for_programs(prefix: Any) -> None:
    prefix.generation(1, ["i-1"])
    prefix.train(1, 1, 9, 1.0)
    prefix.diverge(1, 10, 4.0)
    read = status.as_json(prefix.history(), now=0.0)
    assert (read["step"], read["last_loss"]) == (10, None)
    json.dumps(read, allow_nan=False)
    assert "loss not finite" in printed(prefix.history(), prefix.began)


def _failing(prefix: Any, count: int = 3, at: float = 0.0) -> None:
    for number in range(count):
        prefix.boot(f"i-{number}", at + number, failed="fabric", detail="Short: 0 EFA devices")


def test_b8_b9_boots_that_fail_over_and_over_are_said_of_the_run_with_their_reason(prefix: Any) -> None:
    """The fleet is about to be set to zero, or has been: who looks must see why."""
    _failing(prefix)
    for alive in (None, frozenset(), {"i-9"}):
        text = " ".join(printed(prefix.history(), prefix.began + 60, alive).split())
        assert "3 boots failed within an hour and none succeeded, the last at fabric: Short: 0 EFA devices." in text
        assert "At nodes.failed_boots of them the fleet is set to zero" in text
    read = status.as_json(prefix.history(), now=prefix.began + 60)
    assert read["failing"] == ["fabric: Short: 0 EFA devices"] * 3


def test_two_bad_nodes_an_hours_old_row_of_them_or_one_good_among_them_is_no_alarm(prefix: Any) -> None:
    _failing(prefix, 2)
    assert status.as_json(prefix.history(), now=prefix.began + 60)["failing"] == []
    _failing(prefix)
    assert status.as_json(prefix.history(), now=prefix.began + 3700)["failing"] == []
    prefix.boot("i-8", 50.0, upto="storage")
    assert status.as_json(prefix.history(), now=prefix.began + 60)["failing"] != []
    prefix.boot("i-9", 50.0)
    assert status.as_json(prefix.history(), now=prefix.began + 60)["failing"] == []


def test_b8_b9_a_stopped_fleet_is_said_with_its_reason_and_what_brings_it_back(prefix: Any) -> None:
    """Also a day later, when no boot is recent any more."""
    said = "the fleet is stopped and launches no nodes: too many failed to boot"
    text = " ".join(printed(prefix.history(), prefix.began, frozenset(), stopped=True).split())
    assert f"{said}. Once that is mended, bring it back by `trainwright retry`" in text
    _failing(prefix)
    for later in (60, 86_400):
        text = " ".join(printed(prefix.history(), prefix.began + later, frozenset(), stopped=True).split())
        assert f"{said}, the last at fabric: Short: 0 EFA devices." in text
        assert "the run stands still" not in text
    assert status.as_json(prefix.history(), now=prefix.began, stopped=True)["stopped"] is True
    assert status.as_json(prefix.history(), now=prefix.began)["stopped"] is False


def test_b8_b9_a_fleet_at_zero_is_stopped_where_its_newest_boots_failed_and_idle_or_asleep_where_not(
    prefix: Any,
) -> None:
    """A breaker on Alibaba Cloud suspends nothing: neither does what has a fleet rest."""
    zero, some = Group(0.0, frozenset(), wanted=0), Group(0.0, frozenset({"i-1"}), wanted=2)
    _failing(prefix)
    assert status.is_stopped(prefix.history(), zero)
    assert not status.is_stopped(prefix.history(), some)
    assert status.is_stopped(prefix.history(), Group(0.0, frozenset(), stopped=True, wanted=2))
    prefix.boot("i-9", 500.0)
    assert not status.is_stopped(prefix.history(), zero), "by a schedule, or by hand: the newest node had booted"


def test_b8_b9_a_fleet_at_zero_after_its_run_has_ended_is_idle(prefix: Any) -> None:
    history = prefix.eventful()
    _failing(prefix, at=900.0)
    history.refresh()
    assert history.outcome
    assert not status.is_stopped(history, Group(0.0, frozenset(), wanted=0))


def test_a_run_that_is_done_hides_no_stopped_fleet(prefix: Any) -> None:
    """Others may wait in the cluster's queue."""
    text = " ".join(printed(prefix.eventful(), prefix.began + 500, stopped=True).split())
    assert "the run is done the fleet is stopped" in text
