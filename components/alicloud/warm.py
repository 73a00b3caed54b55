"""The warm tier: a file system in the nodes' zone, encrypted with the data key, that nodes fill with datasets.

It is Extreme NAS. CPFS, which would show the bucket by itself, can't be declared whole: it takes no key of the
account's own (NAS API, `CreateFileSystem`, `EncryptType`), the provider doesn't tell the address of its NFS export
(`nas.ProtocolMountTarget`), and has neither the imports nor the automatic updates by which files would come to be there
(CPFS API, `CreateDataFlowTask`, `ApplyDataFlowAutoRefresh`). Nor is it sold outside of the China site.

So nothing is imported: what the first node fetches from the bucket, the others read. NFS itself encrypts nothing on
its way; it stays in the cluster's own vSwitch.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud.network import Network
from components.alicloud.security import asking, unique
from components.nas import kind
from components.plan import Plan
from components.spec import Warm

EXPORT = "/share"
"""What is mounted of it (NAS user guide, "Mount an NFS file system on a Linux ECS instance")."""

CUSTOMER_KEY = 2
"""NAS API, `CreateFileSystem`, `EncryptType`; of Extreme NAS alone."""

TYPE = "extreme"


@dataclass(frozen=True)
class FileSystem:
    """What nodes mount, and what must be there before they can."""

    source: pulumi.Output[str]
    """`nfs:<address>:<path>`: what `mount -t` takes before the first colon, and its source behind it."""
    ready: list[pulumi.Resource]


def declare(
    plan: Plan, wanted: Warm, network: Network, key_id: pulumi.Output[str], child: pulumi.ResourceOptions
) -> FileSystem:
    """Declare the file system, where nodes mount it, and who may.

    How fast it is follows from its size (`components/nas.py`), and how much of `wanted.throughput` that is was judged
    before. It has nothing that the bucket hasn't: for that reason it goes with the stack, in production once its
    protection is taken off, as it would be billed, and hold the vSwitch that the stack then can't delete.
    """
    name, zone = f"{plan.name}-warm", plan.subnets[0].zone
    vswitch_id = network.vswitch_ids[0]
    options = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(protect=plan.spec.production))
    system = alicloud.nas.FileSystem(
        name,
        file_system_type=TYPE,
        protocol_type="NFS",
        storage_type=kind(zone),
        capacity=wanted.size_gib,
        zone_id=zone,
        encrypt_type=CUSTOMER_KEY,
        kms_key_id=key_id,
        description=f"Datasets of cluster {plan.name}",
        tags={**plan.tags, "Name": name},
        opts=options,
    )
    group = alicloud.nas.AccessGroup(
        name,
        access_group_name=unique(name, child),
        access_group_type="Vpc",
        file_system_type=TYPE,
        description=f"Nodes of cluster {plan.name}",
        opts=child,
    )
    nodes = _addresses(plan, vswitch_id, child)
    rule = alicloud.nas.AccessRule(
        name,
        access_group_name=group.access_group_name,
        file_system_type=TYPE,
        source_cidr_ip=nodes,
        rw_access_type="RDWR",
        user_access_type="no_squash",  # the agent, which is root there, fills it for all
        priority=1,
        opts=child,
    )
    # NFSv3's daemons take ports of their own; there is nothing at these addresses but nodes and the file system.
    reachable = alicloud.ecs.SecurityGroupRule(
        name,
        security_group_id=network.security_group_id,
        type="egress",
        nic_type="intranet",
        ip_protocol="tcp",
        port_range="1/65535",
        cidr_ip=nodes,
        policy="accept",
        priority=1,
        description="NFS from nodes to the file system, which lies in their vSwitch",
        opts=child,
    )
    target = alicloud.nas.MountTarget(
        name,
        file_system_id=system.id,
        access_group_name=group.access_group_name,
        network_type="Vpc",
        vpc_id=network.vpc_id,
        vswitch_id=vswitch_id,
        opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[rule])),
    )
    return FileSystem(pulumi.Output.concat("nfs:", target.mount_target_domain, f":{EXPORT}"), [target, reachable])


def _addresses(plan: Plan, vswitch_id: pulumi.Input[str], child: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """The nodes' addresses, as a network: the plan's, or that of a vSwitch which was there before."""
    if not plan.spec.network.vpc:
        return pulumi.Output.from_input(plan.subnets[0].cidr)
    ids = pulumi.Output.from_input(vswitch_id).apply(lambda known: [known])
    network: pulumi.Output[str] = alicloud.vpc.get_switches_output(ids=ids, opts=asking(child)).apply(
        lambda found: found.vswitches[0].cidr_block
    )
    return network
