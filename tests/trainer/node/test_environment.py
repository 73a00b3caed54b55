"""docs/environment.md is a contract with other people's programs: it says what is so, all of it and nothing else."""

import re
from pathlib import Path

from trainer import exits, grace
from trainer.node import lifecycle, rules
from trainer.node.agent import Agent
from trainer.node.config import NodeConfig, Paths
from trainer.node.fabric import Fabric
from trainer.node.generations import PARTING_S
from trainer.node.workers import environment
from trainer.store import FileStore

TEXT = (Path(__file__).parents[3] / "docs" / "environment.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    table = re.search(rf"^## {heading}\n+((?:[^#|].*\n+)*)((?:\|.*\n)+)", TEXT, re.M)
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2].splitlines()[2:]]


def test_every_variable_of_a_worker_is_documented_and_no_other(tmp_path, make_generation):
    own = {"command": ["x"], "code": "0" * 64, "dataset": "text", "launcher": "torchrun-env"}
    config = NodeConfig("aws", "us-west-2", "c1", "b", "r-1", 8, 8, own)
    agent = Agent(config, Paths(tmp_path), None)
    fabric = Fabric("tcp", 0, "eth0")
    job = agent._job(tmp_path / "data", fabric, FileStore(tmp_path / "run"))
    inherited = set(job.environment) - {"PYTHONPATH"}
    given = set(environment(job, make_generation(8, 8), 1, 0))
    ours = {name for name in given if name.startswith("TRAINWRIGHT_") or name not in inherited} | {"GPUS_PER_NODE"}
    documented = {
        name
        for names, _ in rows("What a worker finds in its environment")
        for name in re.findall(r"`([A-Z_]+)`", names)
    }
    assert documented == ours - set(fabric.environment())


def test_exit_codes_and_times_are_those_that_agents_know():
    said = {cells[0] for cells in rows("Signals and exit codes")} | set(re.findall(r"^\| (\d+) \|", TEXT, re.M))
    assert {str(code) for code in (exits.DONE, exits.DRAINED, exits.PEER_LOST)} <= said
    assert f"{lifecycle.LAST_S:g} s before a notice's own time" in TEXT
    assert rules.JOINING_S == 1800, "half an hour where nodes only join"
    assert f"else {grace.GRACE_S:g} s" in TEXT
    assert f"after {PARTING_S:g} s" in TEXT


def test_limits_are_those_of_the_rules():
    numbers = {3: "Three", 20: "twenty"}
    assert f"{numbers[rules.FRUITLESS_LIMIT]} failures in a row" in TEXT
    assert f"{numbers[rules.LOSSES_LIMIT]} lost nodes" in TEXT
    assert rules.QUORUM_LIMIT_S == 7200, "for two hours at most"


def test_the_limits_of_code_are_those_that_components_hold():
    from components import code

    assert f"{code.MOST_BYTES >> 20} MiB and {code.MOST_FILES:,} files" in TEXT
