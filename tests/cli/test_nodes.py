from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from cli.nodes import Pulse, nodes
from trainer import layout
from trainer.node.peers import Ended


def states(prefix: Any, lost: tuple[str, ...] = ()) -> dict[str, str]:
    return {node.node: node.state for node in nodes(prefix.history(), lost)}


def test_a_node_that_boots_is_at_the_step_after_its_last(prefix: Any) -> None:
    prefix.boot("i-1", 0, upto="identify")
    prefix.boot("i-2", 0, failed="fabric")
    assert states(prefix) == {"i-1": "booting: storage", "i-2": "boot failed: fabric"}


def test_a_step_that_only_some_clusters_have_is_neither_awaited_nor_counted(prefix: Any) -> None:
    for name in ("i-1", "i-2"):
        prefix.boot(name, 0, upto="identify")
    report = json.loads(prefix.store.get(layout.boot_report("i-2")))
    report["steps"].append({"step": "harden", "status": "ok", "seconds": 0.2, "detail": "fine"})
    prefix.store.put(layout.boot_report("i-2"), json.dumps(report).encode())
    assert states(prefix) == {"i-1": "booting: storage", "i-2": "booting: storage"}


def test_a_node_waits_until_a_generation_has_it(prefix: Any) -> None:
    prefix.boot("i-1", 0, upto="health")
    prefix.card("i-1")
    assert states(prefix) == {"i-1": "waiting"}
    prefix.generation(1, ["i-1"])
    assert states(prefix) == {"i-1": "starting, rank 0"}
    prefix.train(1, 1, 2, 5.0)
    assert states(prefix) == {"i-1": "training, rank 0"}


def test_ranks_are_those_of_the_nodes_workers(prefix: Any) -> None:
    for node in ("i-1", "i-2"):
        prefix.card(node, workers=8)
    prefix.generation(1, ["i-1", "i-2"], workers=8)
    prefix.train(1, 1, 2, 5.0)
    assert states(prefix) == {"i-1": "training, ranks 0 to 7", "i-2": "training, ranks 8 to 15"}


def test_a_member_that_stands_still_is_lost_and_one_that_drained_has_left(prefix: Any) -> None:
    prefix.card("i-1")
    prefix.card("i-2", state="draining")
    prefix.generation(1, ["i-1", "i-2"])
    prefix.train(1, 1, 2, 5.0)
    assert states(prefix) == {"i-1": "training, rank 0", "i-2": "draining"}
    assert states(prefix, ("i-1", "i-2")) == {"i-1": "lost", "i-2": "left"}


def test_an_own_program_that_tells_what_is_safe_and_no_metrics_runs(prefix: Any) -> None:
    prefix.generation(1, ["i-1", "i-2"])
    prefix.card("i-1", progress=60)
    prefix.card("i-2")
    assert states(prefix) == {"i-1": "running, rank 0", "i-2": "running, rank 1"}


def test_how_a_members_workers_ended(prefix: Any) -> None:
    prefix.card("i-1", ended=Ended(1, "done"))
    prefix.card("i-2", ended=Ended(1, "failed", "rank 1 was killed by SIGKILL"))
    prefix.card("i-3", ended=Ended(1, "drained"))
    prefix.generation(1, ["i-1", "i-2", "i-3"])
    assert states(prefix) == {
        "i-1": "done", "i-2": "failed: rank 1 was killed by SIGKILL", "i-3": "saved, waiting",
    }  # fmt: skip


def test_a_node_in_quarantine_says_why(prefix: Any) -> None:
    prefix.generation(1, ["i-1"])
    prefix.card("i-1")
    card = replace(prefix.history().cards["i-1"], state="quarantined", reason="its workers failed 3 times in a row")
    prefix.store.put("control/members/i-1/card.json", card.json())
    assert states(prefix) == {"i-1": "quarantined: its workers failed 3 times in a row"}


def test_an_agent_that_came_back_is_no_member_until_a_generation_has_its_new_self(prefix: Any) -> None:
    prefix.generation(1, ["i-1"])
    prefix.card("i-1")
    card = prefix.history().cards["i-1"]
    prefix.store.put("control/members/i-1/card.json", type(card)(**{**vars(card), "incarnation": "second"}).json())
    assert states(prefix) == {"i-1": "waiting"}


def test_at_the_end_the_last_generations_nodes_are_done_and_others_were_lost(prefix: Any) -> None:
    history = prefix.eventful()
    one, two, three = prefix.nodes
    assert [(node.node, node.state) for node in nodes(history)] == [(one, "done"), (three, "done"), (two, "lost")]


def test_a_node_is_lost_once_its_beat_stood_still_for_six_observed_seconds() -> None:
    now = 0.0
    pulse = Pulse(clock=lambda: now)
    assert pulse.look({"i-1": "a", "i-2": "a"}) == frozenset()
    for second in range(1, 7):
        now = float(second)
        assert pulse.look({"i-1": f"a{second}", "i-2": "a"}) == frozenset()
    now = 6.5
    assert pulse.look({"i-1": "a6", "i-2": "a"}) == {"i-2"}
    assert pulse.look({"i-1": "a6", "i-2": "b"}) == frozenset()


def test_a_watcher_that_slept_blames_no_node() -> None:
    now = 0.0
    pulse = Pulse(clock=lambda: now)
    pulse.look({"i-1": "a"})
    now = 3600.0
    assert pulse.look({"i-1": "a"}) == frozenset()
