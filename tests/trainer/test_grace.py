"""How long a worker that was asked to leave may take."""

import os
import time
from pathlib import Path

import pytest

from trainer import grace


def test_a_worker_leaves_in_the_time_that_its_agent_gave_it(tmp_path: Path):
    """From when the agent said so: a long step may lie between that and the drain."""
    file = tmp_path / "grace"
    file.write_text("290\n")
    os.utime(file, (time.time() - 100, time.time() - 100))
    assert grace.left(file, since=time.time()) == pytest.approx(290 - 100 - grace.MARGIN_S, abs=5)


def test_an_agent_may_shorten_the_time_that_it_gave(tmp_path: Path):
    file = tmp_path / "grace"
    file.write_text("1800\n")
    assert grace.left(file, since=0) > 1000
    file.write_text("20\n")
    assert 0 < grace.left(file, since=0) <= 20 - grace.MARGIN_S


@pytest.mark.parametrize("said", [None, "", "soon"])
def test_where_no_agent_says_a_spot_notice_is_what_leaves_least(tmp_path: Path, said: str | None):
    file = tmp_path / "grace"
    if said is not None:
        file.write_text(said)
    for path in (None, file):
        assert grace.left(path, time.time() - 30) == pytest.approx(grace.GRACE_S - grace.MARGIN_S - 30, abs=5)


def test_no_agent_makes_it_wait_for_ever(tmp_path: Path):
    (tmp_path / "grace").write_text("inf")
    assert grace.left(tmp_path / "grace", time.time()) < grace.MOST_S
