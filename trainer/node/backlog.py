"""The signal that brings nodes: a message for each run that waits, in the cloud's own queue, whose backlog is counted.

It decides nothing; the bucket does (`queue.py`). One node at a time makes the messages anew from what waits in the
bucket, so that one too many or too few, of whatever cause, doesn't last. Messages are never handed back: one that is
received a few times is put aside as a dead letter. All in a thread that nothing waits for.

On Alibaba Cloud nothing can divide a queue's length by the nodes that are there, nor tell it reliably. There, a message
is a run that no node has seen yet: it is taken out, and what waits is told as a metric of the node's (`per_node`). A
node that has taken some out and leaves puts one back for each run that has no end, as it may be the last (`leave`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.console import say
from trainer.node import mns
from trainer.store import StoreError

EVERY_S = 300.0
"""Between looks; a run that is taken, or has ended, is looked at once."""

TAKEN_EVERY_S = 60.0
"""Between looks where messages are only taken out: an alarm asks for nodes while one is there."""

ANSWER_S = 1
"""How long the queue is waited for: by that, all its servers are asked, not some (SQS developer guide, "Amazon SQS
short and long polling")."""

HIDDEN_S = 60
"""For how long what one node has received is hidden from others: longer than it takes to make it anew."""

LEAVING_S = 5.0
"""How long a node that leaves waits for a look that is under way."""

BATCH = 10
"""The most that SQS hands out at a time (SQS API, `MaxNumberOfMessages`)."""

MOST_LEFT = 50
"""Messages that a node which leaves puts in: it has seconds. Nodes that come tell themselves what waits."""

MOST_BATCHES = 100
"""At one look: what is left is for the next."""


@dataclass
class Backlog:
    """Keeps a message in the queue at `url` for each run that `waiting` names, while `speaks` says that it is up to us.

    Or none, where the cloud's queue is only to tell of runs that are new. `waiting` may raise `StoreError`.
    """

    url: str
    region: str
    waiting: Callable[[], Iterable[str]]
    speaks: Callable[[], bool]
    client: Any = None
    unended: Callable[[], Iterable[str]] = tuple
    """Names all runs that have no end yet, the one at hand among them; may raise what `waiting` may."""
    _look: threading.Event = field(default_factory=threading.Event)
    _said: str = ""
    _waits: int | None = None
    """As of the last look; None where there was none, and once the node has left."""
    _left: bool = False
    _one: threading.Lock = field(default_factory=threading.Lock)
    """Held while messages are renewed, or one is put back."""

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._work, name="backlog", daemon=True).start()

    def look(self) -> None:
        """Look soon: what waits has changed."""
        self._look.set()

    def _work(self) -> None:
        while True:
            self._look.wait(TAKEN_EVERY_S if mns.is_queue(self.url) else EVERY_S)
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
            with self._one:
                self._renew()
        except (BotoCoreError, ClientError, OSError, StoreError, ValueError, TypeError, KeyError) as error:
            self._say(f"the count of waiting runs can't be kept, which only brings nodes late or early: {error}")
        else:
            self._said = ""

    def _renew(self) -> None:
        if self._left:
            return
        self.client = self.client or _connect(self.url, self.region)
        old, runs = list(self._received()), list(self.waiting())
        self._waits = len(runs)
        for run in () if mns.is_queue(self.url) else runs:
            self.client.send_message(QueueUrl=self.url, MessageBody=run)
        for message in old:
            self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def leave(self) -> None:
        """For a node that goes: where messages are only taken out, put one back for each run that has no end.

        A node that has never looked has taken none out, and puts none back; this one takes none out from here on. Once
        that is done, further calls do nothing. That it fails is said.
        """
        if self._waits is None or not mns.is_queue(self.url):
            return
        self._left = True
        held = self._one.acquire(timeout=LEAVING_S)  # else a look under way could take it out
        try:
            for run in () if self._waits is None else list(self.unended())[:MOST_LEFT]:
                self.client.send_message(QueueUrl=self.url, MessageBody=run)
            self._waits = None
        except (OSError, StoreError, ValueError, TypeError, KeyError) as error:
            self._say(f"that runs wait can't be told, which may bring no nodes until another is submitted: {error}")
        finally:
            if held:
                self._one.release()

    def per_node(self, nodes: Callable[[], int]) -> dict[str, float]:
        """For a sample: how many runs wait for each of so many nodes; nothing where others tell, or it isn't known.

        `nodes` may raise `OSError` or `LookupError`, and is asked only where it counts.
        """
        if self._waits is None or not mns.is_queue(self.url) or not self.speaks():
            return {}
        try:
            return {"waiting": self._waits / max(nodes(), 1)}
        except (OSError, LookupError, ValueError, TypeError, StopIteration) as error:
            self._say(f"how many nodes there are to be can't be asked, which brings no more of them: {error}")
            return {}

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


def _connect(url: str, region: str) -> Any:
    if mns.is_queue(url):
        return mns.Client()
    import boto3  # noqa: PLC0415  a node whose cluster has no queue never loads it
    from botocore.config import Config  # noqa: PLC0415

    patience = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})
    return boto3.client("sqs", region_name=region, config=patience)
