"""Which resource types the embedded cloud's API holds, by their tokens."""

import importlib
from functools import cache

from emulator.provider.aws.kind import Kind

_FILES = {
    "aws": (
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
    ),
    "alicloud": ("configurations", "ess", "launch", "message", "oos", "oss", "ram", "vpc"),
}


@cache
def all_kinds(package: str) -> dict[str, Kind]:
    """Every handled type of a provider's package, by token."""
    modules = [importlib.import_module(f"emulator.provider.{package}.{name}") for name in _FILES.get(package, ())]
    return {kind.type: kind for module in modules for kind in module.KINDS}


def find(token: str) -> Kind | None:
    """How a type is handled; None where no API holds it. `…V2` tokens are older names of the same S3 types."""
    known = all_kinds(token.partition(":")[0])
    return known.get(token) or known.get(token.replace("V2", ""))
