"""What a launcher of the image's is told, and what runs where it starts nothing."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from trainer.node import attend, launchers, processes
from trainer.node.peers import Ended
from trainer.node.steps import StepFailed
from trainer.node.workers import Workers, environment

ROOT = Path(attend.__file__).parents[2]


@pytest.fixture
def nodes(make_generation):
    return make_generation(8, 4)


@pytest.fixture
def values(make_job, nodes):
    """The environment of the first process on each of the two nodes."""
    job = make_job("", TRAINWRIGHT_LIBRARY="/lib", NCCL_DEBUG="INFO", HOME="/root", PYTHONPATH="/code")
    return [environment(job, nodes, node, 0) for node in (0, 1)]


def test_the_host_file_lists_nodes_in_rank_order(make_job, make_generation):
    job = make_job("")
    workers = Workers.start(job, make_generation(1, 4), 0)
    workers.stop()
    assert (job.logs / "000001-hosts").read_text() == "10.0.0.1 slots=1\n10.0.0.2 slots=4\n"


def test_the_agent_starts_a_command_once_a_worker_and_a_launcher_once_a_node():
    assert [launchers.places(name, 8) for name in ("torchrun-env", "mpirun", "deepspeed")] == [8, 1, 1]


def test_python_is_the_one_that_nodes_python_names(values, nodes):
    assert launchers.command("torchrun-env", ["python", "a.py"], values[1], nodes) == [sys.executable, "a.py"]
    assert launchers.command("torchrun-env", ["./run.sh", "x"], values[0], nodes) == ["./run.sh", "x"]
    assert launchers.environment("torchrun-env", values[1]) == values[1]


def test_deepspeed_is_started_on_each_node_without_ssh(values, nodes):
    """As `deepspeed --help` has it: options first, then the script, without a Python before it."""
    hosts = f"--hostfile={values[0]['TRAINWRIGHT_HOSTFILE']}"
    common = ["--master_addr=10.0.0.1", "--master_port=4321"]
    for node in (0, 1):
        told = launchers.command("deepspeed", ["python", "a.py", "--x"], values[node], nodes)
        assert told == ["deepspeed", "--no_ssh", hosts, f"--node_rank={node}", *common, "a.py", "--x"]
    assert launchers.command("deepspeed", ["./a", "y"], values[0], nodes)[-3:] == ["--no_python", "./a", "y"]


def test_mpirun_is_started_on_the_leader_and_the_others_attend(values, nodes, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    told = launchers.command("mpirun", ["python", "a.py"], values[0], nodes)
    assert told[:6] == ["mpirun", launchers.ATTACHED, "-np", "12", "--host", "localhost:8,10.0.0.2:4"]
    assert told[6:] == ["--bind-to", "none", "--map-by", "slot", sys.executable, "a.py"], "else each gets one core"
    assert launchers.command("mpirun", ["python", "a.py"], values[1], nodes)[1:] == ["-P", "-m", "trainer.node.attend"]


def test_our_modules_run_whatever_the_users_code_is_called(values, nodes, tmp_path):
    """They begin in its folder, where `-m` alone looks first: a `trainer.py` there would be taken for ours."""
    for name in ("trainer", "json", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the code of the user')")
    values = [each | {"TRAINWRIGHT_LIBRARY": str(ROOT)} for each in values]
    attends = launchers.command("mpirun", ["python", "a.py"], values[1], nodes)
    asks = [*launchers.environment("mpirun", values[0])["PRTE_MCA_plm_ssh_agent"].split(), "10.0.0.2", "prted"]
    for command in (attends, asks):
        done = subprocess.run(
            command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
        )
        assert done.stderr.endswith("KeyError: 'TRAINWRIGHT_STORE'\n"), "it has begun"


@pytest.mark.parametrize("node", [0, 1])
def test_a_launcher_gets_nothing_of_a_single_rank(values, node):
    """NCCL's log of rank 0 would be every rank's; it goes to the launcher's log instead."""
    found = values[node] | {"MINE": "1", "NCCL_DEBUG_FILE": "/rank0"}
    told = launchers.environment("mpirun", found)
    assert not {"NCCL_DEBUG_FILE", "RANK", "LOCAL_RANK", "TRAINWRIGHT_ERROR"} & told.keys()
    assert {"MINE": "1", "NODE_RANK": str(node), "HOME": "/root"}.items() <= told.items()


def test_what_attends_finds_our_library_and_what_it_starts_the_users_code(values):
    attends = launchers.environment("mpirun", values[1])
    assert attends["PYTHONPATH"] == "/lib", "the user's code has no trainer"
    assert launchers.of_the_command(attends) | {"PYTHONPATH": "/code"} == launchers.of_the_command(attends)
    assert attends.keys() - launchers.of_the_command(attends).keys() == {launchers.THEIRS}


def test_mpirun_reaches_nodes_by_our_module_in_either_version(values):
    told = launchers.environment("mpirun", values[0])
    agent = f"env PYTHONPATH=/lib {sys.executable} -P -m trainer.node.remote"
    for prefix in ("OMPI_MCA_plm_rsh_", "PRTE_MCA_plm_ssh_"):
        named = {name: told[f"{prefix}{name}"] for name in ("agent", "no_tree_spawn", "num_concurrent")}
        assert named == {"agent": agent, "no_tree_spawn": "1", "num_concurrent": "2"}
    assert told["PYTHONPATH"] == "/code"


