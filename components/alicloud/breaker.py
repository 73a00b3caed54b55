"""Ends a fleet that can't boot: nodes that fail over and over would be launched, paid for and ended without end.

A node whose boot fails shuts itself down, which ends it; Auto Scaling finds it gone and launches the next (facts: B8,
B9). Before it does, it puts a message into a queue that keeps each for an hour, so that the queue is as long as the
boots that failed within one. At `nodes.failed_boots`, CloudMonitor's alarm on it has Auto Scaling set the group to
zero, and does so again every five minutes while it is on. No code of ours runs for it but the node's own last step,
which is where a node can be told from one that somebody ended, or that was taken back as a spot node: those put none.

What isn't counted: a node that fails before our script runs, or that can't reach SMQ. The first doesn't end itself
either, so that nothing replaces it. CloudMonitor knows how long a queue is every five minutes, by which time as many
more may have failed.

Zero lasts where nothing scales the group by itself. Where something does, nothing suspends launches, as AWS's state
machine does: an alarm of CloudMonitor's can execute a rule and no other call. OOS could call `SuspendProcesses` when an
alarm is on (its user guide, "ACS::AlarmTrigger"), but such an execution waits for ever, and the provider for its end
(terraform-provider-alicloud, `resource_alicloud_oos_execution.go`), so that no update would. What can start nodes again
is a schedule, and a run that is submitted; what follows utilisation, or what waits for each node, needs nodes. Of those
that a start brings, `nodes.failed_boots` may fail before the group is at zero again, which a warning says.
"""

from __future__ import annotations

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud import queue as queues
from components.alicloud.contacts import Contacts
from components.alicloud.scaling import zero
from components.alicloud.security import Identity, account, attach
from components.plan import Plan, Pool
from components.scaling import breaker_name


def declare_counter(
    plan: Plan, pool: Pool, bucket: pulumi.Output[str], child: pulumi.ResourceOptions
) -> alicloud.message.ServiceQueue:
    """Declare what counts a pool's failed boots: nodes are told its URL, so that it is there before them."""
    return queues.declare_counter(plan, f"failed-{pool.one}s", bucket, child)


def declare(
    plan: Plan,
    pool: Pool,
    group: alicloud.ess.ScalingGroup,
    counter: alicloud.message.ServiceQueue,
    identity: Identity,
    contacts: Contacts,
    child: pulumi.ResourceOptions,
) -> None:
    """Declare the breaker of a pool's group, of which people are told too, and that its nodes may count."""
    name = breaker_name(plan.name, pool.one)
    policy = pulumi.Output.all(account(child), counter.queue_name).apply(
        lambda known: queues.counting_policy(plan.spec.region, *known)
    )
    attach(plan, f"failed-{pool.one}s", identity.name, policy, child)
    queues.declare_alarm(
        plan,
        name,
        counter,
        plan.spec.nodes.failed_boots,
        contacts.people,
        child,
        rule=zero(name, group, child),
        quiet_s=queues.QUIET_S[0],
    )
