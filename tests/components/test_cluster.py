"""The cluster as a whole: its children, their options, and how bad arguments are refused."""

import base64
import json
from dataclasses import replace

import pulumi
import pulumi_aws as aws
import pytest

from components.cluster import InvalidArgs
from components.spec import parse

CHILDREN = {
    ("pulumi:providers:aws", "c1-aws"),
    ("aws:autoscaling/group:Group", "c1-nodes"),
    ("aws:autoscaling/policy:Policy", "c1-failed-nodes"),
    ("aws:cloudwatch/eventRule:EventRule", "c1-failed-nodes"),
    ("aws:cloudwatch/metricAlarm:MetricAlarm", "c1-failed-nodes"),
    ("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", "c1-default"),
    ("aws:ec2/launchTemplate:LaunchTemplate", "c1-node"),
    ("aws:ec2/routeTable:RouteTable", "c1-private"),
    ("aws:ec2/routeTableAssociation:RouteTableAssociation", "c1-private-a"),
    ("aws:ec2/securityGroup:SecurityGroup", "c1-nodes"),
    ("aws:ec2/subnet:Subnet", "c1-private-a"),
    ("aws:ec2/vpc:Vpc", "c1-vpc"),
    ("aws:ec2/vpcEndpoint:VpcEndpoint", "c1-s3"),
    ("aws:iam/instanceProfile:InstanceProfile", "c1-node"),
    ("aws:iam/role:Role", "c1-node"),
    ("aws:iam/rolePolicy:RolePolicy", "c1-node"),
    ("aws:kms/alias:Alias", "c1-data"),
    ("aws:kms/key:Key", "c1-data"),
    ("aws:s3/bucket:Bucket", "c1-data"),
    ("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", "c1-data"),
    ("aws:s3/bucketObjectv2:BucketObjectv2", "c1-bundle"),
    ("aws:s3/bucketObjectv2:BucketObjectv2", "c1-fleet"),
    ("aws:s3/bucketObjectv2:BucketObjectv2", "c1-launch-HASH"),
    ("aws:s3/bucketOwnershipControls:BucketOwnershipControls", "c1-data"),
    ("aws:s3/bucketPolicy:BucketPolicy", "c1-data"),
    ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "c1-data"),
    ("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration", "c1-data"),
    ("aws:s3/bucketVersioning:BucketVersioning", "c1-data"),
    ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "c1-to-bucket"),
    ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "c1-to-nodes"),
    ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "c1-from-nodes"),
}
"""Type and name of every child. They are API: changing one replaces a user's resource, and belongs in the changelog."""

LAUNCH = ("aws:s3/bucketObjectv2:BucketObjectv2", "c1-launch-HASH")
"""The audit record's page: it stays in the bucket, where its successor stands beside it."""

OF_NAT = {
    ("aws:ec2/eip:Eip", "c1-nat-a"),
    ("aws:ec2/internetGateway:InternetGateway", "c1-internet"),
    ("aws:ec2/natGateway:NatGateway", "c1-nat-a"),
    ("aws:ec2/route:Route", "c1-private-a"),
    ("aws:ec2/route:Route", "c1-public"),
    ("aws:ec2/routeTable:RouteTable", "c1-private-a"),
    ("aws:ec2/routeTable:RouteTable", "c1-public"),
    ("aws:ec2/routeTableAssociation:RouteTableAssociation", "c1-public-a"),
    ("aws:ec2/subnet:Subnet", "c1-public-a"),
    ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "c1-to-internet"),
}
OF_ENDPOINTS = {
    ("aws:ec2/securityGroup:SecurityGroup", "c1-endpoints"),
    ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "c1-to-endpoints"),
    ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "c1-endpoints-from-nodes"),
    *(
        ("aws:ec2/vpcEndpoint:VpcEndpoint", f"c1-{service}")
        for service in (
            *("ec2", "autoscaling", "kms", "sts", "ssm", "ssmmessages", "ec2messages", "logs", "monitoring"),
        )
    ),
}
OF_PEOPLE = {
    ("aws:ssm/document:Document", "c1-sessions"),
    ("aws:iam/rolePolicy:RolePolicy", "c1-sessions"),
    *(("aws:iam/role:Role", f"c1-{role}") for role in ("trainer", "operator", "auditor")),
    *(("aws:iam/rolePolicy:RolePolicy", f"c1-{role}") for role in ("trainer", "operator", "auditor")),
}
OF_AUDIT = {
    ("aws:cloudtrail/trail:Trail", "c1-audit"),
    ("aws:cloudwatch/dashboard:Dashboard", "c1"),
    ("aws:cloudwatch/logGroup:LogGroup", "c1-flow"),
    ("aws:cloudwatch/logGroup:LogGroup", "c1-trail"),
    ("aws:cloudwatch/logMetricFilter:LogMetricFilter", "c1-key-disabled"),
    ("aws:cloudwatch/logMetricFilter:LogMetricFilter", "c1-trail-changed"),
    *(
        ("aws:cloudwatch/metricAlarm:MetricAlarm", f"c1-{alarm}")
        for alarm in ("idle", "key-disabled", "missing", "trail-changed", "unhealthy")
    ),
    ("aws:ec2/flowLog:FlowLog", "c1-flow"),
    ("aws:iam/role:Role", "c1-flow"),
    ("aws:iam/role:Role", "c1-trail"),
    ("aws:iam/rolePolicy:RolePolicy", "c1-flow"),
    ("aws:iam/rolePolicy:RolePolicy", "c1-trail"),
    ("aws:kms/alias:Alias", "c1-evidence"),
    ("aws:kms/alias:Alias", "c1-logs"),
    ("aws:kms/key:Key", "c1-evidence"),
    ("aws:kms/key:Key", "c1-logs"),
    ("aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration", "c1-audit"),
    *((kind, "c1-audit") for kind, name in CHILDREN if name == "c1-data" and kind.startswith("aws:s3/")),
    ("aws:sns/topic:Topic", "c1-alarms"),
    ("aws:sns/topicPolicy:TopicPolicy", "c1-alarms"),
}
"""What an option adds, in one zone; OF_PEOPLE with all three roles, OF_AUDIT without operators, budget and e-mails."""

