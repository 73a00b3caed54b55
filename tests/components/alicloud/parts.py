"""Declares parts of a cluster on Alibaba Cloud by themselves, beside what they are given."""

import pulumi
import pulumi_alicloud as alicloud

from components.alicloud import alarms, breaker, contacts, queue, scaling
from components.alicloud.security import Identity
from components.plan import decide
from components.spec import parse

ACCOUNT = "1234567890123456"
REGION = "ap-southeast-1"
BUCKET = "c1-data-1a2b3c4"
KEY = "key-1"


def governed(values, name="c1"):
    """A program: all that scales, stops and watches the fleet of these values. The group is a plain one."""

    def program():
        plan, child = decide(name, parse(values)), pulumi.ResourceOptions()
        bucket = alicloud.oss.Bucket(f"{name}-data").bucket
        role = alicloud.ram.Role(f"{name}-node", role_name=f"{name}-node")
        identity = Identity(role, role.role_name, [])
        metrics = scaling.declare_group(plan, bucket, child)
        work = queue.declare(plan, identity, bucket, pulumi.Output.from_input(KEY), child)
        counter = breaker.declare_counter(plan, plan.pool, bucket, child)
        group = alicloud.ess.ScalingGroup(f"{name}-nodes", min_size=0, max_size=plan.fleet.max)
        told = contacts.declare(plan, group, child)
        scaling.declare(plan, group, identity, bucket, metrics, work, told, child)
        breaker.declare(plan, plan.pool, group, counter, identity, told, child)
        if plan.data:
            counted = breaker.declare_counter(plan, plan.data, bucket, child)
            serving = alicloud.ess.ScalingGroup(f"{name}-data-nodes", min_size=0, max_size=plan.data.fleet.max)
            server = alicloud.ram.Role(f"{name}-data-node", role_name=f"{name}-data-node")
            breaker.declare(plan, plan.data, serving, counted, Identity(server, server.role_name, []), told, child)
        if plan.spec.audit.enabled:
            alarms.declare(plan, group, bucket, metrics, told, child)

    return program
