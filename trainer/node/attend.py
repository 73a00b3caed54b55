"""What runs on a node whose share of the work another node's `mpirun` starts: it runs what that asks for, and waits.

    python -m trainer.node.attend        with TRAINWRIGHT_STORE and TRAINWRIGHT_GENERATION in its environment

What it is asked to run (see `remote`) is its child, which ends with it, as it ends with the node's agent. The agent
ends it with the generation: it has no limit of its own.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from trainer import exits, layout
from trainer.node import launchers
from trainer.node.peers import DONE, DRAINED, FAILED, Card, Ended, Generation, Member
from trainer.node.postmortem import told
from trainer.node.processes import dying_with_parent
from trainer.node.remote import REFUSED, Answer, Request
from trainer.store import Missing, Store, Unavailable, open_store

POLL_S = 2.0

ASKED_POLL_S = 0.5
"""Seconds between looks for what is to run here: `mpirun` asks for it within a second or two, as a rule."""

SETTLE_S = 1.0
"""How long what was started is watched before it counts as running: what can't run at all ends in less."""

NOTICED_S = 15.0
"""How long the leader may take to say that `mpirun` has ended, once what it had started here has."""

RENAMED = "PRTE_MCA_prte_strip_prefix"
"""By which an image may have Open MPI call a node otherwise than the node does itself (PRRTE, `proc_info.c`)."""

CODES = {DONE: exits.DONE, DRAINED: exits.DRAINED, FAILED: 1}
"""The exit code by how the leader's command ended; any other end is the loss of a peer.

Which node's rank made `mpirun` fail is not known here: each says that it failed, so that no node alone is blamed.
"""


@dataclass
class Attendance:
    """This node's part in a generation's `mpirun`, which runs on the generation's leader."""

    store: Store
    number: int
    rank: int
    """The generation's number, and this node's in it."""
    run: Callable[[str], subprocess.Popen[bytes]]
    """Starts a shell's line."""
    child: subprocess.Popen[bytes] | None = None
    answer: Answer | None = None
    """How that began, once it has."""
    _members: tuple[Member, ...] = ()
    _told: bool = False
    _over: float | None = None

    def attend(self) -> int:
        """Run what the leader asks for, and wait for its end; the exit code. Raises `StoreError`."""
        while True:
            try:
                self._members = self._members or self._read()
                self._start()
                ended = self._ended()
            except Unavailable as error:
                print(f"the leader can't be asked how it is: {error}", flush=True)
                ended = None
            if ended:
                return self._with_the_leader(ended.how)
            if code := self._left_alone():
                print(f"what mpirun had started here {told(code)}, and mpirun goes on", flush=True)
                return 1
            time.sleep(POLL_S if self._told else ASKED_POLL_S)

    def _read(self) -> tuple[Member, ...]:
        return Generation.parse(self.store.get(layout.generation(self.number))).members

    @property
    def _node(self) -> str:
        return self._members[self.rank].node

    @property
    def _leader(self) -> str:
        return self._members[0].node

    def _start(self) -> None:
        """Run what is asked for, once it is, and tell how that began."""
        if self.answer is None:
            try:
                request = Request(**json.loads(self.store.get(layout.remote_request(self.number, self._node))))
            except Missing:
                return
            self.answer = self._begun(request)
        if not self._told:
            self.store.put(layout.remote_answer(self.number, self._node), self.answer.json())
            self._told = True

    def _begun(self, request: Request) -> Answer:
        if request.host == socket.gethostname() and RENAMED not in os.environ:
            why = f"{self._node} and the leader are both called {request.host}, which Open MPI knows nodes by"
            return Answer(REFUSED, f"{why}: give each a host name of its own")
        self.child = self.run(request.line)
        if (code := self._code(SETTLE_S)) is None:
            return Answer(None)
        return Answer(code if code >= 0 else 128 - code, f"it {told(code)} on {self._node}, whose log says why")

    def _ended(self) -> Ended | None:
        """How the leader's command ended in this generation, None while it runs."""
        try:
            ended = Card.parse(self.store.get(layout.card(self._leader))).ended
        except Missing:
            return None
        return ended if ended and ended.generation == self.number else None

    def _with_the_leader(self, how: str) -> int:
        """The exit code of a node whose leader ended so. A daemon that crashed is not always a failure to `mpirun`."""
        if how == DONE and self.child and (code := self._code(NOTICED_S)) != 0:
            print(f"mpirun ended well, and what it had started here {told(code)}", flush=True)
            return 1
        if how == FAILED:
            print(f"it failed on {self._leader}, whose log says why", flush=True)
        return CODES.get(how, exits.PEER_LOST)

    def _code(self, wait_s: float) -> int | None:
        """The exit code of what ran here, None where it still runs after so many seconds."""
        assert self.child is not None
        try:
            return self.child.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None

    def _left_alone(self) -> int:
        """The exit code of what ran here, if it failed and the leader has not ended since; else 0."""
        code = self.child.poll() if self.child else None
        if code is None:
            return 0
        if self._over is None:
            self._over = time.monotonic()
        return code if time.monotonic() > self._over + NOTICED_S else 0


def run(line: str) -> subprocess.Popen[bytes]:
    """Start a line in the user's own shell, as sshd would, in this process's group and for its life."""
    shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    found = launchers.of_the_command(os.environ)
    return subprocess.Popen(
        [shell, "-c", line],
        env=found,
        stdin=subprocess.DEVNULL,
        preexec_fn=dying_with_parent(),  # noqa: PLW1509  this process has no other thread
    )


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(exits.DRAINED)


def main() -> int:
    """Attend the generation that the environment names, as the node that it names."""
    store, number = open_store(os.environ["TRAINWRIGHT_STORE"]), int(os.environ["TRAINWRIGHT_GENERATION"])
    return Attendance(store, number, int(os.environ["NODE_RANK"]), run).attend()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main())
