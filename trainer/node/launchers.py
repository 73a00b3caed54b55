"""What starts a job's command on a node: the agent itself, once a worker, or a launcher of the image's, once a node.

A host file tells of the nodes, `ADDRESS slots=WORKERS` in rank order, as Open MPI and DeepSpeed read it (Open MPI
documentation, "Scheduling processes across hosts"; DeepSpeed, `launcher/runner.py`). `mpirun` runs on the leader,
and reaches the others through the run's store (see `remote`). What it starts on a node finds that node's environment,
as the daemon does that it starts there.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
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

RANKS = ("RANK", "OMPI_COMM_WORLD_RANK")
"""What a worker has in its environment that a launcher started, and the launcher has not."""

UNBOUND = ("--bind-to", "none", "--map-by", "slot")
"""Workers fill node after node, in rank order, each free to use all cores: Open MPI would bind each to one core, and
its data loader with it (Horovod documentation, "Run Horovod with Open MPI")."""

ATTACHED = "--leave-session-attached"
"""Open MPI's daemons stay children of what starts them, and end with it: they would leave for a session of their own
(mpirun(1); PRRTE, `prted.c`)."""

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""The agent runs as root, as which Open MPI's `mpirun` refuses to run without both (open-mpi/ompi#4451)."""

STARTS = ("OMPI_MCA_plm_rsh_", "PRTE_MCA_plm_ssh_")
"""How the settings are called of the part of `mpirun` that starts daemons: in Open MPI 4, and in 5, which has PRRTE."""

DAEMON = {"OMPI_MCA_orte_launch_agent": "exec orted", "PRTE_MCA_prte_launch_agent": "exec prted"}
"""In the place of the shell that it is started by, which the daemon would outlive."""

RANKS_NETWORK = "OMPI_MCA_btl_tcp_if_include"
DAEMONS_NETWORK = "OMPI_MCA_oob_tcp_if_include"
DAEMONS_INTERFACE = "PRTE_MCA_prte_if_include"
"""Where ranks and daemons are to meet: they may else take Docker's interface, whose address is the same on each node.
Open MPI 5's daemons take an interface by its name alone: 5.0.11 finds none by its network, and says so.
"""

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Where the name of the node's interface stands (see `fabric`)."""

LOOPBACK = "127.0.0.0/8"
"""The network of every address that a loopback interface answers, which itself has one of them."""

THEIRS = "TRAINWRIGHT_PYTHONPATH"
"""Where the command's `PYTHONPATH` stands while one of our modules runs in its place, which the user's code has not."""

MODULE = ("-P", "-m")
"""How such a module is run: it starts in the folder of the user's code, where a `trainer.py` or a `json.py` may stand
(Python documentation, "Command line and environment", `-P`). As an option, what it starts is not given it."""


def host_file(generation: Generation) -> str:
    """The nodes of a generation, in rank order."""
    return "".join(f"{member.address} slots={member.workers}\n" for member in generation.members)


def places(launcher: str, workers: int) -> int:
    """How many processes the agent starts on a node of so many workers."""
    return workers if launcher == TORCHRUN_ENV else 1


def command(launcher: str, words: Sequence[str], values: Mapping[str, str], nodes: Generation) -> list[str]:
    """What the agent starts on a node, given the environment that it finds."""
    own = [sys.executable, *words[1:]] if words[0] == PYTHON else [*words]
    if launcher == DEEPSPEED:
        place = [f"--node_rank={values['NODE_RANK']}", f"--master_addr={values['MASTER_ADDR']}"]
        options = [
            "--no_ssh",
            f"--hostfile={values['TRAINWRIGHT_HOSTFILE']}",
            *place,
            f"--master_port={values['MASTER_PORT']}",
        ]
        return [_beside_python(DEEPSPEED), *options, *(words[1:] if words[0] == PYTHON else ["--no_python", *words])]
    if launcher == MPIRUN:
        if values["NODE_RANK"] != "0":
            return [sys.executable, *MODULE, "trainer.node.attend"]
        return [_beside_python(MPIRUN), ATTACHED, "-np", values["WORLD_SIZE"], "--host", _hosts(nodes), *UNBOUND, *own]
    return own


def _hosts(generation: Generation) -> str:
    """The nodes as `mpirun` is told of them: its own by the one address that it always knows as such."""
    first, *others = generation.members
    return ",".join([f"localhost:{first.workers}", *(f"{member.address}:{member.workers}" for member in others)])


def _beside_python(name: str) -> str:
    """A command of a package of `nodes.python`'s, whose folder needn't be on the agent's PATH; else PATH's."""
    return shutil.which(name, path=Path(sys.executable).parent) or name


def environment(launcher: str, values: Mapping[str, str]) -> dict[str, str]:
    """What of the environment the process gets that `command` starts."""
    if launcher == TORCHRUN_ENV:
        return dict(values)
    shared = {name: value for name, value in values.items() if name not in OF_ONE_PROCESS}
    if launcher == MPIRUN:
        # Which systemd gives no service of root's, and without which Open MPI 5 crashes.
        shared = {"HOME": str(Path.home()), **shared, **AS_ROOT}
        if values["NODE_RANK"] == "0":
            return {**_settings(values), **shared}
        shared |= {"PYTHONPATH": values["TRAINWRIGHT_LIBRARY"], THEIRS: values.get("PYTHONPATH", "")}
    return shared


def of_the_command(found: Mapping[str, str]) -> dict[str, str]:
    """The environment of what one of our modules starts in its place, given the module's."""
    return {**{name: value for name, value in found.items() if name != THEIRS}, "PYTHONPATH": found.get(THEIRS, "")}


def _settings(values: Mapping[str, str]) -> dict[str, str]:
    """Open MPI's, of either version. As variables of its environment, they stand below what the user chose.

    The leader itself starts every daemon, and not each daemon others (`no_tree_spawn`): its log then tells which
    node did not answer, none waits for another, and none needs the agent, which Open MPI 5 passes on cut off at its
    `=`. As they stay attached, Open MPI wants to start all at once, lest it should wait for the first to end (PRRTE,
    `plm_ssh_module.c`).
    """
    ours = ["env", f"PYTHONPATH={values['TRAINWRIGHT_LIBRARY']}", sys.executable, *MODULE, "trainer.node.remote"]
    starts = {"agent": " ".join(ours), "no_tree_spawn": "1", "num_concurrent": values["GROUP_WORLD_SIZE"]}
    shared = network(values["NODE_IPS"].split(","))
    where = {RANKS_NETWORK: shared}
    if shared != LOOPBACK:  # which Open MPI 5's daemons don't take where there is another, not even by its name
        where |= {DAEMONS_NETWORK: shared, DAEMONS_INTERFACE: values.get(INTERFACE, "")}
    return {
        **{f"{prefix}{name}": value for prefix in STARTS for name, value in starts.items()},
        **DAEMON,
        # Open MPI takes either what to include or what to exclude.
        **{name: value for name, value in where.items() if value and name.replace("include", "exclude") not in values},
    }


def network(addresses: Sequence[str]) -> str:
    """The smallest network with all of these addresses in it, such as `10.0.0.0/20`."""
    if all(ip_address(address).is_loopback for address in addresses):
        return LOOPBACK
    found = ip_network(addresses[0])
    while not all(ip_address(address) in found for address in addresses):
        found = found.supernet()
    return str(found)
