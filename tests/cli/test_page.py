from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from cli import page
from cli.history import History, Step
from cli.nodes import BOOT_STEPS

VOID = {"meta", "br", "link", "img", "hr"}
HOSTILE = '</title><script>alert("1")</script>\x1b[31m'


class Outline(HTMLParser):
    """Checks that every tag is closed where it should be; keeps tags, ids and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.named: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self._note(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.text += data

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        self.named += given.get("aria-labelledby", "").split()


def outline(content: str) -> Outline:
    found = Outline()
    found.feed(content)
    found.close()
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert set(found.named) == set(found.ids)
    assert not {"script", "link", "img", "iframe"} & set(found.tags), "the page stands alone"
    return found


def rendered(history: History, facts: Any, now: float = 1_764_500_200.0) -> str:
    return page.html(history, facts, now=now)


def test_the_page_of_an_eventful_run_holds_its_figures(prefix: Any, facts: Any) -> None:
    facts = replace(facts, job={"name": "python-stdlib", "model": {"layers": 4}})
    history = prefix.eventful()
    found = outline(rendered(history, facts))
    assert found.tags.count("svg") > 6
    for said in ("Trained to the end", "20 steps done again", "1,638,400", "down 66 %", f"{prefix.nodes[1]}: lost",
                 "221 to 400", "6 kept of 6 saved", "3.1 MB", "4.2 ms", facts.checkpoints_url, "model layers",
                 "2025-11-30"):  # fmt: skip
        assert said in found.text
    assert f"{history.steps[0].loss:.3f}" in found.text
    assert found.tags.count("caption") == found.tags.count("table") == 3
    assert 'class="fault"' in rendered(history, facts)
    assert 'class="change"' in rendered(history, facts)


@pytest.mark.parametrize(
    ("make", "charts"),
    [
        (lambda prefix: prefix.short(), 3),
        (lambda prefix: prefix.barren("no such dataset"), 1),
        (lambda prefix: prefix.history(), 0),
    ],
)
def test_small_and_failed_runs_have_a_whole_page(
    prefix: Any, facts: Any, make: Callable[[Any], History], charts: int
) -> None:
    found = outline(rendered(make(prefix), facts))
    assert found.tags.count("figure") == charts
    assert "None in the store." in found.text


def test_foreign_text_stays_text(prefix: Any, facts: Any) -> None:
    prefix.card("i-1")
    prefix.generation(1, ["i-1"])
    prefix.generation(2, ["<b>i-1"], HOSTILE)
    prefix.event("start", 1, 0, 1.0)
    prefix.train(2, 1, 3, 2.0)
    history = prefix.barren(HOSTILE)
    content = rendered(history, replace(facts, where=HOSTILE, run="<i>", job={HOSTILE: HOSTILE}))
    found = outline(content)
    assert not {"b", "i"} & set(found.tags)
    assert "\x1b" not in content
    assert '<script>alert("1")</script>' in found.text


def test_losses_that_are_no_numbers_leave_a_gap(prefix: Any, facts: Any) -> None:
    history = prefix.short()
    for key, items in history._chunks.items():
        broken = [replace(item, loss=float("nan")) if isinstance(item, Step) else item for item in items]
        history._chunks[key] = broken
    content = rendered(history, facts)
    assert "not finite" in outline(content).text
    assert "nan" not in content


def test_steps_without_a_loss_part_the_line(prefix: Any, facts: Any) -> None:
    prefix.generation(1, [prefix.nodes[0]])
    prefix.train(1, 1, 10, 1.0)
    prefix.diverge(1, 11, 4.0)
    prefix.train(1, 12, 20, 5.0)
    whole = rendered(prefix.history(), facts)
    assert whole.count('<polyline class="each"') == 2 * 2 + 2, "two lines of loss and one of throughput, at two widths"
    prefix.diverge(1, 21, 8.0)
    content = rendered(prefix.history(), facts)
    outline(content)
    assert "to not finite" in content
    assert "nan" not in content


def test_a_run_that_diverges_again_and_again_keeps_the_page_small(prefix: Any, facts: Any) -> None:
    step = prefix.short().steps[0]
    history = prefix.history()
    losses = (3.0, float("nan"))
    history._chunks = {
        "metrics/000001/000000.jsonl": [
            replace(step, step=at, time=step.time + at, loss=losses[at % 2]) for at in range(1, 50_001)
        ]
    }
    assert len(rendered(history, facts)) < 500_000


def test_a_long_run_keeps_the_page_small(prefix: Any, facts: Any) -> None:
    step = prefix.short().steps[0]
    history = prefix.history()
    history._chunks = {
        f"metrics/{number:06d}/000000.jsonl": [
            replace(step, step=at, time=step.time + at, generation=number, loss=3.0 + at % 7 / 7,
                    tokens_per_second=2e4 + at * 37 % 991)
            for at in range(500 * (number - 1) + 1, 500 * number + 1)
        ]
        for number in range(1, 201)
    }  # fmt: skip
    node = prefix.nodes[0]
    eight = replace(history.generations[1], members=history.generations[1].members * 8)
    history.generations = {number: replace(eight, number=number) for number in range(1, 201)}
    history.checkpoints = list(range(1000))
    history.boots = {f"i-{number}": replace(history.boots[node], node=f"i-{number}") for number in range(2000)}
    history.cards = {f"i-{number}": replace(history.cards[node], node=f"i-{number}") for number in range(2000)}
    content = rendered(history, facts)
    assert len(history.steps) == 100_000
    assert 100_000 < len(content.encode()) < 500_000
    assert "Not shown: 1,960 earlier nodes and 150 earlier generations." in outline(content).text


def test_a_step_that_only_some_clusters_have_has_its_column_and_colour_there(prefix: Any, facts: Any) -> None:
    history = prefix.eventful()
    assert ">harden<" not in page.html(history, facts, now=0.0)
    for boot in history.boots.values():
        boot.steps.insert(1, {"step": "harden", "status": "ok", "seconds": 0.2, "detail": "fine"})
    told = page.html(history, facts, now=0.0)
    assert '<th scope="col" class="right">harden</th>' in told
    for at in range(len(BOOT_STEPS)):
        assert f".boot{at} {{ fill: var(--boot{at}); }}" in told
