"""Where things lie in the cluster's bucket, as far as components say it; `trainer/layout.py` has all of it."""

from __future__ import annotations

FLEET = "fleet.json"
"""Sizes of the fleet, which nodes read: an object of its own, so that scaling leaves user-data alone."""

BUNDLES = "bundles/"
DATASETS = "datasets/"
RUNS = "runs/"

CHECKPOINTS = "checkpoints/"
"""Below a run's own prefix."""
