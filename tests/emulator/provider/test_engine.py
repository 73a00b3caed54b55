"""The real engine over the stand-in and an embedded cloud: up, change, refresh, destroy."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator import cloud
from tools import environment, pulumi_cli

pytestmark = pytest.mark.engine

PROGRAM = """
import base64

import pulumi
import pulumi_aws as aws

config = pulumi.Config()
account = aws.get_caller_identity().account_id
vpc = aws.ec2.Vpc("network", cidr_block="127.11.0.0/16")
subnet = aws.ec2.Subnet("a", vpc_id=vpc.id, cidr_block="127.11.1.0/24", availability_zone="us-west-2a")
key = aws.kms.Key("key", deletion_window_in_days=7)
bucket = aws.s3.Bucket("data", force_destroy=True)
aws.s3.BucketVersioning("data", bucket=bucket.id, versioning_configuration={"status": "Enabled"})
aws.s3.BucketObjectv2("bundle", bucket=bucket.id, source=pulumi.FileAsset("Pulumi.yaml"))
script = base64.b64encode((config.get("script") or "#!/bin/sh\\n").encode()).decode()
template = aws.ec2.LaunchTemplate(
    "node",
    image_id="ami-00000000000000000",
    instance_type="m6a.large",
    user_data=pulumi.Output.secret(script),
    metadata_options={config.get("option") or "http_tokens": "required"},
    block_device_mappings=[
        {"device_name": "/dev/xvda", "ebs": {"volume_size": 8, "encrypted": "true", "kms_key_id": key.arn}}
    ],
)
group = aws.autoscaling.Group(
    "nodes",
    min_size=0,
    max_size=5,
    desired_capacity=config.get_int("nodes") or 2,
    vpc_zone_identifiers=[subnet.id],
    launch_template={"id": template.id, "version": template.latest_version.apply(str)},
)
pulumi.export("group", group.name)
pulumi.export("version", template.latest_version)
"""


@dataclass
class Stack:
    """A stack of that program, in a home with a cloud of its own."""

    folder: Path
    running: cloud.Cloud
    environment: dict[str, str]
    name: str = "local"

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        done = subprocess.run(
            [self.environment["PULUMI"], *arguments, "--stack", self.name, "--non-interactive", "--color=never"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def up(self, *arguments: str) -> str:
        return self.pulumi("up", "--yes", "--skip-preview", *arguments)

    def refresh(self) -> str:
        return self.pulumi("refresh", "--yes", "--skip-preview")

    def set(self, name: str, value: str) -> None:
        """As `pulumi config set` would, without a process."""
        file = self.folder / f"Pulumi.{self.name}.yaml"
        content = (yaml.safe_load(file.read_text()) if file.exists() else None) or {}
        content.setdefault("config", {})[name if ":" in name else f"demo:{name}"] = value
        file.write_text(yaml.safe_dump(content))

    def held(self) -> dict[str, Any]:
        """The resources by name as they lie in the state, which is a file."""
        [file] = (self.running.home / "state").glob(f".pulumi/stacks/*/{self.name}.json")
        resources = json.loads(file.read_text())["checkpoint"]["latest"]["resources"]
        return {resource["urn"].rpartition("::")[2]: resource for resource in resources}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("program")
    cli = pulumi_cli.present()
    ours = environment.embedded(home, cli)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PULUMI_"))}
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (folder / "__main__.py").write_text(PROGRAM)
    try:
        running, _ = cloud.start(home)
        environment.prepare(home, cli)  # after the start, which clears the state of clouds that are no more
        made = Stack(folder, running, {**clean, **ours, "PULUMI": str(cli.path)})
        made.pulumi("stack", "init")
        made.set("aws:region", "us-west-2")
        yield made
    finally:
        cloud.stop(home)


@pytest.fixture
def api(stack: Stack, api_client: Callable[..., Any]) -> Callable[[str], Any]:
    return lambda service: api_client(stack.running.endpoint, service)


def test_a_stack_goes_through_its_life_as_on_aws(stack: Stack, api: Callable[[str], Any]) -> None:
    def group() -> dict[str, Any]:
        found: dict[str, Any] = api("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"][0]
        return found

    assert "9 to create" in stack.pulumi("preview")
    assert not api("s3").list_buckets()["Buckets"], "a preview touched the cloud"
    stack.up()
    assert len(group()["Instances"]) == 2
    assert "9 unchanged" in stack.refresh()

    data = stack.held()["node"]
    for side in ("inputs", "outputs"):
        assert "ciphertext" in data[side]["userData"], f"user-data lies open in the state's {side}"

    stack.set("nodes", "3")
    told = stack.up()
    assert "1 updated" in told
    assert "8 unchanged" in told
    assert len(group()["Instances"]) == 3

    stack.set("script", "#!/bin/sh\necho second\n")
    told = stack.pulumi("up", "--yes")
    assert "2 to update" in told
    assert "2 updated" in told
    assert group()["LaunchTemplate"]["Version"] == "2"

    api("autoscaling").set_desired_capacity(AutoScalingGroupName=group()["AutoScalingGroupName"], DesiredCapacity=1)
    [bucket] = api("s3").list_buckets()["Buckets"]
    api("s3").delete_object(Bucket=bucket["Name"], Key="bundle")
    told = stack.refresh()
    assert "desiredCapacity" in told
    assert "1 deleted" in told
    told = stack.up()
    assert "1 updated" in told
    assert "1 created" in told
    assert group()["DesiredCapacity"] == 3

    stack.set("option", "http_tokns")
    told = stack.pulumi("preview", fails=True)
    assert "there is no property 'metadataOptions.http_tokns'; did you mean http_tokens or httpTokens?" in told
    assert "Traceback" not in told

    stack.pulumi("destroy", "--yes", "--skip-preview")
    assert not api("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert not api("s3").list_buckets()["Buckets"]
    assert not api("ec2").describe_launch_templates()["LaunchTemplates"]
    assert not [vpc for vpc in api("ec2").describe_vpcs()["Vpcs"] if not vpc["IsDefault"]]
    [key] = api("kms").list_keys()["Keys"]
    assert api("kms").describe_key(KeyId=key["KeyId"])["KeyMetadata"]["KeyState"] == "PendingDeletion"


def test_a_stack_of_another_name_is_previewed_but_not_deployed(stack: Stack, api: Callable[[str], Any]) -> None:
    other = Stack(stack.folder, stack.running, stack.environment, "prod")
    other.pulumi("stack", "init")
    other.set("aws:region", "eu-central-1")
    told = other.pulumi("up", "--yes", fails=True)
    assert "9 to create" in told
    assert "changes only stacks named local…, not prod" in told
    assert not api("s3").list_buckets()["Buckets"]
