"""A run under the real `mpirun`, whose second node is lost: the rest goes on under the next generation's."""

from __future__ import annotations

import signal
import socket
import sys

import pytest

from tests.faults.pair import members
from tests.project import wait_for
from trainer.node import attend

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Open MPI, whose wheel is installed on Linux")

RENAMED = f"""
import os
if os.environ["TRAINWRIGHT_ROOT"].endswith("b"):
    os.environ["{attend.RENAMED}"] = "{socket.gethostname()[0]}"
"""
"""Both nodes are one host here, which the second one's part of Open MPI must not know."""

JOB = """
import os, sys, time
from pathlib import Path
from mpi4py import MPI

world = MPI.COMM_WORLD
step = 0
while world.size > 1 or step < 5:
    time.sleep(0.05)
    step = int(world.allreduce(step + 1, MPI.MAX))
    if world.rank == 0:
        Path(os.environ["TRAINWRIGHT_PROGRESS"]).write_text(f"{os.environ['TRAINWRIGHT_GENERATION']}00{step}")
        print(f"{world.size} ranks at {step}", flush=True)
print("the end", flush=True)
"""


def test_mpirun_goes_on_without_a_node_that_is_lost(make_fleet, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(JOB)
    command = ["python", "-m", "mpi4py", str(script)]
    job = {"name": "mpi", "command": command, "launcher": "mpirun", "dataset": "", "code": None}
    fleet = make_fleet(job=job, patches={"node": RENAMED})
    fleet.start("a", "b", desired=2)
    wait_for("both nodes", lambda: "2 ranks at 5" in fleet.nodes["a"].log("000001-rank0"), 120, poll_s=0.2)
    assert members(fleet.generations()[1]) == ["a", "b"]
    fleet.nodes["b"].signal(signal.SIGKILL)
    outcome = fleet.ends()
    assert outcome.succeeded, outcome.reason
    assert [members(generation) for _, generation in sorted(fleet.generations().items())] == [["a", "b"], ["a"]]
    assert "1 ranks at 5\nthe end" in fleet.nodes["a"].log("000002-rank0")
    fleet.close()


def test_a_run_under_mpirun_ends_well_on_both_nodes(make_fleet, tmp_path):
    script = tmp_path / "job.py"
    script.write_text("from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1), 'ranks', flush=True)")
    job = {"name": "mpi", "command": ["python", str(script)], "launcher": "mpirun", "dataset": "", "code": None}
    fleet = make_fleet(job=job, patches={"node": RENAMED}, workers=2)
    fleet.start("a", "b", desired=2)
    outcome = fleet.ends()
    assert (outcome.succeeded, outcome.reason) == (True, "every worker ended well")
    assert len(fleet.generations()) == 1
    assert fleet.nodes["a"].log("000001-rank0").count("4 ranks") == 4
    for node in fleet.nodes.values():
        wait_for("the agent's end", lambda node=node: node.processes() == [node.init.pid], 30, poll_s=0.2)
        assert "run succeeded" in node.log()
    fleet.close()
