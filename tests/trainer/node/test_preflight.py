"""What a node is tried on before it joins, with stand-ins for the clock's tools and for the ranks."""

import os
import resource
import sys
import time

import pytest

from trainer.node import preflight
from trainer.node.health import Unfit
from trainer.node.tools import ToolFailed

UNLIMITED = resource.RLIM_INFINITY
TRACKING = "A9FEA97B,169.254.169.123,4,1700000000.1,{},0.000001,0.000002,-1.2,0.0,0.01,0.0003,0.0004,16.1,{}"


@pytest.fixture
def machine(monkeypatch):
    """Sets what the clock's tools say and how many files may be opened and KiB locked."""

    def make(tools=None, files=1 << 20, locked=UNLIMITED):
        answers = tools or {}

        def run(_, name, *__):
            if name not in answers:
                raise ToolFailed(f"the image has no {name}")
            return answers[name]

        monkeypatch.setattr(preflight.Tools, "run", run)
        limits = {resource.RLIMIT_NOFILE: files, resource.RLIMIT_MEMLOCK: locked}
        monkeypatch.setattr(preflight.resource, "getrlimit", lambda which: (limits[which], UNLIMITED))

    return make


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({"chronyc": TRACKING.format("-0.000012", "Normal")}, "clock 0.000012 s off"),
        ({"chronyc": TRACKING.format("0.25", "Normal").replace("169.254.169.123,", "")}, "clock 0.250000 s off"),
        ({"timedatectl": "yes"}, "clock synchronised (timedatectl)"),
        ({}, "clock not told"),
        ({"chronyc": "501 Not authorised", "timedatectl": "yes"}, "clock synchronised (timedatectl)"),
    ],
)
def test_a_clock_that_is_right_or_does_not_tell_is_no_reason_to_complain(machine, tools, said):
    machine(tools)
    assert preflight.system(8, "efa") == (None, f"{said}, {1 << 20} files")


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({"chronyc": TRACKING.format("-3.5", "Normal")}, "clock 3.500000 s off"),
        ({"chronyc": TRACKING.format("0.0", "Not synchronised"), "timedatectl": "yes"}, "clock not synchronised"),
        ({"timedatectl": "no"}, "clock not synchronised"),
    ],
)
def test_a_clock_that_is_off_is_told(machine, tools, said):
    machine(tools)
    with pytest.raises(preflight.Amiss, match=said):
        preflight.system(0, "tcp")


class Chrony:
    """A clock that is so far off, and that can be set or not."""

    def __init__(self, off, settable):
        self.off, self.settable, self.set = off, settable, 0

    def run(self, name, *arguments):
        if name != "chronyc" or self.off is None:
            raise ToolFailed(f"the image has no {name}")
        if arguments == ("makestep",):
            self.set += 1
            if not self.settable:
                raise ToolFailed("501 Not authorised")
            self.off = 0.0
        return TRACKING.format(self.off, "Normal")


@pytest.mark.parametrize(
    ("off", "settable", "tries"), [(None, True, 0), (3.5, True, 0), (-preflight.FAR_OFF_S, True, 0), (-400.0, True, 1)]
)
def test_a_clock_that_is_minutes_off_is_set(monkeypatch, off, settable, tries):
    chrony = Chrony(off, settable)
    monkeypatch.setattr(preflight.Tools, "run", chrony.run)
    preflight.set_clock()
    assert chrony.set == tries


def test_a_node_whose_clock_stays_minutes_off_does_not_join(monkeypatch):
    """It would sign its requests with it, and each be refused, in words that tell nothing of clocks."""
    chrony = Chrony(-400.0, settable=False)
    monkeypatch.setattr(preflight.Tools, "run", chrony.run)
    with pytest.raises(Unfit, match="the clock is 400 s off, so that requests are refused"):
        preflight.set_clock()


