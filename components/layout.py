"""Where things lie in the cluster's bucket, as far as components say it; `trainer/layout.py` has all of it."""

from __future__ import annotations

FLEET = "fleet.json"
"""Sizes of the fleet, which nodes read: an object of its own, so that scaling leaves user-data alone."""

BUNDLES = "bundles/"
DATASETS = "datasets/"
RUNS = "runs/"
QUEUE = "queue/"
"""Runs that were submitted."""

OWN = f"{QUEUE}own.json"
"""The stack's own run, in a cluster with a queue: told to all nodes alike, however old their user-data is."""

OUTCOME = "control/outcome.json"
"""How a run ended, below its own prefix; a run that has one is over."""

DATA = "data/"
"""What data nodes say of themselves."""

DATA_NODES = f"{DATA}nodes/"
"""Where each data node says how it is reached, again and again while it is there."""

CHECKPOINTS = "checkpoints/"
"""Below a run's own prefix."""


AUDIT = "audit/"
"""Below a run's own prefix: its audit record, to which pages are added and none is changed."""


def launch(run: str, digest: str) -> str:
    """The key of what was declared for a run, a page of its audit record."""
    return f"{RUNS}{run}/{AUDIT}launch-{digest}.json"


def code(sha256: str) -> str:
    """The key of a user's own code, by its hash; nodes may read it as they read bundles."""
    return f"{BUNDLES}code-{sha256}.tar"
