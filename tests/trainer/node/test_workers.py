"""Worker processes: what they are told, how their end is read, and that nothing of them stays behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainer import exits
from trainer.node.peers import DONE, DRAINED, FAILED, STOPPED, Ended, Tally
from trainer.node.postmortem import waited_in_vain
from trainer.node.steps import StepFailed
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
        "NODE_RANK": expected["GROUP_RANK"],
        "NODE_IPS": "10.0.0.1,10.0.0.2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4321",
        "TORCHELASTIC_RUN_ID": "r-1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "OMP_NUM_THREADS": str(max(1, cpus // 2)),
        "TRAINWRIGHT_RUN": "r-1",
        "TRAINWRIGHT_GENERATION": "1",
        "TRAINWRIGHT_HOSTFILE": str(job.logs / "000001-hosts"),
        "TRAINWRIGHT_SCRATCH": str(job.scratch),
        "TRAINWRIGHT_PROGRESS": str(job.scratch / "progress"),
        "TRAINWRIGHT_METRICS": str(metrics_path(job.logs, 1)),
        "TRAINWRIGHT_ERROR": str(job.logs / f"000001-rank{expected['RANK']}.error.json"),
        "TRAINWRIGHT_GRACE": str(job.logs / "000001-grace"),
        "TRAINWRIGHT_PULSE": str(job.logs / f"000001-rank{expected['RANK']}.pulse"),
    }


def test_what_the_user_chose_stands_above_all_but_what_a_worker_is(make_job, make_generation):
    chosen = {"OMP_NUM_THREADS": "3", "NCCL_SOCKET_IFNAME": "eth7", "NCCL_DEBUG_FILE": "/x", "MINE": "1", "RANK": "9"}
    job = replace(make_job("", NCCL_SOCKET_IFNAME="ens5", MINE="image"), chosen=chosen, nccl_debug=True)
    values = environment(job, make_generation(2, 2), 1, 1)
    assert values | chosen | {"RANK": "3"} == values
    assert values["NCCL_DEBUG"] == "INFO"


def test_what_nccl_says_goes_to_each_ranks_own_file_where_it_is_asked_for(make_job, make_generation):
    job = make_job("")
    asked = environment(replace(job, nccl_debug=True), make_generation(2, 2), 1, 1)
    assert asked["NCCL_DEBUG"] == "INFO"
    assert asked["NCCL_DEBUG_FILE"] == str(job.logs / "000001-rank3.nccl.log")
    assert not [name for name in environment(job, make_generation(2, 2), 1, 1) if name.startswith("NCCL_DEBUG")]


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

    def go(text, seconds=30):
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


def test_what_its_own_code_raised_is_told_apart_from_what_another_try_may_mend(run, tmp_path):
    """By the trainer's own account, or by Python's traceback in the log of a script that keeps none."""
    account = """
        import json, os, sys
        error = {"type": "KeyError", "message": "'x'", "raised": RAISED}
        open(os.environ["TRAINWRIGHT_ERROR"], "w").write(json.dumps(error))
        sys.exit(1)
    """
    assert run(account.replace("RAISED", "True")).error == "KeyError: 'x'"
    assert run(account.replace("RAISED", "False")).error == ""
    for text, error in (
        ("raise ValueError('boom')", "ValueError: boom"),
        ("import sys; sys.exit('no such file')", ""),
        ("import os; os.kill(os.getpid(), 9)", ""),
    ):
        shutil.rmtree(tmp_path / "logs")
        assert run(text).error == error


HANGS = """
    import faulthandler, os, signal, sys, time
    from pathlib import Path
    sys.path.insert(0, ROOT)
    from trainer.pulse import Pulse
    SETUP
    def stuck():
        time.sleep(60)
    if os.environ["RANK"] == "1":
        Pulse(Path(os.environ["TRAINWRIGHT_PULSE"])).promise("step 7", 0.2)
        print("ready", flush=True)
        stuck()
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("setup", "place"),
    [
        ("faulthandler.register(signal.SIGUSR1, all_threads=True)", "at job.py:8 in stuck"),
        ("signal.signal(signal.SIGUSR1, signal.SIG_IGN)", "and shows no stack"),
    ],
)
def test_a_rank_that_hangs_is_named_with_its_place_and_ended(make_job, make_generation, wait_for, gone, setup, place):
    """Else a run waits for it, paid for, and nobody knows where (pytorch#118369)."""
    job = make_job(HANGS.replace("SETUP", setup).replace("ROOT", repr(str(ROOT))))
    workers = Workers.start(job, make_generation(2), 0)
    try:
        wait_for("the worker", lambda: "ready" in log_path(job.logs, 1, 1).read_text())
        assert wait_for("the broken promise", workers.hung) == {1: "step 7"}
        workers.end_hung("no progress", [1])
        assert workers.poll() == Ended(1, FAILED, f"no progress: rank 1 hangs in step 7, {place}")
        assert all(gone(process.pid) for process in workers.processes.values())
        assert ("Current thread" in log_path(job.logs, 1, 1).read_text()) == ("faulthandler" in setup)
    finally:
        workers.stop()


