"""The user's own code, as one file, the same for every node: a folder of this machine, packed as the bundle is.

What has no place on a node is left out: version control, caches, virtual environments, and files whose names say that
they hold secrets (`.env`, `.netrc`, private keys, `.aws`, `.ssh`). That is a net, not a wall: whoever may read the
cluster's bucket can read all else that is in the folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from components import layout
from components.bundle import archive, written
from components.findings import Finding
from components.spec import CommandJob, Spec

LEFT_OUT = (
    *(".git", ".hg", ".svn", ".gitmodules", ".local", ".DS_Store", "__pycache__", "*.pyc", "*.egg-info"),
    *(".venv", "venv", "node_modules", ".tox", ".nox", ".*_cache", ".ipynb_checkpoints", ".idea", ".vscode"),
    *(".env", ".env.*", ".envrc", ".netrc", ".pypirc", ".npmrc", ".aws", ".ssh", ".kube", ".docker"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_ed25519*", "id_ecdsa*", "credentials.json"),
)
"""Names of files and folders that stay here."""

MOST_BYTES = 64 << 20
MOST_FILES = 5_000
"""What a folder of code may hold. More is data, which belongs in a dataset, or packages, which belong in the image."""


@dataclass(frozen=True)
class Code:
    """A folder of code, packed. `key` is where it goes in the cluster's bucket."""

    content: bytes
    sha256: str

    @property
    def key(self) -> str:
        """Named by content, so never overwritten, and among the bundles, which every node may read."""
        return layout.code(self.sha256)

    def write(self, folder: Path) -> Path:
        """The file, written to `folder` unless it is there."""
        return written(self.content, folder, f"code-{self.sha256}.tar")


def home() -> Path:
    """The folder that paths in a stack's file count from: the project's, with its Pulumi.yaml, or else this one."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "Pulumi.yaml").is_file()), here)


def pack(path: str) -> Code | Finding:
    """The code in the folder that `job.code` names, or what is wrong with it."""
    root = home() / Path(path).expanduser()
    if not root.is_dir():
        return Finding("job.code", f"there is no folder {root}", "Name a folder, from where Pulumi.yaml lies")
    files: list[tuple[str, Path]] = []
    size = 0
    for file in _files(root):
        name = file.relative_to(root).as_posix()
        if file.is_symlink() or not file.is_file():
            return Finding("job.code", f"{name} is a link, or no plain file", "Put the file itself there, or remove it")
        files.append((name, file))
        size += file.stat().st_size
        if size > MOST_BYTES or len(files) > MOST_FILES:
            return Finding(
                "job.code",
                f"{root} holds more than {MOST_BYTES >> 20} MiB or {MOST_FILES:,} files",
                "Keep the code alone there: data goes into a dataset, packages into the image",
            )
    if not files:
        return Finding("job.code", f"{root} holds no file that would be sent", "Name the folder with the script")
    try:
        content = archive(sorted(files), executables=True)
    except OSError as error:
        return Finding(
            "job.code", f"{error.filename} can't be read: {error.strerror}", "Make it readable, or remove it"
        )
    return Code(content, hashlib.sha256(content).hexdigest())


def commanded(spec: Spec) -> Iterator[Finding]:
    """What a job of the user's own program needs of its cluster, and can't use."""
    job = spec.job
    if not isinstance(job, CommandJob):
        return
    if spec.data_nodes and not job.dataset:
        yield Finding("data_nodes", "serve a dataset, and the job names none", "Add job.dataset, or take them away")


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if any(fnmatch(path.name, pattern) for pattern in LEFT_OUT):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        else:
            yield path
