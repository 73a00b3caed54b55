"""How nodes are bought: each combination that a cloud would refuse, or that would be ignored, is said before."""

import pytest

from components.capacity import STRATEGIES, Capacity, Distribution, choose
from components.checks import review
from components.findings import Invalid
from components.spec import parse

BLOCK = "cr-0123456789abcdef0"

WRONG = [
    (
        {"nodes.capacity": "reserved"},
        "nodes.reservation: is missing, and nodes.capacity is reserved. Give a reservation's id, cr-…, or write create",
    ),
    (
        {"nodes.capacity": "capacity-block", "nodes.type": "p5.48xlarge", "job.batch": 32},
        "nodes.reservation: is missing, and nodes.capacity is capacity-block. Buy the block first, then give the id of "
        "its reservation, cr-…",
    ),
    (
        {
            "nodes.capacity": "capacity-block",
            "nodes.type": "p5.48xlarge",
            "nodes.reservation": "create",
            "job.batch": 32,
        },
        "nodes.reservation: can't be create, and nodes.capacity is capacity-block. Buy the block first",
    ),
    (
        {"nodes.reservation": BLOCK},
        "nodes.reservation: is used by no node, as nodes.capacity is on-demand. Set nodes.capacity to reserved or",
    ),
    (
        {"nodes.capacity": "spot", "nodes.reservation": BLOCK},
        "nodes.reservation: is used by no node, as nodes.capacity is spot.",
    ),
    (
        {"nodes.reservation": "cr-1", "nodes.capacity": "reserved"},
        "nodes.reservation: 'cr-1' is not of the right form.",
    ),
    (
        {"nodes.alternatives": ["c6a.large"]},
        "nodes.alternatives: are launched by no fleet whose nodes.capacity is on-demand. Set nodes.capacity to mixed",
    ),
    (
        {
            "nodes.capacity": "reserved",
            "nodes.reservation": "create",
            "nodes.max": 2,
            "nodes.alternatives": ["c6a.large"],
        },
        "nodes.alternatives: are launched by no fleet whose nodes.capacity is reserved.",
    ),
    (
        {"nodes.capacity": "mixed", "nodes.alternatives": ["m6a.large"]},
        "nodes.alternatives.0: m6a.large is named twice. Name each type once",
    ),
    (
        {"nodes.capacity": "spot", "nodes.alternatives": ["c6a.large", "c6a.large"]},
        "nodes.alternatives.1: c6a.large is named twice. Name each type once",
    ),
    (
        {"nodes.on_demand_base": 1},
        "nodes.on_demand_base: says nothing, as nodes.capacity is on-demand. Set nodes.capacity to mixed or take it",
    ),
    (
        {"nodes.capacity": "spot", "nodes.on_demand_share": 20},
        "nodes.on_demand_share: says nothing, as nodes.capacity is spot.",
    ),
    (
        {"nodes.capacity": "mixed", "nodes.on_demand_base": 5},
        "nodes.on_demand_base: 5 is more than the 4 nodes that the fleet may have. Lower it to 4",
    ),
    (
        {"nodes.capacity": "spot", "nodes.spot_strategy": "capacity-optimized"},
        "nodes.spot_strategy: has nothing to choose from, as nodes.capacity is spot with one type.",
    ),
    (
        {"nodes.spot_strategy": "lowest-price"},
        "nodes.spot_strategy: has nothing to choose from, as nodes.capacity is on-demand with one type.",
    ),
]


@pytest.mark.parametrize(("changes", "line"), WRONG, ids=[line.split(".")[1].split(" ")[0] for _, line in WRONG])
def test_c1_c2_c3_what_contradicts_the_capacity_gets_one_clear_line(stack, changes, line):
    with pytest.raises(Invalid) as raised:
        review("c1", parse(stack(changes)))
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


def test_all_contradictions_come_at_once(stack):
    changes = {
        "nodes.reservation": BLOCK,
        "nodes.alternatives": ["c6a.large", "c6a.large"],
        "nodes.on_demand_base": 1,
        "nodes.on_demand_share": 1,
        "nodes.spot_strategy": "lowest-price",
        "nodes.type": "m6a.larg",
    }
    with pytest.raises(Invalid) as raised:
        review("c1", parse(stack(changes)))
    assert {finding.path for finding in raised.value.findings} == {
        "nodes.reservation",
        "nodes.alternatives",
        "nodes.alternatives.1",
        "nodes.on_demand_base",
        "nodes.on_demand_share",
        "nodes.spot_strategy",
        "nodes.type",
    }


def _chosen(stack, **changes):
    return choose(parse(stack({f"nodes.{key}": value for key, value in changes.items()})))


def test_on_demand_is_what_nothing_is_said_of(stack):
    assert _chosen(stack) == Capacity()
    assert not _chosen(stack).interruptible


def test_spot_of_one_type_is_a_market_and_of_several_a_distribution_without_on_demand(stack):
    assert _chosen(stack, capacity="spot") == Capacity(market="spot")
    several = _chosen(stack, capacity="spot", alternatives=["c6a.large"], spot_strategy="capacity-optimized")
    assert several == Capacity(distribution=Distribution(("m6a.large", "c6a.large"), 0, 0, "capacity-optimized"))


def test_a_mixed_fleet_keeps_its_base_and_share(stack):
    mixed = _chosen(stack, capacity="mixed", on_demand_base=1, on_demand_share=25, alternatives=["c6a.large"])
    assert mixed.distribution == Distribution(("m6a.large", "c6a.large"), 1, 25, "price-capacity-optimized")


