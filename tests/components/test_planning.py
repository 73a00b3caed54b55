"""What planning costs: as much for a thousand nodes as for one, and no cloud's SDK but the one that is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from components.checks import judge

CHECKOUT = Path(__file__).parents[2]

LOADED = """
import sys
{program}
packages = {{name.partition(".")[0] for name in sys.modules}}
print(*sorted(packages & {{"pulumi", "pulumi_aws", "pulumi_alicloud", "boto3", "botocore", "torch"}}))
"""
VALUES = """
from pathlib import Path
from cli.workspace import stack_values
values = stack_values(Path("stacks/Pulumi.prod-us-west.yaml"))
"""
JUDGED = (
    f"{VALUES}\nfrom components.checks import judge\nfrom components.cost import cost\ncost(judge('prod', values)[0])"
)
DECLARED = f"{VALUES}\nfrom tools.declared import declare\ndeclare('prod', values)"


def sized(stack, nodes):
    return stack({"nodes.desired": nodes, "nodes.max": nodes, "job.batch": 1000})


def calls(values):
    """How many calls of functions, Python's and C's, a plan takes: its work, however busy the machine is."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event in {"call", "c_call"}

    judge("c1", values)  # what is read once, such as the catalog, is no part of it
    sys.setprofile(note)
    try:
        judge("c1", values)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("nodes", [10, 100, 1000])
def test_a_plan_takes_no_more_work_for_more_nodes(stack, nodes):
    one = calls(sized(stack, 1))
    assert one > 100
    assert calls(sized(stack, nodes)) <= one * 1.02


def test_as_many_resources_are_declared_for_a_thousand_nodes_as_for_one(mocked, stack):
    one, most = ({record.key for record in mocked.cluster(sized(stack, nodes)).all} for nodes in (1, 1000))
    assert one == most


def loaded(program):
    script = LOADED.format(program=program)
    done = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_a_plan_and_its_cost_load_no_cloud_and_no_engine():
    assert loaded(JUDGED) == set()


def test_the_component_loads_no_cloud_before_it_is_asked_for_one():
    assert loaded("import components.cluster") == {"pulumi"}


def test_a_cluster_on_aws_loads_that_cloud_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    assert loaded(DECLARED) == {"pulumi", "pulumi_aws"}
