"""What holds for all tests: their order, and what no test needs of Python and Pulumi but all pay for."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

LONGEST = ("/e2e/", "/faults/", "/trainer/", "/emulator/")
"""Parts of the paths of tests that wait, the longest first. (`make test` tells xdist to keep this order.)"""

WAITING = 2
"""How many of pytest's workers take tests that wait, one for each core of the smallest machine."""

GARBAGE = (50_000, 20, 50)
"""Python's thresholds (700, 10, 10) have it walk all that two SDKs and moto define so often that a fifth of the time of
tests which declare clusters goes into it."""


def pytest_configure() -> None:
    """Collect garbage less often, and have moto start without its 500 images, as the embedded cloud's daemon does."""
    gc.set_threshold(*GARBAGE)
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that wait first; all else keeps its order."""

    def place(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((index for index, part in enumerate(LONGEST) if part in path), len(LONGEST))

    items.sort(key=place)


class Filled(LoadFileScheduling):
    """Files in their order for the workers that wait, and from the end for one more, which computes meanwhile.

    Two that wait leave much of two cores idle; three such tests at once would be late for each other, so that the third
    takes of them only when nothing else is left, the shortest first.
    """

    def _assign_work_unit(self, node: Any) -> None:
        if self.nodes.index(node) >= WAITING:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Filled | None:
    """How xdist's workers share the files, where it was asked to share out files."""
    return Filled(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def _no_stack_traces() -> Iterator[None]:
    """Pulumi sends the stack's trace with each resource that is declared: a seventh of the time, for no test."""
    from pulumi.runtime import resource
    from pulumi.runtime.proto.source_pb2 import StackTrace

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "_get_stack_trace", StackTrace)
        yield
