"""A run's checkpoints in the bucket: listed, verified, and exported as plain state dicts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.errors import Refused
from cli.words import about, counted, plain, size
from trainer import layout
from trainer.layout import MANIFEST
from trainer.store import Entry, Store, sha256_file
from trainer.train.checkpoint import DAMAGED, Manifest, steps_in_store, verify_in_store
from trainer.train.errors import CheckpointError

MODEL = "model.pt"
"""The part that holds the model's state dict alone, as `trainer/train/learner.py` names it."""

WHOLE = "whole"

Format = Literal["torch", "safetensors"]


@dataclass(frozen=True)
class Listed:
    """A checkpoint as the bucket shows it. `state` is `whole`, or what is wrong with it.

    `written`: seconds since 1970, by the store's clock; `size` in bytes; `world` is None where no manifest tells it.
    """

    step: int
    written: float
    size: int
    world: int | None
    state: str


def listed(store: Store) -> list[Listed]:
    """All checkpoints of a run, the newest first, judged by names and sizes alone; `verify` reads them."""
    return [_listed(store, step, files) for step, files in steps_in_store(store).items()]


def as_json(found: list[Listed]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [asdict(item) for item in found]


def table(found: list[Listed], now: float | None = None) -> Table | Text:
    """The same for a console."""
    if not found:
        return Text("no checkpoint yet", style="dim")
    at = time.time() if now is None else now
    shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for heading, justify in (("step", "right"), ("age", "right"), ("size", "right"), ("world", "right")):
        shown.add_column(heading, justify=justify)  # type: ignore[arg-type]
    shown.add_column("state", overflow="fold")
    for item in found:
        world = "" if item.world is None else f"{item.world:,}"
        state = Text(item.state, style="green" if item.state == WHOLE else "red")
        shown.add_row(f"{item.step:,}", about(at - item.written), size(item.size), world, state)
    return shown


def verify(store: Store, console: Console, step: int | None = None) -> int:
    """Read every part in the bucket and compare its SHA-256, of one checkpoint or of all; the exit code.

    Raises `Refused` where there is none to verify, `StoreError`.
    """
    damaged = 0
    for each in _whole(store) if step is None else [_chosen(store, step)]:
        try:
            manifest = verify_in_store(store, each)
        except CheckpointError as error:
            damaged += 1
            line = Text(f"step {each:,}: damaged: {plain(str(error))}", style="red")
        else:
            parts = counted(len(manifest.parts), "part")
            line = Text(f"step {each:,}: good, {size(manifest.size)} in {parts}, each with its SHA-256")
        console.print(line, soft_wrap=True)
    return 1 if damaged else 0


def export(store: Store, console: Console, target: Path, step: int | None = None, kind: Format = "torch") -> None:
    """Write the model of a checkpoint, by default of the newest, to a file: the plain state dict and nothing else.

    Raises `Refused` where it can't be, `StoreError`, `OSError`. No file is overwritten, and none is left half written.
    """
    if target.exists():
        raise Refused(f"--to: {target} is there already. Give another name, or remove it")
    if not target.absolute().parent.is_dir():
        raise Refused(f"--to: there is no folder {target.absolute().parent}. Make it first")
    chosen = _chosen(store, step)
    key = layout.checkpoint(chosen)
    try:
        manifest = Manifest.decode(store.get(key + MANIFEST))
    except CheckpointError as error:
        raise Refused(f"step {chosen}: {error}") from None
    part = next((part for part in manifest.parts if part.name == MODEL), None)
    if part is None:
        raise Refused(
            f"step {chosen}: the checkpoint has no {MODEL}; only those of the bundled trainer can be exported"
        )
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".export-") as folder:
        fetched = Path(folder, MODEL)
        store.download(key + MODEL, fetched)
        if sha256_file(fetched) != part.sha256:
            raise Refused(f"step {chosen}: {MODEL} was altered: its SHA-256 is not the manifest's. Try an older --step")
        if kind == "safetensors":
            fetched = _as_safetensors(fetched, manifest)
        written = fetched.stat().st_size
        fetched.replace(target)
    console.print(Text(f"model of step {chosen:,} at {target}: {size(written)}, {kind}"), soft_wrap=True)


def _as_safetensors(path: Path, manifest: Manifest) -> Path:
    """The same tensors in a file beside it. Each is written whole, also those that share their memory."""
    try:
        import torch  # noqa: PLC0415  an optional extra, and slow to load

        safetensors = import_module("safetensors.torch")
    except ImportError as error:
        raise Refused(f"--format safetensors: {error}. Install them: pip install 'trainwright[export]'") from None
    state: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    target = path.with_suffix(".safetensors")
    tensors = {name: tensor.contiguous().clone() for name, tensor in state.items()}
    safetensors.save_file(tensors, target, metadata={"format": "pt", "step": str(manifest.step)})
    return target


def _listed(store: Store, step: int, files: Mapping[str, Entry]) -> Listed:
    held = {name: entry.size for name, entry in files.items() if not name.startswith(MANIFEST)}
    written = max(entry.modified for entry in files.values())
    world, state = None, "unfinished: its manifest has not come"
    if MANIFEST in files:
        try:
            manifest = Manifest.decode(store.get(files[MANIFEST].key))
        except CheckpointError as error:
            state = f"damaged: {plain(str(error))}"
        else:
            wrong = [part.name for part in manifest.parts if held.get(part.name) != part.size]
            world = manifest.world
            state = f"damaged: {', '.join(wrong)} absent or cut short" if wrong else WHOLE
    elif MANIFEST + DAMAGED in files:
        state = "set aside: a restart found it damaged"
    return Listed(step, written, sum(held.values()), world, state)


def _whole(store: Store) -> list[int]:
    """The steps that have their manifest, the newest first. Raises `Refused` where there are none."""
    steps = [step for step, files in steps_in_store(store).items() if MANIFEST in files]
    if not steps:
        raise Refused(f"{store.url(layout.CHECKPOINTS)}: the run has no checkpoint yet")
    return steps


def _chosen(store: Store, step: int | None) -> int:
    """The step, or the newest. Raises `Refused` where there is none such."""
    steps = _whole(store)
    if step is None:
        return steps[0]
    if step not in steps:
        there = ", ".join(map(str, steps[:10]))
        raise Refused(f"--step: there is no checkpoint of step {step}. There are {there}{', …' * (len(steps) > 10)}")
    return step
