"""A machine's block devices below a folder, and tools that change them as the real ones would, noting what they do."""

from __future__ import annotations

import shutil
from pathlib import Path

from trainer.node.config import Paths
from trainer.node.disks import INSTANCE_STORE
from trainer.node.tools import ToolFailed, Tools

GIB = 1 << 30
TOOLS = {"mdadm", "blkid", "mkfs.xfs", "mkfs.ext4", "mount", "umount"}


class Machine:
    """A root disk on EBS and so many instance-store disks, named by the kernel in the order given."""

    def __init__(self, root: Path, disks: list[str], size: int = 100 * GIB) -> None:
        """`disks`: 'ebs' or 'store' for nvme0n1, nvme1n1 and so on; the first EBS one is the root disk."""
        self.root, self.paths, self.kinds = root, Paths(root), disks
        self.labels: dict[str, str] = {}
        self.superblocks: dict[str, tuple[str, ...]] = {}
        self.arrays: dict[str, str] = {}
        for folder in ("dev/disk/by-id", "dev/md", "sys/class/block", "sys/dev/block", "proc/self"):
            (root / folder).mkdir(parents=True)
        (root / "proc/self/mountinfo").write_text("")
        self.store, self.ebs = [], []
        for number, kind in enumerate(disks):
            name = f"nvme{number}n1"
            self.add(name, size)
            model = "Amazon_Elastic_Block_Store_vol0" if kind == "ebs" else "Amazon_EC2_NVMe_Instance_Storage_AWS"
            for alias in ("", "_1", "-ns-1"):
                (root / f"dev/disk/by-id/nvme-{model}{number:04}{alias}").symlink_to(f"../../{name}")
            (self.ebs if kind == "ebs" else self.store).append(name)
        if self.ebs:
            self.partition(self.ebs[0])
            self.mounted(f"{self.ebs[0]}p1", "/")

    def add(self, name: str, size: int = 0, slaves: tuple[str, ...] = ()) -> None:
        """A block device, on others where `slaves` are given."""
        (self.root / "dev" / name).touch()
        block = self.root / "sys/class/block" / name
        for folder in ("holders", "slaves"):
            (block / folder).mkdir(parents=True)
        (block / "size").write_text(f"{size // 512}\n")
        (self.root / "sys/dev/block" / self.number(name)).symlink_to(block)
        for slave in slaves:
            (block / "slaves" / slave).touch()
            (self.root / "sys/class/block" / slave / "holders" / name).touch()

    def partition(self, disk: str) -> None:
        self.add(f"{disk}p1", GIB)
        (self.root / "sys/class/block" / disk / f"{disk}p1/holders").mkdir(parents=True)
        link = next((self.root / "dev/disk/by-id").glob(f"*{disk[4]:0>4}"))
        link.with_name(f"{link.name}-part1").symlink_to(f"../../{disk}p1")

    def number(self, name: str) -> str:
        return f"259:{sum(map(ord, name)) * 1000 + len(name)}"

    def mounted(self, name: str, point: str, kind: str = "xfs") -> None:
        escaped = point.replace(" ", "\\040")
        with (self.root / "proc/self/mountinfo").open("a") as file:
            file.write(f"30 1 {self.number(name)} / {escaped} rw,noatime shared:1 - {kind} /dev/{name} rw\n")
        (self.root / point.lstrip("/")).mkdir(parents=True, exist_ok=True)

    @property
    def points(self) -> list[str]:
        return [line.split()[4] for line in (self.root / "proc/self/mountinfo").read_text().splitlines()]

    def reboot(self, *, blank: bool = False, assembled: bool = False) -> None:
        """Nothing is mounted or assembled, but for the root disk; `blank`: it was stopped, and disks have been lost."""
        (self.root / "proc/self/mountinfo").write_text("")
        for array in [path.name for path in (self.root / "sys/class/block").glob("md*")]:
            self._drop(array)
        if blank:
            self.superblocks = {}
            self.labels = {name: label for name, label in self.labels.items() if name in self.ebs}
        self.mounted(f"{self.ebs[0]}p1", "/")
        if assembled and self.superblocks:
            self._start("md127", next(iter(self.superblocks.values())))

    def _start(self, name: str, members: tuple[str, ...]) -> None:
        self.add(name, slaves=members)

    def _drop(self, name: str) -> None:
        for path in (self.root / "sys/class/block").glob(f"*/holders/{name}"):
            path.unlink()
        shutil.rmtree(self.root / "sys/class/block" / name)
        (self.root / "sys/dev/block" / self.number(name)).unlink()
        (self.root / "dev" / name).unlink()
        (self.root / "dev/md/trainwright").unlink(missing_ok=True)

    def target(self, path: str) -> str:
        return Path(path).resolve().name

    def content(self, name: str) -> str:
        """What a label is kept by: an array's by its members, as its name changes."""
        members = [path.name for path in (self.root / "sys/class/block" / name / "slaves").iterdir()]
        return "+".join(sorted(members)) or name


