"""What Open MPI starts its daemons on other nodes with, in the place of `ssh`: through the run's store.

    python -m trainer.node.remote ADDRESS WORD...      with TRAINWRIGHT_STORE and TRAINWRIGHT_GENERATION

`mpirun` calls it once for each other node that its `--host` names (PRRTE, `plm_ssh_module.c`: `agent host command`).
The words are put where `attend` on that node looks for them, which runs them as sshd would and tells how that began.
Nodes listen at no port for it and hold no key: who may write below the run's prefix is trusted with this as with the
generations. What was written for another generation is never read, as its number is in the key.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from trainer import layout
from trainer.grace import GRACE_S
from trainer.node.peers import Generation
from trainer.node.workers import KILLED_S
from trainer.store import Missing, Store, Unavailable, open_store

POLL_S = 0.5

ANSWER_S = GRACE_S + KILLED_S + 60.0
"""How long a node may take to answer, in seconds: it may have to end the workers of the generation before."""

REFUSED = 255
"""The exit code of what could not be started at all, as `ssh` has it (ssh(1), "EXIT STATUS")."""


@dataclass(frozen=True)
class Request:
    """A shell's line to run on a node, and the name of the host that asks for it."""

    line: str
    host: str

    def json(self) -> bytes:
        """The request as it is stored."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class Answer:
    """How a command began on a node: `code` is None while it runs, and then its exit code; `said`, its last words."""

    code: int | None
    said: str = ""

    def json(self) -> bytes:
        """The answer as it is stored."""
        return json.dumps(asdict(self)).encode()


def start(
    store: Store, number: int, address: str, words: Sequence[str], clock: Callable[[], float] = time.monotonic
) -> Answer:
    """Have the node at this address run the words, as a shell's line; how that began. Raises `StoreError`."""
    request = Request(" ".join(words), socket.gethostname()).json()
    deadline = clock() + ANSWER_S
    told = "its agent may be gone, or not have ended the generation before"
    nodes: dict[str, str] = {}
    asked = False
    while clock() < deadline:
        try:
            members = () if nodes else Generation.parse(store.get(layout.generation(number))).members
            nodes |= {member.address: member.node for member in members}
            if address not in nodes:
                return Answer(REFUSED, f"{address} is no node of generation {number}")
            asked = asked or store.put(layout.remote_request(number, nodes[address]), request)
            return Answer(**json.loads(store.get(layout.remote_answer(number, nodes[address]))))
        except Missing:
            time.sleep(POLL_S)
        except Unavailable as error:
            told = str(error)
            time.sleep(POLL_S)
    return Answer(REFUSED, f"{nodes.get(address, 'the node')} at {address} has not answered in {ANSWER_S:g} s: {told}")


def main(address: str, *words: str) -> int:
    """Start the words on that node; the exit code: 0 once they run."""
    store, number = open_store(os.environ["TRAINWRIGHT_STORE"]), int(os.environ["TRAINWRIGHT_GENERATION"])
    answer = start(store, number, address, words)
    if answer.code:
        print(f"mpirun's daemon can't be started: {answer.said}", file=sys.stderr, flush=True)
    return answer.code or 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
