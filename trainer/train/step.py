"""One optimizer step of the whole group: gradients over all micro-steps and ranks, by the tokens of all."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.train.config import Job
from trainer.train.feed import MicroSteps
from trainer.train.group import Group
from trainer.train.learner import AUTOCAST, VOTES, Learner


@dataclass(frozen=True)
class Computed:
    """What one step gave, the same on every rank."""

    loss: float
    """Mean over all tokens of the global batch, before the update."""
    norm: float
    """Norm of the gradient before clipping."""
    drain: bool
    """Whether any rank was asked to drain."""
    save: bool
    """Whether rank 0 says that the step is due to be saved."""
    saving: bool
    """Whether it says so, or is saving an earlier one."""


def compute(
    learner: Learner,
    micro_steps: MicroSteps,
    rate: float,
    asked: bool,
    due: int,
    job: Job,
    group: Group,
    join: Callable[[], None] = lambda: None,
) -> Computed:
    """One optimizer step of the whole group. A gradient that isn't finite, which all ranks see alike, moves nothing.

    `due` is 1 where rank 0 wants the step saved, and -1 where it still saves another. `join` is called before the pass
    that waits for the other ranks, where gradients are averaged in that alone.
    """
    tokens_in_batch = job.batch * job.model.context
    votes = torch.zeros(VOTES, device=group.device)
    votes[1], votes[2] = asked, due
    learner.optimizer.zero_grad()
    for number, (tokens, targets) in enumerate(micro_steps, start=1):
        last = number == len(micro_steps)
        with (
            nullcontext() if last else learner.apart(),
            torch.autocast(group.device.type, AUTOCAST[job.precision], enabled=job.precision != "fp32"),
        ):
            loss: Tensor = learner.shared(tokens, targets)
            # Gradients are averaged over ranks: times ranks, by the tokens of all, makes the sum of sums the mean over
            # tokens, however unevenly ranks and micro-steps share the batch.
            scaled = learner.scaler.scale(loss * (group.world / tokens_in_batch))
            votes[0] += loss.detach()
            if last:
                join()
            (scaled + learner.poll.cast(votes) if last else scaled).backward()  # type: ignore[no-untyped-call]
    learner.scaler.unscale_(learner.optimizer)
    norm = learner.clip(job.clip)
    for parameters in learner.optimizer.param_groups:
        parameters["lr"] = rate
    if math.isfinite(norm):
        learner.scaler.step(learner.optimizer)
    learner.scaler.update()
    loss_sum, drains, saves = learner.poll.count()
    return Computed(loss_sum / tokens_in_batch, norm, drains > 0, saves > 0, saves != 0)
