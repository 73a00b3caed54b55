"""The stacks that are shipped: each one plans, as it stands."""

from pathlib import Path

import pytest

from cli.workspace import stack_values
from components.checks import judge
from components.cost import cost

STACKS = sorted(Path(__file__).parents[2].joinpath("stacks").glob("Pulumi.*.yaml"))


@pytest.mark.parametrize("file", STACKS, ids=[file.name for file in STACKS])
def test_a_shipped_stack_plans_without_a_finding(file):
    plan, warnings = judge(file.name.split(".")[1], stack_values(file))
    assert warnings == []
    assert cost(plan).text()


def test_there_are_stacks():
    assert "Pulumi.local.yaml" in {file.name for file in STACKS}
