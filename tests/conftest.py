"""What holds for all tests: their order, and what no test needs of Python and Pulumi but all pay for."""

import gc
from collections.abc import Iterator

import pytest

LONGEST = ("/e2e/", "/faults/")
"""Parts of the paths of tests that wait, the longest first, so that two workers end together. (`make test` tells xdist
to keep this order.)"""

GARBAGE = (50_000, 20, 50)
"""Python's thresholds (700, 10, 10) have it walk all that two SDKs and moto define so often that a fifth of the time of
tests which declare clusters goes into it."""


def pytest_configure() -> None:
    """Collect garbage less often."""
    gc.set_threshold(*GARBAGE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that wait first; all else keeps its order."""

    def place(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((index for index, part in enumerate(LONGEST) if part in path), len(LONGEST))

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def _no_stack_traces() -> Iterator[None]:
    """Pulumi sends the stack's trace with each resource that is declared: a seventh of the time, for no test."""
    from pulumi.runtime import resource
    from pulumi.runtime.proto.source_pb2 import StackTrace

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "_get_stack_trace", StackTrace)
        yield
