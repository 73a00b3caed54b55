from __future__ import annotations

import os
from typing import Any

from cli.moments import moments
from trainer import layout
from trainer.node.peers import Ended


def test_an_eventful_run_is_told_in_order(prefix: Any) -> None:
    _, two, three = prefix.nodes
    told = moments(prefix.eventful(), now=0.0)
    assert [moment.time for moment in told] == sorted(moment.time for moment in told)
    texts = [moment.text for moment in told]
    expected = [
        "generation 1: 2 nodes, world 2",
        "checkpoint at step 150 (3.1 MB)",
        f"generation 2: 1 node, world 1 ({two}: lost)",
        "resumed from step 150",
        f"{three}: booted in 4.6 s",
        "drained at step 220",
        f"generation 3: 2 nodes, world 2 ({three}: joined)",
        "all 400 steps done",
    ]
    assert [text for text in texts if text in expected] == expected
    assert {moment.tone for moment in told if moment.text.startswith("generation 2")} == {"bad"}


def test_each_thing_keeps_its_key_as_the_run_goes_on(prefix: Any) -> None:
    prefix.eventful()
    before = {moment.key for moment in moments(prefix.history(), now=0.0)}
    prefix.checkpoint(2, 190, 60.0)
    after = {moment.key for moment in moments(prefix.history(), now=9.0)}
    assert before < after
    assert len(after) == len(before) + 1


def test_a_generation_that_told_nothing_counts_from_when_it_was_formed(prefix: Any) -> None:
    """Not from the look that finds it: a second `up` of a failed run told of it after the run's end."""
    prefix.generation(1, ["i-1"])
    os.utime(prefix.store.root / layout.generation(1), (prefix.began + 3,) * 2)
    prefix.boot("i-1", 0.0)
    told = [(moment.time - prefix.began, moment.text) for moment in moments(prefix.history(), now=9e9)]
    assert told[0] == (3.0, "generation 1: 1 node, world 1")
    assert told[1][1] == "i-1: booted in 4.6 s"


def test_what_befalls_members_is_told_as_it_is_seen(prefix: Any) -> None:
    prefix.card("i-1", ended=Ended(1, "failed", "rank 0 exited with 1: boom\x1b[31m"))
    prefix.card("i-2", state="draining")
    prefix.card("i-3")
    prefix.generation(1, ["i-1", "i-2", "i-3"])
    texts = [moment.text for moment in moments(prefix.history(), now=5.0, lost=["i-3"]) if moment.time == 5.0]
    assert {"i-1: rank 0 exited with 1: boom [31m", "i-2: draining", "i-3: no sign of life"} <= set(texts)


def test_boots_that_fail_or_go_on_without_a_step_say_why(prefix: Any) -> None:
    prefix.boot("i-1", 0.0, failed="storage", detail="disk full")
    assert [moment.text for moment in moments(prefix.history(), now=0.0)] == ["i-1: boot failed at storage: disk full"]
