"""The hook that a node drains in, and what lets it say that it is done."""

import json

import pytest

from components.aws.drain import drain_policy
from tests.components.aws.policies import allows

GROUP = "arn:aws:autoscaling:us-west-2:123456789012:autoScalingGroup:5f0b:autoScalingGroupName/c1-nodes-1a2b3c4"
SPOT = {"nodes.capacity": "spot", "network.egress": "endpoints"}


def test_a_node_completes_its_own_groups_hooks_and_no_others():
    policy, complete = drain_policy(GROUP), "autoscaling:CompleteLifecycleAction"
    assert allows(policy, complete, GROUP)
    assert not allows(policy, complete, f"{GROUP}5")
    assert not allows(policy, complete, GROUP.replace("c1-nodes", "c2-nodes"))


@pytest.mark.parametrize(
    "action",
    ["SetDesiredCapacity", "TerminateInstanceInAutoScalingGroup", "UpdateAutoScalingGroup", "PutLifecycleHook",
     "SetInstanceHealth", "DeleteAutoScalingGroup", "DetachInstances"],
)  # fmt: skip
def test_a_node_may_change_nothing_else_about_its_group(action):
    assert not allows(drain_policy(GROUP), f"autoscaling:{action}", GROUP)


def test_only_nodes_with_a_hook_and_a_way_to_auto_scaling_may_complete_one(mocked, stack):
    assert mocked.cluster(stack({"nodes.capacity": "spot"})).of("RolePolicy")[0].name == "c1-node"
    assert mocked.cluster(stack({"network.egress": "endpoints"})).of("LifecycleHook") == []
    policy = mocked.cluster(stack(SPOT)).one("RolePolicy", "c1-drain")
    assert policy.inputs["role"] == "c1-node-id"
    assert json.loads(policy.inputs["policy"]) == drain_policy("arn:aws:mock::123456789012:c1-nodes")
