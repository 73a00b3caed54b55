"""Worker processes: what they are told, how their end is read, and that nothing of them stays behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainer import exits
from trainer.node.peers import DONE, DRAINED, FAILED, STOPPED, Ended
from trainer.node.workers import Workers, environment, log_path, metrics_path, trainer_command

ROOT = Path(__file__).parents[3]

# As torchrun sets it for two nodes of two workers: node, place -> values (torch docs, "Environment Variables").
TORCHRUN = {
    (0, 0): {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0"},
    (0, 1): {"RANK": "1", "LOCAL_RANK": "1", "GROUP_RANK": "0"},
    (1, 0): {"RANK": "2", "LOCAL_RANK": "0", "GROUP_RANK": "1"},
    (1, 1): {"RANK": "3", "LOCAL_RANK": "1", "GROUP_RANK": "1"},
}


@pytest.mark.parametrize(("place", "expected"), TORCHRUN.items())
def test_a_worker_finds_what_torchrun_gives(make_job, make_generation, place, expected):
    job = make_job("")
    values = environment(job, make_generation(2, 2), *place)
    cpus = len(os.sched_getaffinity(0))
    assert values == {
        **job.environment,
        **expected,
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": expected["RANK"],
        "ROLE_WORLD_SIZE": "4",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4321",
        "TORCHELASTIC_RUN_ID": "r-1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "OMP_NUM_THREADS": str(max(1, cpus // 2)),
        "TRAINWRIGHT_RUN": "r-1",
        "TRAINWRIGHT_GENERATION": "1",
        "TRAINWRIGHT_SCRATCH": str(job.scratch),
        "TRAINWRIGHT_METRICS": str(metrics_path(job.logs, 1)),
        "TRAINWRIGHT_ERROR": str(job.logs / f"000001-rank{expected['RANK']}.error.json"),
    }


def test_ranks_follow_on_where_nodes_differ(make_job, make_generation):
    values = environment(make_job(""), make_generation(1, 4, 2), 2, 1)
    assert (values["RANK"], values["WORLD_SIZE"], values["LOCAL_WORLD_SIZE"]) == ("6", "7", "2")


def test_b10_workers_meet_at_an_address_and_never_at_a_name(make_job, make_generation):
    """A node's name may resolve nowhere else (pytorch#150532)."""
    address = environment(make_job(""), make_generation(2, 2), 1, 0)["MASTER_ADDR"]
    assert address.replace(".", "").isdigit()


@pytest.fixture
def run(make_job, make_generation, wait_for):
    """The end of this node's two workers that run a script."""
    started = []

    def go(text, seconds=10):
        workers = Workers.start(make_job(text), make_generation(2), 0)
        started.append(workers)
        return wait_for("the workers' end", workers.poll, seconds)

    yield go
    for workers in started:
        workers.stop()


def test_all_that_end_well_are_done(run):
    assert run("") == Ended(1, DONE)


def test_one_that_was_drained_makes_all_drained(run):
    assert run(f"import os, sys; sys.exit({exits.DRAINED} if os.environ['RANK'] == '1' else 0)") == Ended(1, DRAINED)


def test_one_that_failed_fails_all_at_once(run):
    ended = run("import os, sys, time; sys.exit(3) if os.environ['RANK'] == '1' else time.sleep(60)")
    assert ended == Ended(1, FAILED, "rank 1 exited with 3")


def test_the_last_line_of_its_log_says_why(run):
    assert run("import sys; print('first'); sys.exit('no such file: x')").reason.endswith(
        "exited with 1: no such file: x"
    )


def test_a_workers_own_account_of_its_error_is_quoted(run):
    text = """
        import json, os, sys
        error = {"type": "OutOfMemoryError", "message": "CUDA out of memory", "traceback": "...", "rank": 0}
        open(os.environ["TRAINWRIGHT_ERROR"], "w").write(json.dumps(error))
        print("noise")
        sys.exit(1)
    """
    assert run(text).reason.endswith("exited with 1: OutOfMemoryError: CUDA out of memory")


@pytest.mark.parametrize("content", ["[]", "null", "{}", "torn {", '{"type": "x"}'])
def test_an_account_that_is_no_use_is_passed_over(run, content):
    text = f"""
        import os, sys
        open(os.environ["TRAINWRIGHT_ERROR"], "w").write({content!r})
        sys.exit("last line")
    """
    assert run(text).reason.endswith("exited with 1: last line")


