"""The training loop: distributed data parallel, a constant global batch, exact resume, saving on request.

What makes a run exact: the order of samples is a function of seed and position, the learning rate of the step, dropout
of seed, step and rank. A checkpoint therefore holds the model, the optimizer, the gradient scaler and one integer, the
samples consumed, and rank 0 writes it.

What holds where: resumed on as many ranks, a run computes on bit for bit, on CPUs, and on GPUs of one kind where the
job is `deterministic`; other GPU kernels, attention's backward pass above all, add up in an order that varies. On
another number of ranks it computes the same up to the rounding of sums taken in another order, and with dropout each
rank draws other masks.
"""

from __future__ import annotations

import gc
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import torch

from trainer import grace
from trainer.exits import DONE, DRAINED
from trainer.pulse import WITH_PEERS, Pulse
from trainer.train.checkpoint import CHECKPOINTS, FIND_S, Found, Manifest
from trainer.train.config import Job
from trainer.train.errors import CheckpointError, DivergedError
from trainer.train.feed import Feed
from trainer.train.group import WORK_S, Group, joined
from trainer.train.learner import State, build
from trainer.train.metrics import Metrics
from trainer.train.model import parameter_count
from trainer.train.order import mix
from trainer.train.pace import FIRST_STEP_S, LAST, STEP_S, limit
from trainer.train.restore import restore
from trainer.train.retention import Retention
from trainer.train.saver import Saver
from trainer.train.schedule import learning_rate
from trainer.train.setting import Setting
from trainer.train.step import Computed, compute
from trainer.train.tokens import Tokens

FINISH_S = 600
"""Seconds that the last checkpoint of a finished run may take, uploads included."""

MARGIN_S = 30
"""Seconds that the others wait beyond that for rank 0's word."""

PARTING_S = 5
"""Seconds that a run which fails gives the checkpoint under way."""

SKIPS = 10
"""Steps in a row without a finite gradient, after which the run has diverged."""


def train(job: Job, setting: Setting, *, found: Callable[[], Found | None], asked: Callable[[], bool]) -> int:
    """Train to the end, or until a drain; the exit code. Every rank calls it.

    `found` gives rank 0 the checkpoint to go on from; `asked` says whether this rank was told to drain. Raises
    `DataError`, `CheckpointError`, `StoreError`, `DivergedError`, and torch's errors when a peer is lost.
    """
    path = setting.metrics if setting.rank == 0 else None
    with (
        joined(setting, deterministic=job.deterministic) as group,
        Metrics(path, generation=setting.generation, world=setting.world) as metrics,
    ):
        Pulse(setting.pulse).promise("its start, from a checkpoint", 2 * FIND_S)
        run = Run(job, setting, group, metrics, found)
        collected()
        drained = False
        try:
            while run.step < job.steps and not drained:
                drained = run.advance(asked())
            run.pulse.promise("the last checkpoint", last_s(not drained) + MARGIN_S)
            run.finish()
        finally:
            # The loss of a peer must not take with it a checkpoint that is almost saved.
            run.saver.wait(PARTING_S)
    return DONE if run.step == job.steps else DRAINED


