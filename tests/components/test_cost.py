"""What a cluster costs: exact where prices have a source, and named where they have none."""

import json

import pytest
import yaml

from components.checks import review
from components.cost import HOURS, Amount, cost
from components.spec import parse

P4D = {"nodes.type": "p4d.24xlarge", "nodes.desired": 4, "nodes.max": 8, "job.batch": 64}


@pytest.fixture
def costed(stack):
    def make(changes):
        return cost(review("c1", parse(stack(changes)))[0])

    return make


def _amount(found, purchase, nodes):
    (line,) = [line for line in found.lines if (line.purchase, line.nodes) == (purchase, nodes)]
    return line.per_hour


def test_nodes_are_counted_as_desired_and_at_most_for_an_hour_and_a_month(costed):
    found = costed(P4D)
    line = found.lines[0]
    assert (found.purchase, line.purchase, line.nodes) == ("on-demand", "on-demand", 4)
    assert line.per_hour.low == pytest.approx(4 * 21.95764)
    assert line.per_month.low == pytest.approx(4 * 21.95764 * 730)
    assert _amount(found, "on-demand", 8).high == pytest.approx(8 * 21.95764)


def test_every_way_in_which_the_type_is_sold_is_compared(costed):
    assert [line.purchase for line in costed(P4D).lines[::2]] == ["on-demand", "spot", "capacity-block"]
    assert {line.purchase for line in costed({"nodes.type": "g6e.48xlarge", "job.batch": 64}).lines} == {
        "on-demand",
        "spot",
    }


def test_a_spot_price_is_a_range_over_zones(costed):
    amount = _amount(costed({**P4D, "nodes.capacity": "spot"}), "spot", 4)
    assert (amount.low, amount.high) == pytest.approx((4 * 7.9968, 4 * 9.9307))


def test_a_mixed_fleet_pays_its_base_and_share_on_demand_and_the_rest_as_spot(costed):
    mixed = {"nodes.capacity": "mixed", "nodes.on_demand_base": 2, "nodes.on_demand_share": 50}
    found = costed({**P4D, **mixed})
    assert found.lines[0].purchase == "mixed"
    amount = _amount(found, "mixed", 4)
    assert amount.low == pytest.approx(3 * 21.95764 + 7.9968)
    assert amount.high == pytest.approx(3 * 21.95764 + 9.9307)


def test_a_share_that_is_no_whole_number_of_nodes_is_taken_both_ways(costed):
    mixed = {"nodes.capacity": "mixed", "nodes.on_demand_base": 1, "nodes.on_demand_share": 50}
    amount = _amount(costed({**P4D, **mixed}), "mixed", 4)
    assert amount.low == pytest.approx(2 * 21.95764 + 2 * 7.9968)
    assert amount.high == pytest.approx(3 * 21.95764 + 1 * 9.9307)


def test_the_table_says_which_number_of_nodes_is_which(costed):
    told = " ".join(costed({**P4D, "nodes.desired": 2, "nodes.max": 4}).text(80).split())
    assert "bought on-demand, 2 nodes desired and 4 the most; a month is" in told


def test_a_base_larger_than_the_fleet_costs_no_more_than_the_fleet(costed):
    mixed = {"nodes.capacity": "mixed", "nodes.on_demand_base": 8}
    assert _amount(costed({**P4D, **mixed}), "mixed", 4).high == pytest.approx(4 * 21.95764)


def test_reserved_nodes_cost_what_on_demand_ones_do(costed):
    found = costed({**P4D, "nodes.capacity": "reserved", "nodes.reservation": "create"})
    assert _amount(found, "reserved", 4) == _amount(found, "on-demand", 4)


def test_a_missing_price_is_unknown_and_named_and_never_zero(costed):
    found = costed({})
    assert {line.per_hour for line in found.lines} == {None}
    assert {line.per_month for line in found.lines} == {None}
    assert found.unknown[0].startswith("m6a.large in us-west-2 bought on-demand, spot: no price has a source")
    assert "unknown" in found.text()
    assert found.outputs()["perHour"] == {}


def test_where_no_price_is_known_a_sentence_says_so_and_how_to_state_them(costed):
    """And what it says to put into the file is what the file takes."""
    lines = costed({"nodes.desired": 2, "nodes.max": 4}).text(80).splitlines()
    assert " ".join(lines[:2]).startswith("cost of 2 to 4 nodes of m6a.large in us-west-2: unknown, as no price has")
    assert not any("USD a month" in line for line in lines)
    stated = yaml.safe_load("\n".join(lines[2:]).replace("…", "0.1"))
    assert stated == {"trainwright:prices": {"m6a.large": {"on_demand": 0.1, "spot": 0.1}}}
    told = costed({"nodes.desired": 2, "nodes.max": 4, "prices": stated["trainwright:prices"]}).text(80)
    assert "unknown" not in told
    assert "USD a month" in told


