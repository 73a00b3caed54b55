"""Queues of SMQ, which are SQS's."""

# ruff: noqa: ARG002 - all kinds answer the same calls

from typing import ClassVar

from emulator.provider.aws.api import Api
from emulator.provider.aws.kind import Kind, changed
from emulator.provider.wire import Props


class ServiceQueue(Kind):
    """A queue; its id is its name. How it is encrypted, and what its dead letters do, is kept as given."""

    type = "alicloud:message/serviceQueue:ServiceQueue"
    service = "sqs"
    replace_on = frozenset({"queueName", "queueType"})
    _ATTRIBUTES: ClassVar[dict[str, tuple[str, int]]] = {
        "visibilityTimeout": ("VisibilityTimeout", 30),
        "messageRetentionPeriod": ("MessageRetentionPeriod", 345_600),
        "delaySeconds": ("DelaySeconds", 0),
        "pollingWaitSeconds": ("ReceiveMessageWaitTimeSeconds", 0),
    }
    """SQS's names, and SMQ's defaults (SMQ API, CreateQueue)."""

    def create(self, api: Api, props: Props) -> str:
        """Makes it."""
        api.call("sqs", "create_queue", QueueName=props["queueName"], Attributes=self._attributes(props))
        return str(props["queueName"])

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Its times."""
        if old and changed(old, new, self._ATTRIBUTES):
            api.call("sqs", "set_queue_attributes", QueueUrl=_url(api, id_), Attributes=self._attributes(new))

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its times. Raises ApiError where it is gone."""
        url = _url(api, id_)
        found = api.call("sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return {"queueName": id_, **{name: int(found[theirs]) for name, (theirs, _) in self._ATTRIBUTES.items()}}

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Deletes it."""
        api.call("sqs", "delete_queue", QueueUrl=_url(api, id_))

    def _attributes(self, props: Props) -> dict[str, str]:
        return {theirs: str(props.get(name) or usual) for name, (theirs, usual) in self._ATTRIBUTES.items()}


def _url(api: Api, name: str) -> str:
    return str(api.call("sqs", "get_queue_url", QueueName=name)["QueueUrl"])


KINDS: tuple[Kind, ...] = (ServiceQueue(),)
