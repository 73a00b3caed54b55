"""Going on from a checkpoint: rank 0 finds it, and every rank gets the same, which each node holds once.

A checkpoint of a model that is sharded over GPUs may be larger than what a node's ranks could each hold of it in main
memory. So its parts lie on scratch, on each node, and ranks map them (`torch.load`, `mmap`): what they read is in the
page cache once, and can be dropped from it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO

import torch
import torch.distributed as dist

from trainer.train.checkpoint import FIND_S, Found, Manifest
from trainer.train.config import Job
from trainer.train.errors import CheckpointError
from trainer.train.group import Group
from trainer.train.learner import State
from trainer.train.tokens import Tokens

PIECE = 64 << 20
"""Bytes passed on at a time: NCCL needs them on the GPU, beside what trains there, and a disk must have written them
before the limit of the collective that passes the next."""

SHARED = "restore-"
"""How the folder on scratch is called, and one after it at random, in which a node's ranks find the parts."""


@dataclass(frozen=True)
class Resumed:
    """What a rank goes on from; `source` is where it lies on scratch, known to rank 0 only.

    The tensors of `state` are files that were mapped: to be copied from, not kept.
    """

    manifest: Manifest
    state: State
    source: Found | None


def restore(found: Callable[[], Found | None], job: Job, tokens: Tokens, group: Group, scratch: Path) -> Resumed | None:
    """The checkpoint that `found` gives on rank 0, on every rank; None where there is none.

    Rank 0 alone looks, so that all go on from the same one whatever lies on their own scratch. It passes on the bytes
    of the files: what DDP broadcasts when it is built is the model only, not the optimizer. Raises `CheckpointError`.
    """
    source: Found | None = None

    def look() -> bytes:
        nonlocal source
        source = found()
        if not source:
            return b""
        try:
            return f"{_offered(source, scratch).name}\n".encode() + source.manifest.encode()
        except OSError as error:
            raise _of_scratch(source.manifest, scratch, error) from error

    told = group.told("restored", look, FIND_S)
    if not told:
        return None
    name, _, encoded = told.partition(b"\n")
    manifest, folder, owner = Manifest.decode(encoded), scratch / name.decode(), source is not None
    try:
        owner = owner or _taken(folder)
        check(manifest, job, tokens)
        _fill(folder, manifest, group, owner=owner, full=source is not None)
        state = {
            part.name: torch.load(folder / part.name, map_location="cpu", mmap=True, weights_only=True)
            for part in manifest.parts
        }
        dist.barrier()  # all have mapped it, and what is mapped stays, though its name goes
    except OSError as error:
        raise _of_scratch(manifest, scratch, error) from error
    finally:
        if owner:
            shutil.rmtree(folder, ignore_errors=True)
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


def _of_scratch(manifest: Manifest, scratch: Path, error: OSError) -> CheckpointError:
    place = error.filename or scratch
    return CheckpointError(f"step {manifest.step}: {place}: {error.strerror}; see to the node's scratch")


def _offered(source: Found, scratch: Path) -> Path:
    """A new folder on rank 0's scratch with links to the checkpoint's parts, for all ranks that see it."""
    _sweep(scratch)
    folder = Path(mkdtemp(prefix=SHARED, dir=scratch))
    for part in source.manifest.parts:
        (folder / part.name).symlink_to((source.folder / part.name).resolve())
    return folder


def _taken(folder: Path) -> bool:
    """Whether it falls to this rank to fill `folder`, which is there already where a rank that sees it was earlier.

    So no rank needs to know which of them are on one node, or whether nodes share their scratch.
    """
    _sweep(folder.parent, but=folder.name)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _fill(folder: Path, manifest: Manifest, group: Group, *, owner: bool, full: bool) -> None:
    """Return once the checkpoint's parts are in `folder`, which its `owner` fills with rank 0's unless it is `full`."""
    lacking = torch.tensor([float(owner and not full)], device=group.device)
    dist.all_reduce(lacking)
    if not lacking.item():
        return
    for part in manifest.parts:
        with (folder / part.name).open("rb" if full else "xb") if owner else nullcontext() as file:
            _pass_on(file, part.size, group)
    dist.barrier()


def _pass_on(file: BinaryIO | None, size: int, group: Group) -> None:
    """Pass the bytes of rank 0's file on, piece by piece, to those ranks that have one to write them to."""
    buffer = torch.empty(min(PIECE, size), dtype=torch.uint8)
    for start in range(0, size, PIECE):
        piece = buffer[: size - start]
        if file and group.rank == 0:
            piece.numpy().data[:] = file.read(len(piece))
        passed = piece.to(group.device)
        dist.broadcast(passed, src=0)
        if file and group.rank:
            file.write(passed.cpu().numpy().data)
        if passed.is_cuda:
            # One after another: a collective's limit runs from when it is asked for.
            torch.cuda.current_stream().synchronize()


def _sweep(scratch: Path, but: str = "") -> None:
    """Remove what a restore that was cut off has left."""
    for folder in scratch.glob(f"{SHARED}*"):
        if folder.name != but:
            shutil.rmtree(folder, ignore_errors=True)
