"""The order of the suite: what waits longest for clouds comes first, so that two workers end together."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the end-to-end tests first; all else keeps its order."""
    items.sort(key=lambda item: "/e2e/" not in item.path.as_posix())
