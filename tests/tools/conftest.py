"""Fakes for the tools' tests: executables on a PATH of the test's own, and a recording Progress."""

from pathlib import Path

import pytest


class Recorder:
    """A Progress that keeps what it was told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.notes: list[str] = []

    def phase(self, text: str, detail: str = "") -> None:
        self.phases.append(f"{text}: {detail}" if detail else text)

    def note(self, text: str) -> None:
        self.notes.append(text)


class Folders:
    """A machine of the test's own: PATH is only `bin`, and home and cache are empty."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.home = root / "home"
        self.cache = root / "cache"
        self.bin.mkdir()
        self.home.mkdir()

    def executable(self, path: Path, script: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def pulumi(self, folder: Path, version: str) -> Path:
        return self.executable(folder / "pulumi", f"echo {version}")


@pytest.fixture
def progress() -> Recorder:
    return Recorder()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    folders = Folders(tmp_path)
    monkeypatch.setenv("PATH", str(folders.bin))
    monkeypatch.setenv("HOME", str(folders.home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folders.cache))
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    return folders
