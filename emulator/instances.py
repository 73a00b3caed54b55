"""What the API says of auto scaling groups' instances: the node runner's and the metadata service's only source."""

import base64
import logging
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from emulator import places

ERRORS = (BotoCoreError, ClientError)
"""What any call here may raise when the API refuses or fails."""

_KEY = "test"
_CONFIG = Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=20)
_CREDENTIAL_SECONDS = 3600

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Member:
    """An instance as its group lists it."""

    id: str
    group: str
    region: str


@dataclass(frozen=True)
class Profile:
    """An instance profile and the role in it."""

    arn: str
    id: str
    role: str
    role_arn: str


@dataclass(frozen=True)
class Instance:
    """What stays the same over an instance's life. `user_data` is decoded; `tags_shown`: in its metadata, which it
    gives out for tokens alone where `tokens_only`.

    `region` is the server's; `zone`, `type` and `image` are in the words of its `cloud`, `aws` or `alicloud`.
    """

    id: str
    group: str
    cloud: str
    region: str
    zone: str
    network: str
    subnet: str
    type: str
    image: str
    architecture: str
    address: str
    mac: str
    launched: datetime
    spot: bool
    profile: Profile | None
    tags_shown: bool
    tokens_only: bool
    user_data: bytes


class Api:
    """The few calls that running instances takes, on the server at `endpoint`. Every method may raise `ERRORS`."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._session: Any = boto3.session.Session(aws_access_key_id=_KEY, aws_secret_access_key=_KEY)
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = Lock()

    def members(self, region: str) -> list[Member]:
        """The instances that the groups of a region have now."""
        pages = self._client("autoscaling", region).get_paginator("describe_auto_scaling_instances").paginate()
        return [
            Member(entry["InstanceId"], entry["AutoScalingGroupName"], region)
            for page in pages
            for entry in page["AutoScalingInstances"]
        ]

    def instance(self, member: Member) -> Instance:
        """All that a node needs to know of its instance."""
        ec2 = self._client("ec2", member.region)
        described = ec2.describe_instances(InstanceIds=[member.id])["Reservations"][0]["Instances"][0]
        attribute = ec2.describe_instance_attribute(InstanceId=member.id, Attribute="userData")
        template, spot = self._template(member)
        # A group that was given no subnet has one of the default ones, which none of Alibaba Cloud's is.
        zone = self._tagged(member.region, described["SubnetId"]).get(places.ZONE_TAG)
        return Instance(
            id=member.id,
            group=member.group,
            cloud="alicloud" if zone else "aws",
            region=member.region,
            zone=zone or described["Placement"]["AvailabilityZone"],
            network=described["VpcId"],
            subnet=described["SubnetId"],
            type=described["InstanceType"],
            image=described["ImageId"],
            architecture=described["Architecture"],
            address=described["PrivateIpAddress"],
            mac=described["NetworkInterfaces"][0]["MacAddress"],
            launched=described["LaunchTime"],
            spot=spot,
            profile=self._profile(template.get("IamInstanceProfile", {}), member),
            tags_shown=template.get("MetadataOptions", {}).get("InstanceMetadataTags") == "enabled",
            tokens_only=template.get("MetadataOptions", {}).get("HttpTokens") == "required",
            user_data=base64.b64decode(attribute.get("UserData", {}).get("Value", "")),
        )

    def tags(self, instance: Instance) -> dict[str, str]:
        """The instance's tags, without those that AWS reserves: its metadata does not show them either."""
        found = self._tagged(instance.region, instance.id)
        return {key: value for key, value in found.items() if not key.startswith("aws:")}

    def target_state(self, instance: Instance) -> str:
        """The state that the group is bringing it to, such as InService; Terminated also while a hook holds it."""
        autoscaling = self._client("autoscaling", instance.region)
        entries = autoscaling.describe_auto_scaling_instances(InstanceIds=[instance.id])["AutoScalingInstances"]
        state = str(entries[0]["LifecycleState"]) if entries else "Terminated"
        return "Terminated" if state.startswith("Terminating") else state

    def credentials(self, instance: Instance, profile: Profile) -> dict[str, Any]:
        """Fresh credentials of the instance's role, good for an hour, in the form that AssumeRole answers."""
        answer = self._client("sts", instance.region).assume_role(
            RoleArn=profile.role_arn, RoleSessionName=instance.id, DurationSeconds=_CREDENTIAL_SECONDS
        )
        credentials: dict[str, Any] = answer["Credentials"]
        return credentials

    def terminate(self, member: Member) -> None:
        """End the instance; its group replaces it at once."""
        self._client("ec2", member.region).terminate_instances(InstanceIds=[member.id])

    def _tagged(self, region: str, id_: str) -> dict[str, str]:
        """Tags of an object of EC2's."""
        filters = [{"Name": "resource-id", "Values": [id_]}]
        return {tag["Key"]: tag["Value"] for tag in self._client("ec2", region).describe_tags(Filters=filters)["Tags"]}

    def _template(self, member: Member) -> tuple[dict[str, Any], bool]:
        """The launch template's data in the version that the group launches, and whether it launches spot only.

        moto keeps no profile, metadata options or market on a group's instances, so the template has to tell.
        """
        autoscaling = self._client("autoscaling", member.region)
        group = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[member.group])
        specification, spot = launch_specification(group["AutoScalingGroups"][0])
        if specification is None:
            return {}, spot
        versions = self._client("ec2", member.region).describe_launch_template_versions(
            LaunchTemplateId=specification["LaunchTemplateId"],
            Versions=[specification.get("Version") or "$Default"],
        )
        data: dict[str, Any] = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        return data, spot or data.get("InstanceMarketOptions", {}).get("MarketType") == "spot"

    def _profile(self, named: dict[str, str], member: Member) -> Profile | None:
        name = named.get("Name") or named.get("Arn", "").rpartition("/")[2]
        if not name:
            return None
        try:
            iam = self._client("iam", member.region)
            profile = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
        except ClientError as error:
            _log.warning("%s: has no role, as its instance profile cannot be read: %s", member.id, error)
            return None
        if not profile["Roles"]:
            return None
        role = profile["Roles"][0]
        return Profile(profile["Arn"], profile["InstanceProfileId"], role["RoleName"], role["Arn"])

    def _client(self, service: str, region: str) -> Any:
        # Clients may be shared by threads; a session that makes them may not.
        with self._lock:
            if (service, region) not in self._clients:
                self._clients[service, region] = self._session.client(
                    service, region_name=region, endpoint_url=self.endpoint, config=_CONFIG
                )
            return self._clients[service, region]


def launch_specification(group: dict[str, Any]) -> tuple[dict[str, str] | None, bool]:
    """Of a group as the API describes it: which launch template it uses, and whether all it launches is spot."""
    policy = group.get("MixedInstancesPolicy")
    if policy is None:
        return group.get("LaunchTemplate"), False
    distribution = policy.get("InstancesDistribution", {})
    base = distribution.get("OnDemandBaseCapacity", 0)
    above = distribution.get("OnDemandPercentageAboveBaseCapacity", 100)
    return policy["LaunchTemplate"]["LaunchTemplateSpecification"], base == above == 0
