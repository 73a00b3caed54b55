"""The node runner: gives every instance of an auto scaling group a body, and the group the news of its death.

An instance becomes a node: a root folder, a metadata service, and a first process (`emulator.init`) that runs the
instance's user-data. The runner does what EC2 and its health checks do: a node whose first process fails or is
killed is terminated through the API, and its group replaces it; an instance that the API no longer lists loses
its node.
"""

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from emulator import notices, places, processes
from emulator.ecs_metadata import EcsMetadata
from emulator.instances import ERRORS, Api, Instance, Member
from emulator.metadata import Ec2Metadata, MetadataService

SHEBANG = b"#!"
CLOUD_IDS = {"aws": "aws", "alicloud": "aliyun"}
"""What cloud-init calls the clouds, in the file that it leaves (cloud-init documentation, `cloud-id`)."""

TERMINATE_SECONDS = 5.0
"""Between a terminated node's SIGTERM and its SIGKILL."""

_SOURCE = Path(__file__).resolve().parents[1]
_FIRST_DELAY = 0.5
_MAX_DELAY = 30.0
_SOUND_SECONDS = 60.0
_KEPT_NODES = 50
_KEPT_TROUBLES = 100
_LAST_WORDS = 200
_OUTPUT = Path("var/log/cloud-init-output.log")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Node:
    """A running instance's body. `slot` decides its core; `since` is monotonic time."""

    member: Member
    root: Path
    slot: int
    since: float
    init: "subprocess.Popen[bytes]"
    service: MetadataService


@dataclass
class Backoff:
    """How long a group's next node waits, so that one that fails at every boot does not keep the machine busy."""

    failures: int = 0
    until: float = 0.0

    def failed(self, now: float, lived: float) -> None:
        """Count a node that failed at `now` after `lived` seconds; one that lived for a minute ends a series."""
        self.failures = 1 if lived >= _SOUND_SECONDS else self.failures + 1
        self.until = now + min(_FIRST_DELAY * 2.0 ** (self.failures - 1), _MAX_DELAY)


@dataclass
class Runner:
    """All nodes of one embedded cloud, below the folder `nodes`.

    Make it and call `tick` on one thread that lives as long as the nodes may: they die with it.
    """

    api: Api
    nodes: Path
    regions: Callable[[], Iterable[str]]
    _running: dict[str, Node] = field(default_factory=dict)
    _backoffs: dict[str, Backoff] = field(default_factory=dict)
    _troubles: dict[str, str] = field(default_factory=dict)

    def tick(self) -> None:
        """Compare instances with nodes once: boot the new, end the gone, report the dead."""
        with self._trying("the groups' instances cannot be listed"):
            listed = {member.id: member for region in self.regions() for member in self.api.members(region)}
            known = dict(self._running)
            for name, node in known.items():
                with self._trying(f"{name}: cannot be terminated"):
                    self._check(node, name in listed)
            for name, member in listed.items():
                if name not in known and time.monotonic() >= self._backoff(member).until:
                    with self._trying(f"{name}: cannot be booted"):
                        self._boot(member)

    def close(self) -> None:
        """Kill every node at once."""
        left = processes.end(lambda: processes.belonging_to(self.nodes), grace=0)
        if left:
            _log.error("processes %s of nodes cannot be killed", sorted(left))

    def _check(self, node: Node, listed: bool) -> None:
        if not listed:
            _log.info("%s: terminated", node.member.id)
            self._end(node)
            return
        code = node.init.poll()
        if code is not None:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            output = node.root / _OUTPUT
            reason = f"its first process {how}, its last words in {output}: {last_words(output)}"
            self._fail(node.member, reason, lived=time.monotonic() - node.since)
            self._end(node)
        elif notices.read(notices.path(self.nodes, node.member.id)).get("spot", time.time() + 1) <= time.time():
            self.api.terminate(node.member)
            _log.info("%s: interrupted at the time of its spot notice; terminated", node.member.id)
            self._end(node)

    def _boot(self, member: Member) -> None:
        instance = self.api.instance(member)
        slots = {node.slot for node in self._running.values()}
        slot = next(number for number in range(len(slots) + 1) if number not in slots)
        cores = sorted(os.sched_getaffinity(0))
        core = cores[slot % len(cores)]
        root = self.nodes / member.id
        user_data = _lay_out(root, instance)
        own = EcsMetadata if instance.cloud == "alicloud" else Ec2Metadata
        service = MetadataService(own(instance, self.api, notices.path(self.nodes, member.id)), instance.address)
        environment = node_environment(instance.cloud, root, service.url, self.api.endpoint)
        try:
            init = _start(root, environment, core, user_data)
        except OSError as error:
            service.close()
            self._fail(member, str(error), lived=0)
            return
        self._running[member.id] = Node(member, root, slot, time.monotonic(), init, service)
        nothing = "" if user_data else "; nothing to run, as its user-data does not begin with #!"
        _log.info(
            "%s: booted for group %s, address %s, core %d%s", member.id, member.group, instance.address, core, nothing
        )

    def _fail(self, member: Member, reason: str, lived: float) -> None:
        self.api.terminate(member)
        backoff = self._backoff(member)
        now = time.monotonic()
        backoff.failed(now, lived)
        wait = backoff.until - now
        _log.warning("%s: impaired: %s; terminated, the next may start in %.1f s", member.id, reason, wait)

    def _end(self, node: Node) -> None:
        del self._running[node.member.id]
        Thread(target=self._take_down, args=(node,), name=f"end {node.member.id}", daemon=True).start()

    def _take_down(self, node: Node) -> None:
        init = {node.init.pid}
        left = processes.end(lambda: processes.belonging_to(node.root) - init, TERMINATE_SECONDS)
        if left:
            _log.error("%s: its processes %s cannot be killed", node.member.id, sorted(left))
        node.init.kill()
        node.init.wait()
        node.service.close()
        notices.path(self.nodes, node.member.id).unlink(missing_ok=True)
        _keep_logs(node.root)
        forget_nodes(self.nodes, set(self._running), _KEPT_NODES)

    def _backoff(self, member: Member) -> Backoff:
        return self._backoffs.setdefault(f"{member.region}/{member.group}", Backoff())

    @contextlib.contextmanager
    def _trying(self, trouble: str) -> Iterator[None]:
        """Whatever goes wrong is logged and tried again at the next tick: it must not take other nodes down."""
        try:
            yield
        except Exception as error:
            # The same trouble comes back four times a second.
            if self._troubles.get(trouble) != str(error):
                if len(self._troubles) >= _KEPT_TROUBLES:
                    self._troubles.clear()
                self._troubles[trouble] = str(error)
                _log.warning("%s, trying again: %s", trouble, error, exc_info=not isinstance(error, ERRORS))


