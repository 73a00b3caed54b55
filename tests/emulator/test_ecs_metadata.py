"""An Alibaba node's metadata service, asked by hand and by the trainer's own client."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from emulator import notices, places
from emulator.ecs_metadata import EcsMetadata
from emulator.instances import Profile
from emulator.metadata import MetadataService
from trainer import alicloud
from trainer.metadata import EcsMetadata as Client

World = Any
ROLE = "arn:aws:iam::123456789012:role/node"
PROFILE = Profile("arn:aws:iam::123456789012:instance-profile/node", "AIPA1", "node", ROLE)
TOKEN = "X_aliyun_ecs_metadata_token"


class QuietApi:
    """The live answers, made up."""

    def __init__(self) -> None:
        self.tagged: dict[str, str] = {}

    def tags(self, instance: Any) -> dict[str, str]:
        return self.tagged

    def credentials(self, instance: Any, profile: Profile) -> dict[str, Any]:
        ends = datetime.now(UTC) + timedelta(hours=1)
        return {"AccessKeyId": "ASIA1", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": ends}


@pytest.fixture
def api() -> QuietApi:
    return QuietApi()


@pytest.fixture
def serve(api: QuietApi, an_instance: Any, tmp_path: Any):
    """Starts the service of an instance that differs from a plain one in what is said; gives its address."""
    services = []

    def make(**different: Any) -> str:
        plain = {"cloud": "alicloud", "zone": "cn-hangzhou-i", "type": "ecs.g8i.large", "address": "127.11.1.9"}
        instance = an_instance(**{**plain, "tokens_only": True, **different})
        services.append(MetadataService(EcsMetadata(instance, api, notices.path(tmp_path, "i-1")), instance.address))
        return services[-1].url

    yield make
    for service in services:
        service.close()


def token(http: Any, url: str) -> str:
    return str(http.fetch(url, "/latest/api/token", "PUT", X_aliyun_ecs_metadata_token_ttl_seconds="60")[1])


def test_the_node_s_client_learns_who_it_is_in_alibaba_clouds_words(serve) -> None:
    client = Client(serve(subnet="subnet-0a", network="vpc-1"))
    identity = client.identity()
    assert (identity.node, identity.address) == ("i-1", "127.11.1.9")
    assert (identity.type, identity.zone) == ("ecs.g8i.large", "cn-hangzhou-i")
    shown = {name: client.get(f"meta-data/{name}") for name in ("region-id", "vpc-id", "vswitch-id", "zone-id")}
    assert shown == {
        "region-id": "cn-hangzhou",
        "vpc-id": "vpc-1",
        "vswitch-id": "vsw-0a",
        "zone-id": "cn-hangzhou-i",
    }
    assert client.get("user-data") == "#!/bin/sh\n"
    assert client.get("meta-data/placement/region") is None


def test_the_role_s_credentials_are_those_of_sts_in_ram_s_words(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in alicloud.KEYS:
        monkeypatch.delenv(name, raising=False)
    client = Client(serve(profile=PROFILE))
    assert client.get("meta-data/ram/security-credentials/") == "node"
    held = alicloud.Role(client).credentials()
    assert (held.key, held.secret, held.token) == ("ASIA1", "s", "t")
    assert held.lasts(3000)
    assert Client(serve()).get("meta-data/ram/security-credentials/") is None


def test_nothing_is_given_without_a_token_where_those_are_enforced(serve, http) -> None:
    url = serve()
    assert http.fetch(url, "/latest/meta-data/instance-id")[0] == 403
    assert http.fetch(url, "/latest/meta-data/instance-id", **{TOKEN: "9999999999.0-00"})[0] == 403
    assert http.fetch(url, "/latest/meta-data/instance-id", **{TOKEN: token(http, url)}) == (200, "i-1")
    assert not Client(url).answers_without_token()


def test_it_is_open_to_all_where_nothing_asks_for_tokens(serve, http) -> None:
    url = serve(tokens_only=False)
    assert http.fetch(url, "/latest/meta-data/instance-id") == (200, "i-1")
    assert http.fetch(url, "/latest/meta-data/instance-id", **{TOKEN: "0.0-00"})[0] == 403, "a token must hold"


def test_a_release_is_told_once_it_is_noticed(serve, tmp_path: Any) -> None:
    client = Client(serve())
    assert client.interruption() is None
    notices.path(tmp_path, "i-1").write_text(json.dumps({"spot": 1796040000.0}))
    assert client.interruption() == "2026-11-30T12:00:00Z"
    assert client.get("meta-data/spot/instance-action") is None


@pytest.fixture
def alibaba_group(world: World):
    """A group on a vSwitch, of one node that writes its environment down and stays."""
    session: Any = boto3.Session(aws_access_key_id="k", aws_secret_access_key="s", region_name=places.REGION)
    ec2, autoscaling = (session.client(name, endpoint_url=world.cloud.endpoint) for name in ("ec2", "autoscaling"))
    vpc = ec2.create_vpc(CidrBlock="127.11.0.0/16")["Vpc"]["VpcId"]
    zone = [{"ResourceType": "subnet", "Tags": [{"Key": places.ZONE_TAG, "Value": "cn-hangzhou-i"}]}]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="127.11.1.0/24", TagSpecifications=zone)["Subnet"]["SubnetId"]
    made = world.template("#!/bin/sh\nenv > environment\nexec sleep 1000\n", MetadataOptions={"HttpTokens": "optional"})
    data = world.client("ec2").describe_launch_template_versions(LaunchTemplateId=made)
    data = data["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    ec2.create_launch_template(LaunchTemplateName="asg-ecs", LaunchTemplateData=data)
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="asg-ecs",
        MinSize=0,
        MaxSize=1,
        DesiredCapacity=1,
        VPCZoneIdentifier=subnet,
        LaunchTemplate={"LaunchTemplateName": "asg-ecs", "Version": "1"},
    )

    def instance() -> str:
        (group,) = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=["asg-ecs"])["AutoScalingGroups"]
        return str(group["Instances"][0]["InstanceId"])

    yield instance
    autoscaling.delete_auto_scaling_group(AutoScalingGroupName="asg-ecs", ForceDelete=True)


def test_a_node_finds_its_cloud_and_has_five_minutes_notice(world: World, alibaba_group: Any) -> None:
    node = alibaba_group()
    text = world.file(node, "environment")
    environment = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert "AWS_EC2_METADATA_SERVICE_ENDPOINT" not in environment
    assert environment["TRAINWRIGHT_OSS_ENDPOINT"] == world.cloud.endpoint
    assert environment["TRAINWRIGHT_ALICLOUD_ENDPOINT"].startswith(world.cloud.endpoint)
    client = Client(environment["TRAINWRIGHT_ECS_METADATA"])
    assert client.identity().node == node
    assert client.identity().address.startswith("127.11.1.")
    assert (client.identity().zone, client.get("meta-data/region-id")) == ("cn-hangzhou-i", "cn-hangzhou")

    assert client.answers_without_token(), "its template asks for no tokens"

    notices.raise_notice(world.cloud.home, node, "spot")
    ends = datetime.fromisoformat(client.interruption() or "")
    assert 290 < ends.timestamp() - time.time() <= 300
    notices.raise_notice(world.cloud.home, node, "spot", seconds=0)
    world.wait_for("the node's end", lambda: alibaba_group() != node)