WAITS = """
    import faulthandler, os, signal, sys, time
    from pathlib import Path
    sys.path.insert(0, ROOT)
    from trainer.pulse import WITH_PEERS, Pulse
    faulthandler.register(signal.SIGUSR1)
    what = {"0": f"step 7, {WITH_PEERS}"}.get(os.environ["RANK"], "OTHER")
    Pulse(Path(os.environ["TRAINWRIGHT_PULSE"])).promise(what, 3600)
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def waiting(make_job, make_generation, wait_for):
    """Two workers, of which the first waits for its peers and the other is at something else."""
    started = []

    def start(other):
        job = make_job(WAITS.replace("OTHER", other).replace("ROOT", repr(str(ROOT))))
        workers = Workers.start(job, make_generation(2), 0)
        started.append(workers)
        for rank in (0, 1):
            wait_for("a worker", lambda rank=rank: "ready" in log_path(job.logs, 1, rank).read_text())
        assert workers.hung() == {}
        return workers

    yield start
    for workers in started:
        workers.stop()


@pytest.mark.parametrize("more", [{}, {"ranks": [0, 1]}, {"silent": False}])
def test_of_ranks_that_hold_each_other_up_the_one_that_waits_for_none_is_named(waiting, more):
    """Its peers break their promises as well, and would be blamed for it, and their nodes put in quarantine."""
    workers = waiting("step 7, computing")
    workers.end_hung("no progress", **more)
    told = "no progress: rank 1 hangs in step 7, computing, at job.py:10 in <module>"
    assert workers.poll() == Ended(1, FAILED, told)


def test_ranks_that_all_wait_for_peers_are_ended_and_their_node_is_not_to_blame(waiting):
    workers = waiting("step 7, with its peers")
    workers.end_hung("no progress")
    ended = workers.poll()
    assert (ended.how, ended.error) == (STOPPED, "")
    assert ended.reason.startswith("rank 0 waits in step 7, with its peers, at job.py:10 in <module>; rank 1 waits in ")


def test_a_rank_that_is_stopped_while_it_waits_for_peers_is_the_one_that_hangs(waiting, monkeypatch, wait_for):
    """Its words say no more than its peers' do."""
    monkeypatch.setattr("trainer.pulse.STOPPED_S", 0.1)
    workers = waiting("step 7, with its peers")
    workers.processes[1].send_signal(signal.SIGSTOP)
    hung = wait_for("the broken promise", workers.hung)
    assert hung == {1: "step 7, with its peers"}
    workers.end_hung("no progress", hung)
    told = "no progress: rank 1 hangs in step 7, with its peers, and shows no stack"
    assert workers.poll() == Ended(1, FAILED, told)


def test_what_follows_a_failure_without_a_checkpoint_is_given_longer(make_job, make_generation, wait_for):
    """What takes long for an honest reason does so again: three times, and the run would have failed."""
    tried = replace(make_generation(1), tally=Tally(fruitless=1))
    job = make_job("""
        import os, time
        open(os.environ["TRAINWRIGHT_PULSE"], "w").write("0.1 work")
        print("ready", flush=True)
        time.sleep(60)
    """)
    second, first = (Workers.start(job, generation, 0) for generation in (replace(tried, number=2), make_generation(1)))
    try:
        for workers in (second, first):
            log = log_path(job.logs, workers.generation.number, 0)
            wait_for("the worker", lambda log=log: "ready" in log.read_text())
            assert workers.hung() == {}
        assert wait_for("the broken promise", first.hung) == {0: "work"}
        assert second.hung() == {}
    finally:
        for workers in (first, second):
            workers.stop()


@pytest.mark.parametrize(
    ("silent", "ended"),
    [
        (True, Ended(1, FAILED, "its peers waited in vain: rank 0 hangs in its script, and shows no stack")),
        (False, Ended(1, STOPPED, "rank 0 goes on in its script, and shows no stack")),
    ],
)
def test_workers_whose_peers_are_gone_are_all_given_time_to_end(
    run, make_job, make_generation, wait_for, silent, ended
):
    """One may be saving; and one that doesn't end is the one that the others waited for, if that is what they did.

    Where a connection broke, each of its ends may be the one that is well: who never promised anything is not blamed.
    """
    text = f"import os, sys, time; sys.exit({exits.PEER_LOST}) if os.environ['RANK'] == '1' else time.sleep(60)"
    workers = Workers.start(make_job(text), make_generation(2), 0)
    try:
        wait_for("the parting", lambda: workers.parted)
        assert workers.poll() is None
        workers.end_hung("its peers waited in vain", silent=silent)
        assert workers.poll() == ended
    finally:
        workers.stop()
    assert run(f"import sys; sys.exit({exits.PEER_LOST})") == Ended(1, STOPPED)


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


def test_a_script_that_knows_no_sigterm_has_left_when_asked_to(make_job, make_generation, wait_for):
    """Else each drain of such a job would count as a failure."""
    job = make_job("import time; print('ready', flush=True); time.sleep(60)")
    workers = Workers.start(job, make_generation(2), 0)
    for rank in (0, 1):
        wait_for("a worker", lambda rank=rank: "ready" in log_path(job.logs, 1, rank).read_text())
    workers.drain()
    assert wait_for("the drain", workers.poll) == Ended(1, DRAINED)


def test_sigterm_that_nobody_asked_for_is_a_failure(run):
    assert run("import os; os.kill(os.getpid(), 15)").reason.endswith("was killed by SIGTERM")


def test_a_command_that_is_not_there_ends_the_generation_in_words(make_job, make_generation):
    job = replace(make_job(""), command=["/no/such/program", "x"])
    workers = Workers.start(job, make_generation(2), 0)
    said = "/no/such/program can't be started: No such file or directory"
    assert workers.poll() == Ended(1, FAILED, f"rank 0: {said}", said)
    assert not workers.running


def test_a_command_runs_in_its_folder(make_job, make_generation, wait_for, tmp_path):
    (tmp_path / "code").mkdir()
    job = replace(make_job("import os; print(os.getcwd(), flush=True)"), folder=tmp_path / "code")
    workers = Workers.start(job, make_generation(1), 0)
    wait_for("its end", workers.poll)
    assert log_path(job.logs, 1, 0).read_text().strip() == str(tmp_path / "code")


@pytest.mark.parametrize(("content", "progress"), [("120", 120), (" 7\n", 7), ("-3", 0), ("half", 0), (None, 0)])
def test_progress_is_what_a_worker_wrote_last(make_job, content, progress):
    job = make_job("")
    job.scratch.mkdir()
    if content is not None:
        job.progress_path.write_text(content)
    assert job.progress == progress


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


def test_a_log_folder_that_is_full_keeps_no_worker_from_starting(make_job, make_generation, wait_for):
    """The host file is for launchers."""
    job = make_job("")
    job.logs.mkdir(parents=True, exist_ok=True)
    (job.logs / "000001-hosts").symlink_to("/dev/full")
    workers = Workers.start(job, make_generation(1), 0)
    assert wait_for("its end", workers.poll) == Ended(1, DONE)


LOST = """
    import os, sys, time
    if os.environ["RANK"] == "1":
        time.sleep(SECONDS)
    print("Traceback (most recent call last):")
    print('  File "job.py", line 1')
    print("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited", flush=True)
    LAST
"""


