"""moto's API server inside this process, with what moto 5.2.5 gets wrong for auto scaling groups put right.

Before it stand Alibaba Cloud's ways: its own APIs, and OSS's where a bucket is OSS's.
"""

import json
import logging
from functools import lru_cache
from threading import Thread
from typing import Any

from moto.autoscaling.models import autoscaling_backends
from moto.core.types import Base64EncodedString
from moto.ec2.models.launch_templates import LaunchTemplateVersion
from moto.ec2.utils import parse_user_data
from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import FakeBucket
from werkzeug.serving import make_server

from emulator import ACCOUNT_ID, hooks
from emulator.guard import Guarded
from emulator.openapi import OpenApi
from emulator.oss import Oss


class _Dispatcher(DomainDispatcherApplication):
    """moto's, which looks through all folders of its package at each request: half a millisecond of some three."""

    get_backend_for_host = lru_cache(1024)(DomainDispatcherApplication.get_backend_for_host)


class _Handler(Guarded, MotoRequestHandler):
    """moto's, for our own user."""


def serve() -> str:
    """Start the server on a port of the system's choice, for this machine's and user's processes; returns its URL.

    It answers as long as the process lives.
    """
    # moto types the user-data of a template's first version only, then trips over that of every later one.
    setattr(LaunchTemplateVersion, "user_data", property(_user_data))  # noqa: B010 (mypy forbids the assignment)
    # moto judges bucket policies without their conditions, so that one which denies plain HTTP would deny everything.
    setattr(FakeBucket, "get_permission", _permission)  # noqa: B010
    hooks.install()
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = make_server(
        "127.0.0.1",
        0,
        OpenApi(Oss(_Dispatcher(create_backend_app))),
        threaded=True,
        request_handler=_Handler,
    )
    Thread(target=server.serve_forever, name="api", daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def regions_with_groups() -> list[str]:
    """The regions that hold an auto scaling group: to ask all regions through the API would cost a core."""
    backends = list(autoscaling_backends[ACCOUNT_ID].items())
    return [region for region, backend in backends if backend.autoscaling_groups]


def _user_data(version: LaunchTemplateVersion) -> Base64EncodedString | None:
    value = version.data.get("UserData")
    return None if value is None else parse_user_data(str(value))


def _permission(bucket: FakeBucket, action: str, resource: str) -> PermissionResult:
    """What the bucket's policy says to a request over TLS: in this cloud, loopback counts as that."""
    policy: dict[str, Any] = json.loads(bucket.policy or "{}")
    statements = policy.get("Statement", [])
    kept = [statement for statement in statements if not _about_plain_http(statement)]
    if not kept:
        return PermissionResult.NEUTRAL
    return IAMPolicy(json.dumps({**policy, "Statement": kept})).is_action_permitted(action, resource)


def _about_plain_http(statement: dict[str, Any]) -> bool:
    """Whether a statement judges a request by its TLS, or by having none."""
    conditions = statement.get("Condition", {})
    plain = str(conditions.get("Bool", {}).get("aws:SecureTransport", "")).lower() == "false"
    return plain or "s3:TlsVersion" in conditions.get("NumericLessThan", {})
