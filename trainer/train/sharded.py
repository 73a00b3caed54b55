"""The model cut over the ranks (FSDP2), for models beyond one GPU's memory.

Imported only where a job asks for it: torch takes half a second to import what this needs. What it saves is GPU memory:
at the start of a generation each rank still holds the whole model in main memory, and rank 0 a whole copy of what a
checkpoint holds while it saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from trainer.train.group import Group
from trainer.train.model import GPT


def shard(model: GPT, precision: torch.dtype, group: Group, *, compiled: bool) -> None:
    """Cut a model, the same on each rank, in place; it is put together block by block as each is computed."""
    if compiled:
        model.compile_blocks()  # first, since what puts a block together is not for the compiler
    mesh = init_device_mesh(group.device.type, (group.world,))
    policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def cut(saved: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimizer's state as saved, its tensors cut like the weights that they belong to."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    cuts = {
        number: {name: _like(weights[number], value) for name, value in values.items()}
        for number, values in saved["state"].items()
    }
    return {**saved, "state": cuts}


def _like(weight: DTensor, value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    # Clones, since a part is a view that would keep the whole in memory, and either would keep its file.
    if value.shape != weight.shape:
        return value.clone()
    return distribute_tensor(value, weight.device_mesh, weight.placements, src_data_rank=None).clone()
