"""An embedded cloud to test against, and what a cluster needs there, made through its API alone."""

import base64
import json
import os
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import boto3
import pytest

from emulator import cloud, processes
from emulator.instances import Instance

REGION = "us-west-2"
T = TypeVar("T")
_SESSION: Any = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION)


def wait_for(what: str, probe: Callable[[], T], seconds: float = 30) -> T:
    """The first true answer of `probe`; fails the test after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.03)
    return answer


class Http:
    """A client of metadata services."""

    def fetch(self, url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        """Status and text of one request; underscores in header names become dashes."""
        request = urllib.request.Request(url + path, method=method)
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def token(self, url: str) -> str:
        return self.fetch(url, "/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")[1]

    def read(self, url: str, path: str) -> tuple[int, str]:
        """One request below /latest, with a token."""
        return self.fetch(url, f"/latest/{path}", X_aws_ec2_metadata_token=self.token(url))


@dataclass
class World:
    """A running cloud, seen by a user of its API."""

    STAY = "#!/bin/sh\nexec sleep 1000\n"

    cloud: cloud.Cloud
    _subnet: str | None = None
    _role: str | None = None
    groups: list[str] = field(default_factory=list)
    _clients: dict[str, Any] = field(default_factory=dict)

    wait_for = staticmethod(wait_for)

    @property
    def nodes(self) -> Path:
        return self.cloud.home / "cloud" / "nodes"

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = _SESSION.client(service, endpoint_url=self.cloud.endpoint)
        return self._clients[service]

    @property
    def subnet(self) -> str:
        if self._subnet is None:
            ec2 = self.client("ec2")
            vpc = ec2.create_vpc(CidrBlock="127.10.0.0/16")["Vpc"]["VpcId"]
            subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="127.10.1.0/24", AvailabilityZone=f"{REGION}b")
            self._subnet = subnet["Subnet"]["SubnetId"]
        return self._subnet

    @property
    def role(self) -> str:
        if self._role is None:
            iam = self.client("iam")
            iam.create_role(RoleName="node", AssumeRolePolicyDocument=json.dumps({"Statement": []}))
            iam.create_instance_profile(InstanceProfileName="node-profile")
            iam.add_role_to_instance_profile(InstanceProfileName="node-profile", RoleName="node")
            self._role = "node"
        return self._role

    def template(self, user_data: str | None, **data: Any) -> str:
        assert self.role
        data = {
            "ImageId": "ami-0123456789abcdef0",
            "InstanceType": "p4d.24xlarge",
            "IamInstanceProfile": {"Name": "node-profile"},
            "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
        } | data
        if user_data is not None:
            data["UserData"] = base64.b64encode(user_data.encode()).decode()
        name = f"template-{uuid.uuid4().hex[:8]}"
        answer = self.client("ec2").create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        return answer["LaunchTemplate"]["LaunchTemplateId"]

    def group(self, user_data: str | None, nodes: int = 1, tags: dict[str, str] | None = None, **data: Any) -> str:
        template = self.template(user_data, **data)
        name = f"group-{uuid.uuid4().hex[:8]}"
        self.client("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=0,
            MaxSize=8,
            DesiredCapacity=nodes,
            VPCZoneIdentifier=self.subnet,
            LaunchTemplate={"LaunchTemplateId": template, "Version": "1"},
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in (tags or {}).items()],
        )
        self.groups.append(name)
        return name

    def instances(self, group: str) -> list[str]:
        answer = self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        return [instance["InstanceId"] for instance in answer["AutoScalingGroups"][0]["Instances"]]

    def booted(self, group: str, nodes: int, besides: set[str] | None = None) -> list[str]:
        """The instances of a group once there are so many, all new and each with a process of its own."""

        def probe() -> list[str]:
            found = self.instances(group)
            ready = len(found) == nodes and not set(found) & (besides or set())
            return found if ready and all(self.processes(one) for one in found) else []

        return wait_for(f"{nodes} booted nodes", probe) if nodes else []

    def root(self, instance: str) -> Path:
        return self.nodes / instance

    def metadata(self, instance: str) -> str:
        """The address of a node's metadata service, from the environment of its first process."""
        environment = Path(f"/proc/{min(self.processes(instance))}/environ").read_text()
        return dict(entry.split("=", 1) for entry in environment.split("\0") if entry)[
            "AWS_EC2_METADATA_SERVICE_ENDPOINT"
        ]

    def state(self, instance: str) -> str:
        answer = self.client("ec2").describe_instances(InstanceIds=[instance])
        return str(answer["Reservations"][0]["Instances"][0]["State"]["Name"])

    def processes(self, instance: str) -> set[int]:
        return processes.belonging_to(self.root(instance))

    def file(self, instance: str, name: str) -> str:
        """The content of a file that a node's user-data writes, once it is there."""
        path = self.root(instance) / name
        wait_for(f"{path}", lambda: path.exists() and path.stat().st_size > 0)
        return path.read_text()

    def log(self) -> str:
        return (self.cloud.home / "cloud" / "cloud.log").read_text()


@pytest.fixture(scope="session")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One cloud for all tests that leave it running; its home has a blank in its name, as a user's may."""
    home = tmp_path_factory.mktemp("home with blanks")
    running, _ = cloud.start(home)
    yield World(running)
    cloud.stop(home)


@pytest.fixture(scope="session")
def http() -> Http:
    return Http()


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    """The shared cloud; the groups that a test made in it are deleted afterwards."""
    yield shared_world
    autoscaling = shared_world.client("autoscaling")
    while shared_world.groups:
        autoscaling.delete_auto_scaling_group(AutoScalingGroupName=shared_world.groups.pop(), ForceDelete=True)


@pytest.fixture
def an_instance() -> Callable[..., Instance]:
    """Makes instances that differ from a plain one in what is said."""

    def make(**different: Any) -> Instance:
        plain: dict[str, Any] = {
            "id": "i-1",
            "group": "group",
            "cloud": "aws",
            "network": "vpc-1",
            "subnet": "subnet-1",
            "region": REGION,
            "zone": f"{REGION}b",
            "type": "p4d.24xlarge",
            "image": "ami-1",
            "architecture": "x86_64",
            "address": "127.10.1.9",
            "mac": "02:00:00:00:00:01",
            "launched": datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC),
            "spot": False,
            "profile": None,
            "tags_shown": False,
            "tokens_only": False,
            "user_data": b"#!/bin/sh\n",
        }
        return Instance(**plain | different)

    return make


@pytest.fixture
def new_world() -> type[World]:
    """Makes a world of a test's own cloud."""
    return World


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home of a test's own, whose cloud is stopped afterwards."""
    yield tmp_path / "home"
    cloud.stop(tmp_path / "home")


@pytest.fixture(autouse=True)
def _no_real_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
