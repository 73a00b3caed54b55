"""What is refused of nodes that EC2, or the network between them, would not bear."""

import pytest

from components.checks import review
from components.findings import Invalid, Severity
from components.node_checks import checkpoint_room
from components.spec import parse
from trainer.node import preflight

P4D = {"nodes.type": "p4d.24xlarge", "job.batch": 32}
HUGE = {"job.model.layers": 48, "job.model.width": 12800}
"""Of 95 billion parameters."""

RESERVED = {"nodes.capacity": "reserved", "nodes.reservation": "cr-0123456789abcdef0"}
ZONES = {"network.zones": ["us-west-2a", "us-west-2b"]}

WRONG = [
    (P4D | ZONES, "network.zones: nodes would be spread over 2 zones, which EFA can't span. Name one zone"),
    (RESERVED | ZONES, "network.zones: nodes would be spread over 2 zones, which a reservation can't span."),
    (
        P4D | ZONES | RESERVED,
        "network.zones: nodes would be spread over 2 zones, which EFA and a reservation can't span.",
    ),
    (
        {**RESERVED, "nodes.capacity": "capacity-block", "nodes.type": "g5.48xlarge", "job.batch": 32},
        "nodes.capacity: g5.48xlarge isn't sold as capacity-block. It is sold as on-demand, spot",
    ),
    (
        {"nodes.capacity": "spot", "nodes.type": "p4d.24xlarge", "nodes.alternatives": ["p4de.24xlarge", "m6a.large"]}
        | {"job.batch": 32},
        "nodes.alternatives.1: m6a.large differs from p4d.24xlarge in network interfaces, GPUs, which all nodes have",
    ),
    (
        {"nodes.capacity": "mixed", "nodes.type": "t4g.small", "nodes.alternatives": ["m6a.large"]},
        "nodes.alternatives.0: m6a.large differs from t4g.small in architecture, which all nodes have in common.",
    ),
    (
        {"nodes.capacity": "mixed", "nodes.alternatives": ["m6a.larg"]},
        "nodes.alternatives.0: there is no instance type 'm6a.larg' in the catalog. Did you mean m6a.large",
    ),
    (
        {"nodes.confidential": "nitro-enclaves"},
        "nodes.confidential: m6a.large has no nitro-enclaves. Types that have it: i3en.6xlarge, ",
    ),
    (
        P4D | {"nodes.confidential": "nitro-tpm"},
        "nodes.confidential: p4d.24xlarge has no nitro-tpm. Types that have it: p5",
    ),
    (
        P4D | {"nodes.confidential": "sev-snp"},
        "nodes.confidential: p4d.24xlarge has no sev-snp. Types that have it: m6a",
    ),
    (
        {"nodes.capacity": "mixed", "nodes.alternatives": ["r6i.4xlarge"], "nodes.confidential": "sev-snp"},
        "nodes.alternatives.0: r6i.4xlarge has no sev-snp. Types that have it: m6a",
    ),
    (
        HUGE,
        "nodes.disk_gb: the root disk has 100 GiB, too little for the model's checkpoints: they take 3192 GiB. Raise",
    ),
    (
        HUGE | {"nodes.type": "g5.48xlarge", "job.batch": 32, "job.model.layers": 480},
        "nodes.type: g5.48xlarge's instance storage has 7078 GiB, too little for the model's checkpoints: they take",
    ),
]


@pytest.mark.parametrize(("changes", "line"), WRONG, ids=[line[:60] for _, line in WRONG])
def test_n9_c1_c4_what_nodes_cannot_be_gets_one_clear_line(stack, changes, line):
    with pytest.raises(Invalid) as raised:
        review("c1", parse(stack(changes)))
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


def test_c4_types_alike_in_all_that_a_template_states_pass(stack):
    changes = {"nodes.capacity": "spot", "nodes.alternatives": ["p4de.24xlarge"], "network.cidr": "10.0.0.0/24"}
    _, warnings = review("c1", parse(stack(P4D | changes)))
    assert [(w.path, w.severity) for w in warnings] == [("nodes.alternatives", Severity.WARNING)]


