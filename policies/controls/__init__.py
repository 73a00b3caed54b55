"""The controls, one file a topic."""

from __future__ import annotations

from policies.control import Control
from policies.controls import (
    audit,
    cost,
    encryption,
    identity,
    keys,
    network,
    residency,
    resilience,
    storage,
    training,
    transport,
)
from policies.settings import Settings

EVERYTHING = Settings(regions=("every-region",), cost_tags=("every-tag",))
"""Settings under which no control is idle, to tell which there are."""


def declared(settings: Settings) -> list[Control]:
    """Every control there is; some of them judge by the settings."""
    return [
        *encryption.CONTROLS,
        *keys.CONTROLS,
        *transport.controls(settings),
        *network.CONTROLS,
        *identity.CONTROLS,
        *storage.CONTROLS,
        *audit.CONTROLS,
        *residency.controls(settings),
        *resilience.CONTROLS,
        *cost.controls(settings),
        *training.CONTROLS,
    ]
