"""IAM roles, policies, and what ties them together."""

# ruff: noqa: ARG002 - all kinds answer the same calls

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from emulator.provider.aws.api import Api, tag_list, tag_map
from emulator.provider.aws.kind import Kind, changed, gone, tags_state, without
from emulator.provider.wire import Props


class _Entity(Kind):
    """What has a name, tags and the answer of a get_<noun> call."""

    service = "iam"
    noun: ClassVar[str]
    title: ClassVar[str]
    replace_on = frozenset({"name", "namePrefix", "path"})

    def key(self, id_: str) -> dict[str, str]:
        """The parameter that names it."""
        return {f"{self.title}Name": id_}

    def create(self, api: Api, props: Props) -> str:
        """create_<noun>."""
        names = {"name": f"{self.title}Name", **self.names}
        made = api.send("iam", f"create_{self.noun}", self.sent(props), names)[self.title]
        return str(made["Arn"] if self.title == "Policy" else made[f"{self.title}Name"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Tags."""
        before, after = old.get("tags") or {}, new.get("tags") or {}
        if removed := sorted(before.keys() - after.keys()):
            api.call("iam", f"untag_{self.noun}", **self.key(id_), TagKeys=removed)
        if added := {k: v for k, v in after.items() if before.get(k) != v}:
            api.call("iam", f"tag_{self.noun}", **self.key(id_), Tags=tag_list(added))

    def item(self, api: Api, id_: str) -> dict[str, Any]:
        """get_<noun>."""
        found: dict[str, Any] = api.call("iam", f"get_{self.noun}", **self.key(id_))[self.title]
        return found

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Members, name, unique id, tags."""
        item = self.item(api, id_)
        state = self.state(item) | {"name": item[f"{self.title}Name"], "createDate": item["CreateDate"].isoformat()}
        if self.title != "Policy":
            state["uniqueId"] = item[f"{self.title}Id"]
            return state
        return without(state, ["createDate"]) | tags_state(tag_map(item.get("Tags")))

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """delete_<noun>."""
        api.call("iam", f"delete_{self.noun}", **self.key(id_))


class Role(_Entity):
    """A role, with the policies written in it."""

    type = "aws:iam/role:Role"
    noun, title = "role", "Role"
    settings = frozenset({"inlinePolicies", "managedPolicyArns", "forceDetachPolicies"})
    names: ClassVar[Mapping[str, str]] = {"assumeRolePolicy": "AssumeRolePolicyDocument"}

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Trust, description, boundary, inline and attached policies."""
        super().apply(api, id_, old, new)
        if old and changed(old, new, ["assumeRolePolicy"]):
            api.call("iam", "update_assume_role_policy", RoleName=id_, PolicyDocument=new["assumeRolePolicy"])
        if old and changed(old, new, ["description", "maxSessionDuration"]):
            told = {"description": new.get("description", ""), "maxSessionDuration": new.get("maxSessionDuration")}
            api.send("iam", "update_role", {"roleName": id_, **told})
        if old and changed(old, new, ["permissionsBoundary"]):
            verb = "put" if new.get("permissionsBoundary") else "delete"
            boundary = without({"permissionsBoundary": new.get("permissionsBoundary")}, [])
            api.send("iam", f"{verb}_role_permissions_boundary", {"roleName": id_, **boundary})
        before, after = ({p["name"]: p["policy"] for p in x.get("inlinePolicies") or []} for x in (old, new))
        for name in before.keys() - after.keys():
            api.call("iam", "delete_role_policy", RoleName=id_, PolicyName=name)
        for name, policy in after.items():
            api.call("iam", "put_role_policy", RoleName=id_, PolicyName=name, PolicyDocument=policy)
        held, wanted = (set(props.get("managedPolicyArns") or []) for props in (old, new))
        for verb, arns in (("detach", held - wanted), ("attach", wanted - held)):
            for arn in sorted(arns):
                api.call("iam", f"{verb}_role_policy", RoleName=id_, PolicyArn=arn)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Also its trust policy."""
        document = self.item(api, id_)["AssumeRolePolicyDocument"]
        return super().read(api, id_, props) | {"assumeRolePolicy": json.dumps(document)}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Takes out its own policies; all others too with forceDetachPolicies."""
        own = {policy["name"] for policy in props.get("inlinePolicies") or []}
        own |= set(props.get("managedPolicyArns") or [])
        for name in api.call("iam", "list_role_policies", RoleName=id_)["PolicyNames"]:
            if name in own or props.get("forceDetachPolicies"):
                api.call("iam", "delete_role_policy", RoleName=id_, PolicyName=name)
        for policy in api.call("iam", "list_attached_role_policies", RoleName=id_)["AttachedPolicies"]:
            if policy["PolicyArn"] in own or props.get("forceDetachPolicies"):
                api.call("iam", "detach_role_policy", RoleName=id_, PolicyArn=policy["PolicyArn"])
        super().delete(api, id_, props)


class Policy(_Entity):
    """A managed policy; its id is its ARN, a change is a new default version."""

    type = "aws:iam/policy:Policy"
    noun, title = "policy", "Policy"
    replace_on = frozenset({"name", "namePrefix", "path", "description"})
    settings = frozenset({"delayAfterPolicyCreationInMs"})
    names: ClassVar[Mapping[str, str]] = {"policy": "PolicyDocument"}

    def key(self, id_: str) -> dict[str, str]:
        """Named by its ARN."""
        return {"PolicyArn": id_}

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """A new default version; the one before it goes, as AWS keeps five at most."""
        super().apply(api, id_, old, new)
        if old and changed(old, new, ["policy"]):
            last = self.item(api, id_)["DefaultVersionId"]
            api.call("iam", "create_policy_version", PolicyArn=id_, PolicyDocument=new["policy"], SetAsDefault=True)
            api.call("iam", "delete_policy_version", PolicyArn=id_, VersionId=last)


class InstanceProfile(_Entity):
    """An instance profile and its role."""

    type = "aws:iam/instanceProfile:InstanceProfile"
    noun, title = "instance_profile", "InstanceProfile"
    settings = frozenset({"role"})

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """One role at most."""
        super().apply(api, id_, old, new)
        if changed(old, new, ["role"]):
            for verb, props in (("remove_role_from", old), ("add_role_to", new)):
                if props.get("role"):
                    api.call("iam", f"{verb}_instance_profile", InstanceProfileName=id_, RoleName=props["role"])

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Also its role."""
        roles = self.item(api, id_)["Roles"]
        return super().read(api, id_, props) | ({"role": roles[0]["RoleName"]} if roles else {})

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Takes the role out first, as the API demands."""
        for role in self.item(api, id_)["Roles"]:
            api.call("iam", "remove_role_from_instance_profile", InstanceProfileName=id_, RoleName=role["RoleName"])
        super().delete(api, id_, props)


class RolePolicy(Kind):
    """An inline policy of a role."""

    type = "aws:iam/rolePolicy:RolePolicy"
    service = "iam"
    replace_on = frozenset({"name", "namePrefix", "role"})
    names: ClassVar[Mapping[str, str]] = {"name": "PolicyName", "role": "RoleName", "policy": "PolicyDocument"}

    def create(self, api: Api, props: Props) -> str:
        """Puts it."""
        api.send("iam", "put_role_policy", self.sent(props), self.names)
        return f"{props['role']}:{props['name']}"

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Puts it again."""
        if old:
            self.create(api, new)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """The document."""
        role, _, name = id_.partition(":")
        found = api.call("iam", "get_role_policy", RoleName=role, PolicyName=name)
        return {"role": role, "name": name, "policy": json.dumps(found["PolicyDocument"])}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Takes it out."""
        role, _, name = id_.partition(":")
        api.call("iam", "delete_role_policy", RoleName=role, PolicyName=name)


class RolePolicyAttachment(Kind):
    """A managed policy on a role."""

    type = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
    service = "iam"
    replace_on = frozenset({"role", "policyArn"})
    names: ClassVar[Mapping[str, str]] = {"role": "RoleName"}

    def create(self, api: Api, props: Props) -> str:
        """Attaches it."""
        api.send("iam", "attach_role_policy", self.sent(props), self.names)
        return f"{props['role']}-{props['policyArn']}"

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Found among what the role holds."""
        held = api.call("iam", "list_attached_role_policies", RoleName=props["role"])["AttachedPolicies"]
        if props["policyArn"] not in {policy["PolicyArn"] for policy in held}:
            raise gone("policy attachment", id_)
        return {}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Detaches it."""
        api.call("iam", "detach_role_policy", RoleName=props["role"], PolicyArn=props["policyArn"])


KINDS: tuple[Kind, ...] = (Role(), Policy(), InstanceProfile(), RolePolicy(), RolePolicyAttachment())