def test_a_mixed_fleet_with_one_price_unknown_is_unknown_as_a_whole(costed):
    found = costed({"nodes.capacity": "mixed", "prices": {"m6a.large": {"on_demand": 0.1}}})
    assert _amount(found, "mixed", 2) is None
    assert _amount(found, "on-demand", 2).high == pytest.approx(0.2)


def test_what_is_not_counted_is_named(costed):
    said = " ".join(costed({**P4D, "nodes.disk_gb": 500}).unknown)
    for part in ("root disks, 500 GiB a node: no price of gp3", "NAT gateways", "traffic", "logs"):
        assert part in said


def test_other_types_that_may_be_bought_are_named(costed):
    found = costed({**P4D, "nodes.capacity": "mixed", "nodes.alternatives": ["p4de.24xlarge"]})
    assert any("p4de.24xlarge" in unknown for unknown in found.unknown)


def test_the_table_is_aligned_fits_and_tells_the_date_and_source_of_each_price(costed):
    capacity = {"nodes.capacity": "mixed", "nodes.on_demand_share": 25, "nodes.desired": 1000, "nodes.max": 1000}
    network = {"network.cidr": "10.0.0.0/16", "job.batch": 8000}
    lines = costed({**P4D, **capacity, **network}).text(80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len({len(line) for line in lines[1:5]}) == 1
    said = " ".join(line.strip() for line in lines)
    assert "on-demand price: undated (after 2025-11), from skypilot-catalog v9" in said
    assert "capacity-block price: 2024-12, from AWS Capacity Blocks for ML pricing page copy" in said


def test_outputs_are_plain_values_with_what_they_rest_on(costed):
    outputs = json.loads(json.dumps(costed({**P4D, "nodes.capacity": "spot"}).outputs()))
    assert outputs["purchase"] == "spot"
    assert outputs["perHour"]["on-demand"] == [87.83, 87.83]
    assert outputs["perMonth"]["on-demand"] == [64116.31, 64116.31]
    assert outputs["perHourAtMax"]["spot"] == [63.97, 79.45]
    assert any(line.startswith("spot: undated (after 2025-11), from ") for line in outputs["prices"])
    assert outputs["notCounted"]


def test_large_amounts_are_shown_without_cents_and_ranges_by_both_ends():
    assert str(Amount(21.957642, 21.957642)) == "21.96"
    assert str(Amount(999.5, 12345.6)) == "999.50-12,346"
    assert HOURS == 730


def test_a_type_that_the_stacks_file_adds_is_planned_and_costed(costed):
    facts = {
        "vcpus": 64, "memory_gib": 512, "network_gbps": 100, "interfaces_per_card": 15, "ipv4_per_interface": 50,
        "cluster_placement": True, "usage_classes": ["on-demand"], "boot_modes": ["uefi"], "ebs_mbps": 40000,
        "ebs_attachments": 64, "architecture": "x86_64", "regions": ["us-west-2"],
    }  # fmt: skip
    added = {"catalog": {"overrides": {"m9.16xlarge": facts}}, "prices": {"m9.16xlarge": {"on_demand": 4}}}
    found = costed({**added, "nodes.type": "m9.16xlarge"})
    assert _amount(found, "on-demand", 2) == Amount(8, 8)


def test_a_type_of_alibaba_cloud_has_no_price_until_the_file_states_one(ali):
    """No source has a dated one: it is named as not counted, and never taken for nothing."""
    changes = {"nodes.fabric": "tcp", "nodes.desired": 2, "nodes.max": 4}
    found = cost(review("c1", parse(ali(changes)))[0])
    assert all(line.per_hour is None for line in found.lines)
    assert found.outputs()["perHour"] == {}
    assert found.unknown[0].startswith(
        "ecs.g8i.24xlarge in ap-southeast-1 bought on-demand, spot: no price has a source"
    )
    assert "unknown" in found.text()
    stated = cost(review("c1", parse(ali(changes | {"prices": {"ecs.g8i.24xlarge": {"on_demand": 5}}})))[0])
    assert stated.outputs()["perHour"] == {"on-demand": [10.0, 10.0]}
    assert "capacity-block" not in stated.text()


def test_disks_and_file_systems_are_called_as_their_cloud_calls_them(ali, stack):
    for values, disks, system in ((ali, "ESSD", "Extreme NAS"), (stack, "gp3", "FSx for Lustre")):
        changes = {"storage.warm": {"size_gib": 2400}, "nodes.fabric": "tcp"}
        unknown = "; ".join(cost(review("c1", parse(values(changes)))[0]).unknown)
        assert f"no price of {disks} has a source" in unknown
        assert f"no price of {system} has a source" in unknown
