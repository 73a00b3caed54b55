"""Which interface carries the gradients, and what fast devices there are."""

from ipaddress import IPv4Interface

import pytest

from trainer.node.fabric import Short, find, interface_of
from trainer.node.tools import ToolFailed

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


# --- eRDMA


class Ip:
    """The `ip` tool on a machine below a folder: it sets an MTU, unless the interface takes none of that size."""

    def __init__(self, root, most=9000):
        self.root, self.most, self.ran = root, most, []

    def run(self, *command):
        self.ran.append(command)
        if int(command[-1]) > self.most:
            raise ToolFailed("mtu greater than device maximum")
        (self.root / "sys/class/net" / command[4] / "mtu").write_text(f"{command[-1]}\n")
        return ""


def _erdma(root, mtus, ipv6=()):
    """A machine with an eRDMA device for each MTU, of interfaces eth0 and so on."""
    _machine(root, [ERDMA] * len(mtus))
    (root / "proc/net").mkdir(parents=True)
    (root / "proc/net/if_inet6").write_text(
        "".join(f"{address} 02 40 {scope} 80 {name}\n" for address, scope, name in ipv6)
    )
    (root / "sys/class/net/bonding_masters").parent.mkdir(parents=True)
    (root / "sys/class/net/bonding_masters").touch()
    for number, mtu in enumerate(mtus):
        guid = root / f"sys/class/infiniband/rdma{number}/node_guid"
        guid.write_text(f"0216:3eff:fe0f:ab0{number}\n")
        net = root / f"sys/class/net/eth{number}"
        net.mkdir()
        (net / "address").write_text(f"00:16:3e:0f:ab:0{number}\n")
        (net / "mtu").write_text(f"{mtu}\n")
    return root


@pytest.mark.parametrize("vendors", [[], [ERDMA], [EFA] * 2, [OTHER] * 2], ids=str)
def test_n12_a_node_without_all_of_its_erdma_devices_does_not_join(tmp_path, vendors):
    said = f"{vendors.count(ERDMA)} eRDMA devices are in .* give it 2: use an image with the eRDMA driver"
    with pytest.raises(Short, match=said):
        find("127.10.0.1", root=_machine(tmp_path, vendors), erdma=2)


@pytest.mark.parametrize(("jumbo", "mtu"), [(False, 1400), (True, 8500)])
def test_n12_the_mtu_of_erdma_goes_with_its_frames(tmp_path, jumbo, mtu):
    """Any other corrupts data, without a word. What is right already is left alone."""
    root = _erdma(tmp_path, [1500, mtu])
    tools = Ip(root)
    found = find("127.10.0.1", root=root, erdma=2, jumbo=jumbo, tools=tools)
    assert (found.kind, found.devices, found.jumbo) == ("erdma", 2, jumbo)
    assert tools.ran == [("ip", "link", "set", "dev", "eth0", "mtu", str(mtu))]
    assert ("NCCL_PROTO" in found.environment()) is not jumbo


def test_n12_an_mtu_that_can_not_be_set_keeps_the_node_out(tmp_path):
    root = _erdma(tmp_path, [1500])
    with pytest.raises(Short, match=r"eth0, an eRDMA interface, has an MTU of 1500 and not of 8500"):
        find("127.10.0.1", root=root, erdma=1, jumbo=True, tools=Ip(root, most=1500))


LINK = ("fe800000000000000216003efffe0fab", "20", "eth0")
GLOBAL = ("24080000000000000000000000000001", "00", "eth0")
OTHERS = ("24080000000000000000000000000001", "00", "eth7")


@pytest.mark.parametrize(("addresses", "joins"), [([], True), ([LINK, OTHERS], True), ([LINK, GLOBAL], False)])
def test_n12_erdma_has_no_ipv6(tmp_path, addresses, joins):
    root = _erdma(tmp_path, [1400], addresses)
    if joins:
        assert find("127.10.0.1", root=root, erdma=1, tools=Ip(root)).devices == 1
    else:
        with pytest.raises(Short, match="has the IPv6 address 2408::1, which eRDMA can't carry"):
            find("127.10.0.1", root=root, erdma=1, tools=Ip(root))


def test_n12_a_device_without_its_interface_keeps_the_node_out(tmp_path):
    root = _erdma(tmp_path, [1400])
    (root / "sys/class/net/eth0/address").write_text("00:16:3e:00:00:01\n")
    with pytest.raises(Short, match="no network interface has rdma0's address 00:16:3e:0f:ab:00"):
        find("127.10.0.1", root=root, erdma=1, tools=Ip(root))


def test_a_node_on_tcp_has_its_interfaces_left_alone(tmp_path):
    root = _erdma(tmp_path, [1500])
    assert find("127.10.0.1", root=root).kind == "erdma"
    assert (root / "sys/class/net/eth0/mtu").read_text() == "1500\n"
