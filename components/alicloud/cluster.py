"""All that a cluster is on Alibaba Cloud, in the order in which its parts need each other."""

from __future__ import annotations

import os
from typing import Any

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud import (
    alarms,
    audit,
    breaker,
    contacts,
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

INTERNAL = "TRAINWRIGHT_OSS_INTERNAL"
"""Variable that is set where OSS is reached within the region's network (`trainer/dialects.py`)."""


def endpoints(region: str, inside: bool) -> list[Any]:
    """Where the provider finds what isn't at its public address: OSS, within the region's network."""
    return [{"oss": f"oss-{region}-internal.aliyuncs.com"}] if inside else []


def declare(plan: Plan, component: pulumi.ComponentResource) -> Declared:
    """Declare the cluster as children of `component`. Raises `Invalid` where an image can't be used."""
    provider = component.get_provider("alicloud:index:Provider") or alicloud.Provider(
        f"{plan.name}-alicloud",
        region=plan.spec.region,
        endpoints=endpoints(plan.spec.region, bool(os.environ.get(INTERNAL))) or None,
        opts=pulumi.ResourceOptions(parent=component),
    )
    child = pulumi.ResourceOptions(parent=component, provider=provider)
    image = fleet.find_image(plan.spec.nodes.image, security.asking(child))
    data = plan.data
    data_image = fleet.find_image(data.image, security.asking(child), "data_nodes.image") if data else ""
    bundle = build(default_folder())
    key = security.declare_key(plan, child)
    stored = storage.declare_bucket(plan, key.id, child)
    bucket = stored.bucket.bucket
    identity = security.declare_identity(plan, bucket, key.id, child)
    reachable = network.declare(plan, bucket, child)
    objects = storage.declare_objects(plan, stored, bundle, child)
    record = audit.declare(plan, bucket, stored.claims.bucket, reachable, child) if plan.spec.audit.enabled else None
    wanted = plan.spec.storage.warm
    shared = warm.declare(plan, wanted, reachable, key.id, child) if wanted else None
    first = [*objects, *(record.ready if record else []), *(shared.ready if shared else [])]
    measures = scaling.declare_group(plan, bucket, child)
    work = queue.declare(plan, identity, bucket, key.id, child)
    counter = breaker.declare_counter(plan, plan.pool, bucket, child)
    group = fleet.declare(
        plan,
        reachable,
        identity,
        bucket,
        bundle,
        key.id,
        image,
        first,
        child,
        warm=shared.source if shared else "",
        queue=queue.declare_url(plan, work, child, private=True) if work else "",
        namespace=measures.id if measures else "",
        failed=queue.declare_url(plan, counter, child, private=True),
    )
    people = contacts.declare(plan, group, child)
    scaling.declare(plan, group, identity, bucket, measures, work, people, child)
    if record:
        alarms.declare(plan, group, bucket, measures, people, child)
    breaker.declare(plan, plan.pool, group, counter, identity, people, child)
    serving = None
    if data:
        data_identity = security.declare_data_identity(plan, data, bucket, key.id, child)
        data_counter = breaker.declare_counter(plan, data, bucket, child)
        serving = fleet.declare_data(
            plan,
            data,
            reachable,
            data_identity,
            bucket,
            bundle,
            key.id,
            data_image,
            first,
            child,
            failed=queue.declare_url(plan, data_counter, child, private=True),
        )
        breaker.declare(plan, data, serving, data_counter, data_identity, people, child)
    evidence_key = security.declare_evidence_key(plan, child) if record else None
    roles.declare(plan, bucket, key.id, group, record, child, work, evidence_key)
    return Declared(
        bucket=bucket,
        group=group.id,
        key_arn=key.arn,
        queue_url=queue.declare_url(plan, work, child) if work else None,
        data_group=serving.id if serving else None,
        audit_bucket=record.bucket.bucket if record else None,
        evidence_key_arn=evidence_key.arn if evidence_key else None,
    )
