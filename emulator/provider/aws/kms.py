"""KMS keys and aliases."""

# ruff: noqa: ARG002 - all kinds answer the same calls

from collections.abc import Mapping
from typing import ClassVar

from emulator.provider.aws.api import Api
from emulator.provider.aws.kind import Kind, gone, tags_state, without
from emulator.provider.wire import Props


class Key(Kind):
    """A KMS key; its deletion is scheduled, after which it counts as gone."""

    type = "aws:kms/key:Key"
    service = "kms"
    replace_on = frozenset({"customerMasterKeySpec", "keyUsage", "multiRegion", "customKeyStoreId", "xksKeyId"})
    settings = frozenset({"enableKeyRotation", "rotationPeriodInDays", "isEnabled", "deletionWindowInDays"})
    names: ClassVar[Mapping[str, str]] = {"customerMasterKeySpec": "KeySpec", "arn": "Arn"}

    def create(self, api: Api, props: Props) -> str:
        """Makes it, with its policy: a key is never without one."""
        return str(api.send("kms", "create_key", self.sent(props), self.names)["KeyMetadata"]["KeyId"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Each setting by its own call."""
        moved = {name for name in old | new if old.get(name) != new.get(name)}
        if old and "policy" in moved and new.get("policy"):
            api.call("kms", "put_key_policy", KeyId=id_, PolicyName="default", Policy=new["policy"])
        if old and "description" in moved:
            api.call("kms", "update_key_description", KeyId=id_, Description=new.get("description", ""))
        if moved & {"enableKeyRotation", "rotationPeriodInDays"}:
            if new.get("enableKeyRotation"):
                period = new.get("rotationPeriodInDays", 365)
                api.call("kms", "enable_key_rotation", KeyId=id_, RotationPeriodInDays=period)
            elif old.get("enableKeyRotation"):
                api.call("kms", "disable_key_rotation", KeyId=id_)
        if "isEnabled" in moved and (old or new["isEnabled"] is False):
            api.call("kms", "disable_key" if new.get("isEnabled") is False else "enable_key", KeyId=id_)
        before, after = old.get("tags") or {}, new.get("tags") or {}
        if removed := sorted(before.keys() - after.keys()):
            api.call("kms", "untag_resource", KeyId=id_, TagKeys=removed)
        if added := [{"TagKey": k, "TagValue": v} for k, v in after.items() if before.get(k) != v]:
            api.call("kms", "tag_resource", KeyId=id_, Tags=added)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Metadata, policy, rotation, tags."""
        data = api.call("kms", "describe_key", KeyId=id_)["KeyMetadata"]
        if data["KeyState"] == "PendingDeletion":
            raise gone("key", id_)
        tags = api.call("kms", "list_resource_tags", KeyId=id_).get("Tags", [])
        return (
            self.state(data)
            | tags_state({tag["TagKey"]: tag["TagValue"] for tag in tags})
            | {
                "policy": api.call("kms", "get_key_policy", KeyId=id_, PolicyName="default")["Policy"],
                "enableKeyRotation": api.call("kms", "get_key_rotation_status", KeyId=id_)["KeyRotationEnabled"],
                "isEnabled": data["Enabled"],
            }
        )

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Schedules the deletion."""
        window = props.get("deletionWindowInDays") or 30
        api.call("kms", "schedule_key_deletion", KeyId=id_, PendingWindowInDays=int(window))


class Alias(Kind):
    """Another name of a key."""

    type = "aws:kms/alias:Alias"
    service = "kms"
    replace_on = frozenset({"name", "namePrefix"})
    names: ClassVar[Mapping[str, str]] = {"name": "AliasName", "arn": "AliasArn"}

    def create(self, api: Api, props: Props) -> str:
        """Names the key."""
        api.send("kms", "create_alias", self.sent(props), self.names)
        return str(props["name"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Moves it to another key."""
        if old and old.get("targetKeyId") != new["targetKeyId"]:
            api.send("kms", "update_alias", without(self.sent(new), []), self.names)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Found among all aliases."""
        for page in api.pages("kms", "list_aliases"):
            for alias in page["Aliases"]:
                if alias["AliasName"] == id_:
                    key = api.call("kms", "describe_key", KeyId=alias["TargetKeyId"])["KeyMetadata"]
                    target = {} if props.get("targetKeyId") == key["Arn"] else {"targetKeyId": key["KeyId"]}
                    return {"name": id_, "arn": alias["AliasArn"], "targetKeyArn": key["Arn"]} | target
        raise gone("alias", id_)

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Takes the name away."""
        api.call("kms", "delete_alias", AliasName=id_)


KINDS: tuple[Kind, ...] = (Key(), Alias())
