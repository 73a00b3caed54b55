"""The bundle: the trainer and the pure-Python packages that an image may lack, as one file, the same for every node.

It is a plain tar, not a compressed one: compressors differ between machines, and two people who deploy the same
trainer must get the same hash, or each would replace the other's nodes.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from components import layout

PACKAGES = ("boto3", "botocore", "s3transfer", "jmespath", "python-dateutil", "six", "urllib3")
"""boto3 and all that it needs; each is pure Python."""

SERVICES = ("autoscaling", "cloudwatch", "s3", "sqs")
"""The services whose models are kept of all that botocore has: those that nodes call. A role's credentials come from
the instance's metadata, which needs no model."""

LOCAL = (".pyc", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
"""What an installer leaves beside a package: it differs between machines."""

TRAINER = Path(__file__).resolve().parent.parent / "trainer"


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk. `key` is where it goes in the cluster's bucket."""

    path: Path
    sha256: str

    @property
    def key(self) -> str:
        """The bundle's key in the bucket: named by content, so never overwritten."""
        return f"{layout.BUNDLES}{self.sha256}.tar"


def default_folder() -> Path:
    """Where bundles are written: below `TRAINWRIGHT_HOME`, else in the user's cache (XDG Base Directory)."""
    if home := os.environ.get("TRAINWRIGHT_HOME"):
        return Path(home) / "bundle"
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "trainwright" / "bundle"


def build(folder: Path) -> Bundle:
    """The bundle of this checkout, written to `folder` unless it is there. Raises `PackageNotFoundError`."""
    content = archive(sorted([*_trainer(), *_packages()]))
    digest = hashlib.sha256(content).hexdigest()
    return Bundle(written(content, folder, f"{digest}.tar"), digest)


def written(content: bytes, folder: Path, name: str) -> Path:
    """The file of this content and of a name made of its hash, in `folder`, unless it is there."""
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        temporary.write_bytes(content)
        temporary.replace(path)
    return path


def _trainer() -> Iterator[tuple[str, Path]]:
    for path in TRAINER.rglob("*.py"):
        yield f"trainer/{path.relative_to(TRAINER).as_posix()}", path


def _packages() -> Iterator[tuple[str, Path]]:
    for name in PACKAGES:
        files = distribution(name).files
        if files is None:
            raise PackageNotFoundError(f"{name}: its list of files is missing; reinstall it")
        for file in files:
            target = file.as_posix()
            if target.startswith("..") or target.endswith(LOCAL):
                continue
            if target.startswith("botocore/data/") and file.parent.parts[2:] and file.parent.parts[2] not in SERVICES:
                continue
            if not target.startswith("boto3/examples/"):
                yield target, Path(str(file.locate()))


def archive(files: list[tuple[str, Path]], *, executables: bool = False) -> bytes:
    """A tar of the files with nothing in it that differs between machines: no times, owners or modes.

    With `executables`, a file that its owner may execute stays so.
    """
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT if executables else tarfile.USTAR_FORMAT
    ) as tar:
        for target, path in files:
            data = path.read_bytes()
            info = tarfile.TarInfo(target)
            info.size, info.mode = len(data), 0o755 if executables and path.stat().st_mode & 0o100 else 0o644
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
