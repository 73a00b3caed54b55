"""Which interface carries the gradients, and what fast devices there are."""

from ipaddress import IPv4Interface

import pytest

from trainer.node.fabric import find, interface_of

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


def _machine(root, names):
    for name in names:
        (root / "sys/class/infiniband" / name).mkdir(parents=True)
    return root


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ([], "tcp"),
        (["rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27"], "efa"),
        (["erdma_0", "erdma_1"], "erdma"),
    ],
)
def test_n11_devices_are_counted_not_assumed(tmp_path, names, kind):
    found = find("127.10.0.1", _machine(tmp_path, names))
    assert (found.kind, found.devices, found.interface) == (kind, len(names), "lo")


def test_workers_are_told_the_interface_for_both_backends(tmp_path):
    assert find("127.0.0.1", tmp_path).environment() == {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
