"""The stand-in in this process, over an API server of its own: no engine, no plugin process."""

import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from emulator import server
from emulator.provider.aws.api import Api
from emulator.provider.stand_in import StandIn
from emulator.provider.wire import Props

REGION = "us-west-2"
ALIBABA = "cn-hangzhou"
"""A region that AWS has none of the name of."""


@dataclass
class Deployed:
    """One resource as the engine would hold it."""

    urn: str
    id: str
    inputs: Props
    state: Props

    @property
    def token(self) -> str:
        return self.urn.split("::")[2].rpartition("$")[2]


@dataclass
class Deployment:
    """What an engine does with the providers, one resource at a time, in the stack `local`."""

    stand_in: StandIn
    api: Api
    alibaba: StandIn
    made: list[Deployed] = field(default_factory=list)

    def of(self, token: str) -> StandIn:
        """The stand-in for a type's provider."""
        return self.alibaba if token.startswith("alicloud:") else self.stand_in

    def urn(self, token: str, name: str = "x", stack: str = "local") -> str:
        return f"urn:pulumi:{stack}::project::trainwright:index:TrainingCluster${token}::{name}"

    def checked(self, token: str, inputs: Props, old: Props | None = None, name: str = "x") -> Props:
        checked, failures = self.of(token).check(self.urn(token, name), old or {}, inputs, b"seed")
        assert not failures
        return checked

    def create(self, token: str, inputs: Props, name: str = "x") -> Deployed:
        urn, checked = self.urn(token, name), self.checked(token, inputs, name=name)
        id_, state = self.of(token).create(urn, checked, preview=False)
        self.made.append(Deployed(urn, id_, checked, state))
        return self.made[-1]

    def update(self, one: Deployed, **changes: Any) -> Deployed:
        stand_in = self.of(one.token)
        new, failures = stand_in.check(one.urn, one.inputs, {**one.inputs, **changes}, b"other seed")
        assert not failures
        state = stand_in.update(one.urn, one.id, one.state, one.inputs, new, preview=False)
        one.inputs, one.state = new, state
        return one

    def read(self, one: Deployed) -> tuple[str, Props, Props]:
        return self.of(one.token).read(one.urn, one.id, one.inputs, one.state)

    def delete(self, one: Deployed) -> None:
        self.of(one.token).delete(one.urn, one.id, one.state)

    def client(self, service: str) -> Any:
        return self.api.client(service)

    def alibaba_client(self, service: str) -> Any:
        """A client of where things of Alibaba Cloud are."""
        return self.alibaba.api({}).client(service)

    def scaling_group(self, **more: Any) -> Deployed:
        """A scaling group of two nodes, of a template unless it is given none."""
        vpc = self.create("alicloud:vpc/network:Network", {"cidrBlock": "127.11.0.0/16"})
        switch = {"vpcId": vpc.id, "cidrBlock": "127.11.1.0/24", "zoneId": "cn-hangzhou-i"}
        vswitch = self.create("alicloud:vpc/switch:Switch", switch)
        plain = {"minSize": 0, "maxSize": 5, "desiredCapacity": 2, "vswitchIds": [vswitch.id]}
        return self.create("alicloud:ess/scalingGroup:ScalingGroup", {**plain, **more})

    def network(self) -> tuple[Deployed, Deployed]:
        """A VPC and a subnet in it."""
        vpc = self.create("aws:ec2/vpc:Vpc", {"cidrBlock": "127.10.0.0/16"})
        subnet = {"vpcId": vpc.id, "cidrBlock": "127.10.1.0/24", "availabilityZone": "us-west-2a"}
        return vpc, self.create("aws:ec2/subnet:Subnet", subnet)

    def template(self, **more: Any) -> Deployed:
        plain = {"imageId": "ami-00000000000000000", "instanceType": "m6a.large", "userData": "b25l"}
        return self.create("aws:ec2/launchTemplate:LaunchTemplate", {**plain, **more})

    def group(self, template: Deployed, **more: Any) -> Deployed:
        plain = {
            "minSize": 0,
            "maxSize": 5,
            "desiredCapacity": 2,
            "launchTemplate": {"id": template.id, "version": str(template.state["latestVersion"])},
            "vpcZoneIdentifiers": [self.network()[1].id],
        }
        return self.create("aws:autoscaling/group:Group", {**plain, **more})

    def described(self, group: Deployed) -> dict[str, Any]:
        groups = self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group.id])
        found: dict[str, Any] = groups["AutoScalingGroups"][0]
        return found

    def instances(self, group: Deployed) -> list[str]:
        return sorted(instance["InstanceId"] for instance in self.described(group)["Instances"])


@pytest.fixture(scope="session")
def api_url() -> str:
    return server.serve()


@pytest.fixture(scope="session")
def shared_stand_in(api_url: str) -> StandIn:
    """One for all tests, as it keeps no state but clients, which take long to make."""
    stand_in = StandIn("aws", lambda: api_url)
    stand_in.configure({"region": REGION})
    return stand_in


@pytest.fixture(scope="session")
def shared_alibaba(api_url: str) -> StandIn:
    """The same for Alibaba Cloud's provider."""
    stand_in = StandIn("alicloud", lambda: api_url)
    stand_in.configure({"region": ALIBABA})
    return stand_in


@pytest.fixture
def deployment(api_url: str, shared_stand_in: StandIn, shared_alibaba: StandIn) -> Iterator[Deployment]:
    """What is deployed to a cloud that is empty before and after."""
    yield Deployment(shared_stand_in, shared_stand_in.api({"region": REGION}), shared_alibaba)
    urllib.request.urlopen(urllib.request.Request(f"{api_url}/moto-api/reset", method="POST"), timeout=60).close()


@pytest.fixture
def without_cloud() -> Callable[..., StandIn]:
    """Makes configured stand-ins that no embedded cloud runs for."""

    def make(package: str = "aws") -> StandIn:
        stand_in = StandIn(package, lambda: None)
        stand_in.configure({"region": REGION})
        return stand_in

    return make


@pytest.fixture
def api_client() -> Callable[[str, str], Any]:
    """Makes clients of an API server by its address."""
    return lambda endpoint, service: Api(endpoint, REGION).client(service)
