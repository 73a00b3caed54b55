"""Extreme NAS by zone, as its documents have it."""

import pytest

from components import nas


@pytest.mark.parametrize(
    ("zone", "kind"),
    [
        ("ap-southeast-1a", "advance"),
        ("cn-hangzhou-i", "advance"),
        ("cn-hangzhou-g", "advance"),
        ("cn-hangzhou-b", "standard"),
        ("ap-southeast-3a", "standard"),
        ("eu-central-1c", "advance"),
        ("eu-central-1a", "standard"),
        ("ap-southeast-1z", ""),
        ("me-east-1a", ""),
    ],
)
def test_a_zone_has_the_better_class_of_those_that_it_has(zone, kind):
    assert nas.kind(zone) == kind


@pytest.mark.parametrize(
    ("zone", "size_gib", "mbps"),
    [
        ("ap-southeast-1a", 1200, 1000),
        ("ap-southeast-1a", 2048, 1500),
        ("ap-southeast-1a", 4800, 2000),
        ("ap-southeast-1a", 8191, 3000),
        ("ap-southeast-1a", 8192, 4000),
        ("cn-hangzhou-g", 1200, 300),
        ("cn-hangzhou-b", 4800, 900),
        ("cn-hangzhou-b", 499, 150),
        ("cn-hangzhou-b", 500, 300),
        ("me-east-1a", 4800, 0),
    ],
)
def test_throughput_comes_with_the_size_and_with_the_zone(zone, size_gib, mbps):
    assert nas.throughput(zone, size_gib) == mbps


@pytest.mark.parametrize("steps", [nas.PLAIN_MBPS, nas.FAST_MBPS])
def test_a_larger_file_system_is_never_slower(steps):
    assert list(steps) == sorted(steps, reverse=True)
    assert steps[-1][0] == nas.SMALLEST_GIB


def test_zones_are_told_by_their_names():
    assert nas.zones("ap-southeast-1") == ["ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c"]
    assert nas.zones("cn-qingdao") == ["cn-qingdao-b", "cn-qingdao-c"]
    assert nas.zones("me-east-1") == []


def test_a_zone_has_one_class():
    for region, letters in nas.STANDARD.items():
        assert not set(letters) & set(nas.ADVANCED.get(region, ""))
    for region, letters in nas.FAST.items():
        assert set(letters) <= set(nas.ADVANCED[region])
