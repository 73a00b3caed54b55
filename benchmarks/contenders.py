"""The trainers that `benchmarks.trainer` compares: one rank of one of them, which takes steps when it is told to.

    python -m benchmarks.contenders NAME JOB DATA FOLDER

Ranks, addresses and threads come as torchrun gives them. It says `ready` after its first step; then each line on stdin
is a number of steps to take, or `save` (ours alone), and each answer a JSON list of seconds. All train the same model
on the same shards with the same optimizer, clip the gradient and look at the loss at each step. The peers are written
as their documentation has it, and as lean as that allows: no learning rate schedule, metrics, votes or checkpoints.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from trainer.train.config import Job, read
from trainer.train.model import GPT

Step = Callable[[], object]

SAVE_STEPS = 10
"""Steps beside a save, in which what it does in the background slows training down."""


class Samples(torch.utils.data.Dataset[Tensor]):
    """The shards as a peer's user maps them: one sample an item."""

    def __init__(self, folder: Path, context: int) -> None:
        import numpy as np

        shards = json.loads((folder / "index.json").read_text())["shards"]
        self.maps = [np.memmap(folder / shard["file"], dtype=np.uint16, mode="r") for shard in shards]
        self.places = [
            (number, start)
            for number, shard in enumerate(shards)
            for start in range(0, shard["tokens"] - context, context)
        ]
        self.context = context

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, item: int) -> Tensor:
        number, start = self.places[item]
        return torch.from_numpy(self.maps[number][start : start + self.context + 1].astype("int64"))


class Mean(nn.Module):
    """The model with its loss as a mean, which is what the peers' averages over micro-steps and ranks expect."""

    def __init__(self, job: Job, vocabulary: int) -> None:
        super().__init__()
        self.gpt = GPT(job.model, vocabulary)

    def forward(self, batch: Tensor) -> Tensor:
        loss: Tensor = self.gpt(batch[:, :-1], batch[:, 1:])
        return loss / (batch.shape[0] * (batch.shape[1] - 1))


def materials(job: Job, data: Path) -> tuple[Mean, torch.optim.Optimizer, Samples, int]:
    """Model, optimizer, samples, and how many micro-steps a rank's share of the batch takes."""
    torch.manual_seed(job.seed)
    vocabulary = json.loads((data / "index.json").read_text())["vocabulary"]
    model = Mean(job, vocabulary)
    groups = [
        {"params": [weight for weight in model.parameters() if weight.dim() > 1], "weight_decay": job.weight_decay},
        {"params": [weight for weight in model.parameters() if weight.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=job.learning_rate, betas=(0.9, 0.95), fused=True)
    micro_steps = job.batch // (job.micro_batch * int(os.environ["WORLD_SIZE"]))
    return model, optimizer, Samples(data, job.model.context), micro_steps


def endless(loader: Any) -> Iterator[Tensor]:
    while True:
        yield from loader


def plain(job: Job, data: Path) -> Step:
    """DDP by hand."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    dist.init_process_group("gloo")
    model, optimizer, samples, micro_steps = materials(job, data)
    shared = DistributedDataParallel(model, gradient_as_bucket_view=True)
    sampler = DistributedSampler(samples, drop_last=True)
    batches = endless(DataLoader(samples, batch_size=job.micro_batch, sampler=sampler, drop_last=True))

    def step() -> float:
        for left in reversed(range(micro_steps)):
            with shared.no_sync() if left else nullcontext():
                loss = shared(next(batches)) / micro_steps
                loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), job.clip)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    return step


def accelerate(job: Job, data: Path) -> Step:
    """Hugging Face Accelerate."""
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from torch.utils.data import DataLoader

    model, optimizer, samples, micro_steps = materials(job, data)
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=micro_steps,
        kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)],
    )
    loader = DataLoader(samples, batch_size=job.micro_batch, shuffle=True, drop_last=True)
    shared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    batches = endless(loader)

    def step() -> float:
        for _ in range(micro_steps):
            with accelerator.accumulate(shared):
                loss = shared(next(batches))
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(shared.parameters(), job.clip)
                optimizer.step()
                optimizer.zero_grad()
        return float(loss)

    return step


def fabric(job: Job, data: Path) -> Step:
    """Lightning Fabric."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies import DDPStrategy
    from torch.utils.data import DataLoader

    strategy = DDPStrategy(process_group_backend="gloo", gradient_as_bucket_view=True)
    runner = Fabric(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy=strategy)
    runner.launch()
    model, optimizer, samples, micro_steps = materials(job, data)
    shared, optimizer = runner.setup(model, optimizer)
    loader = runner.setup_dataloaders(DataLoader(samples, batch_size=job.micro_batch, shuffle=True, drop_last=True))
    batches = endless(loader)

    def step() -> float:
        for left in reversed(range(micro_steps)):
            with runner.no_backward_sync(shared, enabled=left > 0):
                loss = shared(next(batches)) / micro_steps
                runner.backward(loss)
        runner.clip_gradients(shared, optimizer, max_norm=job.clip)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    return step


class Ours:
    """The bundled trainer: the real loop, with its metrics, its votes and its saver."""

    def __init__(self, job: Job, data: Path, folder: Path) -> None:
        from trainer.train.__main__ import uncollected
        from trainer.train.group import joined
        from trainer.train.loop import Run, collected
        from trainer.train.metrics import Metrics
        from trainer.train.setting import from_environment

        uncollected()
        setting = from_environment(os.environ, run=job.name, data=data, store=str(folder / "store"))
        self.joined = joined(setting)
        self.folder = folder
        group = self.joined.__enter__()
        metrics = Metrics(setting.metrics if group.rank == 0 else None)
        self.run = Run(job, setting, group, metrics, lambda: None)
        collected()

    def __call__(self) -> object:
        return self.run.advance(asked=False)

    def save(self) -> list[float]:
        """What a save costs training: its stall, all of it, and a save that blocks until what it wrote is verified."""
        usual = median(timed(self) for _ in range(SAVE_STEPS))
        snapshot = self.run.snapshot()
        stall = snapshot[1] / 1e3
        self.run.save(snapshot)
        slower = sum(timed(self) for _ in range(SAVE_STEPS)) - usual * SAVE_STEPS
        self.run.saver.wait(60)
        if self.run.group.rank:
            return []
        return [stall, stall + max(0.0, slower), timed(partial(self.save_blocking, snapshot[0]))]

    def save_blocking(self, state: Any) -> None:
        """The same files in the same way, written and then read back while training waits."""
        from trainer.train import checkpoint

        parts = {name: partial(torch.save, part) for name, part in state.items()}
        manifest = checkpoint.Manifest(
            step=1, position=1, samples=1, vocabulary=1, world=1, generation=1, torch=torch.__version__, job={}
        )
        checkpoint.verify(checkpoint.write(self.folder / "blocking", manifest, parts).folder)


def timed(step: Step) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def main() -> None:
    """Serve until stdin ends."""
    name, job, data, folder = sys.argv[1], read(Path(sys.argv[2])), Path(sys.argv[3]), Path(sys.argv[4])
    peers = {"plain": plain, "accelerate": accelerate, "fabric": fabric}
    step = Ours(job, data, folder) if name == "ours" else peers[name](job, data)
    step()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds = step.save() if line == "save\n" else [timed(step) for _ in range(int(line))]  # type: ignore[union-attr]
        print(json.dumps(seconds), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
