"""The order of the suite: what waits longest for clouds comes first, so that two workers end together."""

import pytest

LONGEST = ("/e2e/", "/faults/")
"""Parts of the paths of tests that wait, the longest first. (`make test` tells xdist to keep this order.)"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that wait first; all else keeps its order."""

    def place(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((index for index, part in enumerate(LONGEST) if part in path), len(LONGEST))

    items.sort(key=place)
