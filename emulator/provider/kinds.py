"""Which resource types the embedded cloud's API holds, by their tokens."""

import importlib
from functools import cache

from emulator.provider.aws.kind import Kind

_FILES = (
    "autoscaling",
    "ec2",
    "iam",
    "kms",
    "launch_template",
    "routes",
    "s3",
    "s3_objects",
    "security_groups",
    "services",
)


@cache
def all_kinds() -> dict[str, Kind]:
    """Every handled type, by token."""
    modules = [importlib.import_module(f"emulator.provider.aws.{name}") for name in _FILES]
    return {kind.type: kind for module in modules for kind in module.KINDS}


def find(token: str) -> Kind | None:
    """How a type is handled; None where no API holds it. `…V2` tokens are older names of the same S3 types."""
    return all_kinds().get(token) or all_kinds().get(token.replace("V2", ""))
