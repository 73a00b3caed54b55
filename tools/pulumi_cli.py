"""How the Pulumi CLI is had: the user's own, else the cached one, else an official download, else a build from source.

Nothing is ever written to the user's `~/.pulumi`.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from tools import cache, gobuild, official
from tools.processes import Failed, run
from tools.progress import Progress

MINIMUM = (3, 272)
"""The oldest CLI that fits, as major and minor version: the SDK's lower bound in pyproject.toml."""

LANGUAGE_HOST = "pulumi-language-python"
"""The CLI's plugin that runs Python programs; a CLI built from its module lacks it."""

_WAITING = "Pulumi CLI, waiting for another process that is installing it"
_LOCK_LIMIT = official.LIMIT + gobuild.LIMIT + 300
"""Seconds to wait for another process: as long as it may take to try every way."""


@dataclass(frozen=True)
class PulumiCLI:
    """A Pulumi CLI that fits this project."""

    path: Path
    version: str
    """Such as `3.274.1`."""
    source: Literal["path", "official", "module"]
    """The user's own on PATH, the official download, or a build from the Go module."""
    needs_language_host: bool
    """It has no language host for Python of its own, and must be given ours."""


class NoPulumiCLI(Exception):
    """There is no usable Pulumi CLI; the message says what was tried and what to do."""


def find(progress: Progress) -> PulumiCLI:
    """The Pulumi CLI to use, installed into the cache first if need be (seconds, or minutes where it is built).

    A `pulumi` on PATH that doesn't fit is named in a note. Raises NoPulumiCLI.
    """
    failures: dict[str, str] = {}
    try:
        return _on_path()
    except Failed as reason:
        failures["`pulumi` on PATH"] = str(reason)
        if shutil.which("pulumi"):
            progress.note(f"The Pulumi CLI on PATH is passed over: {reason}")
    entry = _cache_entry()
    cached = _cached(entry)
    if cached:
        return cached
    try:
        with cache.lock(entry, limit=_LOCK_LIMIT, on_wait=lambda: progress.phase(_WAITING)):
            return _cached(entry) or _install(entry, progress, failures)
    except Failed as reason:
        failures[f"the cache {entry.parent}"] = str(reason)
    except OSError as error:
        failures[f"the cache {entry.parent}"] = f"can't be written: {error.strerror}"
    raise NoPulumiCLI(_advice(failures))


def present() -> PulumiCLI:
    """The Pulumi CLI to use, if it is on PATH or in the cache already. Raises NoPulumiCLI; installs nothing."""
    try:
        return _on_path()
    except Failed as reason:
        cached = _cached(_cache_entry())
        if cached is None:
            raise NoPulumiCLI(
                f"There is no Pulumi CLI yet ({reason}; none in {_cache_entry()}): `make setup` gets one"
            ) from None
        return cached


def _cache_entry() -> Path:
    return cache.folder() / "pulumi" / gobuild.pinned_version()


def _on_path() -> PulumiCLI:
    """The `pulumi` on PATH. Raises Failed if there is none or it doesn't fit."""
    found = shutil.which("pulumi")
    if found is None:
        raise Failed("there is none")
    version = _version(Path(found))
    major, minor, _ = (int(number) for number in version.split("."))
    if major != MINIMUM[0] or minor < MINIMUM[1]:
        needed = ".".join(map(str, MINIMUM))
        raise Failed(f"{found} is version {version}, and {needed} or newer ({MINIMUM[0]}.x) is needed")
    return PulumiCLI(Path(found), version, "path", needs_language_host=not _has_language_host(Path(found)))


def _has_language_host(pulumi: Path) -> bool:
    """Whether that CLI finds a language host by itself: beside it, or on PATH."""
    places = [str(pulumi.resolve().parent), *os.get_exec_path()]
    return shutil.which(LANGUAGE_HOST, path=os.pathsep.join(places)) is not None


def _cached(entry: Path) -> PulumiCLI | None:
    pulumi = entry / "bin" / "pulumi"
    if not os.access(pulumi, os.X_OK):
        return None
    built = not (pulumi.parent / LANGUAGE_HOST).exists()
    return PulumiCLI(pulumi, entry.name, "module" if built else "official", needs_language_host=built)


def _install(entry: Path, progress: Progress, failures: dict[str, str]) -> PulumiCLI:
    """Installs the pinned version into the cache, officially or from source. Raises NoPulumiCLI, OSError."""

    def download(root: Path) -> None:
        with tempfile.TemporaryDirectory() as home:
            official.install(root, entry.name, Path(home))

    def build(root: Path) -> None:
        gobuild.install(root, progress)

    ways: dict[str, Callable[[Path], None]] = {"the official download": download, "a build with Go": build}
    for way, make in ways.items():
        progress.phase(f"Pulumi CLI {entry.name}, {way}")
        try:
            cache.fill(entry, partial(_verified, make, entry.name))
        except Failed as reason:
            failures[f"{way} ({entry.name})"] = str(reason)
            continue
        installed = _cached(entry)
        if installed:
            return installed
    raise NoPulumiCLI(_advice(failures))


def _verified(make: Callable[[Path], None], version: str, root: Path) -> None:
    """Installs, and asks the result for its version. Raises Failed if it isn't the wanted one."""
    make(root)
    answer = _version(root / "bin" / "pulumi")
    if answer != version:
        raise Failed(f"it says that it is version {answer}")


def _version(pulumi: Path) -> str:
    """What `pulumi version` answers, without its `v` and suffix. Raises Failed."""
    # The CLI writes a log for each command into PULUMI_HOME, which would be the user's.
    with tempfile.TemporaryDirectory() as home:
        quiet = {"PULUMI_HOME": home, "PULUMI_SKIP_UPDATE_CHECK": "true"}
        try:
            answer = run([pulumi, "version"], limit=30, environment=quiet)
        except Failed as reason:
            raise Failed(f"`{pulumi} version` failed: {reason}") from None
    match = re.match(r"v?(\d+\.\d+\.\d+)", answer)
    if match is None:
        raise Failed(f"`{pulumi} version` answers {answer[:80]!r}")
    return match[1]


def _advice(failures: dict[str, str]) -> str:
    tried = "\n".join(f"  - {way}: {reason}" for way, reason in failures.items())
    return (
        f"No usable Pulumi CLI was found, and none could be installed. Tried:\n{tried}\n"
        "Do one of these and run the command again: install the CLI as pulumi.com/docs/install says; "
        f"install Go {gobuild.needed_go()} or newer; or use a network that reaches the official download "
        "or mirrors of Go modules and Python packages."
    )


def main() -> int:
    """`make setup`: get the CLI, and say which it is."""
    from tools.progress import on_stderr  # noqa: PLC0415  it is for this alone

    try:
        with on_stderr() as progress:
            cli = find(progress)
    except NoPulumiCLI as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"Pulumi CLI {cli.version}: {cli.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
