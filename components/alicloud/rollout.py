"""What nodes boot with reaches a group, and its nodes: calls to ESS that no provider makes, made by OOS.

A scaling configuration is declared without what the provider can't declare (terraform-provider-alicloud v1.289: it
creates none that has network interfaces, and knows neither enforced metadata tokens nor TDX). An execution completes
it, has its group launch it and enables that, in this order, so that no node starts before the configuration is whole.
Another tidies up and has ESS replace the nodes of before. Executions are never updated: whenever there is something new
to boot with, both are new.

They run with the permissions of whoever runs `pulumi up`: a template that names no role takes nobody else's (OOS user
guide, "Grant RAM permissions to OOS"). How OOS takes the names and lists of an API's parameters, and that a task may
depend on an earlier one's output, is of its user guide, "Tasks" and "Conditions", and of its public templates
(aliyun/oos-templates, `ACS::ESS::ModifyScalingGroupImageConfiguration`, `ACS::ESS::ConfigureOOSPackage`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud.security import unique
from components.plan import Plan, Pool

ALL_AT_ONCE = {"MinHealthyPercentage": 0, "MaxHealthyPercentage": 100, "SkipMatching": True}
"""A gang trains one job: nodes of the old one and of the new one side by side would only wait for each other.

With 0 percent, all are ended before any comes, and with 100, never more than desired run: a reservation has room for no
more. Nodes that were launched from what is there now are left alone (ESS API, StartInstanceRefresh). Nothing is rolled
back, as that would undo a change that the stack's file keeps.
"""

ENDED_BADLY = frozenset({"Failed", "Cancelled"})
"""Ends that the provider takes for done as well (terraform-provider-alicloud, `resource_alicloud_oos_execution.go`)."""


class Incomplete(Exception):
    """A configuration isn't whole, or its group doesn't launch it; the message says what to do."""


def completion(pool: Pool) -> dict[str, Any]:
    """What a pool's configuration lacks once it is declared, as parameters of ESS's ModifyScalingConfiguration.

    Interfaces clear the security group that it was declared with, as ESS takes none beside them (facts: N13). None has
    an IPv6 address, which an ERI can't have (facts: N12). ESS, unlike a launch template, has no limit of hops.
    """
    lacking: dict[str, Any] = {"HttpTokens": "required"}
    if pool.fast:
        lacking["NetworkInterfaces"] = [
            {
                "InstanceType": "Primary" if nic.primary else "Secondary",
                "NetworkInterfaceTrafficMode": nic.kind.value,
                "SecurityGroupIds": ["{{ securityGroup }}"],
            }
            for nic in pool.nics
        ]
    if pool.confidential == "tdx":
        lacking["SecurityOptionsConfidentialComputingMode"] = "TDX"
    return lacking


def described(pool: Pool, security_group_id: pulumi.Input[str]) -> pulumi.Output[str]:
    """What a configuration says of its completion, so that it is replaced when that changes.

    Pulumi ignores what else it shows of that, interfaces and security group, as an update would undo it.
    """
    digest = hashlib.sha256(json.dumps(completion(pool), sort_keys=True).encode()).hexdigest()[:8]
    return pulumi.Output.concat(f"Completed by {digest} in ", security_group_id)


def completing(pool: Pool) -> dict[str, Any]:
    """The OOS template that completes a pool's `configuration` and has its `group` launch it.

    A group that is enabled already refuses to be (ESS API, EnableScalingGroup).
    """
    which = {"ScalingGroupId": "{{ group }}", "ActiveScalingConfigurationId": "{{ configuration }}"}
    look = {"RegionId": "{{ ACS::RegionId }}", "ScalingGroupId1": "{{ group }}"}
    state = {"state": {"Type": "String", "ValueSelector": "ScalingGroups.ScalingGroup[].LifecycleState"}}
    disabled = {"Fn::Equals": ["{{ look.state }}", "Inactive"]}
    complete = {"ScalingConfigurationId": "{{ configuration }}", **completion(pool)}
    return _template(
        "Completes a scaling configuration, and has its group launch it",
        ["group", "configuration", "securityGroup"],
        _call("complete", "ModifyScalingConfiguration", complete),
        _call("activate", "ModifyScalingGroup", which),
        _call("look", "DescribeScalingGroups", look, Outputs=state),
        _call("enable", "EnableScalingGroup", which, When=disabled),
    )


def renewing(pool: Pool) -> dict[str, Any]:
    """The OOS template that has a pool's `group` go over to what it launches by now, `booted`; it may have no tasks.

    It first takes away the configurations of before, of which a group may have ten. Those that are active, or that
    nodes were launched from, ESS keeps: they go another time (ESS API, DeleteScalingConfiguration).
    """
    region = {"RegionId": "{{ ACS::RegionId }}", "ScalingGroupId": "{{ group }}"}
    ids = {"Type": "List", "ValueSelector": "ScalingConfigurations.ScalingConfiguration[].ScalingConfigurationId"}
    one = {"ScalingConfigurationId": "{{ ACS::TaskLoopItem }}"}
    each = {"Items": "{{ list.ids }}", "RateControl": {"Mode": "Concurrency", "Concurrency": 1, "MaxErrors": "100%"}}
    tasks = []
    if pool.source == "configuration":
        tasks += [
            _call("list", "DescribeScalingConfigurations", {**region, "PageSize": 50}, Outputs={"ids": ids}),
            _call("tidy", "DeleteScalingConfiguration", one, Loop=each, OnError="ACS::NEXT"),
        ]
    if pool.refreshes:
        tasks.append(_call("refresh", "StartInstanceRefresh", {**region, **ALL_AT_ONCE}))
    return _template(
        "Replaces the nodes of a group that were launched from something older", ["group", "booted"], *tasks
    )


def complete(
    plan: Plan,
    pool: Pool,
    group: alicloud.ess.ScalingGroup,
    configuration: alicloud.ess.ScalingConfiguration,
    security_group_id: pulumi.Input[str],
    first: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> pulumi.Output[str]:
    """Declare what completes a configuration, after `first`, which nodes count on; its id, once it is whole."""
    given = {"group": group.id, "configuration": configuration.id, "securityGroup": security_group_id}
    execution = _execution(plan, pool, "rollout", completing(pool), given, first, child)
    known = pulumi.Output.all(configuration.id, execution.urn, execution.status, execution.status_message)
    return known.apply(lambda values: whole(*values))


def whole(configuration: str, urn: str, status: str, said: str | None) -> str:
    """The id of a configuration that an execution has completed. Raises `Incomplete` where it hasn't."""
    if status in ENDED_BADLY:
        raise Incomplete(
            f"{configuration} isn't whole, and no node starts from it, as the execution that completes it ended as "
            f"{status}: {said or 'OOS says no more'}. See to that, and run `pulumi up --replace '{urn}'`"
        )
    return configuration


