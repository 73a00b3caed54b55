"""Alibaba Cloud's message queues, as far as messages are sent, taken and deleted, over the server's SQS.

SMQ API reference: "SendMessage", "BatchReceiveMessage", "DeleteMessage", "Error responses".
"""

from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from moto.sqs.exceptions import QueueDoesNotExist, ReceiptHandleIsInvalid
from moto.sqs.models import SQSBackend, sqs_backends

from emulator import ACCOUNT_ID, places

PATH = f"{places.PATH}/mns/queues/"
_NAMESPACE = "http://mns.aliyuncs.com/doc/v1/"
_MOST, _LONGEST_S = 16, 30

Answer = tuple[int, str]
"""A status and a body of XML."""


def answer(method: str, path: str, query: str, body: bytes) -> Answer:
    """Answer a request about a queue's messages, at `PATH` and below."""
    name, _, what = path.removeprefix(PATH).partition("/")
    backend: SQSBackend = sqs_backends[ACCOUNT_ID][places.REGION]
    given = {key: values[0] for key, values in parse_qs(query).items()}
    if what != "messages":
        return _error(404, "InvalidRequestURL", f"The embedded cloud has nothing at {path}.")
    try:
        match method:
            case "POST":
                return _send(backend, name, body)
            case "GET":
                return _receive(backend, name, given)
            case "DELETE":
                backend.delete_message(name, given.get("ReceiptHandle", ""))
                return 204, ""
    except QueueDoesNotExist:
        return _error(404, "QueueNotExist", "The queue name you provided does not exist.")
    except ReceiptHandleIsInvalid:
        return _error(400, "ReceiptHandleError", "The receipt handle you provide is not valid.")
    return _error(405, "InvalidRequestMethod", "The request's method is none of a queue's messages.")


def _send(backend: SQSBackend, name: str, body: bytes) -> Answer:
    try:
        tree = ElementTree.fromstring(body)  # noqa: S314  of our own user, who may do worse to this process
    except ElementTree.ParseError:
        return _error(400, "MalformedXML", "The XML you provided was not well-formed.")
    message = backend.send_message(name, tree.findtext(f"{{{_NAMESPACE}}}MessageBody") or "")
    return 201, f'<Message xmlns="{_NAMESPACE}"><MessageId>{message.id}</MessageId></Message>'


def _receive(backend: SQSBackend, name: str, given: dict[str, str]) -> Answer:
    """Some messages, which nobody else sees for as long as the queue says."""
    count = min(int(given.get("numOfMessages", 1)), _MOST)
    wait = min(int(given.get("waitseconds", 0)), _LONGEST_S)
    queue: Any = backend.get_queue(name)  # moto types none of its attributes
    found: Any = backend.receive_message(name, count, wait, int(queue.visibility_timeout))
    if not found:
        return _error(404, "MessageNotExist", "Message not exist.")
    shown = "".join(
        f"<Message><MessageId>{one.id}</MessageId><ReceiptHandle>{one.receipt_handle}</ReceiptHandle>"
        f"<MessageBody>{escape(one.body)}</MessageBody></Message>"
        for one in found
    )
    return 200, f'<Messages xmlns="{_NAMESPACE}">{shown}</Messages>'


def _error(status: int, code: str, message: str) -> Answer:
    return status, f'<Error xmlns="{_NAMESPACE}"><Code>{code}</Code><Message>{escape(message)}</Message></Error>'
