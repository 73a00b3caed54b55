"""What is decided, and what it depends on."""

import ipaddress
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.clouds import CLOUDS
from components.findings import Finding, Invalid
from components.plan import decide, run_id, split
from components.spec import parse

AWS = CLOUDS["aws"]


@given(st.integers(8, 30), st.integers(1, 3), st.integers(0, 255))
def test_subnets_are_equal_disjoint_and_inside_the_network_with_a_block_to_spare(prefix, count, second):
    network = ipaddress.IPv4Network((f"10.{second}.0.0", prefix), strict=False)
    zones = tuple(f"us-west-2{letter}" for letter in "abc"[:count])
    subnets = split(str(network), zones, AWS)
    if isinstance(subnets, Finding):
        assert subnets.path == "network.cidr"
        assert prefix < 16 or prefix + count.bit_length() > AWS.smallest_subnet
        return
    blocks = [ipaddress.IPv4Network(subnet.cidr) for subnet in subnets]
    assert [subnet.zone for subnet in subnets] == list(zones)
    assert len({block.prefixlen for block in blocks}) == 1
    assert 16 <= blocks[0].prefixlen <= AWS.smallest_subnet
    assert all(block.subnet_of(network) for block in blocks)
    assert not any(a.overlaps(b) for a in blocks for b in blocks if a is not b)
    assert sum(block.num_addresses for block in blocks) < network.num_addresses


def test_a_network_that_is_too_small_is_refused_with_one_that_fits():
    finding = split("10.0.0.0/28", ("us-west-2a",), AWS)
    assert str(finding) == (
        "network.cidr: 10.0.0.0/28 can't hold 1 subnet: a network is /16 to /27 here, "
        "as a subnet is /28 at the smallest. Use 10.0.0.0/16, for example"
    )


def test_addresses_that_the_cloud_keeps_are_not_counted():
    (subnet,) = split("10.0.0.0/27", ("us-west-2a",), AWS)
    assert subnet.addresses == 11


@pytest.mark.parametrize(
    "changes", [{"job.steps": 401}, {"job.model.layers": 5}, {"job.checkpoint.keep": 4}, {"job.name": "other"}]
)
def test_the_run_changes_with_the_job(stack, changes):
    assert decide("c1", parse(stack(changes))).run.id != decide("c1", parse(stack())).run.id


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes.desired": 3},
        {"nodes.max": 9},
        {"nodes.type": "m6a.4xlarge"},
        {"nodes.image": "ami-01234567"},
        {"network.cidr": "10.1.0.0/16"},
        {"tags": {"a": "b"}},
        {"job.steps": 400},
        {"job.checkpoint.every_seconds": 300},
        {"job.learning_rate": 0.001},
        {"job.clip": 1},
    ],
)
def test_a_cluster_that_is_scaled_or_repaired_goes_on_with_its_run(stack, changes):
    assert decide("c1", parse(stack(changes))).run.id == decide("c1", parse(stack())).run.id


def test_a_runs_id_does_not_hang_on_the_order_of_keys():
    job = {"name": "a", "steps": 1}
    assert run_id(job) == run_id(dict(reversed(job.items())))
    assert run_id(job).startswith("a-")


def test_a_key_that_is_new_gives_no_run_that_goes_on_another_id():
    """It would start anew, below another prefix, and what it has trained would be paid for again."""
    job = {"name": "a", "steps": 1}
    assert run_id(job) == "a-78e160ac"
    assert run_id(job | {"deterministic": False, "hours": 2.0}) == run_id(job)
    assert run_id(job | {"deterministic": True}) != run_id(job)


def test_each_gpu_gets_a_worker_and_a_node_without_gets_one(stack):
    assert decide("c1", parse(stack())).workers == 1
    assert decide("c1", parse(stack({"nodes.type": "p4d.24xlarge"}))).workers == 8


def test_the_fleet_grows_no_further_than_desired_where_nothing_is_said(stack):
    fleet = decide("c1", parse(stack({"nodes.max": None}))).fleet
    assert (fleet.min, fleet.desired, fleet.max) == (1, 2, 2)


def test_instance_and_network_are_judged_together(stack):
    with pytest.raises(Invalid) as raised:
        decide("c1", parse(stack({"nodes.type": "x", "network.cidr": "10.0.0.0/28"})))
    assert [finding.path for finding in raised.value.findings] == ["nodes.type", "network.cidr"]


def test_the_job_in_a_plan_is_plain_json(stack):
    job = decide("c1", parse(stack())).run.job
    assert json.loads(json.dumps(job)) == job
