"""The cluster as a whole: its children, their options, and how bad arguments are refused."""

import pulumi
import pulumi_aws as aws
import pytest

from components.cluster import InvalidArgs

CHILDREN = {
    ("aws:autoscaling/group:Group", "c1-nodes"),
}


def test_print(mocked, stack):
    for r in mocked.cluster(stack()).all:
        print(r.key, r.parent, r.provider, r.protect, sorted(r.dependencies), r.inputs if 'userData' not in r.inputs else '')