class Recorded(Tools):
    """Tools of the machine: those it has, those that fail, and all that was run of them."""

    def __init__(self, machine: Machine, has: set[str] = TOOLS, failing: set[str] = frozenset()) -> None:  # type: ignore
        super().__init__(60.0)
        self.machine, self.names, self.failing, self.ran = machine, has, failing, list[tuple[str, ...]]()

    def has(self, name: str) -> bool:
        return name in self.names

    def run(self, name: str, *arguments: str) -> str:
        if name not in self.names:
            raise ToolFailed(f"the image has no {name}")
        self.ran.append((name, *arguments))
        if name in self.failing or f"{name} {arguments[0]}" in self.failing:
            raise ToolFailed(f"{name} failed (1): it was made to")
        kind, _, _ = name.partition(".")
        return getattr(self, f"_{kind}")(*arguments) or ""

    def _mdadm(self, verb: str, array: str, *rest: str) -> None:
        machine = self.machine
        members = tuple(sorted(machine.target(argument) for argument in rest if not argument.startswith("-")))
        if busy := [name for name in members if any((machine.root / f"sys/class/block/{name}/holders").iterdir())]:
            raise ToolFailed(f"mdadm failed (1): {busy} are busy")
        if verb == "--assemble" and any(machine.superblocks.get(name) != members for name in members):
            raise ToolFailed("mdadm failed (1): no superblock")
        if verb == "--create":
            assert "--run" in rest
            assert f"--raid-devices={len(members)}" in rest
            machine.superblocks |= dict.fromkeys(members, members)
            machine.labels.pop("+".join(members), None)
        machine._start("md0", members)
        Path(array).symlink_to("../md0")

    def _blkid(self, *arguments: str) -> str:
        label = self.machine.labels.get(self.machine.content(self.machine.target(arguments[-1])))
        if label is None:
            raise ToolFailed("blkid failed (2): it said nothing")
        return label

    def _mkfs(self, *arguments: str) -> None:
        name = self.machine.target(arguments[-1])
        self.machine.labels[self.machine.content(name)] = arguments[arguments.index("-L") + 1]

    def _mount(self, *arguments: str) -> None:
        source, point = arguments[-2:]
        inside = "/" + str(Path(point).relative_to(self.machine.root))
        if arguments[0] == "--bind":
            lines = (self.machine.root / "proc/self/mountinfo").read_text().splitlines()
            points = {line.split()[4].replace("\\040", " "): line for line in lines}
            whole = next(points[point] for point in sorted(points, key=len)[::-1] if f"{point}/trainwright" in source)
            name = whole.rsplit("/dev/", 1)[1].split()[0]
        elif arguments[0] == "-t":
            self.machine.add("lustre")
            name = "lustre"
        else:
            name = self.machine.target(source)
            if self.machine.content(name) not in self.machine.labels:
                raise ToolFailed("mount failed (32): wrong fs type")
        self.machine.mounted(name, inside)

    def _umount(self, *arguments: str) -> None:
        lines = (self.machine.root / "proc/self/mountinfo").read_text().splitlines(keepends=True)
        inside = "/" + str(Path(arguments[-1]).relative_to(self.machine.root))
        (self.machine.root / "proc/self/mountinfo").write_text("".join(x for x in lines if x.split()[4] != inside))


def by_id(machine: Machine) -> set[str]:
    """Paths that a command may name: links to the instance store, and arrays."""
    links = (machine.root / "dev/disk/by-id").glob(INSTANCE_STORE)
    arrays = {str(machine.root / "dev/md/trainwright"), str(machine.root / "dev/md127"), str(machine.root / "dev/md0")}
    return {str(link) for link in links if "-part" not in link.name} | arrays
