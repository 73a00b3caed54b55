"""Which interface carries the gradients, and what fast devices there are."""

from ipaddress import IPv4Interface

import pytest

from trainer.node.fabric import Short, find, interface_of

INTERFACES = {
    "lo": IPv4Interface("127.0.0.1/8"),
    "ens5": IPv4Interface("10.0.0.5/20"),
    "docker0": IPv4Interface("172.17.0.1/16"),
    "ens6": IPv4Interface("10.0.0.9/20"),
}


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("10.0.0.5", "ens5"),
        ("10.0.0.9", "ens6"),
        ("10.0.1.77", "ens5"),
        ("127.10.3.4", "lo"),
        ("172.17.0.1", "docker0"),
    ],
)
def test_the_interface_is_the_one_that_has_the_address_or_whose_network_holds_it(address, interface):
    assert interface_of(address, INTERFACES) == interface


def test_an_address_that_no_interface_reaches_is_an_error_that_names_it():
    with pytest.raises(OSError, match=r"no network interface has the address 192\.0\.2\.1"):
        interface_of("192.0.2.1", INTERFACES)


EFA, ERDMA, OTHER = "0x1d0f", "0x1ded", "0x15b3"
"""PCI vendors: Amazon, Alibaba, Mellanox."""


def _machine(root, vendors):
    for number, vendor in enumerate(vendors):
        device = root / f"sys/class/infiniband/rdma{number}/device"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
    return root


@pytest.mark.parametrize(
    ("vendors", "kind", "count"),
    [
        ([], "tcp", 0),
        ([EFA] * 4, "efa", 4),
        ([ERDMA] * 2, "erdma", 2),
        ([OTHER, EFA, EFA, OTHER, OTHER], "efa", 2),
        ([OTHER], "tcp", 0),
    ],
)
def test_n11_devices_are_counted_not_assumed(tmp_path, vendors, kind, count):
    """An HGX B200's switches are managed through adapters that are no way to another node."""
    found = find("127.10.0.1", root=_machine(tmp_path, vendors))
    assert (found.kind, found.devices, found.interface) == (kind, count, "lo")


@pytest.mark.parametrize("vendors", [[], [EFA], [EFA] * 3, [EFA] * 3 + [OTHER], [ERDMA] * 4], ids=str)
def test_n11_a_node_without_all_of_its_efa_devices_does_not_join(tmp_path, vendors):
    """NCCL would fall back to TCP without a word, and every node would wait for it."""
    said = f"{vendors.count(EFA)} EFA devices are in .*, but the node's interfaces give it 4: use an image with the EFA"
    with pytest.raises(Short, match=said):
        find("127.10.0.1", 4, _machine(tmp_path, vendors))


def test_n11_a_device_whose_port_is_down_is_none(tmp_path):
    machine = _machine(tmp_path, [EFA, EFA])
    for number, state in enumerate(("4: ACTIVE", "1: DOWN")):
        port = machine / f"sys/class/infiniband/rdma{number}/ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
    assert find("127.10.0.1", 1, machine).devices == 1
    with pytest.raises(Short, match=r"1 EFA devices are in .* and active, but the node's interfaces give it 2"):
        find("127.10.0.1", 2, machine)


def test_a_node_with_all_of_its_efa_devices_joins(tmp_path):
    assert find("127.10.0.1", 4, _machine(tmp_path, [EFA] * 4)).devices == 4


def test_workers_are_told_the_interface_for_both_backends(tmp_path):
    assert find("127.0.0.1", root=tmp_path).environment() == {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
