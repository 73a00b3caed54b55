"""A rank's part of each step as tensors on its device, gathered one step ahead by a thread."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from trainer.train.config import Job
from trainer.train.group import Group
from trainer.train.model import IGNORED
from trainer.train.order import samples_at, shares
from trainer.train.tokens import Tokens

MicroSteps = list[tuple[Tensor, Tensor]]
"""(tokens, targets) of each micro-step, of shape (samples, context)."""


class Feed:
    """Reads `tokens` in the job's order. Two buffers take turns, so a step must be computed before the next but one."""

    def __init__(self, tokens: Tokens, job: Job, group: Group) -> None:
        self._tokens = tokens
        self._job = job
        self._device = group.device
        self._shares = shares(job.batch, job.micro_batch, group.world, group.rank)
        self._first, self._end = self._shares[0].start, self._shares[-1].stop
        shape = (max(1, self._end - self._first), job.model.context + 1)
        self._buffers = [
            torch.zeros(shape, dtype=torch.int64, pin_memory=group.device.type == "cuda") for _ in range(2)
        ]
        self._pool = ThreadPoolExecutor(1, "feed")
        self._ahead: tuple[int, Future[Tensor]] | None = None

    def take(self, position: int) -> MicroSteps:
        """The micro-steps of the step whose first sample stands at `position`; starts to read the step after it."""
        if self._ahead is None or self._ahead[0] != position:
            self._ahead = (position, self._pool.submit(self._gather, position))
        batch = self._ahead[1].result()
        following = position + self._job.batch
        self._ahead = (following, self._pool.submit(self._gather, following))
        batch = batch.to(self._device, non_blocking=True)
        if self._first == self._end:
            # More ranks than samples: compute on any sample and count none of it, to take part in the collectives.
            return [(batch[:, :-1], torch.full_like(batch[:, 1:], IGNORED))]
        rows = [slice(share.start - self._first, share.stop - self._first) for share in self._shares]
        return [(batch[row, :-1], batch[row, 1:]) for row in rows]

    def _gather(self, position: int) -> Tensor:
        self._buffers.reverse()
        batch = self._buffers[0]
        order = samples_at(position + self._first, len(batch), len(self._tokens), self._job.seed)
        self._tokens.gather(order, batch.numpy())
        return batch
