"""Network interfaces by type: what a cloud would refuse to launch, and what would train at a fraction of the speed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.ec2.models.instance_types import INSTANCE_TYPES

from components.catalog import instance_types
from components.fabric import MOST_ERI, PLAIN, STANDARD, Kind, Nic, layout, plain
from components.findings import Finding

STYLES = ("guide", "ip-saving")
TYPES = instance_types("aws")
EFA = sorted(name for name, kind in TYPES.items() if kind.fabric_interfaces)
EVERY = [(name, style) for name in EFA for style in STYLES]


def _on(nics, kind):
    return [(nic.card, nic.device) for nic in nics if nic.kind is kind]


def _bootable(nics):
    """What EC2 demands of any set of interfaces."""
    places = [(nic.card, nic.device) for nic in nics]
    assert len(set(places)) == len(places), "a place is taken twice"
    assert places.count((0, 0)) == 1
    assert next(nic for nic in nics if (nic.card, nic.device) == (0, 0)).kind is not Kind.EFA_ONLY
    assert all(nic.device in {0, 1} for nic in nics)
    efa = [nic.card for nic in nics if nic.kind is not Kind.ENA]
    assert len(set(efa)) == len(efa), "two EFAs on one card"


@pytest.mark.parametrize(("name", "style"), EVERY)
def test_n3_n5_each_types_interfaces_are_such_as_ec2_takes(name, style):
    _bootable(layout(TYPES[name], style))


@pytest.mark.parametrize(("name", "style"), EVERY)
def test_n4_cards_take_the_interfaces_that_the_vendor_says_and_all_of_its_efa_is_used(name, style):
    """Against DescribeInstanceTypes itself, so that a slip in our table shows too."""
    network = INSTANCE_TYPES[name]["NetworkInfo"]
    cards = {card["NetworkCardIndex"]: card for card in network["NetworkCards"]}
    nics = layout(TYPES[name], style)
    for nic in nics:
        assert nic.kind.value in cards[nic.card]["InterfaceTypes"]
        assert nic.device < cards[nic.card]["MaximumNetworkInterfaces"]
    assert sum(nic.kind is not Kind.ENA for nic in nics) == network["EfaInfo"]["MaximumEfaInterfaces"]
    assert len(nics) <= network["MaximumNetworkInterfaces"]


@pytest.mark.parametrize(("name", "style"), EVERY)
def test_a_node_takes_one_address_however_many_its_interfaces(name, style):
    assert sum(nic.addresses for nic in layout(TYPES[name], style)) == 1


@pytest.mark.parametrize(("name", "count"), [("p4d.24xlarge", 4), ("p5.48xlarge", 32), ("p5en.48xlarge", 16)])
def test_the_guides_layout_is_ena_first_and_efa_only_on_every_card(name, count):
    nics = layout(TYPES[name], "guide")
    assert _on(nics, Kind.ENA) == [(0, 0)]
    assert _on(nics, Kind.EFA_ONLY) == [(0, 1), *((card, 0) for card in range(1, count))]


@pytest.mark.parametrize(("name", "count"), [("p4d.24xlarge", 4), ("p5.48xlarge", 32), ("g5.48xlarge", 1)])
def test_the_saving_layout_has_an_interface_less_and_as_much_efa(name, count):
    nics = layout(TYPES[name], "ip-saving")
    assert _on(nics, Kind.EFA) == [(0, 0)]
    assert _on(nics, Kind.EFA_ONLY) == [(card, 1) for card in range(1, count)]


@pytest.mark.parametrize("style", STYLES)
def test_n4_the_first_card_of_p6_b300_gets_no_efa(style):
    nics = layout(TYPES["p6-b300.48xlarge"], style)
    assert nics == (Nic(0, 0, Kind.ENA), *(Nic(card, 0, Kind.EFA_ONLY) for card in range(1, 17)))


@pytest.mark.parametrize("name", sorted(TYPES.keys() - set(EFA)))
def test_a_type_without_efa_gets_one_plain_interface(name):
    assert layout(TYPES[name], "guide") == layout(TYPES[name], "ip-saving") == PLAIN


@pytest.mark.parametrize(
    "facts",
    [{"fabric_interfaces": 5}, {"network_cards": 3}, {"interfaces_per_card": 1}, {"fabric_first_card": 1}],
    ids=str,
)
def test_n4_a_type_whose_layout_would_be_a_guess_is_refused(facts):
    finding = layout(replace(TYPES["p4d.24xlarge"], **facts), "guide", "nodes.alternatives.0")
    assert isinstance(finding, Finding)
    assert finding.path == "nodes.alternatives.0"
    assert finding.reason.startswith("it isn't known how")


@given(
    st.builds(
        dict,
        network_cards=st.integers(1, 40),
        fabric_interfaces=st.integers(0, 40),
        fabric_first_card=st.integers(0, 2),
        interfaces_per_card=st.integers(1, 15),
    ),
    st.sampled_from(STYLES),
)
def test_whatever_a_type_is_like_its_layout_is_bootable_or_refused(facts, style):
    kind = replace(TYPES["p4d.24xlarge"], **facts)
    nics = layout(kind, style)
    if isinstance(nics, Finding):
        fits = kind.fabric_first_card + kind.fabric_interfaces <= kind.network_cards
        assert not fits or (kind.fabric_first_card == 0 and kind.interfaces_per_card == 1)
        return
    _bootable(nics)
    assert sum(nic.kind is not Kind.ENA for nic in nics) == kind.fabric_interfaces
    assert all(nic.card < kind.network_cards and nic.device < kind.interfaces_per_card for nic in nics)


# ---- eRDMA

ALIBABA = instance_types("alicloud")
ERDMA = sorted(name for name, kind in ALIBABA.items() if kind.fabric_interfaces)


@pytest.mark.parametrize("name", sorted(ALIBABA))
def test_n12_n13_one_interface_is_primary_and_no_more_are_eri_than_the_type_takes(name):
    nics = layout(ALIBABA[name], "guide", cloud="alicloud")
    assert sum(nic.primary for nic in nics) == 1
    assert nics[0].primary
    eri = [nic for nic in nics if nic.kind is Kind.ERI]
    assert len(eri) == ALIBABA[name].fabric_interfaces
    assert nics == STANDARD if not eri else eri == list(nics)
    assert sum(nic.addresses for nic in nics) == len(nics), "each ERI has an address of its own"


def test_ecs_calls_interfaces_by_its_own_words():
    assert (Kind.ENI.value, Kind.ERI.value) == ("Standard", "HighPerformance")
    assert Kind.ERI.fast
    assert not Kind.ENI.fast
    assert (plain("aws"), plain("alicloud")) == (PLAIN, STANDARD)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"fabric_interfaces": 5, "network_cards": 2}, "can't have 5 eRDMA interfaces, as it takes 4 interfaces"),
        ({"fabric_interfaces": 4, "network_cards": 4}, "takes 4 eRDMA interfaces, but ECS launches a node with 2"),
    ],
    ids=str,
)
def test_n12_eri_that_can_not_be_had_are_refused(facts, reason):
    finding = layout(replace(ALIBABA["ecs.ebmgn8v.48xlarge"], **facts), "guide", "nodes.alternatives.0", "alicloud")
    assert isinstance(finding, Finding)
    assert finding.path == "nodes.alternatives.0"
    assert reason in finding.reason


@given(
    st.builds(
        dict,
        network_cards=st.integers(1, 8),
        fabric_interfaces=st.integers(0, 8),
        interfaces_per_card=st.integers(1, 15),
    ),
    st.sampled_from(STYLES),
)
def test_n12_whatever_a_type_is_like_its_eri_fit_or_are_refused(facts, style):
    kind = replace(ALIBABA[ERDMA[0]], **facts)
    nics = layout(kind, style, cloud="alicloud")
    if isinstance(nics, Finding):
        assert kind.fabric_interfaces > min(kind.max_interfaces, MOST_ERI)
        return
    assert sum(nic.kind.fast for nic in nics) == kind.fabric_interfaces <= kind.max_interfaces
    assert [nic.primary for nic in nics] == [True] + [False] * (len(nics) - 1)
