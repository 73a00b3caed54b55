"""Say that a node's boot failed, where the cloud itself counts no such thing: `python -m trainer.node.failed CONFIG`.

A message in a queue is a failed boot of the last hour; when there are too many, the fleet is set to zero.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainer.console import say
from trainer.node import mns
from trainer.node.config import NodeConfig

LIMIT_S = 5.0
"""For the message; the node is powered off all the same."""


def tell(config: NodeConfig, client: mns.Client | None = None) -> None:
    """Count this boot as failed, where the node was told how. That it can't be said keeps nothing waiting."""
    if not config.failed:
        return
    try:
        (client or mns.Client(timeout_s=LIMIT_S)).send_message(QueueUrl=config.failed, MessageBody=config.cluster)
    except OSError as error:
        say(f"that this boot failed can't be told: {error}")


if __name__ == "__main__":
    tell(NodeConfig.read(Path(sys.argv[1])))
