"""What starts a job's command on a node: the agent itself, once a worker, or a launcher of the image's, once a node.

A launcher is told of the nodes by a host file, `ADDRESS slots=WORKERS` in rank order, as Open MPI and DeepSpeed read it
(Open MPI documentation, "Scheduling processes across hosts"; DeepSpeed, `launcher/runner.py`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from trainer.node.peers import Generation

TORCHRUN_ENV = "torchrun-env"
MPIRUN = "mpirun"
DEEPSPEED = "deepspeed"

PYTHON = "python"
"""As a command's first word: the interpreter that runs the agent, which is the one that `nodes.python` names."""

OF_ONE_PROCESS = ("RANK", "LOCAL_RANK", "ROLE_RANK", "TRAINWRIGHT_ERROR", "TRAINWRIGHT_PULSE", "NCCL_DEBUG_FILE")
"""What would be wrong for any other process than the one that it was made for. NCCL then speaks in the launcher's log.
"""

PASSED_ON = ("TRAINWRIGHT_", "NCCL_", "FI_", "OFI_", "TORCH_", "GLOO_", "OMP_", "MASTER_", "PYTHONPATH", "PATH")
"""How the names begin of what `mpirun` passes on to other nodes, beside the libraries' path and what the user chose."""

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""The agent runs as root, as which Open MPI's `mpirun` refuses to run without both (open-mpi/ompi#4451)."""

UNBOUND = ("--bind-to", "none", "--map-by", "slot")
"""Workers fill node after node, in rank order, each free to use all cores: Open MPI would bind each to one core, and
its data loader with it (Horovod documentation, "Run Horovod with Open MPI")."""


def host_file(generation: Generation) -> str:
    """The nodes of a generation, in rank order."""
    return "".join(f"{member.address} slots={member.workers}\n" for member in generation.members)


def places(launcher: str, workers: int) -> int:
    """How many processes the agent starts on a node of so many workers."""
    return workers if launcher == TORCHRUN_ENV else 1


def command(launcher: str, words: Sequence[str], values: Mapping[str, str], chosen: Collection[str] = ()) -> list[str]:
    """What the agent starts on a node, given the environment that it finds; `chosen` are the names the user added."""
    own = [sys.executable, *words[1:]] if words[0] == PYTHON else [*words]
    hosts = values["TRAINWRIGHT_HOSTFILE"]
    if launcher == DEEPSPEED:
        place = [f"--node_rank={values['NODE_RANK']}", f"--master_addr={values['MASTER_ADDR']}"]
        options = ["--no_ssh", f"--hostfile={hosts}", *place, f"--master_port={values['MASTER_PORT']}"]
        return [_beside_python(DEEPSPEED), *options, *(words[1:] if words[0] == PYTHON else ["--no_python", *words])]
    if launcher == MPIRUN:
        if values["NODE_RANK"] != "0":
            return [sys.executable, "-m", "trainer.node.attend"]
        also = {*chosen, "LD_LIBRARY_PATH"}
        named = [name for name in sorted(values) if name.startswith(PASSED_ON) or name in also]
        passed = [word for name in named if name not in OF_ONE_PROCESS for word in ("-x", name)]
        return ["mpirun", "-np", values["WORLD_SIZE"], "--hostfile", hosts, *UNBOUND, *passed, *own]
    return own


def _beside_python(name: str) -> str:
    """A command of a package of `nodes.python`'s, whose folder needn't be on the agent's PATH; else PATH's."""
    return shutil.which(name, path=Path(sys.executable).parent) or name


def environment(launcher: str, values: Mapping[str, str]) -> dict[str, str]:
    """What of the environment the process gets that `command` starts."""
    if launcher == TORCHRUN_ENV:
        return dict(values)
    shared = {name: value for name, value in values.items() if name not in OF_ONE_PROCESS}
    if launcher == MPIRUN:
        shared |= AS_ROOT
        if values["NODE_RANK"] != "0":
            shared["PYTHONPATH"] = values["TRAINWRIGHT_LIBRARY"]
    return shared