CARRY_NO_TAGS = {
    "pulumi:providers:aws",
    "aws:autoscaling/policy:Policy",
    "aws:ec2/routeTableAssociation:RouteTableAssociation",
    "aws:iam/rolePolicy:RolePolicy",
    "aws:kms/alias:Alias",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
    "aws:s3/bucketPolicy:BucketPolicy",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "aws:s3/bucketVersioning:BucketVersioning",
    # An object takes ten tags, a user may have set fifty; the bucket's say whose it is.
    "aws:s3/bucketObjectv2:BucketObjectv2",
}
"""AWS gives these no tags, or, where said, we give them none."""


def test_children_keep_their_types_and_names(mocked, stack):
    assert {record.key for record in mocked.cluster(stack()).children()} == CHILDREN


def test_each_zone_adds_its_subnet_and_changes_no_other_name(mocked, stack):
    zones = ["us-west-2a", "us-west-2c"]
    more = {record.key for record in mocked.cluster(stack({"network.zones": zones})).children()}
    assert more - CHILDREN == {
        ("aws:ec2/subnet:Subnet", "c1-private-c"),
        ("aws:ec2/routeTableAssociation:RouteTableAssociation", "c1-private-c"),
    }
    assert more > CHILDREN


ANYONE = ["arn:aws:iam::123456789012:role/anyone"]
OPTIONS = {
    "endpoints": ({"network.egress": "endpoints"}, OF_ENDPOINTS, set()),
    "nat": ({"network.egress": "nat"}, OF_NAT, {("aws:ec2/routeTable:RouteTable", "c1-private")}),
    "people": (
        {
            "network.egress": "endpoints",
            **{f"security.{role}": ANYONE for role in ("trainers", "operators", "auditors")},
        },
        OF_ENDPOINTS | OF_PEOPLE,
        set(),
    ),
    "audit": ({"audit.enabled": True}, OF_AUDIT, set()),
}


@pytest.mark.parametrize(("changes", "added", "gone"), OPTIONS.values(), ids=OPTIONS.keys())
def test_an_option_adds_its_own_children_and_changes_no_other_name(mocked, stack, changes, added, gone):
    assert {record.key for record in mocked.cluster(stack(changes)).children()} == (CHILDREN - gone) | added


def test_children_hang_below_the_component_and_use_its_provider(mocked, stack):
    records = mocked.cluster(stack())
    component, provider = records.one("TrainingCluster"), records.one("aws", "c1-aws")
    assert {record.parent for record in records.children()} == {component.urn}
    others = [record for record in records.children() if record is not provider]
    assert {record.provider.rsplit("::", 1)[0] for record in others} == {provider.urn}
    assert provider.inputs["region"] == "us-west-2"