@pytest.mark.parametrize(
    ("changes", "interruptible"),
    [
        ({"capacity": "spot"}, True),
        ({"capacity": "spot", "alternatives": ["c6a.large"]}, True),
        ({"capacity": "mixed"}, True),
        ({"capacity": "mixed", "on_demand_share": 100}, False),
        ({"capacity": "reserved", "reservation": BLOCK}, False),
        ({"capacity": "capacity-block", "reservation": BLOCK}, False),
    ],
    ids=str,
)
def test_what_aws_may_take_back_is_known(stack, changes, interruptible):
    assert _chosen(stack, **changes).interruptible is interruptible


@pytest.mark.parametrize("capacity", ["reserved", "capacity-block"])
def test_c3_a_reservation_is_one_zones(stack, capacity):
    assert _chosen(stack, capacity=capacity, reservation=BLOCK).in_one_zone


# ---- Alibaba Cloud

POOL = "crp-bp1opxu1zkhn00g5lr2ts"

WRONG_THERE = [
    (
        {"nodes.capacity": "capacity-block", "nodes.reservation": POOL},
        "nodes.capacity: Alibaba Cloud sells no capacity blocks. Set it to reserved, with nodes.reservation: create or",
    ),
    (
        {"nodes.capacity": "reserved"},
        "nodes.reservation: is missing, and nodes.capacity is reserved. Give a reservation's id, crp-… or eap-…, or",
    ),
    (
        {"nodes.reservation": POOL},
        "nodes.reservation: is used by no node, as nodes.capacity is on-demand. Set nodes.capacity to reserved, or",
    ),
    (
        {"nodes.capacity": "spot", "nodes.alternatives": [f"ecs.g8i.{size}xlarge" for size in range(100, 110)]},
        "nodes.alternatives: 10 and nodes.type are more than the 10 types that a group takes. Name 9 at most",
    ),
    (
        {"nodes.capacity": "spot", "nodes.spot_strategy": "capacity-optimized"},
        "nodes.spot_strategy: Alibaba Cloud has no capacity-optimized. Choose priority or lowest-price",
    ),
    (
        {"nodes.capacity": "spot", "nodes.spot_strategy": "priority"},
        "nodes.spot_strategy: has nothing to choose from, as nodes.capacity is spot with one type.",
    ),
    ({"nodes.spot_hours": 1}, "nodes.spot_hours: is of no node, as nodes.capacity is on-demand. Take it away"),
    (
        {"nodes.capacity": "mixed", "nodes.on_demand_share": 100, "nodes.spot_hours": 0},
        "nodes.spot_hours: is of no node, as nodes.capacity is mixed. Take it away",
    ),
    ({"nodes.spot_hours": 6}, "nodes.spot_hours: '6' is not one of 0 or 1"),
]


@pytest.mark.parametrize(("changes", "line"), WRONG_THERE, ids=[line.split(".")[1][:40] for _, line in WRONG_THERE])
def test_what_ess_would_refuse_or_ignore_gets_a_clear_line(ali, changes, line):
    with pytest.raises(Invalid) as raised:
        review("c1", parse(ali({"nodes.fabric": "tcp", **changes})))
    assert str(raised.value).startswith(line)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"nodes.spot_strategy": "priority"},
            "nodes.spot_strategy: AWS has no priority. Choose price-capacity-optimized",
        ),
        ({"nodes.capacity": "spot", "nodes.spot_hours": 1}, "nodes.spot_hours: AWS promises no hour in which a spot"),
    ],
)
def test_alibabas_own_words_are_refused_on_aws(stack, changes, line):
    with pytest.raises(Invalid) as raised:
        review("c1", parse(stack(changes)))
    assert str(raised.value).startswith(line)


SPOT = {"capacity": "spot"}
TWO = SPOT | {"alternatives": ["ecs.g8i.16xlarge"]}
TYPES = ("ecs.g8i.24xlarge", "ecs.g8i.16xlarge")


@pytest.mark.parametrize(
    ("changes", "capacity"),
    [
        (SPOT, Capacity(market="spot", spot_hours=1)),
        (SPOT | {"spot_hours": 0}, Capacity(market="spot", spot_hours=0)),
        (TWO, Capacity(distribution=Distribution(TYPES, 0, 0, "priority"), spot_hours=1)),
        (
            TWO | {"spot_strategy": "lowest-price"},
            Capacity(distribution=Distribution(TYPES, 0, 0, "lowestPrice"), spot_hours=1),
        ),
        (
            {"capacity": "mixed", "on_demand_base": 1, "on_demand_share": 25},
            Capacity(distribution=Distribution(TYPES[:1], 1, 25, "priority"), spot_hours=1),
        ),
        (
            {"capacity": "mixed", "on_demand_share": 100},
            Capacity(distribution=Distribution(TYPES[:1], 0, 100, "priority")),
        ),
        ({"capacity": "reserved", "reservation": POOL}, Capacity(reservation=POOL)),
        (
            {"capacity": "reserved", "reservation": "eap-bp1opxu1zkhn00g5lr2ts"},
            Capacity(reservation="eap-bp1opxu1zkhn00g5lr2ts"),
        ),
        ({}, Capacity()),
    ],
    ids=str,
)
def test_what_is_bought_on_alibaba_cloud_is_said_in_ess_own_words(ali, changes, capacity):
    assert _chosen(ali, **changes) == capacity


def test_unset_each_cloud_has_a_strategy_that_it_knows(stack, ali):
    for values, other in ((stack, "c6a.large"), (ali, "ecs.g8i.16xlarge")):
        spec = parse(values({"nodes.capacity": "spot", "nodes.alternatives": [other]}))
        assert choose(spec).distribution.strategy in STRATEGIES[spec.cloud].values()
