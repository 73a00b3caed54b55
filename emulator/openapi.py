"""Alibaba Cloud's APIs at one address: SMQ, and those in RPC style, of which action and version say which is asked.

Alibaba Cloud SDK, "Request syntax and signature method V3": the action and its version come in headers, or, as by the
older signature, in the query. Who signs with any key is let in, as at the rest of this cloud.
"""

import json
import uuid
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from emulator import ACCOUNT_ID, ess, mns, places, tags
from emulator.ess import Answer, Parameters, Refusal
from emulator.oss import Application, Environment, Start

_LARGEST = 1 << 20


def _caller(_given: Parameters) -> Answer:
    """STS API, GetCallerIdentity."""
    arn = f"acs:ram::{ACCOUNT_ID}:user/local"
    return {"AccountId": ACCOUNT_ID, "Arn": arn, "IdentityType": "RAMUser", "PrincipalId": "local", "UserId": "local"}


def _taken(_given: Parameters) -> Answer:
    """What is kept nowhere, as nothing here reads it: metrics."""
    return {"Code": "200", "Message": "success"}


def _no_alarms(_given: Parameters) -> Answer:
    """CloudMonitor API, DescribeMetricRuleList: no rule here is ever in alarm."""
    return {"Code": 200, "Success": True, "Total": "0", "Alarms": {"Alarm": []}}


APIS: dict[str, dict[str, Callable[[Parameters], Answer]]] = {
    **ess.ACTIONS,
    **tags.ACTIONS,
    "2015-04-01": {"GetCallerIdentity": _caller},
    "2019-01-01": {"PutCustomMetric": _taken, "DescribeMetricRuleList": _no_alarms},
}
"""What is answered, by an API's version and the action: ESS, ECS, the Tag service, STS, CloudMonitor."""


class OpenApi:
    """What answers below `places.PATH`; all else goes to the application `inner`."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner

    def __call__(self, environ: Environment, start: Start) -> Iterable[bytes]:
        """Answer a request."""
        path = environ.get("PATH_INFO", "")
        if path != places.PATH and not path.startswith(f"{places.PATH}/"):
            return self._inner(environ, start)
        status, answer, kind = 200, "", "application/json"
        try:
            query, body = environ.get("QUERY_STRING", ""), _body(environ)
            if path.startswith(mns.PATH):
                kind = "text/xml"
                status, answer = mns.answer(environ["REQUEST_METHOD"], path, query, body)
            else:
                answer = json.dumps(_numbered(_answer(environ, query, body.decode(errors="replace"))))
        except Refusal as refusal:
            status, answer = refusal.status, json.dumps(_numbered({"Code": refusal.code, "Message": str(refusal)}))
        content = answer.encode()
        headers = [("Content-Type", kind), ("Content-Length", str(len(content)))]
        start(f"{status} {HTTPStatus(status).phrase}", headers)
        return [content]


def _numbered(answer: Answer) -> Answer:
    return {"RequestId": str(uuid.uuid4()).upper(), **answer}


def _body(environ: Environment) -> bytes:
    """A request's body. Raises `Refusal` for one that is none of an API's."""
    size = int(environ.get("CONTENT_LENGTH") or 0)
    if size > _LARGEST:
        raise Refusal("RequestTooLarge", "The request is too large.")
    content: bytes = environ["wsgi.input"].read(size) if size else b""
    return content


def _answer(environ: Environment, query: str, body: str) -> Answer:
    """What an action answers. Raises `Refusal`."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        given |= dict(parse_qsl(body, keep_blank_values=True))
    if not environ.get("HTTP_AUTHORIZATION") and "Signature" not in given:
        raise Refusal("MissingAccessKeyId", "AccessKeyId is mandatory for this action.")
    action = environ.get("HTTP_X_ACS_ACTION") or given.get("Action", "")
    version = environ.get("HTTP_X_ACS_VERSION") or given.get("Version", "")
    found: Any = APIS.get(version, {}).get(action)
    if found is None:
        raise Refusal(
            "InvalidAction.NotFound", f"The embedded cloud has no action {action!r} in version {version!r}.", 404
        )
    answered: Answer = found(given)
    return answered
