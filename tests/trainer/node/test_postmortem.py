"""What the end of a log tells of a worker's end. Texts of gloo and of torch's store are as torch 2.15 wrote them here;
those of NCCL's watchdog are from torch's source and from reports of users: no test here has run it."""

import signal

import pytest

from trainer.node.postmortem import (
    ABORTED,
    LONGEST_REASON,
    RAISED,
    TAIL,
    account,
    lost_peer,
    of_the_machine,
    tail,
    told,
    waited_in_vain,
)

FRAMES = 'Traceback (most recent call last):\n  File "job.py", line 9, in <module>\n    all_reduce(t)\n    ^^^^^^^^^^\n'

GLOO = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
    "[127.0.0.1]:15786. This is typically caused by a remote worker crashing."
)
NCCL = """torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:317, {}
{}
Last error:
socketProgress: Connection closed by remote peer
"""
REMOTE = NCCL.format("remote process exited or there was a network error", "ncclRemoteError: A call failed possibly")
WATCHDOG = """\
[rank6]:[E628 09:54:15.88 ProcessGroupNCCL.cpp:818] [Rank 6] Some NCCL operations have failed or timed out.
[rank6]:[E628 09:54:15.88 ProcessGroupNCCL.cpp:832] [Rank 6] To avoid data inconsistency, we are taking the entire \
process down.
[rank6]:[E628 09:54:15.88 ProcessGroupNCCL.cpp:2197] [PG ID 0 PG GUID 0(default_pg) Rank 6] Process group watchdog \
thread terminated with exception: [Rank 6] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=78, \
OpType=SCATTER, NumelIn=29360128, NumelOut=0, Timeout(ms)=1800000) ran for 1800043 milliseconds before timing out.
terminate called after throwing an instance of 'c10::DistBackendError'
"""
CUDA = """\
[rank6]:[E628 09:54:15.88 ProcessGroupNCCL.cpp:2197] [PG ID 0 PG GUID 0(default_pg) Rank 6] Process group watchdog \
thread terminated with exception: CUDA error: an illegal memory access was encountered
terminate called after throwing an instance of 'c10::DistBackendError'
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (GLOO, "RuntimeError: [/pytorch/third_party/gloo"),
        ("torch.distributed.DistStoreError: Timed out after 3 seconds waiting for clients.", "torch.distributed.DistS"),
        ("torch.distributed.DistNetworkError: The client socket has timed out", "torch.distributed.DistNetworkError"),
        (REMOTE, "torch.distributed.DistBackendError: NCCL error in"),
    ],
)
def test_a_traceback_of_a_lost_peer_is_known_with_torchs_rank_before_it_and_without(tmp_path, error, said):
    log = tmp_path / "log"
    for prefix in ("", "[rank1]: "):
        log.write_text("step 1\n" + "".join(f"{prefix}{line}\n" for line in (FRAMES + error).split("\n")))
        assert lost_peer(RAISED, tail(log)).startswith(said)
        assert len(lost_peer(RAISED, tail(log))) <= LONGEST_REASON + 1


@pytest.mark.parametrize(
    "log",
    [
        "",
        "no such file",
        GLOO,
        f"{FRAMES}ValueError: boom",
        f"{FRAMES}{GLOO}\n\nDuring handling of the above exception, another exception occurred:\n\n{FRAMES}KeyError: 1",
        FRAMES + NCCL.format("unhandled cuda error", "ncclUnhandledCudaError: Call to CUDA function failed."),
        FRAMES + NCCL.format("invalid usage", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."),
    ],
)
def test_what_a_workers_own_code_raised_is_not(log):
    assert lost_peer(RAISED, log) == ""


@pytest.mark.parametrize("code", ABORTED)
def test_an_abort_is_a_lost_peer_where_the_watchdog_says_so(code):
    """Else healthy nodes are blamed for the one that hangs, and put in quarantine."""
    assert lost_peer(code, WATCHDOG).startswith("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=78")
    assert lost_peer(code, WATCHDOG.replace("Watchdog caught", "")) == "taking the entire process down."
    remote = "watchdog thread terminated with exception: NCCL error: remote process exited"
    assert lost_peer(code, f"noise\n{remote}\n") == remote


@pytest.mark.parametrize(
    ("reason", "waited"),
    [
        ("RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting", 1),
        ("torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0", 1),
        ("rank 0 waits in step 7, with its peers, at job.py:10 in step", 1),
        (lost_peer(ABORTED[0], WATCHDOG), 1),
        (GLOO, 0),
        (REMOTE, 0),
        ("RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:446] Connection timed out", 0),
        ("", 0),
    ],
)
def test_who_waited_for_a_peer_is_told_from_who_lost_its_connection(reason, waited):
    """A broken connection has two ends, of which either may be the healthy one."""
    assert waited_in_vain(reason) is bool(waited)


@pytest.mark.parametrize(
    ("code", "words"),
    [(3, "exited with 3"), (-9, "was killed by SIGKILL"), (-40, "was killed by signal 40"), (None, "goes on")],
)
def test_every_exit_code_has_words(tmp_path, code, words):
    """The agent itself would end by an exception where a real-time signal ended a worker."""
    assert told(code) == words
    assert account(code, tmp_path / "none", tmp_path / "none") == (words, "")


@pytest.mark.parametrize("log", ["", "free(): invalid pointer", CUDA, WATCHDOG + CUDA])
def test_an_abort_is_the_workers_own_where_it_is_its_memorys_or_its_gpus(log):
    """A bad GPU must be blamed on the node that has it."""
    assert lost_peer(-signal.SIGABRT, log) == ""


@pytest.mark.parametrize("code", [3, -signal.SIGKILL, -signal.SIGSEGV])
def test_no_other_code_is_a_lost_peers(code):
    assert lost_peer(code, WATCHDOG + FRAMES + GLOO) == ""


def test_only_the_end_of_a_log_is_read(tmp_path):
    """A log may have gigabytes, and the node must go on beating."""
    log = tmp_path / "log"
    log.write_bytes(b"x" * 10 * TAIL + b"\nthe end")
    assert len(tail(log)) == TAIL
    assert account(1, tmp_path / "none", log) == ("exited with 1: the end", "")
    assert tail(log, log.stat().st_size - 3) == "end"
    assert tail(tmp_path / "none") == ""


def test_the_same_error_of_two_ranks_reads_the_same(tmp_path):
    """torch puts the rank before each line: a second try may raise it elsewhere."""
    log = tmp_path / "log"
    log.write_text("".join(f"[rank3]: {line}\n" for line in f"{FRAMES}ValueError: boom".split("\n")))
    assert account(1, tmp_path / "none", log) == ("exited with 1: ValueError: boom", "ValueError: boom")


MPIRUN = """
--------------------------------------------------------------------------
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-20101@1,1]
   Exit code:    1
