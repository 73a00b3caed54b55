"""Which environment variables lead clients to the embedded cloud, and which of the user's own would lead them past it.

boto3's order of sources: docs/source/guide/configuration.rst and botocore/configprovider.py, checked by the tests.
Alibaba Cloud's: `credentials.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from emulator import places
from trainer import alicloud, dialects

NO_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_SESSION_TOKEN": "",
    **dict(zip(alicloud.KEYS, ("local", "local", ""), strict=True)),
}
"""The embedded cloud takes anyone; a user's own credentials are never sent to it."""

PROFILES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "ALIBABA_CLOUD_PROFILE", "ALIBABA_CLOUD_CREDENTIALS_FILE")
OTHERS = ("AWS_ENDPOINT_URL_", "ALICLOUD_", "ALIBABACLOUD_")
"""What names of others begin with that come before those which lead: of single services, and older ones."""

ENDPOINTS = ("AWS_ENDPOINT_URL", alicloud.ENDPOINT, dialects.ENDPOINT)
LOOPBACK = ("127.0.0.1", "localhost")


def leading(endpoint: str, given: Mapping[str, str]) -> dict[str, str]:
    """What leads clients to the embedded cloud at `endpoint`, and past no proxy, on top of the given variables."""
    unproxied = given.get("no_proxy") or given.get("NO_PROXY") or ""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",
        alicloud.ENDPOINT: f"{endpoint}{places.PATH}",
        dialects.ENDPOINT: endpoint,
        **NO_CREDENTIALS,
        **{name: _with_loopback(given.get(name) or unproxied) for name in ("NO_PROXY", "no_proxy")},
    }


def misleading(given: Mapping[str, str]) -> list[str]:
    """Those of the given that must go: endpoints of single services, credentials that come first, and profiles.

    They can't be made empty instead: boto3 takes an empty profile for the name of one.
    """
    return sorted(name for name in given if name in PROFILES or name.startswith(OTHERS))


def embedded_sign(given: Mapping[str, str]) -> str | None:
    """The variable by which a shell is seen to be set up for an embedded cloud; None where it isn't."""
    if given.get("PULUMI_HOME"):
        home = Path(given["PULUMI_HOME"]).parent
        if given.get("TRAINWRIGHT_HOME") == str(home) or given.get("PULUMI_BACKEND_URL") == f"file://{home}/state":
            return "PULUMI_HOME"
    return next((name for name in ENDPOINTS if is_loopback(given.get(name, ""))), None)


def _with_loopback(names: str) -> str:
    listed = [name.strip() for name in names.split(",") if name.strip()]
    return ",".join(listed + [name for name in LOOPBACK if name not in listed])


def is_loopback(url: str) -> bool:
    """Whether an address is one of this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