def test_limits_that_end_a_job_later_are_told_before_it(machine):
    """awsome-distributed-ai#647: EFA fails with `Cannot allocate memory` where locked memory has a limit."""
    machine(files=1024, locked=64 << 20)
    with pytest.raises(
        preflight.Amiss, match=r"open 1024 files, 4096 are wanted.*; .*lock 65536 KiB of memory, which efa"
    ):
        preflight.system(8, "efa")
    with pytest.raises(preflight.Amiss) as raised:
        preflight.system(8, "tcp")
    assert "lock" not in str(raised.value), "TCP locks none"
    assert preflight.system(0, "tcp")[1].endswith("1024 files"), "nobody's limits matter to a type without GPUs"


def test_room_for_three_checkpoints_is_asked_for_by_the_models_size():
    """GPT-2 XL: 48 layers of 1600; its real 1.56e9 parameters are 18.7 GB with Adam's moments."""
    xl = preflight.room({"model": {"layers": 48, "width": 1600}})
    assert 3 * 18.0e9 < xl < 3 * 20.0e9
    assert preflight.room({"model": {"layers": 4, "width": 128}}) < 1 << 30, "what health asks for anyway"
    assert preflight.room({"command": ["python"], "dataset": ""}) == 0
    assert preflight.room({"model": {"layers": 48, "width": 1600}, "sharding": "fsdp"}) == xl, "rank 0 writes all of it"


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    """Makes this shell script stand for the ranks: its `$1` and `$2` are their number and the folder."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(stand_in))

    def make(text, kind="efa", gpus=8):
        stand_in.write_text(f"#!/bin/sh\nshift 2\n{text}\n")
        stand_in.chmod(0o755)
        return preflight.loopback(dict(os.environ) | {"NCCL_DEBUG_SUBSYS": "NONE"}, gpus, kind, tmp_path / "loopback")

    return make


GOOD = """echo '[0] NCCL INFO Using network Libfabric' > $2/rank0.log; echo '{"gbytes_per_s": 412.5}'"""


def test_gpus_that_reduce_are_told_with_their_bandwidth_and_network(ranks):
    assert ranks(GOOD) == "all-reduce 412.5 GB/s, NCCL over Libfabric"
    assert ranks(GOOD, gpus=1) == "NCCL over Libfabric"
    assert (
        ranks("""echo '{"gbytes_per_s": 1.0}'""", "tcp")
        == "all-reduce 1.0 GB/s, NCCL over a network that NCCL doesn't tell"
    )


def test_ranks_are_asked_to_tell_of_the_network_whatever_the_image_silences(ranks):
    checks = 'test "$NCCL_DEBUG" = INFO && test -z "$NCCL_DEBUG_SUBSYS" && test "$1" = 8 || exit 9\n'
    assert ranks(checks + GOOD)


def test_n11_a_node_whose_plugin_is_missing_does_not_join(ranks):
    slow = GOOD.replace("Libfabric", "Socket")
    with pytest.raises(Unfit, match="NCCL uses the network Socket and not the node's efa devices"):
        ranks(slow)
    assert ranks(slow, "tcp").endswith("NCCL over Socket")


def test_gpus_that_can_not_reduce_keep_the_node_out_with_the_reason(ranks):
    text = "echo 'x NCCL WARN NET/OFI Unresponsive receiver' > $2/rank3.log; echo 'rank 3 got other sums' >&2; exit 1"
    with pytest.raises(Unfit, match=r"can't reduce among themselves: rank 3 got other sums \(NET/OFI Unresponsive"):
        ranks(text)
    with pytest.raises(Unfit, match="among themselves: it exited with 7"):
        ranks("exit 7")


def test_gpus_that_hang_are_given_up_and_nothing_of_them_is_left(ranks, tmp_path, monkeypatch, gone, wait_for):
    monkeypatch.setattr(preflight, "LOOPBACK_LIMIT_S", 0.3)
    begun = time.monotonic()
    with pytest.raises(Unfit, match=r"it took longer than 0\.3 s"):
        ranks(f"/bin/sleep 60 & echo $! > {tmp_path}/pid; wait")
    assert time.monotonic() - begun < 30
    pid = int((tmp_path / "pid").read_text())
    wait_for("the rank's end", lambda: gone(pid))