--------------------------------------------------------------------------
"""


def test_the_cause_is_the_first_exception_of_a_log_of_many_ranks(tmp_path):
    """Others raise that it is gone, and what started them says that they ended."""
    log = tmp_path / "log"
    log.write_text(f"{FRAMES}ValueError: boom\n{FRAMES}{GLOO}\n{MPIRUN}")
    assert account(1, tmp_path / "none", log, mixed=True) == ("exited with 1: ValueError: boom", "ValueError: boom")
    log.write_text(MPIRUN)
    assert account(3, tmp_path / "none", log, mixed=True) == ("exited with 3: Exit code:    1", "")


def test_a_lost_peer_is_no_error_of_the_codes_own_in_a_log_of_many_ranks_either(tmp_path):
    """Two lost workers without a checkpoint would end the run as a second try that raised the same error."""
    log = tmp_path / "log"
    for error in (GLOO, REMOTE):
        log.write_text(f"{FRAMES}{error}\n{MPIRUN}")
        said, raised = account(1, tmp_path / "none", log, mixed=True)
        assert said.startswith(f"exited with 1: {error[:60]}")
        assert raised == ""
    log.write_text(f"{FRAMES}{GLOO}\n{FRAMES}ValueError: boom\n")
    assert account(1, tmp_path / "none", log, mixed=True)[1] == "ValueError: boom", "whichever was written first"


@pytest.mark.parametrize(("error", "raised"), [("ValueError: boom", "ValueError: boom"), (GLOO, "")])
def test_what_a_rank_caught_and_logged_is_not_what_ended_it(tmp_path, error, raised):
    """torch marks what was not caught: a warning of the start's would be each try's error, whatever ended it."""
    log = tmp_path / "log"
    marked = "".join(f"[rank3]: {line}\n" for line in (FRAMES + error).split("\n"))
    log.write_text(f"WARNING apex is not there\n{FRAMES}ModuleNotFoundError: No module named 'apex'\nstep 1\n{marked}")
    said, own = account(1, tmp_path / "none", log, mixed=True)
    assert said.startswith(f"exited with 1: {error[:60]}")
    assert own == raised


ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"


@pytest.mark.parametrize(
    ("code", "reason", "log"),
    [
        (RAISED, f"exited with 1: {ECC}", ""),
        (RAISED, "exited with 1: half of it", f"{FRAMES}{ECC}\nCUDA kernel errors might be asynchronously reported"),
        (-signal.SIGABRT, "was killed by SIGABRT", f"terminate called after throwing an instance\n  what():  {ECC}"),
        (RAISED, "", f"{FRAMES}RuntimeError: CUDA error: system not yet initialized"),
        (RAISED, "", f"{FRAMES}OSError: [Errno 5] Input/output error: '/mnt/scratch/x'"),
    ],
)
def test_what_no_code_brings_about_is_the_machines(code, reason, log):
    assert of_the_machine(code, reason, log)


@pytest.mark.parametrize(
    ("code", "reason", "log"),
    [
        (RAISED, "exited with 1: CUDA error: device-side assert triggered", ""),
        (RAISED, "exited with 1: torch.OutOfMemoryError: CUDA out of memory", ""),
        (RAISED, "exited with 1: CUDA error: an illegal memory access was encountered", ""),
        (RAISED, "exited with 1: ValueError: boom", f"warning: {ECC}, tried again\n{FRAMES}ValueError: boom"),
        (-signal.SIGKILL, "was killed by SIGKILL", f"warning: {ECC}"),
        (None, "", ""),
    ],
)
def test_what_a_program_may_do_itself_is_not(code, reason, log):
    """Else a job that fails on any node has one after another replaced."""
    assert not of_the_machine(code, reason, log)
