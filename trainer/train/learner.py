"""What learns on one rank: the model, its optimizer and its gradient scaler, and the state that they are saved as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer.train.config import Job
from trainer.train.group import Group
from trainer.train.model import GPT, IGNORED

State = Mapping[str, Mapping[str, Any]]
"""What a checkpoint holds: by file name, a state dict of tensors and plain values."""

MODEL = "model.pt"
OPTIMIZER = "optimizer.pt"

BETAS = (0.9, 0.95)
"""AdamW's decay rates, as GPT-3's (Brown et al. 2020, appendix B)."""


@dataclass(frozen=True)
class Learner:
    """The model, as itself and as the ranks share it, and what moves it."""

    model: nn.Module
    shared: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler

    def state(self) -> State:
        """All that a checkpoint holds; what isn't here is a function of the step."""
        return {
            MODEL: self.model.state_dict(),
            OPTIMIZER: {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()},
        }


def build(job: Job, vocabulary: int, group: Group, state: State | None) -> Learner:
    """A new learner, the same on every rank, or one at `state`. Weight decay is for matrices only."""
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(job.seed)
    model = GPT(job.model, vocabulary).to(group.device)
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": job.weight_decay},
            {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
        ],
        lr=job.learning_rate,
        betas=BETAS,
        fused=True,
    )
    scaler = torch.amp.GradScaler(group.device.type, enabled=job.precision == "fp16")
    if state:
        model.load_state_dict(state[MODEL])
        optimizer.load_state_dict(state[OPTIMIZER]["optimizer"])
        scaler.load_state_dict(state[OPTIMIZER]["scaler"])
    shared = DistributedDataParallel(
        model,
        device_ids=[group.device.index] if group.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
    )
    _settle(shared, job.model.context, group.device)
    return Learner(model, shared, optimizer, scaler)


def _settle(shared: DistributedDataParallel, context: int, device: torch.device) -> None:
    """Run one backward pass that changes nothing, so that DDP lays out its gradient buckets for good.

    DDP lays them out anew after the first pass, in the order in which gradients came. Where a gradient lies decides in
    which order three ranks or more add it up: without this, a resumed run would round its first step differently.
    """
    nothing = torch.zeros((1, context), dtype=torch.int64, device=device)
    shared(nothing, torch.full_like(nothing, IGNORED)).backward()
