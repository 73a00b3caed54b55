"""The warm tier: the cluster's file system, mounted and known to take writes before anything relies on it.

Lustre on AWS; on Alibaba Cloud NFS, or what else a source of the form `nfs:ADDRESS:/PATH` names.
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from trainer.console import say
from trainer.node.config import Paths
from trainer.node.disks import Devices
from trainer.node.tools import Tools

TRIES = 10
RETRY_S = 6.0
"""Between tries: the file system's name, and its servers, may lag behind the file system."""

LIMIT_S = 420.0
"""For all of it."""

CLIENT = "mount.lustre"


@dataclass(frozen=True)
class Kind:
    """A kind of file system, as `mount` knows it."""

    options: str
    package: str
    """What brings its client."""

    title: str


KINDS = {
    # FSx for Lustre user guide, "Mounting from an Amazon EC2 instance".
    "lustre": Kind("relatime,flock", "lustre-client", "Lustre"),
    # Alibaba Cloud NAS user guide, "Mount an NFS file system on a Linux ECS instance".
    "nfs": Kind(
        "vers=3,nolock,proto=tcp,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport",
        "nfs-common` or `nfs-utils",
        "NFS",
    ),
}


class Unready(Exception):
    """The file system can't be used; the message says why."""


def mount(source: str, paths: Paths, tools: Tools | None = None) -> tuple[Path, str]:
    """The folder of the mounted file system. Raises `Unready`.

    That `mount` succeeds doesn't mean that files can be written yet (awsome-distributed-ai#632): a probe has the last
    word. A file system that never answers keeps the calling thread; the boot goes on without it at its step's limit.
    """
    tools, folder = tools or Tools(LIMIT_S), paths.warm
    protocol, kind, source = _kind(source)
    client = f"mount.{protocol}"
    if not tools.has(client):
        raise Unready(
            f"the image has no {kind.title} client ({client}); choose one that has it, or install `{kind.package}`"
        )
    folder.mkdir(parents=True, exist_ok=True)
    reason = ""
    for number in range(1, TRIES + 1):
        try:
            if not any(mount.point == folder for mount in Devices(paths.root).mounts()):
                tools.run("mount", "-t", protocol, "-o", kind.options, source, str(folder))
            _probe(folder)
        except OSError as error:
            reason = str(error)
            say(f"the warm tier is not ready (try {number} of {TRIES}): {reason}")
            time.sleep(RETRY_S)
        else:
            return folder, f"{source}, mounted, and written to at try {number}"
    # What can't be written to may not answer reads either, and what looks at all mounts would wait for it.
    tools.attempt("umount", "-l", str(folder))
    raise Unready(f"{source} could not be used in {TRIES} tries: {reason}")


def shows_bucket(source: str) -> bool:
    """Whether what is in the bucket appears in the file system by itself; else nodes fill it."""
    return _kind(source)[0] == "lustre"


def _kind(source: str) -> tuple[str, Kind, str]:
    """What `mount` is told of a source: its kind, and the source without that."""
    protocol, _, rest = source.partition(":")
    return (protocol, KINDS[protocol], rest) if protocol in KINDS else ("lustre", KINDS["lustre"], source)


def _probe(folder: Path) -> None:
    """Write a file, on the servers and not only in a cache, and remove it. Raises `OSError`."""
    path = folder / f".probe-{uuid.uuid4().hex}"
    try:
        with path.open("xb") as file:
            file.write(b"\0")
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink(missing_ok=True)