def test_open_mpi_stays_on_the_nodes_own_network(values):
    """Docker's interface has the same address on each node, and Open MPI takes all that it finds."""
    told = launchers.environment("mpirun", values[0] | {"GLOO_SOCKET_IFNAME": "ens5"})
    assert {told[name] for name in (launchers.DAEMONS_NETWORK, launchers.RANKS_NETWORK)} == {"10.0.0.0/30"}
    assert told[launchers.DAEMONS_INTERFACE] == "ens5"
    excluded = values[0] | {"OMPI_MCA_btl_tcp_if_exclude": "lo,docker0", "PRTE_MCA_prte_if_include": "ens6"}
    told = launchers.environment("mpirun", excluded)
    assert "OMPI_MCA_btl_tcp_if_include" not in told, "Open MPI takes either of the two"
    assert told["PRTE_MCA_prte_if_include"] == "ens6", "what the user chose stands above"


@pytest.mark.parametrize(
    ("addresses", "found"),
    [
        (["10.1.2.3"], "10.1.2.3/32"),
        (["10.1.2.3", "10.1.2.4"], "10.1.2.0/29"),
        (["172.31.1.1", "172.31.250.2", "172.31.17.3"], "172.31.0.0/16"),
        (["127.0.0.1", "127.9.0.2"], "127.0.0.0/8"),
    ],
)
def test_a_network_is_the_smallest_that_has_all_nodes(addresses, found):
    assert launchers.network(addresses) == found


def test_open_mpi_has_a_home_where_the_agents_service_has_none(values):
    """systemd gives it to services with `User=` alone, and Open MPI 5.0.11 crashes without it."""
    without = {name: value for name, value in values[0].items() if name != "HOME"}
    assert launchers.environment("mpirun", without)["HOME"] == str(Path.home())


def test_mpirun_runs_as_root_as_the_agent_does(values):
    """Open MPI exits with `has detected an attempt to run as root` otherwise (open-mpi/ompi#4451)."""
    wanted = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    assert wanted.items() <= launchers.environment("mpirun", values[0]).items()
    assert not wanted.keys() & launchers.environment("deepspeed", values[0]).keys()


def test_deepspeed_is_found_beside_python_first(values, nodes, tmp_path, monkeypatch):
    """`nodes.python` may lie in a folder that is not on the agent's PATH, with all that is installed with it."""
    beside = tmp_path / "deepspeed"
    beside.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert launchers.command("deepspeed", ["a"], values[0], nodes)[0] == str(beside)
    beside.unlink()
    assert launchers.command("deepspeed", ["a"], values[0], nodes)[0] == "deepspeed", "PATH's"


@pytest.fixture
def launched(make_job, make_generation, wait_for, tmp_path, monkeypatch):
    """Workers whose launcher runs a line of a shell's, which writes `pid`, and ends well when there is `over`."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("trainer.node.workers.RANKS_S", 0.0)
    started = []

    def start(line):
        stand_in = tmp_path / "deepspeed"
        stand_in.write_text(f"#!/bin/sh\ncd {tmp_path}\n{line}\nwhile [ ! -e over ]; do sleep 0.02; done\n")
        stand_in.chmod(0o755)
        job = replace(make_job("", PATH=os.environ["PATH"]), command=["a"], launcher="deepspeed")
        started.append(Workers.start(job, make_generation(1), 0))
        pid = int(wait_for("what it starts", lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        wait_for("its environment", lambda: Path(f"/proc/{pid}/cmdline").read_text().startswith("sleep"))
        assert started[0].poll() is None
        return started[0], pid

    yield start
    for workers in started:
        workers.stop()


def test_a_launcher_that_ends_well_and_leaves_workers_behind_has_failed(launched, wait_for, gone, tmp_path):
    """DeepSpeed's `runner.py` exits with 0 where a signal ended the part of it that watches the workers."""
    workers, pid = launched("RANK=0 setsid sleep 60 & echo $! > pid")
    (tmp_path / "over").touch()
    assert wait_for("its end", workers.poll) == Ended(1, "failed", "deepspeed ended and left workers behind")
    workers.stop()
    assert gone(pid)


def test_what_a_worker_leaves_behind_makes_no_run_fail_that_ended_well(launched, wait_for, gone, tmp_path):
    """TensorBoard's server, or a helper that still ends: it has the worker's environment, and no launcher above."""
    workers, pid = launched("RANK=0 sh -c 'sleep 60 & echo $! > pid'")
    (tmp_path / "over").touch()
    assert wait_for("its end", workers.poll) == Ended(1, "done")
    workers.stop()
    assert gone(pid)


def test_a_launchers_rank_that_sigkill_does_not_end_is_left_behind_in_words(launched, monkeypatch):
    """It holds its GPU's memory: the next generation's ranks would run out of it, time and again."""
    workers, pid = launched("RANK=0 setsid sleep 60 & echo $! > pid")
    monkeypatch.setattr("trainer.node.workers.KILLED_S", 0.2)
    send = processes.send
    with monkeypatch.context() as patch:
        patch.setattr(processes, "send", lambda pids, number: send({*pids} - {pid}, number))
        with pytest.raises(StepFailed, match=rf"processes \[{pid}\] of deepspeed's still run"):
            workers.stop()
        workers.stop()
    send([pid], signal.SIGKILL)


@pytest.mark.parametrize("launcher", ["deepspeed", "mpirun"])
def test_the_images_launcher_is_found_and_told(make_job, make_generation, wait_for, tmp_path, monkeypatch, launcher):
    """A stand-in on PATH; one process for the node's two workers."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
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