def test_c4_types_with_other_interfaces_pass_over_tcp(stack):
    """p4de has EFA as p4d has, g5 a single card: over TCP all have one plain interface."""
    types = {"nodes.type": "p4d.24xlarge", "nodes.alternatives": ["g5.48xlarge"], "nodes.capacity": "mixed"}
    with pytest.raises(
        Invalid, match=r"alternatives\.0: g5\.48xlarge differs .* network interfaces.*set nodes.fabric to"
    ):
        review("c1", parse(stack(types | {"job.batch": 32})))
    assert review("c1", parse(stack(types | {"job.batch": 32, "nodes.fabric": "tcp"})))[1] == []


def test_n9_several_zones_over_tcp_are_only_warned_of(stack):
    _, warnings = review("c1", parse(stack(P4D | ZONES | {"nodes.fabric": "tcp"})))
    assert [(w.path, w.severity) for w in warnings] == [("network.zones", Severity.WARNING)]


@pytest.mark.parametrize(
    ("kind", "guard"),
    [
        ("p4d.24xlarge", "nitro-enclaves"),
        ("p5.48xlarge", "nitro-tpm"),
        ("m6a.4xlarge", "nitro-enclaves"),
        ("m6a.large", "sev-snp"),
    ],
)
def test_what_a_type_has_it_may_be_guarded_by(stack, kind, guard):
    assert review("c1", parse(stack({"nodes.type": kind, "job.batch": 32, "nodes.confidential": guard})))[1] == []


def test_a_type_that_boots_by_bios_alone_is_not_guarded_by_what_needs_uefi(stack):
    facts = {"catalog.overrides": {"m6a.large": {"boot_modes": ["legacy-bios"], "confidential": ["sev-snp"]}}}
    with pytest.raises(Invalid, match=r"nodes\.type: m6a\.large doesn't boot by UEFI, which sev-snp needs"):
        review("c1", parse(stack(facts | {"nodes.confidential": "sev-snp"})))


def test_c3_a_reservation_larger_than_the_fleet_is_warned_of_as_it_is_paid_for(stack):
    reserved = {"nodes.capacity": "reserved", "nodes.reservation": "create"}
    _, warnings = review("c1", parse(stack(reserved)))
    assert [str(w) for w in warnings] == [
        "nodes.reservation: 4 nodes are reserved and paid for, of which 2 will run. "
        "Lower nodes.max to nodes.desired unless the fleet is to grow"
    ]
    assert review("c1", parse(stack(reserved | {"nodes.max": 2})))[1] == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, ""),
        ({"nodes.capacity": "spot"}, "11 addresses in us-west-2a, too few for 11 nodes and 2 that replace spot nodes"),
        ({"nodes.capacity": "mixed"}, "11 addresses in us-west-2a, too few for 11 nodes and 2 that replace spot nodes"),
        ({"nodes.capacity": "mixed", "nodes.on_demand_share": 100}, ""),
        ({"nodes.type": "p4d.24xlarge", "job.batch": 88}, ""),
        ({"nodes.max": 12, "nodes.type": "p4d.24xlarge", "job.batch": 96}, "too few for 12 nodes. Take a larger"),
    ],
    ids=str,
)
def test_subnets_hold_the_fleet_and_those_that_replace_its_spot_nodes(stack, changes, line):
    """EFA-only interfaces take no address; a group that replaces nodes at risk may grow a tenth beyond its maximum."""
    small = {"network.cidr": "10.0.0.0/27", "nodes.max": 11}
    spec = parse(stack(small | changes))
    if not line:
        assert review("c1", spec)[1] == []
        return
    with pytest.raises(Invalid) as raised:
        review("c1", spec)
    assert [finding.path for finding in raised.value.findings] == ["network.cidr"]
    assert line in str(raised.value)


@pytest.mark.parametrize(
    "changes", [{}, HUGE, HUGE | {"job.sharding": "fsdp"}, {"job": {"name": "a", "command": ["python"]}}]
)
def test_what_checkpoints_take_is_judged_as_a_node_does(stack, changes):
    """A job that passes here would be refused by each node in turn, until the breaker stopped the fleet."""
    values = stack(changes)
    assert checkpoint_room(parse(values).job) == preflight.room(parse(values).job.model_dump(exclude_none=True))


@pytest.mark.parametrize("fits", [{"nodes.disk_gb": 4000}, {"nodes.type": "g5.48xlarge", "job.batch": 32}])
def test_a_disk_that_is_large_enough_passes_whichever_it_is(stack, fits):
    review("c1", parse(stack(HUGE | fits)))
