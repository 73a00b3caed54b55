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
    """A project with a small job, whose cloud ends with the test, whatever the test did."""
    yield from lent(Project(tmp_path / "project"))


@pytest.fixture
def shipped(tmp_path: Path) -> Iterator[Project]:
    """The same with the stack's file as it is shipped."""
    yield from lent(Project(tmp_path / "project", job=None))


@pytest.fixture
def alibaba(tmp_path: Path) -> Iterator[Project]:
    """A project with a small job on the stack of an Alibaba Cloud cluster."""
    yield from lent(Project(tmp_path / "project", stack="local-alicloud"))


def lent(made: Project) -> Iterator[Project]:
    pulumi_cli.present()  # its error says how to get one
    try:
        yield made
    finally:
        cloud.stop(made.home)
