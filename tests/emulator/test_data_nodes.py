"""Data nodes on an embedded cloud: user-data, role and all, as instances of two groups."""

import hashlib
import json

import pytest
from botocore.exceptions import ClientError

from components.bootstrap import data_config, node_config, user_data
from components.bundle import build
from components.plan import decide
from components.spec import parse
from tests.emulator.conftest import REGION

SHARDS = {f"shard-{number:05}.bin": bytes([number]) * 4096 for number in range(5)}
STACK = {
    "region": REGION,
    "network": {"zones": [f"{REGION}b"]},
    "nodes": {"type": "m6a.large", "image": "ami-0123456789abcdef0"},
    "data_nodes": {"type": "i4i.32xlarge"},
    "job": {"name": "gpt", "dataset": "text", "steps": 1, "warmup_steps": 0},
}


class Bucket:
    def __init__(self, client, folder):
        self.client, self.name = client, "data-nodes"
        client.create_bucket(Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": REGION})
        self.bundle = build(folder)
        self.put(self.bundle.key, self.bundle.path.read_bytes())
        for name, content in SHARDS.items():
            self.put(f"datasets/text/{name}", content)
        shards = [{"file": name, "sha256": hashlib.sha256(content).hexdigest()} for name, content in SHARDS.items()]
        self.put("datasets/text/index.json", json.dumps({"name": "text", "tokens": 10240, "shards": shards}).encode())

    def put(self, key, content):
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def read(self, key):
        """What is below a key, or nothing."""
        try:
            return json.loads(self.client.get_object(Bucket=self.name, Key=key)["Body"].read())
        except ClientError:
            return None

    def step(self, key, name):
        """A line of a boot report, once it is there."""
        steps = (self.read(key) or {"steps": []})["steps"]
        return next((line for line in steps if line["step"] == name), None)


@pytest.fixture
def bucket(world, tmp_path):
    return Bucket(world.client("s3"), tmp_path)


def test_a_node_that_boots_gets_its_dataset_from_the_data_node_and_not_from_the_bucket(world, bucket):
    plan = decide("c1", parse(STACK))

    def group(config):
        told = config(plan, bucket.name, bucket.bundle.key, bucket.bundle.sha256)
        return world.group(None, UserData=user_data(told))

    data_group = group(data_config)
    (data,) = world.booted(data_group, 1)
    line = world.wait_for("the data node", lambda: bucket.step(f"data/boot/{data}.json", "storage"))
    assert line["detail"] == "dataset text: 10240 tokens, 5 of 5 shards fetched"
    for name in SHARDS:
        bucket.client.delete_object(Bucket=bucket.name, Key=f"datasets/text/{name}")
    (node,) = world.booted(group(node_config), 1)
    line = world.wait_for("the node", lambda: bucket.step(f"runs/{plan.run.id}/boot/{node}.json", "storage"))
    assert line["detail"] == "dataset text: 10240 tokens, 5 of 5 shards fetched, 5 of them from data nodes"
    assert bucket.read(f"runs/{plan.run.id}/control/members/{data}/card.json") is None, "it is no peer"
    world.client("autoscaling").set_desired_capacity(AutoScalingGroupName=data_group, DesiredCapacity=0)
    world.wait_for("the end of its record", lambda: bucket.read(f"data/nodes/{data}.json") is None)
