"""The training loop: distributed data parallel, a constant global batch, exact resume, saving on request.

What makes a run exact: the order of samples is a function of seed and position, the learning rate of the step, dropout
of seed, step and rank. A checkpoint therefore holds the model, the optimizer, the gradient scaler and one integer, the
samples consumed, and rank 0 writes it. Resumed on as many ranks, a run computes on bit for bit; on another number
of ranks it computes the same up to the rounding of sums taken in another order.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from trainer.exits import DONE, DRAINED
from trainer.pulse import Pulse
from trainer.train.checkpoint import CHECKPOINTS, FIND_S, Found, Manifest
from trainer.train.config import Job
from trainer.train.errors import CheckpointError, DivergedError
from trainer.train.feed import Feed, MicroSteps
from trainer.train.group import Group, joined
from trainer.train.learner import AUTOCAST, VOTES, Learner, State, build
from trainer.train.metrics import Metrics
from trainer.train.model import parameter_count
from trainer.train.order import mix
from trainer.train.restore import restore
from trainer.train.retention import Retention
from trainer.train.saver import Saver
from trainer.train.schedule import learning_rate
from trainer.train.setting import Setting
from trainer.train.tokens import Tokens

FINISH_S = 600
"""Seconds that the last checkpoint of a finished run may take, uploads included."""

DRAIN_S = 100
"""Seconds that the checkpoint of a drain may take: a machine is reclaimed 120 s after its notice, or later."""

MARGIN_S = 30
"""Seconds that the others wait beyond that for rank 0's word."""

STEP_S = 600
"""Seconds within which a step is done, or its rank hangs; a collective in it gives up earlier (`group.WORK_S`)."""

FIRST_STEP_S = 3600
"""The same for the first step of a generation, which may compile."""

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
    pulse = Pulse(setting.pulse)
    with (
        joined(setting) as group,
        Metrics(path, generation=setting.generation, world=setting.world) as metrics,
    ):
        pulse.promise("its start, from a checkpoint", 2 * FIND_S)
        run = Run(job, setting, group, metrics, found)
        drained, within_s = False, FIRST_STEP_S
        try:
            while run.step < job.steps and not drained:
                pulse.promise(f"step {run.step + 1}", within_s)
                drained, within_s = run.advance(asked()), STEP_S
            pulse.promise("the last checkpoint", FINISH_S + 2 * MARGIN_S)
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
        self.tokens = Tokens(setting.data, job.model.context)
        self.feed = Feed(self.tokens, job, group)
        retention = Retention(job.checkpoint.keep, job.checkpoint.keep_days)
        self.saver = Saver(setting.scratch / CHECKPOINTS, setting.store, retention)
        resumed = restore(found, job, self.tokens, group)
        self.step = resumed.manifest.step if resumed else 0
        """Optimizer steps done."""
        self.position = resumed.manifest.position if resumed else 0
        """Samples consumed."""
        self.learner = build(job, self.tokens.vocabulary, group, resumed.state if resumed else None)
        if resumed and resumed.source:
            self.saver.publish(resumed.source)
        self.saved_step, self.saved_at = self.step, time.monotonic()
        self.due = False
        self.skips = 0
        """Steps in a row without a finite gradient. None is saved, or a run that resumes would count anew."""
        metrics.event(
            "resume" if resumed else "start",
            step=self.step,
            position=self.position,
            parameters=parameter_count(self.learner.model),
            samples=len(self.tokens),
        )

    # --- One step

    def advance(self, asked: bool) -> bool:
        """Take one optimizer step; whether any rank was `asked` to drain, on which all ranks agree."""
        began = time.perf_counter()
        micro_steps = self.feed.take(self.position)
        data_s = time.perf_counter() - began
        self.step += 1
        rate = learning_rate(
            self.step, peak=self.job.learning_rate, warmup_steps=self.job.warmup_steps, steps=self.job.steps
        )
        reseed(mix(self.job.seed, self.step, self.group.rank), self.group.device)
        computed = compute(self.learner, micro_steps, rate, asked, self.save_is_due(), self.job, self.group)
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
            self.save(self.snapshot())
        if gc.isenabled():
            # What lives after a first step lives to the end, and the loop makes no cycles worth a pause.
            gc.collect()
            gc.freeze()
            gc.disable()
        return computed.drain

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

        A run that drains while steps are skipped goes on from the checkpoint before them.
        """
        done = self.step == self.job.steps
        limit = FINISH_S if done else DRAIN_S
        if not done:
            self.metrics.event("drain", step=self.step)
        last = self.snapshot() if self.saved_step < self.step and (done or not self.skips) else None

        def close() -> bytes:
            deadline = time.monotonic() + limit
            if self.saver.wait(limit) and last:
                self.tell()
                self.save(last)
            if not self.saver.wait(deadline - time.monotonic()):
                return f"step {self.step}: its checkpoint was not saved within {limit} s".encode()
            return self.tell().encode()

        if problem := self.group.told("finished", close, limit + MARGIN_S).decode():
            raise CheckpointError(problem)
        if done:
            self.metrics.event("done", step=self.step)


def reseed(seed: int, device: torch.device) -> None:
    """Seed what draws dropout. `torch.manual_seed` would queue a call and a stack trace a step where no GPU is used."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


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


def compute(
    learner: Learner, micro_steps: MicroSteps, rate: float, asked: bool, due: bool, job: Job, group: Group
) -> Computed:
    """One optimizer step of the whole group. A gradient that isn't finite, which all ranks see alike, moves nothing."""
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
            (scaled + learner.poll.cast(votes) if last else scaled).backward()  # type: ignore[no-untyped-call]
    learner.scaler.unscale_(learner.optimizer)
    norm = learner.clip(job.clip)
    for parameters in learner.optimizer.param_groups:
        parameters["lr"] = rate
    if math.isfinite(norm):
        learner.scaler.step(learner.optimizer)
    learner.scaler.update()
    loss_sum, drains, saves = learner.poll.count()
    return Computed(loss_sum / tokens_in_batch, norm, drains > 0, saves > 0)