def renew(
    plan: Plan,
    pool: Pool,
    group: alicloud.ess.ScalingGroup,
    booted: pulumi.Output[str],
    child: pulumi.ResourceOptions,
) -> None:
    """Declare what has nodes replaced that booted with something other than `booted`, and tidies up behind it.

    Not `ess.InstanceRefresh`: where no node needs it, as at the first `pulumi up` or with a fleet at zero, its creation
    fails after five minutes, and again each time (terraform-provider-alicloud,
    `resource_alicloud_ess_instance_refresh.go`). An execution that ends so has done what there was to do.
    """
    content = renewing(pool)
    if content["Tasks"]:
        _execution(plan, pool, "refresh", content, {"group": group.id, "booted": booted}, [], child)


def _execution(
    plan: Plan,
    pool: Pool,
    what: str,
    content: Mapping[str, Any],
    given: Mapping[str, pulumi.Input[str]],
    first: list[pulumi.Resource],
    child: pulumi.ResourceOptions,
) -> alicloud.oos.Execution:
    """A template and its execution, which is another one whenever it is given something else."""
    name = f"{plan.name}-{pool.one}s-{what}"
    template = alicloud.oos.Template(
        name,
        template_name=unique(name, child),
        content=json.dumps(content),
        auto_delete_executions=True,
        tags=dict(plan.tags),
        opts=child,
    )
    return alicloud.oos.Execution(
        name,
        template_name=template.template_name,
        parameters=pulumi.Output.json_dumps(given),
        safety_check="Skip",
        tags=dict(plan.tags),
        opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=first)),
    )


def _template(description: str, parameters: list[str], *tasks: dict[str, Any]) -> dict[str, Any]:
    """A template of tasks that run one after the other; with the first that fails, all ends."""
    return {
        "FormatVersion": "OOS-2019-06-01",
        "Description": description,
        "Parameters": {name: {"Type": "String"} for name in parameters},
        "RamRole": "",
        "Tasks": list(tasks),
    }


def _call(name: str, api: str, parameters: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A task that makes one call to ESS (OOS user guide, "ACS::ExecuteAPI")."""
    properties = {"Service": "ESS", "API": api, "Parameters": dict(parameters)}
    return {"Name": name, "Action": "ACS::ExecuteAPI", "Properties": properties, **more}
