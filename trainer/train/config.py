"""The job as a worker reads it from job.json: the names, defaults and limits of the stack file's `job` section.

Stands beside `components/spec.py`, which checks the same section before anything is declared, because the trainer
ships alone and has no pydantic. A test holds the two equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from trainer.train.errors import InvalidJob


def _limited(
    default: Any = MISSING, *, least: float | None = None, above: float | None = None, below: float | None = None
) -> Any:
    """A field whose value is at least `least`, greater than `above` and less than `below`, where they are given."""
    return field(default=default, metadata={"least": least, "above": above, "below": below})


@dataclass(frozen=True, kw_only=True)
class Model:
    """The bundled GPT-style model."""

    layers: int = _limited(4, least=1)
    """Transformer blocks."""
    heads: int = _limited(4, least=1)
    """Attention heads; twice their number divides `width`, since rotary positions turn pairs."""
    width: int = _limited(128, least=8)
    """Embedding width."""
    context: int = _limited(128, least=8)
    """Tokens in a sample."""
    dropout: float = _limited(0.0, least=0, below=1)
    """Dropout probability."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """When the run is saved, and how many saves are kept."""

    every_steps: int = _limited(50, least=1)
    """Optimizer steps between checkpoints."""
    every_seconds: float = _limited(300.0, above=0)
    """Seconds between checkpoints; whichever of the two comes first."""
    keep: int = _limited(3, least=2)
    """Newest checkpoints kept, on scratch and in the store; never fewer than two, as the last may be damaged."""
    keep_days: float = _limited(0.0, least=0)
    """Days after which one of these goes too, counted back from the newest; 0 for no limit. The newest two stay."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The run: what is trained, on which data, for how long."""

    name: str
    """The run's name."""
    dataset: str
    """The dataset's name in the bucket."""
    steps: int = _limited(400, least=1)
    """Optimizer steps in the whole run."""
    seed: int = _limited(1, least=0, below=2**63)
    """Seed of the initial weights, of dropout, and of the order of samples."""
    batch: int = _limited(32, least=1)
    """Samples in an optimizer step over all ranks; the same for any number of ranks."""
    micro_batch: int = _limited(8, least=1)
    """Most samples in one forward pass of a rank."""
    learning_rate: float = _limited(1e-3, above=0)
    """Peak learning rate."""
    warmup_steps: int = _limited(20, least=0)
    """Steps over which the learning rate rises to its peak."""
    weight_decay: float = _limited(0.1, least=0)
    """AdamW's weight decay, on matrices only."""
    clip: float = _limited(1.0, above=0)
    """Largest gradient norm."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Autocast precision; fp16 comes with a gradient scaler, and fp32 means TF32 in GPUs' matrix products."""
    sharding: Literal["ddp", "fsdp"] = "ddp"
    """How workers share the model: each holds all of it, or a part of every weight (for models beyond a GPU's memory).
    """
    activation_checkpointing: bool = False
    """Recompute each block's activations in the backward pass instead of keeping them."""
    compile: bool = False
    """Compile each block with torch.compile; the node needs a C++ compiler."""
    deterministic: bool = False
    """On GPUs, take only algorithms that round alike each time: a run that is cut off then computes bit for bit what an
    uncut one does, on as many ranks, as it does on CPUs anyway."""
    model: Model = field(default_factory=Model)
    """The model."""
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    """Checkpoints."""


def read(path: Path) -> Job:
    """The job in the file at `path`. Raises `InvalidJob`, also for a file that is absent or no JSON."""
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InvalidJob([f"{path}: there is no such file; it holds the job, as JSON"]) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidJob([f"{path}: is not JSON: {error}"]) from None


def parse(values: object) -> Job:
    """The job in decoded JSON. Raises `InvalidJob` with every problem there is."""
    problems: list[str] = []
    job = _parse(Job, values, "", problems)
    if isinstance(job, Job) and job.model.width % (2 * job.model.heads):
        model = job.model
        problems.append(f"model.width: {model.width} must be a multiple of twice model.heads ({2 * model.heads})")
    if problems:
        raise InvalidJob(problems)
    assert isinstance(job, Job)
    return job


def _parse(kind: type[Any], values: object, path: str, problems: list[str]) -> object:
    """`values` as the dataclass `kind`, or None once `problems` has grown."""
    if not isinstance(values, Mapping):
        problems.append(f"{path or 'job'}: must be a mapping, not {values!r}")
        return None
    found = len(problems)
    known: dict[str, Field[Any]] = {item.name: item for item in fields(kind)}
    hints = get_type_hints(kind)
    prefix = f"{path}." if path else ""
    for name in values.keys() - known.keys():
        close = get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
        problems.append(f"{prefix}{name}: there is no such key; {hint}")
    arguments = {}
    for name, item in known.items():
        if name in values:
            arguments[name] = _value(hints[name], values[name], f"{prefix}{name}", item, problems)
        elif item.default is MISSING and item.default_factory is MISSING:
            problems.append(f"{prefix}{name}: is missing")
    return kind(**arguments) if len(problems) == found else None


def _value(hint: Any, value: Any, path: str, item: Field[Any], problems: list[str]) -> object:
    """`value` checked against its field's type and limits."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            problems.append(f"{path}: {value!r} is not one of {', '.join(get_args(hint))}")
        return value
    if hint is bool:
        if not isinstance(value, bool):
            problems.append(f"{path}: must be true or false, not {value!r}")
        return value
    if hint not in (int, float, str):
        return _parse(hint, value, path, problems)
    accepted = (int, float) if hint is float else (hint,)
    if isinstance(value, bool) or not isinstance(value, accepted):
        word = {int: "a whole number", float: "a number", str: "text"}[hint]
        problems.append(f"{path}: must be {word}, not {value!r}")
    elif hint is str:
        if not value:
            problems.append(f"{path}: must not be empty")
    elif reason := _out_of_limits(value, item.metadata):
        problems.append(f"{path}: must be {reason}, not {value}")
    return float(value) if hint is float and isinstance(value, int) else value


def _out_of_limits(value: float, limits: Mapping[str, Any]) -> str:
    """The limit that `value` breaks, in words; empty where it keeps them all."""
    if not isfinite(value):
        return "finite"
    least, above, below = limits.get("least"), limits.get("above"), limits.get("below")
    if least is not None and value < least:
        return f"at least {least}"
    if above is not None and value <= above:
        return f"greater than {above}"
    if below is not None and value >= below:
        return f"less than {below}"
    return ""