def test_a_signal_is_named(run):
    reason = run("import os, time; os.kill(os.getpid(), 9) if os.environ['RANK'] == '0' else time.sleep(60)").reason
    assert reason == "rank 0 was killed by SIGKILL"


def test_draining_asks_and_stopping_does_not(make_job, make_generation, wait_for, gone):
    text = f"""
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit({exits.DRAINED}))
        print("ready", flush=True)
        time.sleep(60)
    """
    job = make_job(text)
    for end in ("drain", "stop"):
        log_path(job.logs, 1, 0).unlink(missing_ok=True)
        log_path(job.logs, 1, 1).unlink(missing_ok=True)
        workers = Workers.start(job, make_generation(2), 0)
        for rank in (0, 1):
            wait_for(
                "a worker", lambda rank=rank, w=workers: "ready" in log_path(job.logs, 1, rank).read_text() or w.poll()
            )
        assert workers.running
        if end == "drain":
            workers.drain()
            assert wait_for("the drain", workers.poll) == Ended(1, DRAINED)
        else:
            workers.stop()
            assert workers.poll() == Ended(1, STOPPED)
        assert not workers.running


FAMILY = """
    import os, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    with open(os.environ["TRAINWRIGHT_ERROR"] + ".pid", "w") as file:
        file.write(f"{child.pid}\\n")
    LAST
"""


@pytest.mark.parametrize("last", ["time.sleep(60)", "os.kill(os.getpid(), 9)"], ids=["running", "killed"])
def test_what_a_worker_started_goes_with_it(make_job, make_generation, wait_for, gone, last):
    """A loader's process that outlives its worker would keep the GPU's memory from the next generation."""
    job = make_job(FAMILY.replace("LAST", last))
    workers = Workers.start(job, make_generation(1), 0)
    path = job.logs / "000001-rank0.error.json.pid"
    child = int(wait_for("the child", lambda: path.exists() and path.read_text().strip()))
    if "kill" in last:
        wait_for("the worker's end", workers.poll)
    assert not gone(child)
    workers.stop()
    wait_for("the child's end", lambda: gone(child))


AGENT = """
import json, sys, threading, time
from pathlib import Path
sys.path.insert(0, {root!r})
from trainer.node.peers import Generation, Member
from trainer.node.workers import Job, Workers
folder = Path({folder!r})
job = Job([sys.executable, "-S", "-c", "import time; time.sleep(60)"], "r", {{}}, folder / "logs", folder)
generation = Generation(1, (Member("a", "127.0.0.1", "1", 2),), 1, "first", False, 0)
started = []
# From a thread that ends at once: Linux sends the parent-death signal when the thread that forked is gone.
thread = threading.Thread(target=lambda: started.append(Workers.start(job, generation, 0)))
thread.start(); thread.join(); time.sleep(0.3)
print(json.dumps([process.pid for process in started[0].processes.values() if process.poll() is None]), flush=True)
time.sleep(60)
"""


def test_workers_die_with_their_agent_and_not_with_the_thread_that_started_them(tmp_path, wait_for, gone):
    script = AGENT.format(root=str(ROOT), folder=str(tmp_path))
    agent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        pids = json.loads(agent.stdout.readline())
        assert len(pids) == 2, "a worker died with the thread that started it"
        assert not any(gone(pid) for pid in pids)
    finally:
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        agent.stdout.close()
    for pid in pids:
        wait_for("a worker's end", lambda pid=pid: gone(pid))


def test_logs_and_metrics_of_generations_lie_apart(tmp_path):
    paths = {
        log_path(tmp_path, 1, 0),
        log_path(tmp_path, 2, 0),
        log_path(tmp_path, 1, 1),
        metrics_path(tmp_path, 1),
        metrics_path(tmp_path, 2),
    }
    assert len(paths) == 5


def test_the_trainer_runs_under_the_agents_own_interpreter():
    assert trainer_command() == [sys.executable, "-m", "trainer.train"]


def test_what_follows_from_a_failure_does_not_hide_it(make_job, make_generation, wait_for):
    """A node's other workers are stopped after one failed: the failure stays the node's word."""
    job = make_job("""
        import os, sys, time
        if os.environ["LOCAL_RANK"] == "0":
            sys.exit("out of memory")
        time.sleep(60)
    """)
    workers = Workers.start(job, make_generation(2), 0)
    first = wait_for("the failure", workers.poll)
    workers.stop()
    assert workers.poll() == first
    assert "out of memory" in first.reason
