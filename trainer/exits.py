"""Exit codes that agents, workers and user-data agree on."""

import re

DONE = 0
"""The job is done; nothing is left to do."""

DRAINED = 75
"""Saved and left on request (`EX_TEMPFAIL` of sysexits: worth another start)."""

PEER_LOST = 69
"""A worker of another rank is gone (`EX_UNAVAILABLE` of sysexits): the cause is elsewhere."""

OF_ITS_OWN = re.compile(r"cuda (?:error|failure)|ncclInvalid|invalid usage", re.IGNORECASE)
"""What an error of NCCL's says that is the fault of the worker which raises it, and not the loss of a peer."""

QUARANTINED = 78
"""The run goes on without this node, whose workers failed time and again while no others did."""

STAGE_FAILED = 70
"""User-data could not bring the agent up: no metadata, no credentials, bundle absent or altered."""

STEP_FAILED = {"identify": 71, "harden": 79, "storage": 72, "fabric": 73, "health": 74, "peers": 76, "launch": 77}
"""A required boot step failed; one code a step, so that a console log alone says which."""
