"""Instance metadata by token alone: seen at boot, where that isn't declared with a node's group (facts: 0.7)."""

from __future__ import annotations

import time

from trainer.metadata import EcsMetadata

LIMIT_S = 90.0
"""Within which the service is to refuse who shows no token, should it take a moment."""

RETRY_S = 1.0


class Open(Exception):
    """The service answers without a token; the message says what to do."""


def check(service: EcsMetadata) -> tuple[None, str]:
    """See that the node's metadata service takes tokens alone. Raises `Open` where it doesn't, and `OSError`.

    A node may not change that: RAM could let it do so only for all nodes of its cluster. It is its group's to say.
    """
    deadline = time.monotonic() + LIMIT_S
    while service.answers_without_token():
        if time.monotonic() >= deadline:
            raise Open(
                "instance metadata answers without a token: have the group's scaling configuration enforce tokens "
                "(run `up` again), or use an image whose nodes do"
            )
        time.sleep(RETRY_S)
    return None, "instance metadata takes tokens alone"