def node_environment(cloud: str, root: Path, metadata_url: str, endpoint: str) -> dict[str, str]:
    """All that a node's processes find in their environment. Objects are everywhere at the server's own address."""
    found = (
        {
            "TRAINWRIGHT_ECS_METADATA": metadata_url,
            "TRAINWRIGHT_ALICLOUD_ENDPOINT": f"{endpoint}{places.PATH}",
            "TRAINWRIGHT_OSS_ENDPOINT": endpoint,
        }
        if cloud == "alicloud"
        else {"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_url}
    )
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(root / "root"),
        "TMPDIR": str(root / "tmp"),
        "LANG": "C.UTF-8",
        processes.ROOT_VARIABLE: str(root),
        "AWS_ENDPOINT_URL": endpoint,
        **found,
    }


def last_words(output: Path) -> str:
    """The last line that a node printed itself, shortened; the line of its first process about the end is none."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    printed = [line.strip() for line in lines if line.strip() and not line.startswith("user-data ended: ")]
    return printed[-1][-_LAST_WORDS:] if printed else "(nothing)"


def forget_nodes(nodes: Path, running: set[str], keep: int) -> None:
    """Remove what is left of ended nodes but for the latest so many."""
    ended = sorted((root for root in nodes.iterdir() if root.is_dir() and root.name not in running), key=_changed)
    for root in ended[: max(0, len(ended) - keep)]:
        shutil.rmtree(root, ignore_errors=True)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _lay_out(root: Path, instance: Instance) -> Path | None:
    """Make the root folder; returns the user-data's file if cloud-init would run it as a script."""
    for folder in ("root", "run/cloud-init", "tmp", "var/lib/cloud", "var/log"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / notices.CLOUD).write_text(CLOUD_IDS[instance.cloud])
    file = root / "var/lib/cloud/user-data"
    file.write_bytes(instance.user_data)
    file.chmod(0o700)
    return file if instance.user_data.startswith(SHEBANG) else None


def _start(root: Path, environment: dict[str, str], core: int, user_data: Path | None) -> "subprocess.Popen[bytes]":
    arguments = [str(os.getpid()), str(core)] + ([str(user_data)] if user_data else [])
    with (root / _OUTPUT).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-S", "-m", "emulator.init", *arguments],
            cwd=_SOURCE,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _keep_logs(root: Path) -> None:
    """A terminated instance's disks are gone, while what it printed can still be read."""
    for folder in (root, root / "var"):
        for child in folder.iterdir():
            if child.is_dir() and not child.is_symlink():
                if child.name not in ("var", "log"):
                    shutil.rmtree(child, ignore_errors=True)
            else:
                child.unlink(missing_ok=True)
