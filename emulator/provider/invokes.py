"""The providers' functions (`aws.get_…`, `alicloud.get_…`): each package has its own, by token."""

import importlib
from collections.abc import Callable

from emulator.provider.aws.api import Api
from emulator.provider.wire import Props

Function = Callable[[Props, Api, bool], Props]
"""Answers arguments from the region where that is enough, else from the cloud's API.

The flag says whether the embedded cloud can be asked; without it, images are made up and nothing is looked up.
"""


class UnknownFunction(LookupError):
    """The stand-in has no such function, or not with these arguments."""


def call(token: str, args: Props, api: Api, *, running: bool) -> Props:
    """The answer of a function. Raises UnknownFunction, and ApiError from the cloud's API."""
    package = token.partition(":")[0]
    functions: dict[str, Function] = importlib.import_module(f"emulator.provider.{package}.invokes").FUNCTIONS
    function = functions.get(token)
    if function is None:
        known = ", ".join(sorted(name.rpartition(":")[2] for name in functions))
        raise UnknownFunction(f"the embedded cloud's stand-in has no function {token}; it has {known}")
    return {"id": api.place, **function(args, api, running)}
