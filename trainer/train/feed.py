"""A rank's part of each step as tensors on its device, gathered one step ahead by a thread."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from trainer.train.config import Job
from trainer.train.group import Group
from trainer.train.model import IGNORED
from trainer.train.order import Indices, samples_at, shares
from trainer.train.tokens import Tokens

MicroSteps = list[tuple[Tensor, Tensor]]
"""(tokens, targets) of each micro-step, of shape (samples, context)."""

AHEAD = 4096
"""Samples whose order is worked out at once: for a few, numpy's calls cost far more than their work."""


class Feed:
    """Reads `tokens` in the job's order. Two buffers take turns, so a step must be computed before the next but one."""

    def __init__(self, tokens: Tokens, job: Job, group: Group) -> None:
        self._tokens = tokens
        self._job = job
        self._device = group.device
        self._shares = shares(job.batch, job.micro_batch, group.world, group.rank)
        self._first, self._end = self._shares[0].start, self._shares[-1].stop
        self._width = max(1, self._end - self._first)
        self._known_from, self._known = 0, np.empty((0, self._width), dtype=np.int64)
        self._buffers = [
            torch.zeros((self._width, job.model.context + 1), dtype=torch.int64, pin_memory=group.device.type == "cuda")
            for _ in range(2)
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
        return [self._micro_step(batch, share) for share in self._shares]

    def _micro_step(self, batch: Tensor, share: range) -> tuple[Tensor, Tensor]:
        if not share:
            # Fewer samples than ranks: compute on any, count none of it, and so take part in the collectives.
            return batch[:1, :-1], torch.full_like(batch[:1, 1:], IGNORED)
        rows = batch[share.start - self._first : share.stop - self._first]
        return rows[:, :-1], rows[:, 1:]

    def _gather(self, position: int) -> Tensor:
        self._buffers.reverse()
        self._tokens.gather(self._order(position), self._buffers[0].numpy())
        return self._buffers[0]

    def _order(self, position: int) -> Indices:
        """The samples of this rank in the step whose first sample stands at `position`."""
        step, between = divmod(position - self._known_from, self._job.batch)
        if between or not 0 <= step < len(self._known):
            steps = np.arange(max(1, AHEAD // self._width))
            positions = position + self._job.batch * steps[:, None] + self._first + np.arange(self._width)
            self._known_from, self._known = position, samples_at(positions, len(self._tokens), self._job.seed)
            step = 0
        order: Indices = self._known[step]
        return order
