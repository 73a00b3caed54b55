"""Boot steps end, one way or another, and each leaves a line."""

import json
import threading
import time

import pytest

from trainer.node.steps import BootReport, Dismissed, StepFailed


@pytest.fixture
def published():
    return []


@pytest.fixture
def report(published):
    return BootReport(lambda node, content: published.append((node, json.loads(content))))


def test_a_step_gives_its_result_and_a_line(report, published, capsys):
    assert report.required("identify", lambda: (7, "i-1, m6a.large"), 5) == 7
    (line,) = report.lines
    assert (line.step, line.status, line.detail) == ("identify", "ok", "i-1, m6a.large")
    assert "boot: identify ok in 0.0" in capsys.readouterr().out
    assert published[-1][1]["steps"][0]["step"] == "identify"


def test_a_required_step_that_fails_ends_the_boot_with_its_name_and_reason(report, published):
    def action():
        raise OSError("no disk")

    with pytest.raises(StepFailed, match="storage: OSError: no disk") as raised:
        report.required("storage", action, 5)
    assert (raised.value.step, raised.value.reason) == ("storage", "OSError: no disk")
    (line,) = published[-1][1]["steps"]
    assert (line["step"], line["status"], line["detail"]) == ("storage", "failed", "OSError: no disk")


def test_one_that_is_not_wanted_any_more_has_not_failed(report, published):
    """Its exit code would else tell of a step, and the node would be taken for one that can't boot."""

    class Quarantined(Dismissed):
        pass

    def action():
        raise Quarantined("its workers failed 3 times")

    with pytest.raises(Quarantined, match="its workers failed 3 times"):
        report.required("peers", action, 5)
    (line,) = published[-1][1]["steps"]
    assert (line["step"], line["detail"]) == ("peers", "its workers failed 3 times")


def test_a_failure_that_names_its_step_keeps_its_reason(report):
    def action():
        raise StepFailed("launch", "ranks [0] still run")

    with pytest.raises(StepFailed, match=r"^launch: ranks \[0\] still run$"):
        report.required("launch", action, 5)


def test_b7_an_optional_step_that_fails_degrades_with_its_reason(report):
    """`set -e` and an optional download must not kill the node (awsome-distributed-ai#927)."""
    assert report.optional("fabric", lambda: 1 / 0, 5, otherwise="tcp") == "tcp"
    assert (report.lines[0].status, report.lines[0].detail) == ("degraded", "ZeroDivisionError: division by zero")


def test_b8_a_step_that_never_returns_is_left_behind_at_its_limit(report):
    never, before = threading.Event(), set(threading.enumerate())
    begun = time.monotonic()
    with pytest.raises(StepFailed, match=r"peers: took longer than 0\.2 s"):
        report.required("peers", lambda: never.wait(60), 0.2)
    assert time.monotonic() - begun < 30
    assert report.optional("fabric", lambda: never.wait(30), 0.1, otherwise=3) == 3
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert [thread.daemon for thread in left] == [True, True], "it would keep the agent's process from ending"
    never.set()


def test_the_report_grows_step_by_step_and_knows_its_node_once_it_is_known(report, published):
    report.required("identify", lambda: (setattr(report, "node", "i-1"), "d"), 5)
    report.optional("fabric", lambda: 1 / 0, 5, otherwise=None)
    assert [node for node, _ in published] == ["i-1", "i-1"]
    assert [[line["step"] for line in content["steps"]] for _, content in published] == [
        ["identify"],
        ["identify", "fabric"],
    ]
    assert json.loads(report.json())["node"] == "i-1"
    assert report.json() == json.dumps(published[-1][1]).encode()
