"""Numbers of each rank that all learn the sum of at a step's end, such as its loss and whether it was asked to stop."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.train.group import Group


class Poll(Protocol):
    """One round a step: every rank casts as many numbers, and then counts."""

    def cast(self, numbers: Tensor) -> Tensor:
        """Give this rank's; what is returned is to be added to the loss before the pass that sums gradients."""

    def count(self) -> list[float]:
        """The sums, on every rank, once that pass is over."""


class WithGradients(nn.Module):
    """A poll that travels in DDP's first bucket of gradients: a collective of its own would cost a small step a tenth.

    Part of the module that DDP is around, it is a weight that nobody trains, whose gradient is what was cast.
    """

    def __init__(self, numbers: int, group: Group) -> None:
        super().__init__()
        self.sums = nn.Parameter(torch.zeros(numbers, device=group.device))
        self._world = group.world

    def cast(self, numbers: Tensor) -> Tensor:
        """See `Poll.cast`."""
        return (self.sums * numbers).sum()

    def count(self) -> list[float]:
        """See `Poll.count`."""
        assert self.sums.grad is not None, "cast before"
        mean, self.sums.grad = self.sums.grad, None
        sums: list[float] = (mean * self._world).tolist()
        return sums


class ByItself:
    """A poll by a collective of its own, while gradients are summed: FSDP2 sums those of each block apart."""

    def cast(self, numbers: Tensor) -> Tensor:
        """See `Poll.cast`."""
        self._numbers, self._pending = numbers, dist.all_reduce(numbers, async_op=True)
        return numbers.new_zeros(())

    def count(self) -> list[float]:
        """See `Poll.count`."""
        self._pending.wait()
        sums: list[float] = self._numbers.tolist()
        return sums


class Polled(nn.Module):
    """A model with its poll, for DDP to be around; called as the model is."""

    def __init__(self, model: nn.Module, poll: WithGradients) -> None:
        super().__init__()
        self.model, self.poll = model, poll

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The model's."""
        loss: Tensor = self.model(tokens, targets)
        return loss
