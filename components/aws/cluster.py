"""All that a cluster is on AWS, in the order in which its parts need each other."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from components.aws import (
    alarms,
    audit,
    breaker,
    fleet,
    network,
    queue,
    roles,
    scaling,
    security,
    storage,
    warm,
)
from components.bundle import build, default_folder
from components.outputs import Declared
from components.plan import Plan


def declare(plan: Plan, component: pulumi.ComponentResource) -> Declared:
    """Declare the cluster as children of `component`. Raises `Invalid` where an image can't be used."""
    provider = component.get_provider("aws:index:Provider") or aws.Provider(
        f"{plan.name}-aws", region=plan.spec.region, opts=pulumi.ResourceOptions(parent=component)
    )
    child = pulumi.ResourceOptions(parent=component, provider=provider)
    nodes = plan.spec.nodes
    root_device = fleet.find_root_device(
        nodes.image, security.asking(child), nodes.confidential, plan.instance.boot_modes
    )
    data = plan.data
    data_device = fleet.find_root_device(data.image, security.asking(child), key="data_nodes.image") if data else ""
    bundle = build(default_folder())
    key = security.declare_key(plan, child)
    stored = storage.declare_bucket(plan, key.arn, child)
    bucket = stored.bucket
    identity = security.declare_identity(plan, bucket.arn, key.arn, child)
    reachable = network.declare(plan, bucket.arn, child)
    objects = storage.declare_objects(plan, stored, bundle, child)
    record = audit.declare(plan, bucket.arn, reachable, child) if plan.spec.audit.enabled else None
    wanted = plan.spec.storage.warm
    shared = warm.declare(plan, wanted, reachable, stored, key.arn, child) if wanted else None
    first = [*objects, *(record.ready if record else []), *(shared.ready if shared else [])]
    source = shared.source if shared else ""
    work = queue.declare(plan, identity, bucket.arn, key.arn, child)
    url = work.id if work else ""  # which it is, and known first
    group = fleet.declare(plan, reachable, identity, bucket, bundle, key.arn, root_device, first, child, source, url)
    scaling.declare(plan, group, identity, bucket, work, child)
    topic = alarms.declare(plan, record, reachable, group, bucket, work, child) if record else None
    breaker.declare(plan, plan.pool, group, topic.arn if topic else None, child)
    data_identity = None
    serving = None
    if data:
        data_identity = security.declare_data_identity(plan, data, bucket.arn, key.arn, child)
        serving = fleet.declare_data(
            plan, data, reachable, data_identity, bucket, bundle, key.arn, data_device, first, child
        )
        breaker.declare(plan, data, serving, topic.arn if topic else None, child)
    roles.declare(plan, bucket.arn, key.arn, group, identity, record, child, data_identity, work)
    return Declared(
        bucket=bucket.bucket,
        group=group.name,
        key_arn=key.arn,
        queue_url=work.url if work else None,
        data_group=serving.name if serving else None,
        audit_bucket=record.bucket.bucket if record else None,
        evidence_key_arn=security.declare_evidence_key(plan, child).arn if record else None,
    )
