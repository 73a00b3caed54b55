"""The hook that a node drains in, and what lets it say that it is done."""

import json

import pytest

from components.alicloud.drain import drain_policy
from components.plan import DRAIN_S
from tests.components.alicloud.policies import allows

GROUP = "acs:ess:cn-hangzhou:1234567890123456:scalinggroup/asg-bp14wlu85wrpchm01234"
POLICY = drain_policy("asg-bp14wlu85wrpchm01234")
SPOT = {"nodes.fabric": "tcp", "nodes.capacity": "spot", "network.egress": "endpoints"}
PLAIN = {"nodes.fabric": "tcp", "network.egress": "endpoints"}


@pytest.mark.parametrize(
    "action",
    ["CompleteLifecycleAction", "DescribeLifecycleActions", "DescribeLifecycleHooks", "DescribeScalingActivities"],
)
def test_a_node_completes_its_own_groups_hooks_and_no_others(action):
    assert allows(POLICY, f"ess:{action}", GROUP)
    assert not allows(POLICY, f"ess:{action}", f"{GROUP}5")
    assert not allows(POLICY, f"ess:{action}", GROUP.replace("asg-bp14", "asg-bp15"))


def test_a_node_can_ask_which_group_it_is_in():
    """It is launched from something that is older than its group, and is told nothing of it."""
    assert allows(POLICY, "ess:DescribeScalingInstances", GROUP)


@pytest.mark.parametrize(
    "action",
    ["ModifyScalingGroup", "RemoveInstances", "DeleteScalingGroup", "CreateLifecycleHook", "ModifyLifecycleHook",
     "SetInstanceHealth", "DetachInstances", "SetInstancesProtection", "ModifyScalingConfiguration"],
)  # fmt: skip
def test_a_node_may_change_nothing_else_about_its_group(action):
    assert not allows(POLICY, f"ess:{action}", GROUP)


@pytest.mark.parametrize("changes", [SPOT, {"network.egress": "endpoints"}], ids=["spot", "eRDMA"])
def test_a_node_that_is_to_go_gets_time_and_no_more(mocked, ali, changes):
    """Nobody may ever answer the hook, so its time is short, and at its end the node goes."""
    hook = mocked.cluster(ali(changes)).one("LifecycleHook").inputs
    assert hook == {
        "name": "drain",
        "scalingGroupId": "c1-nodes-id",
        "lifecycleTransition": "SCALE_IN",
        "heartbeatTimeout": DRAIN_S,
        "defaultResult": "CONTINUE",
    }
    assert 30 <= DRAIN_S <= 300, (
        "ECS takes spot nodes after five minutes, and ESS takes no hook of less than 30 seconds"
    )


def test_only_nodes_with_a_hook_and_a_way_to_ess_may_complete_one(mocked, ali):
    def policies(changes):
        return [record.name for record in mocked.cluster(ali(changes)).of("Policy")]

    assert "c1-drain" not in policies({**SPOT, "network.egress": "bucket"})
    assert mocked.cluster(ali(PLAIN)).of("LifecycleHook") == []
    assert "c1-drain" not in policies(PLAIN)
    records = mocked.cluster(ali(SPOT))
    assert json.loads(records.one("Policy", "c1-drain").inputs["policyDocument"]) == drain_policy("c1-nodes-id")
    attached = records.one("RolePolicyAttachment", "c1-drain").inputs
    assert attached["roleName"] == records.one("RolePolicyAttachment", "c1-node").inputs["roleName"]
