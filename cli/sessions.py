"""Credentials with Alibaba Cloud that are handed out for a while: by the metadata of an instance, or at an address.

What is asked and answered: ECS user guide, "Instance RAM roles"; credentials-go, `providers/uri.go`.
"""

from __future__ import annotations

import json
import urllib.request
from datetime import datetime
from http.client import HTTPException
from urllib.parse import quote, urlsplit

from cli.errors import Refused
from cli.variables import is_loopback
from cli.words import plain
from trainer.alicloud import Credentials
from trainer.metadata import EcsMetadata, opened

TIMEOUT_S = 10.0
LARGEST = 1 << 16
"""Bytes that an answer may have."""


def of_instance(role: str) -> Credentials:
    """A RAM role's, where this runs on an ECS instance that has it. Raises `Refused`."""
    what = f"the RAM role '{plain(role, 60)}' of this instance"
    try:
        told = EcsMetadata().get(f"meta-data/ram/security-credentials/{quote(role, safe='')}")
    except (OSError, HTTPException) as error:
        raise Refused(
            f"{what} can't be asked for: {plain(str(error))}. That works on an ECS instance alone: use another "
            "profile elsewhere"
        ) from None
    if told is None:
        raise Refused(f"{what}: there is none of that name. Attach it to the instance, or name the one that it has")
    return _read(told, what)


def at_address(address: str) -> Credentials:
    """Whoever's the address hands out. Raises `Refused`, also for one by which they would travel in the clear."""
    parts = urlsplit(address)
    what = f"the credentials at {plain(parts.hostname or '', 100)}"
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(address)):
        raise Refused(f"{what}: their address, credentials_uri, must begin with https://, unless it is this machine's")
    try:
        request = urllib.request.Request(address)  # noqa: S310  its scheme was looked at
        with opened(request, TIMEOUT_S, direct=is_loopback(address)) as answer:
            told = answer.read(LARGEST).decode(errors="replace")
    except (OSError, HTTPException, ValueError) as error:
        raise Refused(f"{what} can't be asked for: {plain(str(error))}. See that who hands them out runs") from None
    return _read(told, what)


def _read(content: str, what: str) -> Credentials:
    """Both answer in the same form. Nothing of an answer is said: it may hold secrets."""
    try:
        told = json.loads(content)
        good = told["Code"] == "Success"
        found = Credentials(*(str(told[name]) for name in ("AccessKeyId", "AccessKeySecret", "SecurityToken")))
        expires = datetime.fromisoformat(str(told["Expiration"])).isoformat()
    except (ValueError, KeyError, TypeError):
        good = False
    if not good:
        raise Refused(f"{what}: the answer holds none. See that it is of the form of ECS's metadata, its Code Success")
    return Credentials(found.key, found.secret, found.token, expires)
