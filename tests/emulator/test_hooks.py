"""An instance that its group ends waits in the group's hook, as on AWS, so that it can drain."""

import pytest
from botocore.exceptions import ClientError

STATE = "meta-data/autoscaling/target-lifecycle-state"


@pytest.fixture
def held(world):
    """A group with a hook, and so many nodes."""

    def make(nodes, seconds=60):
        group = world.group(world.STAY, nodes)
        world.client("autoscaling").put_lifecycle_hook(
            AutoScalingGroupName=group,
            LifecycleHookName="drain",
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
            HeartbeatTimeout=seconds,
            DefaultResult="CONTINUE",
        )
        return group, world.booted(group, nodes)

    return make


def _states(world, group):
    (found,) = world.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
        "AutoScalingGroups"
    ]
    return {instance["InstanceId"]: instance["LifecycleState"] for instance in found["Instances"]}


def _complete(world, group, instance, hook="drain"):
    world.client("autoscaling").complete_lifecycle_action(
        AutoScalingGroupName=group, LifecycleHookName=hook, InstanceId=instance, LifecycleActionResult="CONTINUE"
    )


def test_an_instance_that_is_scaled_in_runs_on_until_its_hook_is_completed(world, http, held):
    group, _ = held(2)
    world.client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    states = _states(world, group)
    (going,) = (instance for instance, state in states.items() if state == "Terminating:Wait")
    (staying,) = states.keys() - {going}
    assert http.read(world.metadata(going), STATE) == (200, "Terminated")
    assert http.read(world.metadata(staying), STATE) == (200, "InService")
    assert world.state(going) == "running"
    _complete(world, group, going)
    world.wait_for("the node's end", lambda: not world.processes(going))
    assert (world.state(going), world.instances(group)) == ("terminated", [staying])


def test_a_hook_that_nobody_completes_ends_by_itself(world, held):
    group, (instance,) = held(1, seconds=1)
    world.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group, DesiredCapacity=0)
    assert _states(world, group) == {instance: "Terminating:Wait"}
    world.wait_for("the node's end", lambda: not world.processes(instance))
    assert world.instances(group) == []


def test_an_instance_that_is_ended_through_its_group_is_replaced_and_drains(world, held):
    group, (old,) = held(1)
    autoscaling = world.client("autoscaling")
    autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=old, ShouldDecrementDesiredCapacity=False)
    states = _states(world, group)
    (new,) = states.keys() - {old}
    assert (states[old], states[new]) == ("Terminating:Wait", "InService")
    _complete(world, group, old)
    assert _states(world, group) == {new: "InService"}


def test_an_instance_that_ec2_ends_waits_for_nobody(world, held):
    group, (instance,) = held(1)
    world.client("ec2").terminate_instances(InstanceIds=[instance])
    assert instance not in _states(world, group)


@pytest.mark.parametrize("hook", ["drain", "other"])
def test_what_does_not_wait_cannot_be_completed(world, held, hook):
    """An agent asks too early now and then, and must be told so."""
    group, (instance,) = held(1)
    if hook == "other":
        world.client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    with pytest.raises(ClientError, match=f"No active Lifecycle Action found with instance ID {instance}"):
        _complete(world, group, instance, hook)


def test_a_group_without_a_hook_ends_its_instances_at_once(world):
    group = world.group(world.STAY, 1)
    (instance,) = world.booted(group, 1)
    world.client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    assert world.state(instance) == "terminated"
