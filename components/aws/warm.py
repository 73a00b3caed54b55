"""The warm tier: a Lustre file system in the nodes' zone that shows the bucket's datasets as files.

Its first link to a bucket makes the account's role `AWSServiceRoleForFSxS3Access_<file system>`, with leave to use the
bucket (FSx for Lustre user guide, "Using service-linked roles"): nothing in the bucket's policy has to name it. The
data key's policy has to, see `security.key_policy`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components import layout
from components.aws.network import Network
from components.aws.storage import Storage
from components.plan import Plan
from components.spec import Warm

PORTS = ((988, 988), (1018, 1023))
"""What clients and servers talk over, both ways (FSx for Lustre user guide, "File system access control with Amazon
VPC")."""

VERSION = "2.15"
"""Of Lustre; what FSx recommends for all that is new (FSx API, `FileSystemTypeVersion`)."""

IMPORTED = ("NEW", "CHANGED", "DELETED")


@dataclass(frozen=True)
class FileSystem:
    """What nodes mount, and what must be there before they can."""

    source: pulumi.Output[str]
    ready: list[pulumi.Resource]


def declare(
    plan: Plan,
    wanted: Warm,
    network: Network,
    storage: Storage,
    key_arn: pulumi.Output[str],
    child: pulumi.ResourceOptions,
) -> FileSystem:
    """Declare the file system, its security group, and its link to the bucket's datasets.

    Without backups, which AWS doesn't make of a file system that is linked to a bucket: the bucket has all that it had
    (FSx for Lustre user guide, "Working with backups"). For that reason, too, it goes with the stack, in production
    once its protection is taken off: left in the account, it would be billed, and hold the subnet and the security
    group that the stack then can't delete.
    """
    name, tags = f"{plan.name}-warm", dict(plan.tags)
    options = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(protect=plan.spec.production))
    group, rules = _security_group(plan, network, child)
    system = aws.fsx.LustreFileSystem(
        name,
        deployment_type="PERSISTENT_2",
        storage_type="SSD",
        storage_capacity=wanted.size_gib,
        per_unit_storage_throughput=wanted.throughput,
        data_compression_type="LZ4",
        file_system_type_version=VERSION,
        kms_key_id=key_arn,
        subnet_ids=network.subnet_ids[0],
        security_group_ids=[group.id],
        automatic_backup_retention_days=0,
        skip_final_backup=True,
        tags={**tags, "Name": name},
        # FSx looks at the rules before it makes a file system.
        opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=rules)),
    )
    # Nothing goes back to the bucket: a node may write to the file system, but not to `datasets/`.
    link = aws.fsx.DataRepositoryAssociation(
        name,
        file_system_id=system.id,
        file_system_path=f"/{layout.DATASETS.rstrip('/')}",
        data_repository_path=storage.bucket.bucket.apply(lambda bucket: f"s3://{bucket}/{layout.DATASETS}"),
        batch_import_meta_data_on_create=True,
        s3={"auto_import_policy": {"events": [*IMPORTED]}},
        tags={**tags, "Name": name},
        opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=storage.ready)),
    )
    source = pulumi.Output.concat(system.dns_name, "@tcp:/", system.mount_name)
    return FileSystem(source, [*rules, link])


def _security_group(
    plan: Plan, network: Network, child: pulumi.ResourceOptions
) -> tuple[aws.ec2.SecurityGroup, list[pulumi.Resource]]:
    """Servers reach each other and nodes, nodes reach servers, over Lustre's ports alone."""
    name, tags, nodes = f"{plan.name}-warm", dict(plan.tags), network.security_group_id
    group = aws.ec2.SecurityGroup(
        name,
        vpc_id=network.vpc_id,
        description=f"Lustre of cluster {plan.name}",
        tags={**tags, "Name": name},
        opts=child,
    )
    rules: list[pulumi.Resource] = []
    for first, last in PORTS:
        for to, (here, there) in {
            "self": (group.id, group.id),
            "nodes": (group.id, nodes),
            "warm": (nodes, group.id),
        }.items():
            both = {
                "security_group_id": here,
                "referenced_security_group_id": there,
                "ip_protocol": "tcp",
                "from_port": first,
                "to_port": last,
                "description": "Lustre between file servers" if to == "self" else "Lustre between servers and nodes",
                "tags": tags,
                "opts": child,
            }
            rules.append(aws.vpc.SecurityGroupIngressRule(f"{name}-from-{to}-{first}", **both))
            rules.append(aws.vpc.SecurityGroupEgressRule(f"{name}-to-{to}-{first}", **both))
    return group, rules
