"""Wrong input, as a user gives it: one clear line for each, before anything is declared."""

from __future__ import annotations

import json
import sys

import pytest

from cli import main
from tests.project import Project

FILE = "stacks/Pulumi.local.yaml"


def replaced(old: str, new: str):
    def change(project: Project) -> None:
        text = project.file.read_text()
        assert old in text
        project.file.write_text(text.replace(old, new, 1))

    return change


REFUSALS = [
    (
        replaced("type: m6a.large", "type: m6a.larg"),
        "nodes.type: there is no instance type 'm6a.larg' in the catalog. Did you mean m6a.large",
    ),
    (
        replaced("type: m6a.large", "type: p5.48xlargee"),
        "nodes.type: there is no instance type 'p5.48xlargee' in the catalog. Did you mean p5.48xlarge",
    ),
    (replaced("desired: 2", "desired: 0"), "nodes.desired: must be at least 1, not 0"),
    (replaced("desired: 2", "desired: -3"), "nodes.desired: must be at least 1, not -3"),
    (replaced("desired: 2", "desired: two"), "nodes.desired: must be a whole number, not 'two'"),
    (replaced("cidr: 127.10.0.0/16", "cidr: 127.10.0.0/28"), "network.cidr: 127.10.0.0/28 can't hold 1 subnet: "),
    (replaced("cidr: 127.10.0.0/16", "cidr: 127.10.0.1/16"), "network.cidr: '127.10.0.1/16' is not an IPv4 network"),
    (replaced("trainwright:region: us-west-2\n", ""), "region: is missing. The cloud's region, such as us-west-2."),
    (replaced("trainwright:nodes:", "trainwright:nodez:"), "nodez: there is no such key. Did you mean nodes?"),
    (replaced("desired: 2", "dezired: 2"), "nodes.dezired: there is no such key. Did you mean desired?"),
    (
        replaced("us-west-2a", "us-east-1a"),
        "network.zones.0: us-east-1a is not a zone of us-west-2. A zone is written us-west-2a",
    ),
    (replaced("config:", "config: ["), f"{FILE}:"),
    (replaced("config:", "konfig:"), f"{FILE}: has no mapping 'config'."),
]


@pytest.mark.parametrize(("break_it", "line"), REFUSALS, ids=[line[:40] for _, line in REFUSALS])
def test_wrong_input_is_one_clear_line(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], break_it, line: str
) -> None:
    """The command in this process: those below have one of their own."""
    break_it(project)
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(sys, "argv", ["trainwright", "check"])
    with pytest.raises(SystemExit) as left:
        main.main()
    assert left.value.code == 1
    said, errors = capsys.readouterr()
    assert sum(line in one for one in errors.splitlines()) == 1, errors
    assert said == ""


def test_all_that_is_wrong_is_said_at_once(project: Project) -> None:
    replaced("desired: 2", "desired: 0")(project)
    replaced("trainwright:region: us-west-2\n", "")(project)
    replaced("us-west-2a", "us-east-1a")(project)
    said = project.trainwright("check").stderr
    assert "Traceback" not in said
    assert "nodes.desired" in said
    assert "region: is missing" in said


def test_up_refuses_before_it_starts_anything(project: Project) -> None:
    replaced("type: m6a.large", "type: m6a.larg")(project)
    done = project.trainwright("up")
    assert done.returncode == 1
    assert "nodes.type" in done.stderr
    assert not project.home.exists()


@pytest.mark.engine
def test_the_engine_refuses_before_the_first_resource(project: Project) -> None:
    replaced("type: m6a.large", "type: m6a.larg")(project)
    replaced("desired: 2", "desired: 0")(project)
    project.pulumi("stack", "select", "--create")
    done = project.pulumi("up", "--yes", "--skip-preview")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "nodes.desired: must be at least 1, not 0" in said
    assert "Traceback" not in said
    exported = json.loads(project.pulumi("stack", "export").stdout)
    declared = [resource["type"] for resource in exported["deployment"].get("resources", [])]
    assert declared in ([], ["pulumi:pulumi:Stack"])


def test_a_stack_that_is_not_there_is_named_with_its_neighbours(project: Project) -> None:
    done = project.trainwright("check", "--stack", "locl")
    assert done.returncode == 1
    assert "there is no stack 'locl'" in done.stderr
    assert "Did you mean local?" in done.stderr


@pytest.mark.parametrize("verb", ["status", "logs", "watch"])
def test_a_cluster_that_is_not_up_is_one_clear_line(project: Project, verb: str) -> None:
    done = project.trainwright(verb)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "make up" in done.stderr or "trainwright up" in done.stderr