def test_a_provider_that_the_user_gives_is_used_and_none_is_made(mocked, stack):
    def program():
        from components.cluster import TrainingCluster

        mine = aws.Provider("mine", region="us-west-2")
        TrainingCluster("c1", stack(), pulumi.ResourceOptions(provider=mine, protect=True))

    records = mocked.declare(program)
    mine = records.one("aws", "mine")
    children = [r for r in records.children() if r is not mine]
    assert {r.provider.rsplit("::", 1)[0] for r in children} == {mine.urn}


def test_everything_taggable_carries_the_clusters_tag_and_the_users(mocked, stack):
    records = mocked.cluster(stack({"tags": {"team": "ml"}}))
    wanted = {"team": "ml", "trainwright:cluster": "c1"}
    for record in records.children():
        if record.type in CARRY_NO_TAGS:
            assert "tags" not in record.inputs
        elif record.type.endswith(":Group"):
            tags = {tag["key"]: tag["value"] for tag in record.inputs["tags"]}
            assert wanted.items() <= tags.items()
            assert all(tag["propagateAtLaunch"] is True for tag in record.inputs["tags"])
        else:
            assert wanted.items() <= record.inputs["tags"].items(), record.key


def test_a_users_tag_cannot_pass_for_another_clusters(mocked, stack):
    with pytest.raises(InvalidArgs, match=r"tags\.trainwright:cluster: is a key that AWS or Trainwright sets itself"):
        mocked.cluster(stack({"tags": {"trainwright:cluster": "other"}}))


@pytest.mark.parametrize("production", [False, True])
def test_a_preview_of_what_does_not_exist_declares_the_same(mocked, stack, production):
    """Unknown outputs break nothing: the same children, no value made up from what isn't known."""
    changes = {"production": production, "audit.enabled": production}
    records = mocked.cluster(stack(changes), preview=True)
    assert {record.key for record in records.children()} == (CHILDREN | OF_AUDIT if production else CHILDREN)
    assert records.one("LaunchTemplate").inputs["userData"] == "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    assert "userData" in records.one("LaunchTemplate").secrets


def test_production_protects_and_keeps_what_holds_data_with_all_that_closes_it_and_nothing_else(mocked, stack):
    """A bucket that is kept without its settings would be kept open, in one version, and unencrypted."""
    records = mocked.cluster(stack({"production": True, "audit.enabled": True}))
    kept = {record.key for record in records.children() if record.protect or record.retain_on_delete}
    kept -= {LAUNCH}
    assert kept == {
        ("aws:kms/key:Key", "c1-data"),
        *(key for key in CHILDREN if key[0].startswith("aws:s3/") and "bucketObject" not in key[0]),
        # The record, and all that the trail needs to go on.
        ("aws:kms/key:Key", "c1-logs"),
        ("aws:kms/key:Key", "c1-evidence"),
        *(key for key in OF_AUDIT if key[0].startswith(("aws:s3/", "aws:cloudtrail/", "aws:cloudwatch/logGroup"))),
        ("aws:iam/role:Role", "c1-trail"),
        ("aws:iam/rolePolicy:RolePolicy", "c1-trail"),
    }
    assert len(kept) == 23
    for record in records.children():
        if record.key != LAUNCH:
            assert record.protect == record.retain_on_delete == (record.key in kept)
    assert all(record.inputs["forceDestroy"] is False for record in records.of("Bucket"))
    assert all(record.inputs["deletionWindowInDays"] == 30 for record in records.of("Key"))


def test_outside_production_a_stack_can_be_destroyed_whole(mocked, stack):
    records = mocked.cluster(stack())
    assert [record.key for record in records.all if record.protect or record.retain_on_delete] == [LAUNCH]
    assert records.one("Bucket").inputs["forceDestroy"] is True


def test_what_was_declared_is_recorded_with_who_did_and_stays_when_another_is(mocked, stack):
    """A page of the record that went with its successor would be none; another's `up` of the same changes none."""
    first, second = (
        next(record for record in mocked.cluster(stack(changes)).all if record.key == LAUNCH)
        for changes in ({}, {"job.steps": 70})
    )
    page = json.loads(first.inputs["content"])
    assert page["by"].endswith(":user/someone")
    assert first.inputs["key"].startswith(f"runs/{page['run']}/audit/launch-")
    assert (page["nodes"]["types"], page["job"]["name"]) == (["m6a.large"], "gpt")
    assert page["bundle_sha256"]
    assert first.name != second.name
    assert first.retain_on_delete
    assert first.ignore_changes == ("content",)


def _changed(before, after):
    """Keys of the records whose inputs differ."""
    old = {record.key: record.inputs for record in before.all}
    return {record.key for record in after.all if record.inputs != old[record.key]}