class Run:
    """One rank's part of a run, in one generation. Raises what `train` does."""

    # --- Start: data, model, and where an earlier generation left off

    def __init__(
        self, job: Job, setting: Setting, group: Group, metrics: Metrics, found: Callable[[], Found | None]
    ) -> None:
        self.job, self.setting, self.group, self.metrics = job, setting, group, metrics
        self.pulse, self.within_s = Pulse(setting.pulse), FIRST_STEP_S
        self.taken: deque[float] = deque(maxlen=LAST)
        """Seconds of the last steps."""
        self.tokens = Tokens(setting.data, job.model.context)
        self.feed = Feed(self.tokens, job, group)
        retention = Retention(job.checkpoint.keep, job.checkpoint.keep_days)
        self.saver = Saver(setting.scratch / CHECKPOINTS, setting.store, retention)
        resumed = restore(found, job, self.tokens, group, setting.scratch)
        self.step = resumed.manifest.step if resumed else 0
        """Optimizer steps done."""
        self.position = resumed.manifest.position if resumed else 0
        """Samples consumed."""
        self.learner = build(job, self.tokens.vocabulary, group, resumed.state if resumed else None)
        if resumed and resumed.source:
            self.saver.publish(resumed.source, setting.generation)
        self.saved_step, self.saved_at = self.step, time.monotonic()
        self.due = False
        self.skips = 0
        """Steps in a row without a finite gradient. None is saved, or a run that resumes would count anew."""
        worlds = {"world_before": resumed.manifest.world, "world": group.world} if resumed else {}
        metrics.event(
            "resume" if resumed else "start",
            step=self.step,
            position=self.position,
            parameters=parameter_count(self.learner.model),
            samples=len(self.tokens),
            **worlds,
        )
        if job.compile:
            group.limit(FIRST_STEP_S)  # a node that is new compiles what its peers' caches hold

    # --- One step

    def advance(self, asked: bool) -> bool:
        """Take one optimizer step; whether any rank was `asked` to drain, on which all ranks agree."""
        began = time.perf_counter()
        self.step += 1
        self.promise("reading data", at_least_s=STEP_S)
        micro_steps = self.feed.take(self.position)
        data_s = time.perf_counter() - began
        together = WITH_PEERS if self.group.world > 1 else "computing"
        self.promise(together if self.job.sharding == "fsdp" else "computing")
        rate = learning_rate(
            self.step, peak=self.job.learning_rate, warmup_steps=self.job.warmup_steps, steps=self.job.steps
        )
        reseed(mix(self.job.seed, self.step, self.group.rank), self.group.device)
        due = self.save_is_due() - self.saver.busy
        join = partial(self.promise, together)
        computed = compute(self.learner, micro_steps, rate, asked, due, self.job, self.group, join)
        self.promise("its end")
        if self.job.compile and not self.taken:
            self.group.limit(WORK_S)
        self.position += self.job.batch
        self.skips = 0 if math.isfinite(computed.norm) else self.skips + 1
        if self.group.rank == 0:
            self.record(computed, rate, time.perf_counter() - began, data_s)
            self.tell()
        # A run may end on a step that was skipped, as fp16's scaler does now and then, but not on weights of no use.
        useless = self.skips and self.step == self.job.steps and not math.isfinite(computed.loss)
        if useless or self.skips == SKIPS:
            raise DivergedError(
                f"step {self.step}: the gradient was not finite for {self.skips} steps in a row; lower learning_rate"
            )
        if computed.save and not computed.drain and not self.skips and self.step < self.job.steps:
            self.promise("a copy of it", at_least_s=STEP_S)
            self.save(self.snapshot())
        self.taken.append(time.perf_counter() - began)
        self.within_s = STEP_S if computed.saving else limit(self.taken)
        return computed.drain

    def promise(self, what: str, at_least_s: float = 0.0) -> None:
        """Say at what of the step this rank is, which it does in the time that the step has, or that reading has."""
        within_s = max(self.within_s, STEP_S if self.feed.reading else at_least_s)
        self.pulse.promise(f"step {self.step}, {what}", within_s)

    def record(self, computed: Computed, rate: float, step_s: float, data_s: float) -> None:
        """Write the step's line of metrics."""
        tokens = self.job.batch * self.job.model.context
        self.metrics.step(
            step=self.step,
            steps=self.job.steps,
            loss=computed.loss,
            lr=rate,
            grad_norm=computed.norm,
            tokens=self.position * self.job.model.context,
            tokens_per_second=round(tokens / step_s, 1),
            step_ms=round(step_s * 1e3, 3),
            data_ms=round(data_s * 1e3, 3),
        )

    # --- Saving: rank 0 decides and writes; all ranks take part in the copy, which may be spread over them

    def save_is_due(self) -> bool:
        """Whether to save the current step, known to rank 0 only: it ends an interval, or one that ended before.

        A save under way puts it off: a slow store delays checkpoints, never steps.
        """
        every = self.job.checkpoint
        elapsed = time.monotonic() - self.saved_at
        self.due |= self.step % every.every_steps == 0 or elapsed >= every.every_seconds
        return self.due and self.group.rank == 0 and not self.saver.busy

    def snapshot(self) -> tuple[State, float]:
        """The state after the current step, on rank 0, and the milliseconds that taking it held training up."""
        began = time.perf_counter()
        state = self.learner.snapshot(keep=self.group.rank == 0)
        self.saved_step, self.saved_at, self.due = self.step, time.monotonic(), False
        return state, (time.perf_counter() - began) * 1e3

    def save(self, snapshot: tuple[State, float]) -> None:
        """Start to save a snapshot, on rank 0."""
        if self.group.rank:
            return
        manifest = Manifest(
            step=self.step,
            position=self.position,
            samples=len(self.tokens),
            vocabulary=self.tokens.vocabulary,
            world=self.group.world,
            generation=self.setting.generation,
            torch=torch.__version__,
            job=asdict(self.job),
        )
        self.saver.save(manifest, *snapshot)

    def tell(self) -> str:
        """Record how saves ended; the last one's error, empty where it had none. The older checkpoints stand anyway."""
        error = ""
        for outcome in self.saver.outcomes():
            error = outcome.error
            if error:
                self.metrics.event("checkpoint-failed", step=outcome.step, key=outcome.key, error=error)
            else:
                stall_ms = round(outcome.stall_ms, 3)
                self.metrics.event(
                    "checkpoint", step=outcome.step, key=outcome.key, bytes=outcome.size, stall_ms=stall_ms
                )
        return error

    # --- End: the last checkpoint, which all ranks wait for

    def finish(self) -> None:
        """Save the last step, on scratch and in the store. Raises `CheckpointError`, on every rank, if that fails.

        Not in a drain: what follows it goes on from an older checkpoint, or from scratch, and no node has failed. One
        while steps are skipped saves nothing, for it goes on from the checkpoint before them.
        """
        done, began, deadline = self.step == self.job.steps, time.time(), time.monotonic() + FINISH_S
        if not done:
            self.metrics.event("drain", step=self.step)
        last = self.snapshot() if self.saved_step < self.step and (done or not self.skips) else None

        def left() -> float:
            return deadline - time.monotonic() if done else grace.left(self.setting.grace, began)

        def saved() -> bool:
            while self.saver.busy and (left_s := left()) > 0:  # which an agent may change meanwhile
                self.saver.wait(min(left_s, 1.0))
            return not self.saver.busy

        def close() -> bytes:
            if saved() and last:
                self.tell()
                self.save(last)
            if not saved():
                late = f"step {self.step}: its checkpoint was not saved in the time that there was"
                self.metrics.event("checkpoint-failed", step=self.step, key="", error=late)
                return late.encode()
            return self.tell().encode()

        problem = self.group.told("finished", close, last_s(done)).decode()
        if problem and done:
            raise CheckpointError(problem)
        if done:
            self.metrics.event("done", step=self.step)


def collected() -> None:
    """Set Python's collector of cycles going, but for what lives by now, and lives to the end.

    Activation checkpointing leaves cycles at each step, and older torch a checkpoint at each save (pytorch#149846).
    """
    gc.freeze()
    gc.enable()


def last_s(done: bool) -> float:
    """Most seconds that the last checkpoint may take, of a run that is done or else drains."""
    return (FINISH_S if done else grace.MOST_S) + MARGIN_S


def reseed(seed: int, device: torch.device) -> None:
    """Seed what draws dropout. `torch.manual_seed` would queue a call and a stack trace a step where no GPU is used."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