@pytest.mark.parametrize(
    "last", ["sys.exit(1)", "print('we are taking the entire process down', flush=True); os.abort()"]
)
def test_a_script_that_dies_of_a_lost_peer_has_not_failed(run, make_job, make_generation, wait_for, last):
    """It knows none of our codes: two such ends would else end the run, or put a healthy node in quarantine."""
    ended = run(LOST.replace("SECONDS", "0").replace("LAST", last))
    assert (ended.how, ended.error) == (STOPPED, "")
    assert ended.reason.startswith("rank 0: ")
    job = make_job(LOST.replace("SECONDS", "60").replace("LAST", last))
    workers = Workers.start(job, make_generation(2), 0)
    try:
        wait_for("the parting", lambda: workers.parted)
        assert workers.poll() is None, "who was waited for is not known yet"
        assert len(workers.said) == 1
        assert not waited_in_vain(workers.said[0])
    finally:
        workers.stop()


def test_a_worker_with_an_account_of_its_own_is_taken_at_its_word(run):
    account = 'open(os.environ["TRAINWRIGHT_ERROR"], "w").write(\'{"type": "E", "message": "m"}\'); sys.exit(1)'
    assert run(LOST.replace("SECONDS", "0").replace("LAST", account)).how == FAILED


def test_what_a_launcher_prints_of_all_its_ranks_tells_no_cause(make_job, make_generation, wait_for):
    job = make_job(LOST.replace("SECONDS", "0").replace("LAST", "sys.exit(1)"))
    workers = Workers.start(job, make_generation(1), 0)
    workers.job = replace(job, launcher="deepspeed")
    assert wait_for("the end", workers.poll).how == FAILED


def test_what_sigkill_does_not_end_is_left_behind_in_words(make_job, make_generation, monkeypatch):
    """A process that a driver holds in the kernel never ends: the agent would wait for it, and beat no more."""
    monkeypatch.setattr("trainer.node.workers.KILLED_S", 0.2)
    workers = Workers.start(make_job("import time; time.sleep(60)"), make_generation(2), 0)
    processes = dict(workers.processes)
    killpg = os.killpg
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda pid, sig: None if pid == processes[1].pid else killpg(pid, sig))
        with pytest.raises(StepFailed, match=r"launch: 0.2 s after SIGKILL, ranks \[1\] still run") as failed:
            workers.stop()
        workers.stop()
    assert exits.STEP_FAILED[failed.value.step] == 77
    processes[1].kill()
    processes[1].wait()


def test_only_pulses_of_all_that_run_tell_when_one_hangs(make_job, make_generation, wait_for):
    job = make_job("""
        import os, time
        if os.environ["RANK"] == "1" or os.environ["TRAINWRIGHT_GENERATION"] == "2":
            open(os.environ["TRAINWRIGHT_PULSE"], "w").write("600 work")
        print("ready", flush=True)
        time.sleep(60)
    """)
    for number, promising in ((1, False), (2, True)):
        workers = Workers.start(job, replace(make_generation(2), number=number), 0)
        try:
            for rank in (0, 1):
                wait_for("a worker", lambda rank=rank, n=number: "ready" in log_path(job.logs, n, rank).read_text())
            assert workers.hung() == {}
            assert workers.promising is promising
        finally:
            workers.stop()


@pytest.mark.parametrize("bundled", [True, False])
def test_the_bundled_trainer_that_never_begins_hangs_and_another_program_may_take_its_time(
    make_job, make_generation, monkeypatch, bundled
):
    """No word from it at all: an agent that waited for the first would wait, and be paid for, for ever."""
    monkeypatch.setattr("trainer.node.workers.FIRST_S", 0.0)
    job = make_job("import time; time.sleep(60)")
    silent = SimpleNamespace(take=lambda *_: subprocess.Popen(["sleep", "60"], process_group=0))
    if bundled:
        job = replace(job, command=trainer_command())
    workers = Workers.start(job, make_generation(1), 0, silent if bundled else None)
    try:
        assert workers.hung() == ({0: "its start"} if bundled else {})
    finally:
        workers.stop()
