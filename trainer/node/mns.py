"""Alibaba Cloud's message queues, as far as the backlog and failed boots need them (SMQ API reference).

The calls have the names and forms of boto3's client of SQS, so that whoever makes them needn't know which it is.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from xml.etree import ElementTree

from trainer.alicloud import ENDPOINT, ApiError, Caller, Credentials, Role
from trainer.metadata import opened

VERSION = "2015-06-06"
NAMESPACE = "http://mns.aliyuncs.com/doc/v1/"
CONTENT_TYPE = "text/xml"

TIMEOUT_S = 10.0


def is_queue(url: str) -> bool:
    """Whether a queue's URL is of this service."""
    return ".mns." in urllib.parse.urlsplit(url).netloc


@dataclass
class Client:
    """Calls raise `ApiError`."""

    role: Caller = field(default_factory=Role)
    timeout_s: float = TIMEOUT_S

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> None:  # noqa: N803  boto3's
        """Put a message in, in base64 as all of them are to be ("SendMessage")."""
        text = base64.b64encode(MessageBody.encode()).decode()
        message = f'<Message xmlns="{NAMESPACE}"><MessageBody>{text}</MessageBody></Message>'
        self._ask("POST", QueueUrl, "", message.encode())

    def receive_message(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        MaxNumberOfMessages: int,  # noqa: N803
        WaitTimeSeconds: int,  # noqa: N803
        **_: object,
    ) -> dict[str, Any]:
        """Take some out of sight, for as long as the queue itself says ("BatchReceiveMessage")."""
        query = f"?numOfMessages={MaxNumberOfMessages}&waitseconds={WaitTimeSeconds}"
        try:
            found = self._ask("GET", QueueUrl, query)
        except ApiError as error:
            if error.code == "MessageNotExist":
                return {}
            raise
        try:
            tree = ElementTree.fromstring(found)  # noqa: S314  the service's own answer, over TLS
        except ElementTree.ParseError as error:
            raise ApiError(f"mns: an answer that is no XML: {error}") from None
        handles = [node.text or "" for node in tree.iter(f"{{{NAMESPACE}}}ReceiptHandle")]
        return {"Messages": [{"ReceiptHandle": handle} for handle in handles]}

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> None:  # noqa: N803
        """Take one away for good ("DeleteMessage")."""
        self._ask("DELETE", QueueUrl, f"?ReceiptHandle={ReceiptHandle}")

    def _ask(self, method: str, url: str, query: str, body: bytes = b"") -> bytes:
        parts = urllib.parse.urlsplit(url)
        resource = f"{parts.path}/messages{query}"
        elsewhere = os.environ.get(ENDPOINT)
        address = f"{elsewhere}/mns" if elsewhere else f"{parts.scheme}://{parts.netloc}"
        try:
            signed = headers(self.role.credentials(), method, resource, formatdate(usegmt=True))
            request = urllib.request.Request(f"{address}{resource}", body or None, signed, method=method)  # noqa: S310
            with opened(request, self.timeout_s, direct=False) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            raise _error(method, error) from None
        except (OSError, HTTPException) as error:
            raise ApiError(f"mns {method}: {error}") from None


def _error(method: str, error: urllib.error.HTTPError) -> ApiError:
    try:
        tree = ElementTree.fromstring(error.read())  # noqa: S314
        code = tree.findtext(f"{{{NAMESPACE}}}Code") or ""
    except (ElementTree.ParseError, OSError, HTTPException):
        code = ""
    if not code and error.code == HTTPStatus.NOT_FOUND and method == "GET":
        code = "MessageNotExist"
    return ApiError(f"mns {method}: {error.code} {code or error.reason}", code)


def headers(credentials: Credentials, method: str, resource: str, date: str) -> dict[str, str]:
    """Headers of a request ("Request protocol", on signatures); `date` as HTTP has it."""
    text = f"{method}\n\n{CONTENT_TYPE}\n{date}\nx-mns-version:{VERSION}\n{resource}"
    signature = base64.b64encode(hmac.new(credentials.secret.encode(), text.encode(), hashlib.sha1).digest()).decode()
    return {
        "authorization": f"MNS {credentials.key}:{signature}",
        "content-type": CONTENT_TYPE,
        "date": date,
        "x-mns-version": VERSION,
        **({"security-token": credentials.token} if credentials.token else {}),
    }
