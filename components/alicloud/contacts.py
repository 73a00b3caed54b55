"""Who is told: CloudMonitor's contacts, who confirm a first message, and the groups that its alarms name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pulumi
import pulumi_alicloud as alicloud

from components.plan import Plan


@dataclass(frozen=True)
class Contacts:
    """Names of contact groups: an alarm must name one, also where it only acts."""

    people: pulumi.Output[str]
    nobody: pulumi.Output[str]


def declare(plan: Plan, group: alicloud.ess.ScalingGroup, child: pulumi.ResourceOptions) -> Contacts:
    """Declare those who are told of alarms, if any, and the groups.

    They are named by the scaling group's id: an account has a name once, and a contact's has 40 characters at most.
    """
    names = []
    for email in plan.spec.audit.emails if plan.spec.audit.enabled else ():
        suffix = hashlib.sha256(email.encode()).hexdigest()[:7]
        contact = alicloud.cms.AlarmContact(
            f"{plan.name}-alarms-{suffix}",
            alarm_contact_name=_named(group, suffix),
            describe=f"Is told of alarms of cluster {plan.name}",
            channels_mail=email,
            lang="en",
            opts=child,
        )
        names.append(contact.alarm_contact_name)
    people = alicloud.cms.AlarmContactGroup(
        f"{plan.name}-alarms",
        alarm_contact_group_name=_named(group, "alarms"),
        describe=f"Those who are told of alarms of cluster {plan.name}",
        contacts=names,
        opts=child,
    )
    nobody = alicloud.cms.AlarmContactGroup(
        f"{plan.name}-nobody",
        alarm_contact_group_name=_named(group, "nobody"),
        describe=f"For alarms of cluster {plan.name} that act and tell nobody",
        opts=child,
    )
    return Contacts(people.alarm_contact_group_name, nobody.alarm_contact_group_name)


def _named(group: alicloud.ess.ScalingGroup, suffix: str) -> pulumi.Output[str]:
    return pulumi.Output.concat(group.id, "-", suffix)
