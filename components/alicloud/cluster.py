"""All that a cluster is on Alibaba Cloud, in the order in which its parts need each other."""

from __future__ import annotations

import pulumi
import pulumi_alicloud as alicloud

from components.bundle import build, default_folder
from components.outputs import Declared
from components.plan import Plan


def declare(plan: Plan, component: pulumi.ComponentResource) -> Declared:
    """Declare the cluster as children of `component`. Raises `Invalid` where an image can't be used."""
    provider = component.get_provider("alicloud:index:Provider") or alicloud.Provider(
        f"{plan.name}-alicloud", region=plan.spec.region, opts=pulumi.ResourceOptions(parent=component)
    )
    child = pulumi.ResourceOptions(parent=component, provider=provider)
    bundle = build(default_folder())
    raise NotImplementedError(child, bundle)
