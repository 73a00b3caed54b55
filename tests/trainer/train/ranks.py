"""One rank for the tests: a process that imports torch once and then runs what it is told, line by line, on stdin.

Each line is a JSON object with `task` (one of `TASKS`), `job`, `setting`, `port`, and the values of the task; each
answer is one line of JSON on stdout, after `ANSWER `.
"""

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from trainer.pulse import Pulse
from trainer.store import open_store
from trainer.train import checkpoint, config, group, loop, restore
from trainer.train.feed import Feed
from trainer.train.group import WORK_S, joined
from trainer.train.learner import Learner, build, copied
from trainer.train.model import GPT
from trainer.train.setting import Setting
from trainer.train.tokens import Tokens

ANSWER = "ANSWER "


def find(setting: Setting) -> checkpoint.Found | None:
    """What rank 0 goes on from."""
    return checkpoint.find(setting.scratch / "checkpoints", open_store(setting.store), lambda text: None)


def train(
    job: config.Job,
    setting: Setting,
    drain_at: int | None,
    overflows: Sequence[int] = (),
    late_at: int | None = None,
    work_s: float = WORK_S,
    backend: str = "inductor",
    **_: Any,
) -> dict[str, Any]:
    """Run the real loop; this rank is asked to drain in the `drain_at`th step that it takes.

    In those that `overflows` names, the gradient is said not to be finite, though the loss is. Before it computes the
    `late_at`th, this rank sleeps for longer than the `work_s` that a collective may take. Blocks are compiled, if they
    are, by that `backend` of torch.compile, or not in truth.
    """
    steps, compute, computed = count(1), loop.compute, count(1)

    def computing(*arguments: Any) -> loop.Computed:
        number = next(computed)
        if number == late_at:
            time.sleep(work_s + 2)
        found = compute(*arguments)
        return replace(found, norm=math.inf) if number in overflows else found

    def compile_blocks(model: GPT) -> None:
        for block in model.blocks if backend else ():
            block.compile(backend=backend)

    def building(*arguments: Any) -> Learner:
        learner = build(*arguments)
        dist.set_timeout(timedelta(seconds=work_s))  # not before: ranks that are new take their time to connect
        return learner

    kept = GPT.compile_blocks
    loop.build, loop.compute, loop.WORK_S, GPT.compile_blocks = building, computing, work_s, compile_blocks
    try:
        return {"code": loop.train(job, setting, found=partial(find, setting), asked=lambda: next(steps) == drain_at)}
    finally:
        loop.build, loop.compute, loop.WORK_S, GPT.compile_blocks = build, compute, WORK_S, kept


def restored(job: config.Job, setting: Setting, **_: Any) -> dict[str, Any]:
    """Restore and build; how many parts this rank wrote, and which files are mapped before and after it is built."""
    wrote: list[bool] = []
    pass_on = restore._pass_on

    def passing(file: Any, size: int, among: group.Group) -> None:
        wrote.append(file is not None and among.rank > 0)
        pass_on(file, size, among)

    def mapped() -> list[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return sorted({Path(line.split()[5]).name for line in lines if ".pt" in line})

    restore._pass_on = passing
    try:
        with joined(setting) as among:
            tokens = Tokens(setting.data, job.model.context)
            resumed = restore.restore(partial(find, setting), job, tokens, among, setting.scratch)
            assert resumed is not None
            held = mapped()
            learner = build(job, tokens.vocabulary, among, resumed.state)
            sums = [float(weight.sum()) for weight in copied(list(learner.model.state_dict().values()))]
            del resumed
            return {"wrote": sum(wrote), "passed": len(wrote), "held": held, "kept": mapped(), "sums": sums}
    finally:
        restore._pass_on = pass_on


def promises(job: config.Job, setting: Setting, **_: Any) -> list[tuple[str, float]]:
    """What this rank promises while it trains, and for how long."""
    said: list[tuple[str, float]] = []
    kept = Pulse.promise

    def promise(_pulse: Pulse, what: str, within_s: float) -> None:
        said.append((what, within_s))

    Pulse.promise = promise  # type: ignore[method-assign]
    try:
        loop.train(job, setting, found=lambda: None, asked=lambda: False)
    finally:
        Pulse.promise = kept  # type: ignore[method-assign]
    return said


def gradients(job: config.Job, setting: Setting, path: str, poison: bool, **_: Any) -> dict[str, Any]:
    """Compute one step and save its gradients; with `poison`, this rank's loss is not a number."""
    with joined(setting) as group:
        tokens = Tokens(setting.data, job.model.context)
        learner = build(job, tokens.vocabulary, group, None)
        before = copied(list(learner.model.parameters()))
        if poison:
            learner.model.norm.register_forward_hook(lambda module, inputs, output: output * float("nan"))
        computed = loop.compute(learner, Feed(tokens, job, group).take(0), 1e-3, False, False, job, group)
        torch.save(copied([weight.grad for weight in learner.model.parameters()]), path)
        after = copied(list(learner.model.parameters()))
        moved = any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    return {"loss": computed.loss, "norm": computed.norm, "moved": moved, "scale": learner.scaler.get_scale()}


def built(job: config.Job, setting: Setting, **_: Any) -> dict[str, Any]:
    """Build the learner; how it is made up, and how often one step sums its gradients over the ranks."""
    with joined(setting) as group:
        tokens = Tokens(setting.data, job.model.context)
        learner = build(job, tokens.vocabulary, group, None)
        answer = {
            "parts": [parameter.to_local().numel() for parameter in learner.model.parameters()]
            if job.sharding == "fsdp"
            else [],
            "compiled": [block._compiled_call_impl is not None for block in learner.model.blocks],
            "fused": learner.optimizer.defaults["fused"],
        }
        if job.sharding == "ddp":
            sums: list[int] = []

            def count_and_sum(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
                sums.append(bucket.index())
                return allreduce_hook(state, bucket)

            learner.shared.register_comm_hook(None, count_and_sum)
            micro_steps = Feed(tokens, job, group).take(0)
            with collectives() as called:
                computed = loop.compute(learner, micro_steps, 1e-3, group.rank == 1, group.rank == 0, job, group)
            answer |= {
                "all": called,
                "drain": computed.drain,
                "save": computed.save,
                "micro_steps": len(micro_steps),
                "sums": len(sums),
                "views": learner.shared.gradient_as_bucket_view,
            }
    return answer


@contextmanager
def collectives() -> Iterator[list[str]]:
    """Names of the collectives that are called within, those of DDP's hook among them."""
    called: list[str] = []
    kept = {name: getattr(dist, name) for name in ("all_reduce", "broadcast", "all_gather", "barrier")}

    def counted(name: str) -> Callable[..., Any]:
        return lambda *given, **more: called.append(name) or kept[name](*given, **more)

    for name in kept:
        setattr(dist, name, counted(name))
    try:
        yield called
    finally:
        for name, function in kept.items():
            setattr(dist, name, function)


TASKS: dict[str, Callable[..., Any]] = {
    "train": train,
    "restored": restored,
    "promises": promises,
    "gradients": gradients,
    "built": built,
}


def main() -> None:
    """Serve until stdin ends."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        told = json.loads(line)
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(told.pop("port"))}
        setting = told.pop("setting")
        for name in ("data", "scratch", "metrics"):
            setting[name] = Path(setting[name])
        os.environ |= {"RANK": str(setting["rank"]), "WORLD_SIZE": str(setting["world"])}
        try:
            answer = TASKS[told.pop("task")](config.parse(told.pop("job")), Setting(**setting), **told)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
            if dist.is_initialized():
                dist.destroy_process_group()
        print(ANSWER + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)
