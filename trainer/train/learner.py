"""What learns on one rank: the model, its optimizer and its gradient scaler, and the state that they are saved as."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from trainer.train.config import Job
from trainer.train.group import Group
from trainer.train.model import GPT, IGNORED
from trainer.train.poll import ByItself, Poll, Polled, WithGradients

State = Mapping[str, Mapping[str, Any]]
"""What a checkpoint holds: by file name, a state dict of tensors and plain values."""

MODEL = "model.pt"
OPTIMIZER = "optimizer.pt"

BETAS = (0.9, 0.95)
"""AdamW's decay rates, as GPT-3's (Brown et al. 2020, appendix B)."""

VOTES = 3
"""What ranks tell each other a step: the sum of losses, whether to drain, whether to save."""

AUTOCAST = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Learner:
    """The model, as itself and as the ranks share it, and what moves it."""

    model: GPT
    shared: nn.Module
    """Called instead of `model`: DDP around it, or FSDP2, which is the model itself."""
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    poll: Poll
    """Of `VOTES` numbers, by which ranks agree at each step's end."""

    def apart(self) -> AbstractContextManager[None]:
        """For micro-steps before the last, whose gradients need not be summed yet.

        FSDP2 sums them all the same: kept whole until the last, they would take the memory that sharding saves.
        """
        return self.shared.no_sync() if isinstance(self.shared, DistributedDataParallel) else nullcontext()

    def clip(self, limit: float) -> float:
        """Scale the gradient down to a norm of `limit`; the norm that it had."""
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        return float(_whole(clip_grad_norm_(weights, limit)))

    def snapshot(self, keep: bool) -> State:
        """A copy in main memory of all that a checkpoint holds; what isn't there is a function of the step.

        Empty on a rank that doesn't `keep` it, yet every rank must call it: what is sharded takes all to put together.
        The copy is the same for either way of sharding, so that a run may change it, as it may its number of ranks.
        """
        if not keep and isinstance(self.shared, DistributedDataParallel):
            return {}
        copy: State = copied(
            {
                MODEL: self.model.state_dict(),
                OPTIMIZER: {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()},
            },
            keep,
        )
        return copy if keep else {}


def build(job: Job, vocabulary: int, group: Group, state: State | None) -> Learner:
    """A new learner, the same on every rank, or one at `state`, which isn't kept. Weight decay is for matrices only."""
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(job.seed)
    model = GPT(job.model, vocabulary, recompute=job.activation_checkpointing)
    if state:
        model.load_state_dict(state[MODEL])
    if job.sharding == "fsdp":
        from trainer.train import sharded  # noqa: PLC0415

        sharded.shard(model, AUTOCAST[job.precision], group, compiled=job.compile)
        shared: nn.Module = model
        poll: Poll = ByItself()
    else:
        poll = WithGradients(VOTES, group)
        shared = _replicated(model, poll, job, group)
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
        saved = state[OPTIMIZER]["optimizer"]
        if job.sharding == "fsdp":
            saved = sharded.cut(saved, optimizer)
        elif group.device.type == "cpu":
            saved = copied(saved)  # else the optimizer would work on the tensors that it is given
        optimizer.load_state_dict(saved)
        scaler.load_state_dict(state[OPTIMIZER]["scaler"])
    return Learner(model, shared, optimizer, scaler, poll)


def copied(tree: Any, keep: bool = True) -> Any:
    """A copy, in main memory, of nested mappings and sequences of tensors and plain values; sharded ones whole."""
    if isinstance(tree, Tensor):
        whole = _whole(tree)
        if keep:
            return whole.detach().to("cpu", copy=True)
        if whole.is_cuda:
            # One at a time, as on the rank that keeps them: a collective's limit runs from when it is asked for, and
            # those of a whole model, asked for at once, would wait for that rank's copies to main memory.
            torch.cuda.current_stream().synchronize()
        return None
    if isinstance(tree, Mapping):
        return {key: copied(value, keep) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(copied(value, keep) for value in tree)
    return tree


def _replicated(model: GPT, poll: WithGradients, job: Job, group: Group) -> nn.Module:
    """The model on each rank, whole, its gradients averaged while the backward pass goes on."""
    shared = DistributedDataParallel(
        Polled(model.to(group.device), poll),
        device_ids=[group.device.index] if group.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
    )
    shared.broadcast_buffers = False  # those of positions are the same on every rank, and a forward pass waits for none
    # One backward pass that changes nothing, so that DDP lays out its gradient buckets for good. It lays them out anew
    # after the first pass, in the order in which gradients came, and where a gradient lies decides in which order three
    # ranks or more add it up: without this, a resumed run would round its first step differently.
    nothing = torch.zeros((1, job.model.context), dtype=torch.int64, device=group.device)
    loss = shared(nothing, torch.full_like(nothing, IGNORED))
    (loss + poll.cast(torch.zeros(VOTES, device=group.device))).backward()
    poll.count()
    if job.compile:
        model.compile_blocks()
    return shared


def _whole(tensor: Tensor) -> Tensor:
    """A tensor itself, or all of one that is sharded (a DTensor), which every rank must ask for."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole
