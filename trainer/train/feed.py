"""A rank's part of each step as tensors on its device, gathered ahead by a thread."""

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

CHUNK_BYTES = 1 << 22
"""What is gathered at once, unless a step alone takes more: a thread's turn, and numpy's calls, cost a small step more
than their work."""

AHEAD = 1 << 16
"""Samples whose order is worked out at once, or a whole epoch where that is less, for the same reason."""


class Feed:
    """Reads `tokens` in the job's order, some steps at once. A step must be computed before the next is taken."""

    def __init__(self, tokens: Tokens, job: Job, group: Group) -> None:
        self._tokens = tokens
        self._job = job
        self._device = group.device
        self._shares = shares(job.batch, job.micro_batch, group.world, group.rank)
        self._first = self._shares[0].start
        self._width = max(1, self._shares[-1].stop - self._first)
        sample = job.model.context + 1
        self._steps = max(1, CHUNK_BYTES // (self._width * sample * torch.int64.itemsize))
        self._buffers = [
            torch.empty((self._steps, self._width, sample), dtype=torch.int64, pin_memory=group.device.type == "cuda")
            for _ in range(2)
        ]
        self._pool = ThreadPoolExecutor(1, "feed")
        self._known_from, self._known = 0, np.empty((0, self._width), dtype=np.int64)
        self._from, self._chunk = 0, self._buffers[0][:0]
        """The steps at hand, and where the first of them stands."""
        self._ahead: tuple[int, Future[Tensor]] | None = None

    @property
    def reading(self) -> bool:
        """Whether what follows is still being read. A file system that stalls stalls then all of the process: numpy
        holds Python's lock while it gathers a few samples, and waits for their pages in it.
        """
        return self._ahead is not None and not self._ahead[1].done()

    def take(self, position: int) -> MicroSteps:
        """The micro-steps of the step whose first sample stands at `position`; what follows is read meanwhile."""
        step, between = divmod(position - self._from, self._job.batch)
        if between or not 0 <= step < len(self._chunk):
            step = 0
            self._turn(position)
        batch = self._chunk[step].to(self._device, non_blocking=True)
        return [self._micro_step(batch, share) for share in self._shares]

    def _turn(self, position: int) -> None:
        """Have the steps from `position` on at hand: those read ahead, or else one, so that training needn't wait."""
        if self._ahead is None or self._ahead[0] != position:
            self._ahead = (position, self._pool.submit(self._gather, position, 1))
        self._from, self._chunk = position, self._ahead[1].result()
        following = position + len(self._chunk) * self._job.batch
        self._ahead = (following, self._pool.submit(self._gather, following, self._steps))

    def _micro_step(self, batch: Tensor, share: range) -> tuple[Tensor, Tensor]:
        if not share:
            # Fewer samples than ranks: compute on any, count none of it, and so take part in the collectives.
            return batch[:1, :-1], torch.full_like(batch[:1, 1:], IGNORED)
        rows = batch[share.start - self._first : share.stop - self._first]
        return rows[:, :-1], rows[:, 1:]

    def _gather(self, position: int, steps: int) -> Tensor:
        """This rank's samples in so many steps from `position` on, in the buffer that isn't at hand."""
        self._buffers.reverse()
        chunk = self._buffers[0][:steps]
        self._tokens.gather(self._order(position, steps), chunk.flatten(0, 1).numpy())
        return chunk

    def _order(self, position: int, steps: int) -> Indices:
        """The samples of this rank in so many steps from `position` on."""
        step, between = divmod(position - self._known_from, self._job.batch)
        if between or not 0 <= step <= len(self._known) - steps:
            ahead = min(AHEAD, len(self._tokens)) // self._width
            starts = position + self._first + self._job.batch * np.arange(max(steps, ahead))
            known = samples_at(np.add.outer(starts, np.arange(self._width)).ravel(), len(self._tokens), self._job.seed)
            self._known_from, self._known = position, known.reshape(-1, self._width)
            step = 0
        order: Indices = self._known[step : step + steps].ravel()
        return order
