"""Settings by fabric, each documented; and NCCL's own word on the network that it took."""

import re
from pathlib import Path

import pytest

from trainer.node import nccl

TEXT = (Path(__file__).parents[3] / "docs" / "environment.md").read_text(encoding="utf-8")
INTERFACES = {"NCCL_SOCKET_IFNAME": "ens5", "GLOO_SOCKET_IFNAME": "ens5"}
ERDMA = {
    **INTERFACES,
    "NCCL_IB_HCA": "erdma",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_IB_QPS_PER_CONNECTION": "8",
    "NCCL_MIN_NCHANNELS": "16",
}


@pytest.mark.parametrize(
    ("kind", "devices", "wanted"),
    [
        ("tcp", 0, INTERFACES),
        ("efa", 32, {**INTERFACES, "FI_EFA_USE_HUGE_PAGE": "0"}),
        ("erdma", 1, {**ERDMA, "NCCL_IB_GID_INDEX": "1"}),
        (
            "erdma",
            2,
            {**ERDMA, "NCCL_IB_GID_INDEX": "-1", "NCCL_IB_ADDR_FAMILY": "AF_INET", "NCCL_IB_ROCE_VERSION_NUM": "2"},
        ),
    ],
)
def test_each_fabric_gets_what_it_needs_and_no_other_ones_settings(kind, devices, wanted):
    """NCCL_IB_HCA=erdma on a host without the device hangs its jobs; a fixed GID index is wrong for one of two NICs."""
    assert nccl.settings(kind, devices, "ens5", jumbo=True) == wanted


def test_n12_without_jumbo_frames_ll128_is_not_used_on_erdma():
    """Data would be corrupted; with them, and on EFA, the choice is NCCL's."""
    assert nccl.settings("erdma", 1, "eth0")["NCCL_PROTO"] == "^LL128"
    assert "NCCL_PROTO" not in nccl.settings("erdma", 1, "eth0", jumbo=True)
    assert "NCCL_PROTO" not in nccl.settings("efa", 1, "eth0")


def test_nothing_is_set_on_efa_that_harms_or_does_nothing():
    """facts trainer.md 1.8: RDMAV_* can break kernels, NCCL_PROTO disturbs the tuner, EFA is not reached over verbs."""
    assert not [
        name for name in nccl.settings("efa", 4, "ens5") if re.match("RDMAV_|NCCL_PROTO|NCCL_IB_|FI_PROV", name)
    ]


def test_the_table_of_the_documentation_is_the_one_that_is_set():
    table = re.search(r"^\| variable \| value \| where \| why \|\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert table
    rows = [f"| `{one.name}` | `{one.value}` | {one.where} | {one.reason} |" for one in nccl.SETTINGS]
    assert table[1].splitlines() == rows
    for name in nccl.CHOICES:
        assert f"`{name}`" in TEXT


def test_what_is_set_is_told_with_who_set_it_and_no_strangers_values():
    ours = nccl.settings("efa", 4, "ens5")
    chosen = {"FI_EFA_USE_HUGE_PAGE": "1", "MY_DATA": "/mnt/private"}
    image = {"NCCL_TOPO_FILE": "/etc/topo.xml", "NCCL_SOCKET_IFNAME": "eth0", "PATH": "/bin"}
    assert nccl.told(ours, chosen, image) == (
        "NCCL_SOCKET_IFNAME=ens5, GLOO_SOCKET_IFNAME=ens5 by the fabric; FI_EFA_USE_HUGE_PAGE=1, MY_DATA by "
        "job.environment; NCCL_TOPO_FILE=/etc/topo.xml by the image"
    )
    assert nccl.told(ours, {}, {}).endswith("FI_EFA_USE_HUGE_PAGE=0 by the fabric")


EFA = """8h200-3:6310:6318 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.13.2-aws
8h200-3:6310:6318 [0] NCCL INFO NET/OFI Selected Provider is efa (found 16 nics)
8h200-3:6310:6318 [0] NCCL INFO PROFILER/Plugin: Could not find: libnccl-profiler.so.
8h200-3:6310:6318 [0] NCCL INFO Using network {}
"""
MISSING_OLD = """ip-10-0-0-5:33:41 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so).
ip-10-0-0-5:33:41 [0] NCCL INFO NET/Socket : Using [0]ens5:10.0.0.5<0>
ip-10-0-0-5:33:41 [0] NCCL INFO Using network Socket
"""
MISSING_NEW = """ip-10-0-0-5:33:41 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so
ip-10-0-0-5:33:41 [0] NCCL INFO NET/IB : No device found.
ip-10-0-0-5:33:41 [0] NCCL INFO Initialized NET plugin Socket
ip-10-0-0-5:33:41 [0] NCCL INFO Assigned NET plugin Socket to comm
ip-10-0-0-5:33:41 [0] NCCL INFO Using network Socket
"""
BROKEN = """ip-10-0-0-5:33:41 [2] nccl_net_ofi_init:12 NCCL WARN NET/OFI Could not find any optimal provider
ip-10-0-0-5:33:41 [2] NCCL INFO Failed to initialize NET plugin AWS Libfabric
ip-10-0-0-5:33:41 [2] NCCL INFO Using network Socket
"""
"""Of nccl#1597, nccl#959, nccl#229, and the strings of the library of NCCL 2.30.7."""


@pytest.mark.parametrize(
    "log", [EFA.format("AWS Libfabric"), EFA.format("Libfabric"), ""], ids=["old", "new", "silent"]
)
def test_n11_a_plugin_at_work_is_no_fault(log):
    assert nccl.fault("efa", log) == ""


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (MISSING_OLD, r"\(NET/Plugin : No plugin found \(libnccl-net\.so\)\.\)"),
        (MISSING_NEW, r"\(NET/Plugin: Could not find: libnccl-net\.so\)"),
        (BROKEN, r"\(NET/OFI Could not find any optimal provider\)"),
        (EFA.format("Libfabric") + MISSING_NEW, "Could not find"),
    ],
    ids=["missing", "missing now", "broken", "on one rank"],
)
def test_n11_a_plugin_that_is_missing_is_told_with_its_reason_and_fix(log, why):
    """facts trainer.md 2, #24: NCCL goes over TCP at a twentieth of the speed without a word but this one."""
    said = nccl.fault("efa", log)
    assert re.search(rf"^NCCL uses the network Socket and not the node's efa devices.*{why}", said)
    assert "use an image with EFA's software" in said


def test_erdma_is_reached_over_verbs_and_tcp_nodes_over_anything():
    assert nccl.fault("erdma", "x NCCL INFO Using network IB\n") == ""
    assert "use an image with the eRDMA driver" in nccl.fault("erdma", MISSING_NEW)
    assert nccl.fault("tcp", MISSING_NEW) == nccl.fault("tcp", "x NCCL INFO Using network IB\n") == ""


def test_who_chooses_the_network_is_not_stopped():
    assert nccl.expected("efa", {"NCCL_NET": "Socket"}) == "tcp"
    assert nccl.expected("efa", {"NCCL_DEBUG": "INFO"}) == "efa"
