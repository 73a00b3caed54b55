"""What runs on a node whose share of the work another node's `mpirun` starts: it waits, and ends as that one does.

    python -m trainer.node.attend        with TRAINWRIGHT_STORE and TRAINWRIGHT_GENERATION in its environment

The agent ends it with the generation: it has no limit of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

from trainer import exits, layout
from trainer.node.peers import DONE, DRAINED, Card, Generation
from trainer.store import Missing, Store, Unavailable, open_store

POLL_S = 2.0

CODES = {DONE: exits.DONE, DRAINED: exits.DRAINED}
"""The exit code by how the first node's command ended; any other end is the loss of a peer."""


def attend(store: Store, number: int) -> int:
    """Wait for the end of the generation's first node; the exit code. Raises `StoreError`."""
    first = Generation.parse(store.get(layout.generation(number))).members[0].node
    while True:
        try:
            ended = Card.parse(store.get(layout.card(first))).ended
        except (Missing, Unavailable) as error:
            print(f"{first} can't be asked how it is: {error}", flush=True)
            ended = None
        if ended and ended.generation == number:
            return CODES.get(ended.how, exits.PEER_LOST)
        time.sleep(POLL_S)


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(exits.DRAINED)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(attend(open_store(os.environ["TRAINWRIGHT_STORE"]), int(os.environ["TRAINWRIGHT_GENERATION"])))
