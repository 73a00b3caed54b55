"""Whole clusters, each resource made on moto by the stand-in's own handlers as it is declared: no engine, no nodes.

What moto has no API for is named in `NOT_IN_MOTO`; of those, tests/components holds the requests to EC2's own models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from moto.ec2.responses import EC2Response

from emulator.provider import kinds
from tools.declared import declare

STACK: dict[str, Any] = {
    "region": "us-west-2",
    "tags": {"team": "ml"},
    "network": {"cidr": "10.0.0.0/16", "zones": ["us-west-2b"]},
    "job": {"name": "pretrain", "dataset": "corpus", "batch": 256},
}
EFA = "p4d.24xlarge"
FLEETS: dict[str, dict[str, Any]] = {
    "on demand": {"type": EFA},
    "spot, 16 cards": {"type": "p5en.48xlarge", "capacity": "spot"},
    "mixed, two types": {
        "type": EFA,
        "capacity": "mixed",
        "alternatives": ["p4de.24xlarge"],
        "on_demand_base": 1,
        "on_demand_share": 50,
    },
    "reserved": {"type": "p5.48xlarge", "capacity": "reserved", "reservation": "create"},
    "capacity block": {"type": "p5.48xlarge", "capacity": "capacity-block", "reservation": "cr-0123456789abcdef0"},
    "CPUs": {"type": "m6a.large"},
}

MADE = {
    "aws:ec2/launchTemplate:LaunchTemplate",
    "aws:autoscaling/group:Group",
    "aws:autoscaling/lifecycleHook:LifecycleHook",
}
"""What moto must take of a fleet."""

NOT_IN_MOTO = ("create_placement_group", "create_capacity_reservation")
"""What moto 5.2.5 doesn't implement; the stand-in makes up an id of the right form for what they would make."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pulumi_aws.*")
@pytest.mark.parametrize("nodes", FLEETS.values(), ids=FLEETS.keys())
def test_moto_takes_all_that_a_fleet_declares(deployment: Any, tmp_path: Any, monkeypatch: Any, nodes: Any) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    ids: dict[tuple[str, str], str] = {}

    def make(token: str, name: str, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        made = deployment.create(token, inputs, name)
        ids[token.rpartition(":")[2], name] = made.id
        return made.id, made.state

    fleet = {"image": "ami-00000000000000000", "desired": 2, "max": 2, **nodes}
    declared = declare("c1", {**STACK, "nodes": fleet}, make)
    assert {one.type for one in declared.resources if one.type in MADE and not kinds.find(one.type)} == set()

    ec2, autoscaling = deployment.client("ec2"), deployment.client("autoscaling")
    (group,) = autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    mixed = group.get("MixedInstancesPolicy")
    assert bool(mixed) == (nodes.get("capacity") == "mixed")
    assert group["Instances"]
    template = ids["LaunchTemplate", "c1-node"]
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateId=template)["LaunchTemplateVersions"]
    launched = version["LaunchTemplateData"]
    assert launched["InstanceType"] == nodes["type"]
    market = {"spot": "spot", "capacity-block": "capacity-block"}.get(nodes.get("capacity", ""))
    assert launched.get("InstanceMarketOptions", {}).get("MarketType") == market
    if mixed:
        overrides = mixed["LaunchTemplate"]["Overrides"]
        assert [one["InstanceType"] for one in overrides] == [nodes["type"], *nodes["alternatives"]]
        assert mixed["InstancesDistribution"]["OnDemandBaseCapacity"] == 1
    hooks = autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=group["AutoScalingGroupName"])["LifecycleHooks"]
    assert [hook["LifecycleTransition"] for hook in hooks] == (
        ["autoscaling:EC2_INSTANCE_TERMINATING"] if nodes["type"] != "m6a.large" else []
    )


@pytest.mark.parametrize("operation", NOT_IN_MOTO)
def test_what_moto_lacks_it_lacks_still(operation: str) -> None:
    """Once moto has it, the stand-in can hand it over, and the test above can hold it to moto too."""
    assert not hasattr(EC2Response, operation)
