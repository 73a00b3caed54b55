"""The names of everything in the cluster's bucket. Keys are plain strings, always with `/`, never with a leading one.

Below the bucket: `bundles/`, `datasets/<name>/`, `runs/<run>/`, `queue/`, `data/`. The functions without a run in
their arguments give keys relative to the run's own prefix, which is what agents and trainers open as their store; data
nodes open `data/`.
"""

import re
from collections.abc import Iterable

CONTROL = "control/"
"""What agents agree through; one listing of it a second tells a node all that has changed."""

MEMBERS = f"{CONTROL}members/"
GENERATIONS = f"{CONTROL}generations/"
OUTCOME = f"{CONTROL}outcome.json"
CHECKPOINTS = "checkpoints/"
METRICS = "metrics/"
LOGS = "logs/"
SAMPLES = "samples/"
BOOT = "boot/"


FLEET = "fleet.json"
"""Sizes of the fleet (`min`, `desired`, `max`), at the bucket's root; written by whoever declares the cluster."""


DATA = "data/"
"""The prefix of what data nodes say of themselves: records, boot reports, logs."""

DATA_NODES = "nodes/"


def data_node(node: str) -> str:
    """A data node's record, relative to `DATA`: how it is reached, rewritten while it is there."""
    return f"{DATA_NODES}{node}.json"


PARDONS = f"{CONTROL}pardons/"


def pardon(number: int) -> str:
    """The key of a word that the failures up to that generation count no more."""
    return f"{PARDONS}{number:06d}.json"


def pardoned(keys: Iterable[str]) -> int:
    """The newest generation among these keys up to which failures count no more, 0 without one."""
    found = (re.fullmatch(rf"{PARDONS}(\d{{6,}})\.json", key) for key in keys)
    return max((int(match[1]) for match in found if match), default=0)


OUTCOMES = "outcomes/"


def past_outcome(ended: float) -> str:
    """Where an outcome goes when its run is given another try, by when it ended (seconds since 1970)."""
    return f"{OUTCOMES}{ended:.0f}.json"


def run_prefix(run: str) -> str:
    """The prefix of one run in the bucket."""
    return f"runs/{run}"


QUEUE = "queue/"
"""Runs that were submitted, by their place."""


OWN = f"{QUEUE}own.json"
"""The stack's own run, which comes before those: as it was when the cluster got its queue, and never rewritten."""


def queued(number: int) -> str:
    """The key of a place in the queue, from 1."""
    return f"{QUEUE}{number:06d}.json"


def queue_number(key: str) -> int:
    """The place that a key is of, 0 for anything else. The inverse of `queued`."""
    match = re.fullmatch(rf"{QUEUE}(\d{{6,}})\.json", key)
    return int(match[1]) if match else 0


def code(sha256: str) -> str:
    """The user's own code, by its hash, in the bucket."""
    return f"bundles/code-{sha256}.tar"


def dataset_prefix(name: str) -> str:
    """The prefix of one dataset (`index.json` and its shards) in the bucket."""
    return f"datasets/{name}"


SEEN = "seen/"
"""When nodes were first seen, by the bucket's clock, on clouds that don't tell when they were launched."""


def seen(node: str) -> str:
    """The key of an empty object that a node writes once."""
    return f"{SEEN}{node}"


def card(node: str) -> str:
    """A node's card: address, age, slots, state. Rewritten only when one of them changes."""
    return f"{MEMBERS}{node}/card.json"


def beat(node: str) -> str:
    """A node's heartbeat: a counter, rewritten at each beat. Its ETag alone tells the others that it advanced."""
    return f"{MEMBERS}{node}/beat"


def generation(number: int) -> str:
    """The record of one generation, created once and never rewritten."""
    return f"{GENERATIONS}{number:06d}.json"


def generation_number(key: str) -> int:
    """The number in a generation's key. The inverse of `generation`."""
    return int(key.removeprefix(GENERATIONS).removesuffix(".json"))


REMOTE = "remote/"
"""What nodes of a generation ask each other to run; not below `CONTROL`, which agents list each second."""


def remote_request(generation: int, node: str) -> str:
    """What a generation's leader asks another node to run."""
    return f"{REMOTE}{generation:06d}/{node}/request.json"


def remote_answer(generation: int, node: str) -> str:
    """How that began."""
    return f"{REMOTE}{generation:06d}/{node}/answer.json"


def boot_report(node: str) -> str:
    """A node's boot report: one entry for each step of its last boot."""
    return f"{BOOT}{node}.json"


def metrics_chunk(generation: int, chunk: int) -> str:
    """A piece of the metrics of one generation, JSON lines, in order of `chunk`."""
    return f"{METRICS}{generation:06d}/{chunk:06d}.jsonl"


def sample_chunk(node: str, chunk: int) -> str:
    """A piece of a node's samples of its hardware, JSON lines, in order of `chunk`."""
    return f"{SAMPLES}{node}/{chunk:06d}.jsonl"


def log_chunk(node: str, stream: str, chunk: int) -> str:
    """A piece of a node's log: `stream` is `agent`, `loopback`, `<generation>-rank<N>` or `<generation>-nccl<N>`."""
    return f"{LOGS}{node}/{stream}/{chunk:06d}.log"


MANIFEST = "manifest.json"
"""The part of a checkpoint that is written last, and makes it count."""


def checkpoint_name(step: int) -> str:
    """The name of a checkpoint's folder, on scratch as in the store."""
    return f"step-{step:09d}"


def complete_checkpoints(keys: Iterable[str]) -> list[int]:
    """The steps of the checkpoints among these keys that have their manifest, in order."""
    found = (re.fullmatch(rf"{CHECKPOINTS}step-(\d{{9}})/{re.escape(MANIFEST)}", key) for key in keys)
    return sorted(int(match[1]) for match in found if match)


AUDIT = "audit/"
"""A run's audit record: pages that are added as it goes, each written once. Nodes may change none (see
`components/aws/security.py`), nor delete any, which they may in folders named `checkpoints/`."""

LAUNCHES = f"{AUDIT}launch-"
"""What was declared, and by whom; written by whoever declares the cluster."""

NODES = f"{AUDIT}node-"
SAVES = f"{AUDIT}checkpoint-"
RETRIES = f"{AUDIT}retry-"


def audit_node(node: str) -> str:
    """The page of a node that took part."""
    return f"{NODES}{node}.json"


def audit_checkpoint(step: int, digest: str) -> str:
    """The page of a checkpoint, with its hashes; `digest` is of its manifest, as a step may be saved in two ways."""
    return f"{SAVES}{step:09d}-{digest[:12]}.json"


def audit_retry(ended: float) -> str:
    """The page of another try, by when the run had ended (seconds since 1970)."""
    return f"{RETRIES}{ended:.0f}.json"


def is_file_name(name: str) -> bool:
    """Whether a name read from the bucket is safe to join to a folder: a plain one that leads nowhere else."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) is not None


def checkpoint(step: int) -> str:
    """The prefix of one checkpoint."""
    return f"{CHECKPOINTS}{checkpoint_name(step)}/"