def test_scaling_changes_the_groups_sizes_and_fleet_json_alone(mocked, stack):
    """A change of user-data would replace every node of a run that was only to grow."""
    before = mocked.cluster(stack())
    after = mocked.cluster(stack({"nodes.desired": 3}))
    assert _changed(before, after) == {
        ("aws:autoscaling/group:Group", "c1-nodes"),
        ("aws:s3/bucketObjectv2:BucketObjectv2", "c1-fleet"),
    }
    assert json.loads(after.one("BucketObjectv2", "c1-fleet").inputs["content"]) == {"min": 1, "desired": 3, "max": 4}
    group = after.one("Group").inputs
    assert (group["minSize"], group["desiredCapacity"], group["maxSize"]) == (0, 3, 4)


def _config(records):
    script = base64.b64decode(records.one("LaunchTemplate").inputs["userData"]).decode()
    line = next(line for line in script.splitlines() if line.startswith("CONFIG = "))
    scope: dict = {"json": json}
    exec(line, scope)
    return scope["CONFIG"]


def test_changing_the_job_changes_user_data_and_the_run_and_nothing_else(mocked, stack):
    before = mocked.cluster(stack())
    after = mocked.cluster(stack({"job.steps": 70}))
    assert _changed(before, after) == {("aws:ec2/launchTemplate:LaunchTemplate", "c1-node"), LAUNCH}
    assert _config(before)["run"] != _config(after)["run"]
    assert _config(after)["job"]["steps"] == 70


def test_bad_arguments_are_refused_before_anything_is_registered_with_every_finding(mocked, stack):
    with pytest.raises(InvalidArgs) as raised:
        mocked.cluster(stack({"nodes.desired": 0, "regoin": "x", "job.model.layers": "many", "region": None}))
    assert mocked.records.all == []
    assert {finding.path for finding in raised.value.findings} == {
        "nodes.desired",
        "regoin",
        "job.model.layers",
        "region",
    }
    assert str(raised.value).splitlines()[0] == "cluster 'c1' has 4 problems; nothing was declared:"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"nodes.type": "m6a.larg"}, "nodes.type"),
        ({"network.cidr": "10.0.0.0/30"}, "network.cidr"),
        ({"nodes.python": "p" * 20_000}, "nodes.python"),
        ({"job.seed": 10**30}, "job.seed"),
        ({"job.learning_rate": float("inf")}, "job.learning_rate"),
        ({"nodes.min": 3}, "nodes.min"),
    ],
)
def test_what_a_later_stage_would_refuse_is_refused_before_too(mocked, stack, changes, path):
    with pytest.raises(InvalidArgs) as raised:
        mocked.cluster(stack(changes))
    assert mocked.records.all == []
    assert [finding.path for finding in raised.value.findings] == [path]


@pytest.mark.parametrize("args", [None, 3, [], "text"])
def test_arguments_of_a_wrong_kind_are_refused_in_words(mocked, args):
    with pytest.raises(InvalidArgs, match="must be a mapping"):
        mocked.cluster(args)
    assert mocked.records.all == []


def test_refusals_are_errors_that_pulumi_prints_without_a_traceback(mocked, stack):
    """Only `RunError` is printed as clean lines (facts: pulumi.md 1.2)."""
    with pytest.raises(pulumi.RunError):
        mocked.cluster(stack({"nodes.desired": 0}))
    assert issubclass(InvalidArgs, ValueError)


def test_a_parsed_spec_means_the_same_as_its_values(mocked, stack):
    from_values = mocked.cluster(stack())
    assert _changed(from_values, mocked.cluster(parse(stack()))) == set()


def test_two_people_who_deploy_the_same_cluster_change_nothing_of_each_others(mocked, stack, bundle, monkeypatch):
    """Wherever the bundle lies on a machine: only the path of the file to upload differs, which no cloud sees."""
    here = mocked.cluster(stack())
    elsewhere = replace(bundle, path=bundle.path.parent / "elsewhere" / bundle.path.name)
    monkeypatch.setattr("components.aws.cluster.build", lambda _: elsewhere)
    there = mocked.cluster(stack())
    asset = ("aws:s3/bucketObjectv2:BucketObjectv2", "c1-bundle")
    assert _changed(here, there) <= {asset}
    differing = {
        name
        for name, value in there.one("BucketObjectv2", "c1-bundle").inputs.items()
        if value != here.one("BucketObjectv2", "c1-bundle").inputs[name]
    }
    assert differing == {"source"}
