"""What a cluster's declaration gives to the stack: the same names on every cloud."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Outputs of what was declared. What is None isn't there, as the spec doesn't ask for it."""

    bucket: pulumi.Output[str]
    """Name of the bucket that holds bundle, datasets and runs."""
    group: pulumi.Output[str]
    """Name (AWS) or id (Alibaba Cloud) of the group that keeps the nodes."""
    key_arn: pulumi.Output[str]
    """ARN of the key that encrypts bucket and disks."""
    queue_url: pulumi.Output[str] | None = None
    """URL of the queue whose backlog adds nodes, where the spec asks for one."""
    data_group: pulumi.Output[str] | None = None
    """As `group`, of the data nodes, where the spec asks for any."""
    audit_bucket: pulumi.Output[str] | None = None
    """Name of the locked bucket of the audit record, where there is one."""
    evidence_key_arn: pulumi.Output[str] | None = None
    """ARN of the key that signs certificates of erasure, where there is an audit record."""
