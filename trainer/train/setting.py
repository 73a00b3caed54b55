"""Where a worker stands: what its agent, torchrun or the command line tells it about ranks, files and the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.train.errors import InvalidSetting


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One worker's place in its run."""

    generation: int
    """The membership that this worker belongs to; 0 outside an agent."""
    attempt: str
    """Tells apart the restarts of one generation that share a rendezvous store (torchrun's restart count)."""
    rank: int
    world: int
    local_rank: int
    gpus: int = 0
    """GPUs that this node's type has, as its agent knows; 0 where nobody says."""
    data: Path
    """The dataset's folder: index.json and its shards."""
    store: str
    """The run's prefix in the object store, as `open_store` takes it."""
    scratch: Path
    """A folder on this node that outlives the worker."""
    metrics: Path
    """The file that rank 0 appends its JSON lines to."""
    grace: Path | None = None
    """The file in which this worker's agent says how long it may take to leave (`trainer.train.grace`)."""
    pulse: Path | None = None
    """The file in which this worker promises its agent to be back within some time (`trainer.pulse`)."""


def from_environment(
    environment: Mapping[str, str], *, run: str, data: Path | None = None, store: str | None = None
) -> Setting:
    """The setting in a worker's environment; `data` and `store` stand above it, `run` names a run without an agent.

    Without an agent, scratch and metrics lie in the store's folder, or in `runs/<run>` where the store is no folder.
    Raises `InvalidSetting`.
    """
    run = environment.get("TRAINWRIGHT_RUN", run)
    if data is None:
        if not environment.get("TRAINWRIGHT_DATA"):
            raise InvalidSetting("no data: give --data FOLDER or set TRAINWRIGHT_DATA to a dataset's folder")
        data = Path(environment["TRAINWRIGHT_DATA"])
    store = store or environment.get("TRAINWRIGHT_STORE", f"runs/{run}")
    beside = Path("runs", run) if "://" in store else Path(store)
    rank, world = _number(environment, "RANK", 0), _number(environment, "WORLD_SIZE", 1)
    if not 0 <= rank < world:
        raise InvalidSetting(f"RANK: {rank} is not below WORLD_SIZE ({world}); start workers with an agent or torchrun")
    return Setting(
        generation=_number(environment, "TRAINWRIGHT_GENERATION", 0),
        attempt=environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
        rank=rank,
        world=world,
        local_rank=_number(environment, "LOCAL_RANK", 0),
        gpus=_number(environment, "GPUS_PER_NODE", 0),
        data=data,
        store=store,
        scratch=Path(environment.get("TRAINWRIGHT_SCRATCH", beside / "scratch")),
        metrics=Path(environment.get("TRAINWRIGHT_METRICS", beside / "metrics.jsonl")),
        grace=Path(environment["TRAINWRIGHT_GRACE"]) if environment.get("TRAINWRIGHT_GRACE") else None,
        pulse=Path(environment["TRAINWRIGHT_PULSE"]) if environment.get("TRAINWRIGHT_PULSE") else None,
    )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, str(default))
    if not value.isdecimal():
        raise InvalidSetting(f"{name}: '{value}' is not a whole number")
    return int(value)
