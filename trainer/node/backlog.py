"""The signal that brings nodes: a message for each run that waits, in the cloud's own queue, whose backlog is counted.

It decides nothing; the bucket does (`queue.py`). One node at a time makes the messages anew from what waits in the
bucket, so that one too many or too few, of whatever cause, doesn't last. Messages are never handed back: one that is
received a few times is put aside as a dead letter. All in a thread that nothing waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.node.console import say
from trainer.store import StoreError

EVERY_S = 300.0
"""Between looks; a run that is taken, or has ended, is looked at once."""

ANSWER_S = 1
"""How long the queue is waited for: by that, all its servers are asked, not some (SQS developer guide, "Amazon SQS
short and long polling")."""

HIDDEN_S = 60
"""For how long what one node has received is hidden from others: longer than it takes to make it anew."""

BATCH = 10
"""The most that SQS hands out at a time (SQS API, `MaxNumberOfMessages`)."""

MOST_BATCHES = 100
"""At one look: what is left is for the next."""


@dataclass
class Backlog:
    """Keeps a message in the queue at `url` for each run that `waiting` names, while `speaks` says that it is up to us.

    `waiting` may raise `StoreError`.
    """

    url: str
    region: str
    waiting: Callable[[], Iterable[str]]
    speaks: Callable[[], bool]
    client: Any = None
    _look: threading.Event = field(default_factory=threading.Event)
    _said: str = ""

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._work, name="backlog", daemon=True).start()

    def look(self) -> None:
        """Look soon: what waits has changed."""
        self._look.set()

    def _work(self) -> None:
        while True:
            self._look.wait(EVERY_S)
            self._look.clear()
            if self.speaks():
                self.renew()

    def renew(self) -> None:
        """Make the messages anew. That it fails is said once.

        What is received was submitted before it is looked for in the bucket, where each run goes first: none that
        waits is taken for one that doesn't. New ones are sent before old ones go, as one too many does less harm.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            self.client = self.client or _connect(self.region)
            old = list(self._received())
            for run in self.waiting():
                self.client.send_message(QueueUrl=self.url, MessageBody=run)
            for message in old:
                self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        except (BotoCoreError, ClientError, OSError, StoreError, ValueError, TypeError, KeyError) as error:
            self._say(f"the count of waiting runs can't be kept, which only brings nodes late or early: {error}")
        else:
            self._said = ""

    def _received(self) -> Iterator[Mapping[str, str]]:
        for _ in range(MOST_BATCHES):
            answer = self.client.receive_message(
                QueueUrl=self.url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=ANSWER_S, VisibilityTimeout=HIDDEN_S
            )
            yield from (messages := answer.get("Messages", []))
            if not messages:
                return

    def _say(self, what: str) -> None:
        if what != self._said:
            say(what)
        self._said = what


def _connect(region: str) -> Any:
    import boto3  # noqa: PLC0415  a node whose cluster has no queue never loads it
    from botocore.config import Config  # noqa: PLC0415

    patience = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})
    return boto3.client("sqs", region_name=region, config=patience)
