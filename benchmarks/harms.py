"""The faults: what each does to a fleet of ours and to torchrun's nodes, and what comes of it in ours."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.fleet import Node
from benchmarks.torchrun import Torchrun
from tests.faults.pair import Pair, members
from trainer.train.checkpoint import steps_in


@dataclass(frozen=True)
class Fault:
    """One fault: what it does to our pair of nodes and to torchrun's nodes (None: it is not run there)."""

    name: str
    ours: Callable[[Pair], object] | None
    theirs: Callable[[Torchrun], object] | None
    outcome: str
    nodes: int = 2
    """How many train before it, under torchrun as well."""
    after: Callable[[Pair], object] = lambda _: None
    """What brings the nodes back that it left out."""
    lasting_s: float = 0.0
    """How long it lasts, where nothing stops for it: what is measured is the longest time between two steps."""
    ends: bool = False
    """Whether the run ends of it, which is what is measured then."""


def node(pair: Pair, rank: int) -> Node:
    """The node that had this rank when the fault came."""
    return pair.fleet.nodes[members(pair.before)[rank]]


def ours(number: signal.Signals, module: str = "", *ranks: int) -> Callable[[Pair], object]:
    """Send a signal to the nodes of these ranks."""
    return lambda pair: [node(pair, rank).signal(number, module) for rank in ranks]


def harmed(kind: str, rank: int) -> Callable[[Pair], object]:
    """Have a rank hang in its own code."""
    return lambda pair: pair.fleet.harm(node(pair, rank).name, kind)


def theirs(number: signal.Signals, module: str = "", *names: str) -> Callable[[Torchrun], object]:
    """Send a signal to nodes under torchrun, of which `a` is the first."""
    return lambda t: [t.signal(name, number, module) for name in names]


def gate(pair: Pair, *, shut: bool, delay_s: float = 0.0) -> None:
    """Shut the way to the store, or open it; pieces of what passes are then so late."""
    pair.fleet.gate.shut, pair.fleet.gate.delay_s = shut, delay_s


def fill(pair: Pair, full: bool) -> None:
    """Have the disk of rank 0's node take no more of a checkpoint, or take it again."""
    path = node(pair, 0).root / "full"
    path.touch() if full else path.unlink()


def alter_newest(pair: Pair) -> None:
    """End all workers, and change a byte of the newest checkpoint, in the store and on the scratch of rank 0's node."""
    fleet, nodes = pair.fleet, [node(pair, rank) for rank in (0, 1)]
    for one in nodes:
        one.signal(STOP, AGENT)  # no new generation until the damage is done
    for one in nodes:
        one.signal(KILL, WORKER)
    scratch = next(nodes[0].root.glob("mnt/scratch/runs/*/checkpoints"))
    part = f"step-{max(*fleet.checkpoints(), *steps_in(scratch)):09d}/model.pt"
    content = (scratch / part).read_bytes()
    bad = content[:-1] + bytes([content[-1] ^ 1])
    (scratch / part).write_bytes(bad)
    fleet.store.put(f"checkpoints/{part}", bad)
    for one in nodes:
        one.signal(signal.SIGCONT, AGENT)


KILL, STOP, TERM = signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM
WORKER, AGENT = "trainer.train", "trainer.node"
SAME = "goes on; same result"
SAVED = f"{SAME}; all save the same step, no step lost"
GONE = ours(KILL, "", 1)
"""What the cloud does at last to a node that was to leave."""

FAULTS = [
    Fault("worker killed", ours(KILL, WORKER, 1), theirs(KILL, WORKER, "b"), SAME),
    Fault(
        "worker stopped (SIGSTOP)",
        ours(STOP, WORKER, 1),
        theirs(STOP, WORKER, "b"),
        f"{SAME}; rank and phase are told",
    ),
    Fault("worker hangs as it computes", harmed("hangs-computing", 0), None, f"{SAME}; rank, phase and stack are told"),
    Fault(
        "worker hangs as it reads data",
        harmed("hangs-reading", 1),
        None,
        f"{SAME}; rank, phase and stack are told; peers wait for 60 s, as a file system may be away as long",
    ),
    Fault(
        "agent killed",
        ours(KILL, AGENT, 1),
        theirs(KILL, AGENT, "b"),
        f"{SAME}; its workers die with it",
        after=lambda pair: pair.fleet.start(node(pair, 1).name),
    ),
    Fault(
        "node frozen",
        ours(STOP, "", 1),
        theirs(STOP, "", "b"),
        f"{SAME}; taken back when it thaws",
        after=ours(signal.SIGCONT, "", 1),
    ),
    Fault("node joins", lambda pair: pair.add(), lambda t: t.start("b"), f"{SAME}; no step lost", nodes=1),
    Fault(
        "group ends a node (scale in)",
        lambda pair: pair.fleet.group.ending.add(node(pair, 1).name),
        None,
        SAVED,
        after=GONE,
    ),
    Fault("spot notice", lambda pair: pair.fleet.notice(node(pair, 1).name, "spot", 120), None, SAVED, after=GONE),
    Fault("agent asked to leave", ours(TERM, AGENT, 1), theirs(TERM, AGENT, "b"), f"{SAME}; no step lost", after=GONE),
    Fault("newest checkpoint altered", alter_newest, None, "set aside; goes on from the one before"),
    Fault("node killed", ours(KILL, "", 1), theirs(KILL, "", "b"), SAME),
    Fault("leader's node killed", ours(KILL, "", 0), theirs(KILL, "", "a"), f"{SAME}; the next oldest leads"),
    Fault("two of three nodes killed", ours(KILL, "", 0, 1), None, SAME, nodes=3),
    Fault(
        "rebalance recommendation",
        lambda pair: pair.fleet.notice(node(pair, 1).name, "rebalance", 0),
        None,
        "noted; nothing stops",
        lasting_s=10,
    ),
    Fault(
        "store away",
        lambda pair: gate(pair, shut=True),
        None,
        "trains on; saves once it is back; nobody is taken for dead",
        after=lambda pair: gate(pair, shut=False),
        lasting_s=60,
    ),
    Fault(
        "store slow",
        lambda pair: gate(pair, shut=False, delay_s=0.1),
        None,
        "trains on; saves as soon as it can",
        after=lambda pair: gate(pair, shut=False),
        lasting_s=15,
    ),
    Fault(
        "scratch full",
        lambda pair: fill(pair, full=True),
        None,
        "trains on; the failed save is told, what stood before stands",
        after=lambda pair: fill(pair, full=False),
        lasting_s=10,
    ),
    Fault("clocks differ by 15 min", None, None, "no effect"),
    Fault(
        "one node fails again and again", None, None, "in quarantine, with a reason; it ends with 78, and is replaced"
    ),
    Fault(
        "code raises",
        lambda pair: [pair.fleet.harm(name, "raises") for name in members(pair.before)],
        None,
        "one more try, then the run has failed with what was raised",
        ends=True,
    ),
]
NAMES = [fault.name for fault in FAULTS]
