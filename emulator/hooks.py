"""Hooks that hold an instance which its group ends: moto 5.2.5 keeps them and goes by none.

An instance that is scaled in, or ended through the group, waits as `Terminating:Wait` until somebody completes its hook
or the hook's time is up, and counts no more (Auto Scaling user guide, "How lifecycle hooks work"). One that EC2 ends is
gone at once.
"""

from collections.abc import Callable
from threading import Timer

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import (
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
    LifecycleHook,
    TerminateInstanceActivity,
)
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
WAITING = "Terminating:Wait"


def install() -> None:
    """Have moto's groups go by their hooks. Once is enough for a process."""
    scale, terminate = FakeAutoScalingGroup.set_desired_capacity, AutoScalingBackend.terminate_instance
    setattr(FakeAutoScalingGroup, "set_desired_capacity", _scaling(scale))  # noqa: B010 (mypy forbids the assignment)
    setattr(AutoScalingBackend, "terminate_instance", _terminating(terminate))  # noqa: B010
    setattr(AutoScalingResponse, "complete_lifecycle_action", _complete)  # noqa: B010


Scale = Callable[[FakeAutoScalingGroup, int | None], None]
Terminate = Callable[[AutoScalingBackend, str, bool], TerminateInstanceActivity]


def _scaling(scale: Scale) -> Scale:
    def held(group: FakeAutoScalingGroup, capacity: int | None) -> None:
        hook, running = terminating(group), group.active_instances()
        surplus = len(running) - (capacity or 0)
        if hook is None or capacity is None or surplus <= 0:
            scale(group, capacity)
            return
        group.desired_capacity = capacity
        for state in [state for state in running if not state.protected_from_scale_in][:surplus]:
            _hold(state, hook)

    return held


def _terminating(terminate: Terminate) -> Terminate:
    def held(backend: AutoScalingBackend, instance: str, decrement: bool) -> TerminateInstanceActivity:
        states = backend.describe_auto_scaling_instances([instance])
        if not states:
            raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance}")
        hook = terminating(states[0].auto_scaling_group)
        if hook is None:
            return terminate(backend, instance, decrement)
        (state,) = states
        group, size = state.auto_scaling_group, state.auto_scaling_group.desired_capacity
        _hold(state, hook)
        group.set_desired_capacity(size - decrement)
        return TerminateInstanceActivity(state.instance, size)

    return held


def _complete(response: AutoScalingResponse) -> ActionResult:
    """What CompleteLifecycleAction does; whether to continue or to abandon is the same for an instance that goes."""
    group, instance = response._get_param("AutoScalingGroupName"), response._get_param("InstanceId")
    if not complete(response.autoscaling_backend, group, response._get_param("LifecycleHookName"), instance):
        raise ValidationError(f"No active Lifecycle Action found with instance ID {instance}")
    return EmptyResult()


def complete(backend: AutoScalingBackend, group: str, hook: str, instance: str) -> bool:
    """End an instance that its group's hook of this name holds; whether it does."""
    states = backend.describe_auto_scaling_instances([instance])
    held = [state for state in states if state.auto_scaling_group_name == group and state.lifecycle_state == WAITING]
    holding = terminating(held[0].auto_scaling_group) if held else None
    if holding is None or holding.name != hook:
        return False
    _release(held[0])
    return True


def terminating(group: FakeAutoScalingGroup) -> LifecycleHook | None:
    """The hook of a group that holds what it ends; None where it has none."""
    hooks = group.autoscaling_backend.describe_lifecycle_hooks(group.name)
    return next((hook for hook in hooks if hook.lifecycle_transition == TERMINATING), None)


def _hold(state: InstanceState, hook: LifecycleHook) -> None:
    state.lifecycle_state = WAITING
    timer = Timer(hook.heartbeat_timeout, _release, [state])
    timer.daemon = True
    timer.start()


def _release(state: InstanceState) -> None:
    """End it, unless it has ended already."""
    group = state.auto_scaling_group
    if state in group.instance_states:
        group.instance_states.remove(state)
        group.autoscaling_backend.ec2_backend.terminate_instances([state.instance_id])
