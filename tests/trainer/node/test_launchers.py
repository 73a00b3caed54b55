"""What a launcher of the image's is told, and what runs where it starts nothing."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from trainer import exits, layout
from trainer.node import attend, launchers
from trainer.node.peers import Card, Ended
from trainer.node.workers import Workers, environment
from trainer.store import FileStore

ROOT = Path(attend.__file__).parents[2]


@pytest.fixture
def values(make_job, make_generation):
    """The environment of the first process on each of two nodes."""
    job = make_job("", TRAINWRIGHT_LIBRARY="/lib", NCCL_DEBUG="INFO", HOME="/root", PYTHONPATH="/code")
    return [environment(job, make_generation(8, 4), node, 0) for node in (0, 1)]


def test_the_host_file_lists_nodes_in_rank_order(make_job, make_generation):
    job = make_job("")
    workers = Workers.start(job, make_generation(1, 4), 0)
    workers.stop()
    assert (job.logs / "000001-hosts").read_text() == "10.0.0.1 slots=1\n10.0.0.2 slots=4\n"


def test_the_agent_starts_a_command_once_a_worker_and_a_launcher_once_a_node():
    assert [launchers.places(name, 8) for name in ("torchrun-env", "mpirun", "deepspeed")] == [8, 1, 1]


def test_python_is_the_one_that_nodes_python_names(values):
    assert launchers.command("torchrun-env", ["python", "a.py"], values[1]) == [sys.executable, "a.py"]
    assert launchers.command("torchrun-env", ["./run.sh", "x"], values[0]) == ["./run.sh", "x"]
    assert launchers.environment("torchrun-env", values[1]) == values[1]


def test_deepspeed_is_started_on_each_node_without_ssh(values):
    """As `deepspeed --help` has it: options first, then the script, without a Python before it."""
    hosts = f"--hostfile={values[0]['TRAINWRIGHT_HOSTFILE']}"
    common = ["--master_addr=10.0.0.1", "--master_port=4321"]
    for node in (0, 1):
        told = launchers.command("deepspeed", ["python", "a.py", "--x"], values[node])
        assert told == ["deepspeed", "--no_ssh", hosts, f"--node_rank={node}", *common, "a.py", "--x"]
    assert launchers.command("deepspeed", ["./a", "y"], values[0])[-3:] == ["--no_python", "./a", "y"]


def test_mpirun_passes_on_what_the_user_chose_and_no_file_of_one_rank(values):
    """NCCL's log of rank 0 would be every rank's; it goes to the launcher's log instead."""
    found = values[0] | {"MINE": "1", "NCCL_DEBUG_FILE": "/rank0"}
    told = launchers.command("mpirun", ["a"], found, {"MINE": "1"})
    passed = {name for flag, name in pairwise(told) if flag == "-x"}
    assert {"MINE", "NCCL_DEBUG"} <= passed
    assert "NCCL_DEBUG_FILE" not in passed | set(launchers.environment("mpirun", found))


def test_mpirun_is_started_on_the_first_node_and_passes_the_environment_on(values):
    told = launchers.command("mpirun", ["python", "a.py"], values[0])
    assert told[:5] == ["mpirun", "-np", "12", "--hostfile", values[0]["TRAINWRIGHT_HOSTFILE"]]
    assert told[5:9] == ["--bind-to", "none", "--map-by", "slot"], "else each worker gets one core"
    assert told[-2:] == [sys.executable, "a.py"]
    passed = {name for flag, name in pairwise(told) if flag == "-x"}
    assert {"NCCL_DEBUG", "TRAINWRIGHT_SCRATCH", "MASTER_ADDR", "PYTHONPATH"} <= passed
    assert not passed & {"RANK", "LOCAL_RANK", "HOME", "TRAINWRIGHT_ERROR"}
    assert launchers.command("mpirun", ["python", "a.py"], values[1])[1:] == ["-m", "trainer.node.attend"]
    assert launchers.environment("mpirun", values[1])["PYTHONPATH"] == "/lib", "the user's code has no trainer"
    assert "RANK" not in launchers.environment("mpirun", values[0])


def test_mpirun_runs_as_root_as_the_agent_does(values):
    """Open MPI exits with `has detected an attempt to run as root` otherwise (open-mpi/ompi#4451)."""
    wanted = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    assert wanted.items() <= launchers.environment("mpirun", values[0]).items()
    assert not wanted.keys() & launchers.environment("deepspeed", values[0]).keys()


def test_deepspeed_is_found_beside_python_first(values, tmp_path, monkeypatch):
    """`nodes.python` may lie in a folder that is not on the agent's PATH, with all that is installed with it."""
    beside = tmp_path / "deepspeed"
    beside.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert launchers.command("deepspeed", ["a"], values[0])[0] == str(beside)
    beside.unlink()
    assert launchers.command("deepspeed", ["a"], values[0])[0] == "deepspeed", "PATH's"


@pytest.mark.parametrize("launcher", ["deepspeed", "mpirun"])
def test_the_images_launcher_is_found_and_told(make_job, make_generation, wait_for, tmp_path, launcher):
    """A stand-in on PATH; one process for the node's two workers."""
    stand_in = tmp_path / "bin" / launcher
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\necho "$0" "$@" "RANK=$RANK"\n')
    stand_in.chmod(0o755)
    job = make_job("", PATH=f"{stand_in.parent}:{os.environ['PATH']}", TRAINWRIGHT_LIBRARY=str(ROOT))
    workers = Workers.start(replace(job, command=["python", "a.py"], launcher=launcher), make_generation(2, 2), 0)
    assert list(workers.processes) == [0]
    assert wait_for("its end", workers.poll) == Ended(1, "done")
    said = (job.logs / "000001-rank0.log").read_text()
    assert said.startswith(f"{stand_in} -")
    assert said.endswith("a.py RANK=\n"), "a rank is the launcher's to give"


@pytest.fixture
def store(tmp_path, make_generation):
    made = FileStore(tmp_path / "run")
    made.put(layout.generation(2), make_generation(1, 1, number=2).json())
    return made


def ended(store, generation, how):
    card = Card("a", "10.0.0.1", "t", "0", 1, ended=Ended(generation, how) if how else None)
    store.put(layout.card("a"), json.dumps(asdict(card)).encode())


@pytest.mark.parametrize(
    ("how", "code"),
    [("done", exits.DONE), ("drained", exits.DRAINED), ("failed", exits.PEER_LOST), ("stopped", exits.PEER_LOST)],
)
def test_the_other_nodes_end_as_the_first_does(store, how, code):
    ended(store, 2, how)
    assert attend.attend(store, 2) == code


def test_an_earlier_generations_end_is_waited_over(store, monkeypatch):
    ended(store, 1, "failed")
    monkeypatch.setattr(attend.time, "sleep", lambda _: ended(store, 2, "done"))
    assert attend.attend(store, 2) == exits.DONE


def test_who_waits_leaves_when_asked_to(store, wait_for):
    ended(store, 1, "")
    told = {"TRAINWRIGHT_STORE": store.url(), "TRAINWRIGHT_GENERATION": "2", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "trainer.node.attend"], env=told, stderr=subprocess.PIPE, text=True
    ) as process:
        while "trainer.node.peers" not in process.stderr.readline():
            pass
        wait_for("its handler", lambda: handles_sigterm(process.pid))
        process.terminate()
        process.stderr.read()
    assert process.returncode == exits.DRAINED


def handles_sigterm(pid):
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return int(caught.split()[1], 16) >> 14 & 1
