"""Alibaba Cloud's instance metadata, as the ECS user guide's "Instance metadata" describes it.

What it tells is in Alibaba Cloud's own words, whatever the server's are. It knows nothing of a scaling group's plans.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from emulator import ACCOUNT_ID, notices, places
from emulator.instances import Profile
from emulator.metadata import Dialect, Metadata, json_file, timestamp


class EcsMetadata(Metadata):
    """ECS's. In its security hardening mode, it takes tokens alone."""

    dialect = Dialect("AliyunMetadata", "X-aliyun-ecs-metadata-token", without_token=403)

    def open(self) -> bool:
        """Whether what the instance was launched from asks for no tokens."""
        return not self._instance.tokens_only

    def _files(self, path: str) -> dict[str, Callable[[], bytes]]:  # noqa: ARG002 (all are cheap to make)
        instance = self._instance
        told = {
            "hostname": hostname(instance.id),
            "image-id": instance.image,
            "instance-id": instance.id,
            "instance/instance-type": instance.type,
            "mac": instance.mac,
            "network-type": "vpc",
            "owner-account-id": ACCOUNT_ID,
            "private-ipv4": instance.address,
            "region-id": places.region_of(instance.zone),
            "serial-number": instance.id,
            "vpc-id": instance.network,
            "vswitch-id": places.shown(instance.subnet),
            "zone-id": instance.zone,
        }
        files: dict[str, Callable[[], bytes]] = {f"meta-data/{name}": value.encode for name, value in told.items()}
        document = ("image-id", "instance-id", "mac", "owner-account-id", "private-ipv4", "region-id", "serial-number")
        identity = {name: told[name] for name in (*document, "zone-id")} | {"instance-type": instance.type}
        files["dynamic/instance-identity/document"] = lambda: json_file(identity)
        if profile := instance.profile:
            role = f"meta-data/ram/security-credentials/{profile.role}"
            files[role] = lambda: json_file(self._role_credentials(profile))
        if spot := notices.read(self._notice).get("spot"):
            ends = timestamp(datetime.fromtimestamp(spot, UTC))
            files["meta-data/instance/spot/termination-time"] = ends.encode
        if instance.user_data:
            files["user-data"] = lambda: instance.user_data
        return {f"latest/{name}": make for name, make in files.items()}

    def _role_credentials(self, profile: Profile) -> dict[str, str]:
        """ECS user guide, "Instance RAM roles"."""
        credentials = self._fresh(profile)
        return {
            "Code": "Success",
            "LastUpdated": timestamp(credentials["LastUpdated"]),
            "AccessKeyId": credentials["AccessKeyId"],
            "AccessKeySecret": credentials["SecretAccessKey"],
            "SecurityToken": credentials["SessionToken"],
            "Expiration": timestamp(credentials["Expiration"]),
        }


def hostname(instance_id: str) -> str:
    """The name that ECS gives an instance: its id's, behind a Z (ECS API, RunInstances, `HostName`)."""
    return f"i{instance_id.removeprefix('i-')}Z"
