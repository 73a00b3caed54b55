"""The embedded cloud from outside: find the one of a home folder, start it, stop it.

A home folder has one cloud at most. Whoever starts or stops it holds a lock on the folder itself, which the kernel
lets go whatever becomes of the holder. What is cleared away there, `cloud` and `state`, bears a mark of who made it: a
home may be any folder, with a `cloud` of the user's own.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from emulator import processes

MARK = ".trainwright"
"""The file that marks a folder as made here, and so as one that may be removed."""

_SOURCE = Path(__file__).resolve().parents[1]
_COMMAND = ["-m", "emulator", "--home"]
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_LOCK_SECONDS = 90.0
_POLL = 0.05


class CloudError(Exception):
    """The embedded cloud cannot be started or stopped; the message says why and what to do."""


@dataclass(frozen=True)
class Cloud:
    """A running embedded cloud: the URL of its API, its daemon's process number, the home folder it serves."""

    endpoint: str
    pid: int
    home: Path


def find(home: Path) -> Cloud | None:
    """The cloud that runs for this home, if one does and is ready."""
    home = home.resolve()
    try:
        record = json.loads(_record(home).read_text())
        pid, started, endpoint = int(record["pid"]), int(record["started"]), str(record["endpoint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Cloud(endpoint, pid, home) if processes.started(pid) == started else None


def start(home: Path) -> tuple[Cloud, bool]:
    """The cloud that runs for this home, or a new, empty one; says whether it was started now.

    A new one first clears away what a killed one left: its processes, its folder, and the Pulumi state, which
    would tell of resources that are no more. Raises CloudError.
    """
    home = home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home):
        if cloud := find(home):
            return cloud, False
        for folder in ("cloud", "state"):
            _refuse_foreign(home / folder)
        _clear(home)
        _remove(home / "state")
        make_folder(home / "state")
        make_folder(home / "cloud")
        (home / "cloud" / "tmp").mkdir()
        return _launch(home), True


def stop(home: Path) -> None:
    """End the cloud of this home with all its nodes, and remove its folder. Raises CloudError."""
    home = home.resolve()
    if home.is_dir():
        with _locked(home):
            _clear(home)


def make_folder(folder: Path) -> None:
    """Make a folder that a later start or stop may remove with all it holds; one that is there stays whose it is."""
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / MARK).write_text("Made by trainwright, which removes this folder when it starts its cloud anew.\n")


def publish(home: Path, endpoint: str) -> Path:
    """Record that the calling process is this home's cloud and is ready; returns the record's file."""
    record = _record(home)
    part = record.with_suffix(".part")
    pid = os.getpid()
    part.write_text(json.dumps({"endpoint": endpoint, "pid": pid, "started": processes.started(pid)}))
    part.replace(record)
    return record


def _record(home: Path) -> Path:
    return home / "cloud" / "cloud.json"


def _launch(home: Path) -> Cloud:
    log = home / "cloud" / "cloud.log"
    with log.open("ab") as output:
        daemon = subprocess.Popen(
            [sys.executable, *_COMMAND, str(home)],
            cwd=_SOURCE,
            env=_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    try:
        while time.monotonic() < deadline and daemon.poll() is None:
            if cloud := find(home):
                return cloud
            time.sleep(_POLL)
    except BaseException:
        daemon.kill()
        raise
    daemon.kill()
    daemon.wait()
    last = ([line for line in log.read_text(errors="replace").splitlines() if line.strip()] or ["nothing"])[-1]
    raise CloudError(
        f"The embedded cloud did not get ready within {_START_SECONDS:.0f} s. Its log's last line: {last}. "
        f"Read {log}, then try again."
    )


def _environment(home: Path) -> dict[str, str]:
    """The caller's environment, less what would send the daemon's own calls elsewhere, plus moto's settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "MOTO_")) and not name.lower().endswith("_proxy")
    }
    return kept | {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONUNBUFFERED": "1",
        # Objects above this size lie in nameless files in TMPDIR instead of memory.
        "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(1 << 20),
        "TMPDIR": str(home / "cloud" / "tmp"),
        # Some 500 images that nobody here asks for, searched at each launch.
        "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
        "MOTO_DISABLE_GLOBAL_CORS": "true",
    }


def _clear(home: Path) -> None:
    """End the daemon of this home, ready or not, then what nodes it leaves; remove the cloud's folder."""
    _refuse_foreign(home / "cloud")
    left = processes.end(lambda: _daemons(home), _STOP_SECONDS)
    left |= processes.end(lambda: processes.belonging_to(home / "cloud" / "nodes"), grace=0)
    if left:
        raise CloudError(
            f"Processes {sorted(left)} of the embedded cloud in {home} cannot be killed: end them yourself."
        )
    _remove(home / "cloud")


def _daemons(home: Path) -> set[int]:
    """Daemons of this very home, known by their command line: a record could be missing, or older than they are."""
    return {
        pid
        for pid, arguments in processes.commands()
        if arguments[-4:-1] == _COMMAND
        and Path(f"/proc/{pid}/cwd", arguments[-1]).resolve() == home
        and processes.started(pid) is not None
    }


def _refuse_foreign(folder: Path) -> None:
    """Raises CloudError for a folder that holds something and was not made by `make_folder`."""
    if folder.is_symlink() or (folder.exists() and not _made_here(folder)):
        raise CloudError(
            f"{folder} would be removed for a new cloud, but holds no file {MARK}, so it may be yours. "
            f"Set TRAINWRIGHT_HOME to another folder; if trainwright made it, remove {folder} yourself."
        )


def _made_here(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir()))


def _remove(folder: Path) -> None:
    if not folder.exists():
        return
    for parent, subfolders, _ in os.walk(folder):
        for subfolder in subfolders:
            path = Path(parent, subfolder)
            if not path.is_symlink():
                path.chmod(0o700)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise CloudError(f"{folder} cannot be removed: {error}. Remove it yourself, then try again.") from error


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CloudError(
                        f"Another start or stop of the embedded cloud has held {home} for {_LOCK_SECONDS:.0f} s: "
                        "end that one, then try again."
                    ) from None
                time.sleep(_POLL)
        yield
    finally:
        os.close(handle)
