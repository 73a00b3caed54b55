"""RAM roles, which are IAM's. A role that trusts ECS gets an instance profile of its name, as instances of EC2 do.

All else that policies say, of trust as of rights, is kept as it is given: the server takes no document of RAM's, and
judges no request.
"""

# ruff: noqa: ARG002 - all kinds answer the same calls

import json
from typing import Any

from emulator import places
from emulator.provider import naming
from emulator.provider.aws.api import Api, ApiError, tag_list, tag_map
from emulator.provider.aws.kind import Kind, changed
from emulator.provider.wire import Props

ECS = "ecs.aliyuncs.com"

_NONE = json.dumps({"Version": "2012-10-17", "Statement": []})


class Role(Kind):
    """A role."""

    type = "alicloud:ram/role:Role"
    service = "iam"
    replace_on = frozenset({"roleName", "name"})

    def create(self, api: Api, props: Props) -> str:
        """Makes it; its id is its name."""
        name = str(props.get("roleName") or props["name"])
        told = {"Description": props["description"]} if props.get("description") else {}
        length = {"MaxSessionDuration": props["maxSessionDuration"]} if props.get("maxSessionDuration") else {}
        api.call("iam", "create_role", RoleName=name, AssumeRolePolicyDocument=_NONE, **told, **length)
        return name

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Whether it is for instances; tags."""
        if _serves_instances(old) and not _serves_instances(new):
            _part(api, id_)
        elif _serves_instances(new) and not _serves_instances(old):
            api.call("iam", "create_instance_profile", InstanceProfileName=id_)
            api.call("iam", "add_role_to_instance_profile", InstanceProfileName=id_, RoleName=id_)
        if changed(old, new, ["tags"]):
            before, after = old.get("tags") or {}, new.get("tags") or {}
            if gone := sorted(before.keys() - after.keys()):
                api.call("iam", "untag_role", RoleName=id_, TagKeys=gone)
            if after:
                api.call("iam", "tag_role", RoleName=id_, Tags=tag_list(after))

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its ARN and tags."""
        found: dict[str, Any] = api.call("iam", "get_role", RoleName=id_)["Role"]
        return {
            "roleName": id_,
            "name": id_,
            "roleId": str(int(places.made_id("role", id_)[-12:], 16)),
            "arn": f"acs:ram::{naming.ACCOUNT}:role/{id_}",
            "createTime": found["CreateDate"].strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tags": tag_map(found.get("Tags")),
        }

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it, with its profile."""
        if _serves_instances(props):
            try:
                _part(api, id_)
            except ApiError as error:
                if not error.gone:
                    raise
        api.call("iam", "delete_role", RoleName=id_)


def _serves_instances(props: Props) -> bool:
    """Whether its trust policy, under either of its names, lets ECS take it."""
    return ECS in str(props.get("assumeRolePolicyDocument") or props.get("document"))


def _part(api: Api, role: str) -> None:
    api.call("iam", "remove_role_from_instance_profile", InstanceProfileName=role, RoleName=role)
    api.call("iam", "delete_instance_profile", InstanceProfileName=role)


KINDS: tuple[Kind, ...] = (Role(),)
