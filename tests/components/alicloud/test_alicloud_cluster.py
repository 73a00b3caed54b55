"""A whole cluster: its parts are wired to each other, and its outputs say what the command asks of."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pulumi
import pytest

from components.cluster import InvalidArgs, TrainingCluster

JIA = "acs:ram::1234567890123456:user/jia"
FULL = {
    "network.egress": "endpoints",
    "network.zones": ["ap-southeast-1a"],
    "audit.enabled": True,
    "audit.emails": ["a@example.com"],
    "security.operators": [JIA],
    "storage.warm": {"size_gib": 1200, "throughput": 125},
    "scaling": {"queue": True, "idle_minutes": 30},
    "data_nodes": {"type": "ecs.i4.8xlarge", "count": 1},
}


def _config(record):
    """What a node is told in its user-data."""
    script = base64.b64decode(record.inputs["userData"]).decode()
    line = next(line for line in script.splitlines() if line.startswith("CONFIG = "))
    return json.loads(json.loads(line.removeprefix("CONFIG = json.loads(").removesuffix(")")))


def _outputs(mocked, values):
    found = {}

    def program():
        cluster = TrainingCluster("c1", values)
        for name, output in cluster.outputs().items():
            pulumi.Output.from_input(output).apply(lambda value, name=name: found.__setitem__(name, value))

    mocked.declare(program)
    return found


def test_the_outputs_are_those_of_every_cloud(mocked, ali):
    """The `trainwright` command reads them by these names, and knows the group by its id."""
    outputs = _outputs(mocked, ali(FULL))
    assert outputs["bucket"] == "c1-data-1a2b3c4"
    assert (outputs["group"], outputs["dataGroup"]) == ("c1-nodes-id", "c1-data-nodes-id")
    assert outputs["keyArn"].endswith(":key/c1-data-id")
    assert outputs["evidenceKeyArn"].endswith(":key/c1-evidence-id")
    assert outputs["auditBucket"]
    assert outputs["queueUrl"].startswith("https://1234567890123456.mns.ap-southeast-1.aliyuncs.com/queues/")
    assert outputs["run"].startswith("gpt-")


def test_what_the_file_does_not_ask_for_is_no_output(mocked, ali):
    outputs = _outputs(mocked, ali({"nodes.fabric": "tcp"}))
    assert outputs.keys() == {"bucket", "group", "keyArn", "run", "cost"}


def test_nodes_are_told_where_each_part_of_the_cluster_is(mocked, ali):
    records = mocked.cluster(ali(FULL))
    config = _config(records.one("ScalingConfiguration"))
    inside = "https://1234567890123456.mns.ap-southeast-1-internal.aliyuncs.com/queues/"
    assert config["bucket"] == "c1-data-1a2b3c4"
    assert config["queue"].startswith(inside)
    assert config["failed"].startswith(inside)
    assert config["queue"] != config["failed"]
    assert config["namespace"].isdecimal(), "the id of a group of CloudMonitor's, which metrics are put in"
    assert config["warm"].startswith("nfs:")
    assert config["harden"] is True
    assert config["erdma"] == 1


def test_data_nodes_are_told_no_more_than_they_need(mocked, ali):
    """Their template changes with nothing else of the cluster, so that they stay where they are."""
    config = _config(mocked.cluster(ali(FULL)).one("EcsLaunchTemplate", "c1-data-node"))
    assert (config["role"], config["bucket"]) == ("data", "c1-data-1a2b3c4")
    assert config["failed"].endswith("-failed-data-nodes")
    assert not {"queue", "namespace", "warm", "harden"} & config.keys()


def test_nodes_that_train_and_those_that_serve_share_no_role(mocked, ali):
    records = mocked.cluster(ali(FULL))
    ours = records.one("ScalingConfiguration").inputs["roleName"]
    assert ours != records.one("EcsLaunchTemplate", "c1-data-node").inputs["ramRoleName"]


def test_all_is_a_child_of_the_cluster_in_its_region(mocked, ali):
    records = mocked.cluster(ali(FULL))
    cluster = records.one("TrainingCluster")
    provider = records.one("alicloud")
    assert provider.inputs["region"] == "ap-southeast-1"
    for record in records.children():
        assert record.parent == cluster.urn, record.key
        assert record is provider or record.provider.startswith(provider.urn), record.key


@pytest.mark.parametrize(
    ("said", "endpoints"), [("", None), ("1", [{"oss": "oss-ap-southeast-1-internal.aliyuncs.com"}])]
)
def test_within_the_regions_network_the_provider_finds_oss_there(mocked, ali, monkeypatch, said, endpoints):
    """In mainland China, new accounts put no object from anywhere else (error 0048-00000401)."""
    monkeypatch.setenv("TRAINWRIGHT_OSS_INTERNAL", said)
    records = mocked.declare(lambda: TrainingCluster("c1", ali({"nodes.fabric": "tcp"})))
    given = records.one("alicloud").inputs.get("endpoints")
    assert (json.loads(given) if given else None) == endpoints


def test_a_provider_that_is_given_is_used(mocked, ali):
    """Its credentials and region are the caller's to choose."""
    import pulumi_alicloud as alicloud

    def program():
        mine = alicloud.Provider("mine", region="ap-southeast-1")
        TrainingCluster("c1", ali({"nodes.fabric": "tcp"}), pulumi.ResourceOptions(providers=[mine]))

    records = mocked.declare(program)
    mine = records.one("alicloud")
    assert mine.name == "mine"
    assert all(record.provider.startswith(mine.urn) for record in records.children() if record is not mine)


def test_every_image_is_looked_up_before_anything_is_declared(mocked, ali):
    values = ali({**FULL, "data_nodes": {"type": "ecs.i4.8xlarge", "image": "m-t4n00000000000000000"}})
    with pytest.raises(InvalidArgs, match=r"data_nodes\.image: m-t4n00000000000000000 can't be looked up"):
        mocked.cluster(values)
    assert {record.type for record in mocked.records.children()} == {"pulumi:providers:alicloud"}


def test_a_cluster_on_alibaba_cloud_never_loads_awss_sdk():
    """It takes half a second and 80 MiB, and a machine may not have it."""
    program = (
        "import sys, components.alicloud.cluster; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'pulumi_aws', 'boto3', 'torch'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == []
