"""A project of its own for each test, nothing shared with others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator import cloud
from tests.project import Project
from tools import pulumi_cli


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose cloud ends with the test, whatever the test did."""
    pulumi_cli.present()  # its error says how to get one
    made = Project(tmp_path / "project")
    try:
        yield made
    finally:
        cloud.stop(made.home)
