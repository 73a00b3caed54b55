"""Small services: Parameter Store, CloudWatch Logs, SQS."""

# ruff: noqa: ARG002 - all kinds answer the same calls

from collections.abc import Mapping
from typing import ClassVar

from emulator.provider import naming
from emulator.provider.aws.api import Api, tag_list, tag_map
from emulator.provider.aws.kind import OWN, Kind, changed, gone, tags_state, without
from emulator.provider.wire import Props


class Parameter(Kind):
    """A parameter of Parameter Store."""

    type = "aws:ssm/parameter:Parameter"
    service = "ssm"
    replace_on = frozenset({"name", "dataType"})
    settings = frozenset({"arn", "overwrite", "insecureValue", "valueWo", "valueWoVersion"})

    def create(self, api: Api, props: Props) -> str:
        """Puts it."""
        value = props.get("value") or props.get("insecureValue") or props.get("valueWo")
        api.send("ssm", "put_parameter", {**self.sent(props), "value": value, "overwrite": props.get("overwrite")})
        return str(props["name"])

    def moving(self, old: Props, new: Props) -> frozenset[str]:
        """Each value is a version."""
        return frozenset({"version"}) if without(old, ["tags"]) != without(new, ["tags"]) else frozenset()

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """A new version; tags."""
        if old and self.moving(old, new):
            self.create(api, {**new, "overwrite": True})
        before, after = old.get("tags") or {}, new.get("tags") or {}
        of = {"ResourceType": "Parameter", "ResourceId": id_}
        if removed := sorted(before.keys() - after.keys()):
            api.call("ssm", "remove_tags_from_resource", **of, TagKeys=removed)
        if added := {k: v for k, v in after.items() if before.get(k) != v}:
            api.call("ssm", "add_tags_to_resource", **of, Tags=tag_list(added))

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Value and version; the value stays where it was given."""
        found = api.call("ssm", "get_parameter", Name=id_, WithDecryption=True)["Parameter"]
        given = "insecureValue" if props.get("insecureValue") else "value"
        tags = api.call("ssm", "list_tags_for_resource", ResourceType="Parameter", ResourceId=id_)["TagList"]
        state = without(self.state(found), ["value"]) | tags_state(tag_map(tags))
        return state if props.get("valueWo") else state | {given: found["Value"]}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it."""
        api.call("ssm", "delete_parameter", Name=id_)


class LogGroup(Kind):
    """A log group."""

    type = "aws:cloudwatch/logGroup:LogGroup"
    service = "logs"
    replace_on = frozenset({"name", "namePrefix", "logGroupClass"})
    settings = frozenset({"retentionInDays", "skipDestroy"})
    names: ClassVar[Mapping[str, str]] = {"name": "logGroupName"}

    def create(self, api: Api, props: Props) -> str:
        """Makes it."""
        api.send("logs", "create_log_group", self.sent(props), self.names)
        return str(props["name"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Key, retention, tags."""
        if old and changed(old, new, ["kmsKeyId"]):
            if new.get("kmsKeyId"):
                api.call("logs", "associate_kms_key", logGroupName=id_, kmsKeyId=new["kmsKeyId"])
            else:
                api.call("logs", "disassociate_kms_key", logGroupName=id_)
        if changed(old, new, ["retentionInDays"]):
            if new.get("retentionInDays"):
                api.call("logs", "put_retention_policy", logGroupName=id_, retentionInDays=new["retentionInDays"])
            else:
                api.call("logs", "delete_retention_policy", logGroupName=id_)
        before, after = old.get("tags") or {}, new.get("tags") or {}
        arn = naming.arn("logs", api.region, f"log-group:{id_}")
        if removed := sorted(before.keys() - after.keys()):
            api.call("logs", "untag_resource", resourceArn=arn, tagKeys=removed)
        if added := {k: v for k, v in after.items() if before.get(k) != v}:
            api.call("logs", "tag_resource", resourceArn=arn, tags=added)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """The group by its name; its ARN without the API's trailing `:*`."""
        for group in api.call("logs", "describe_log_groups", logGroupNamePrefix=id_)["logGroups"]:
            if group["logGroupName"] == id_:
                arn = group["arn"].removesuffix(":*")
                tags = api.call("logs", "list_tags_for_resource", resourceArn=arn)["tags"]
                return self.state(group) | tags_state(tags) | {"arn": arn}
        raise gone("log group", id_)

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it."""
        if not props.get("skipDestroy"):
            api.call("logs", "delete_log_group", logGroupName=id_)


class Queue(Kind):
    """A queue; its id is its URL."""

    type = "aws:sqs/queue:Queue"
    service = "sqs"
    replace_on = frozenset({"name", "namePrefix", "fifoQueue"})
    _ATTRIBUTES: ClassVar[Mapping[str, str]] = {
        "visibilityTimeoutSeconds": "VisibilityTimeout",
        "maxMessageSize": "MaximumMessageSize",
        "messageRetentionSeconds": "MessageRetentionPeriod",
        "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
    }

    def attributes(self, props: Props) -> dict[str, str]:
        """The properties as queue attributes, all of them texts."""
        own = without(props, [*OWN, "name"])
        return {
            self._ATTRIBUTES.get(name, name[0].upper() + name[1:]): str(value).lower()
            if isinstance(value, bool)
            else str(value)
            for name, value in own.items()
        }

    def create(self, api: Api, props: Props) -> str:
        """Makes it."""
        attributes = self.attributes(props)
        return str(api.call("sqs", "create_queue", QueueName=props["name"], Attributes=attributes)["QueueUrl"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Attributes and tags."""
        if old and self.attributes(old) != self.attributes(new):
            attributes = without(self.attributes(new), ["FifoQueue"])
            api.call("sqs", "set_queue_attributes", QueueUrl=id_, Attributes=attributes)
        before, after = old.get("tags") or {}, new.get("tags") or {}
        if removed := sorted(before.keys() - after.keys()):
            api.call("sqs", "untag_queue", QueueUrl=id_, TagKeys=removed)
        if added := {k: v for k, v in after.items() if before.get(k) != v}:
            api.call("sqs", "tag_queue", QueueUrl=id_, Tags=added)

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """ARN, URL and tags."""
        found = api.call("sqs", "get_queue_attributes", QueueUrl=id_, AttributeNames=["All"])["Attributes"]
        tags = api.call("sqs", "list_queue_tags", QueueUrl=id_).get("Tags", {})
        return tags_state(tags) | {"arn": found["QueueArn"], "url": id_, "name": id_.rpartition("/")[2]}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it."""
        api.call("sqs", "delete_queue", QueueUrl=id_)


KINDS: tuple[Kind, ...] = (Parameter(), LogGroup(), Queue())
