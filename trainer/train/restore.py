"""Going on from a checkpoint: rank 0 finds and reads it, and every rank gets the same."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.train.checkpoint import FIND_S, Found, Manifest
from trainer.train.config import Job
from trainer.train.errors import CheckpointError
from trainer.train.group import Group
from trainer.train.learner import State
from trainer.train.tokens import Tokens

PIECE = 64 << 20
"""Bytes passed on at a time: NCCL needs them on the GPU, beside what trains there."""


@dataclass(frozen=True)
class Resumed:
    """What a rank goes on from; `source` is where it lies on scratch, known to rank 0 only."""

    manifest: Manifest
    state: State
    source: Found | None


def restore(found: Callable[[], Found | None], job: Job, tokens: Tokens, group: Group) -> Resumed | None:
    """The checkpoint that `found` gives on rank 0, on every rank; None where there is none.

    Rank 0 alone looks, so that all go on from the same one whatever lies on their own scratch. It passes on the bytes
    of the files: what DDP broadcasts when it is built is the model only, not the optimizer. Raises `CheckpointError`.
    """
    source: Found | None = None

    def look() -> bytes:
        nonlocal source
        source = found()
        return source.manifest.encode() if source else b""

    told = group.told("restored", look, FIND_S)
    if not told:
        return None
    manifest = Manifest.decode(told)
    check(manifest, job, tokens)
    state: dict[str, Any] = {}
    for part in manifest.parts:
        content = torch.empty(part.size, dtype=torch.uint8)
        if source:
            content = torch.from_file(str(source.folder / part.name), size=part.size, dtype=torch.uint8)
        if group.world > 1:
            _pass_on(content, group)
        state[part.name] = torch.load(io.BytesIO(content.numpy().data), map_location="cpu", weights_only=True)
    return Resumed(manifest, state, source)


def check(manifest: Manifest, job: Job, tokens: Tokens) -> None:
    """Raise `CheckpointError` where the checkpoint is of another run: another model, or another order of data."""
    wanted = asdict(job) | {"samples": len(tokens), "vocabulary": tokens.vocabulary}
    held = manifest.job | {"samples": manifest.samples, "vocabulary": manifest.vocabulary}
    for name in ("dataset", "seed", "model", "samples", "vocabulary"):
        if held.get(name) != wanted[name]:
            raise CheckpointError(
                f"step {manifest.step}: the run's checkpoint has {name} {held.get(name)}, but the job {wanted[name]}; "
                "start another run, or bring the old value back"
            )


def _pass_on(content: Tensor, group: Group) -> None:
    """Fill `content` with rank 0's, piece by piece."""
    for start in range(0, len(content), PIECE):
        piece = content[start : start + PIECE]
        passed = piece.to(group.device)
        dist.broadcast(passed, src=0)
        if group.rank:
            piece.copy_(passed)
