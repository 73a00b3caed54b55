"""A person's credentials with Alibaba Cloud, where its provider and its own command keep them.

Variables come first, in the provider's order (terraform-provider-alicloud, `provider.go`); then a profile of the file
that `aliyun configure` writes (aliyun-cli, `config/profile.go`): the one that a variable names, else the current one.
The provider reads the file only where a variable names a profile, so that the engine is given one.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cli.errors import Refused
from cli.words import plain
from trainer.alicloud import Credentials

SIGN_IN = (
    "Sign in to Alibaba Cloud (`aliyun configure`, or ALIBABA_CLOUD_PROFILE, or ALIBABA_CLOUD_ACCESS_KEY_ID and "
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET), then try again"
)

KEY = ("ALICLOUD_ACCESS_KEY", "ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABACLOUD_ACCESS_KEY_ID")
SECRET = ("ALICLOUD_SECRET_KEY", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABACLOUD_ACCESS_KEY_SECRET")
TOKEN = ("ALICLOUD_SECURITY_TOKEN", "ALIBABA_CLOUD_SECURITY_TOKEN", "ALIBABACLOUD_SECURITY_TOKEN")
PROFILE = ("ALICLOUD_PROFILE", "ALIBABA_CLOUD_PROFILE")
FILE = ("ALICLOUD_SHARED_CREDENTIALS_FILE", "ALIBABA_CLOUD_CREDENTIALS_FILE")
ADDRESS = ("ALICLOUD_CREDENTIALS_URI", "ALIBABA_CLOUD_CREDENTIALS_URI")
INSTANCE = ("ALICLOUD_ECS_ROLE_NAME", "ALIBABA_CLOUD_ECS_METADATA")
"""Where there are neither keys nor a profile: an address that hands credentials out, or an instance's RAM role."""

LONGEST_CHAIN = 5
"""Roles that are taken one by way of the other."""

SESSION_S = 3600
"""For which a role is taken, where its profile doesn't say (STS API, AssumeRole: 900 s or more)."""

SPARE_S = 300
"""So long before their end, credentials count as ended."""

Session = Callable[[Credentials | None, Mapping[str, Any]], Credentials]
"""Has a session given by a profile: of its role (`ram_role_arn`, …), taken with other credentials; or, without any, of
the instance's RAM role (`ram_role_name`), or at an address (`credentials_uri`)."""


class Person:
    """Whoever's credentials are found here, taken anew before they end."""

    def __init__(self, take: Session) -> None:
        self._take = take
        self._held: Credentials | None = None
        self._lock = threading.Lock()

    def credentials(self) -> Credentials:
        """Credentials that last. Raises `Refused` where there are none."""
        with self._lock:
            if self._held is None or not self._held.lasts(SPARE_S):
                self._held = found(os.environ, self._take)
            if self._held is None:
                raise Refused(f"there are no credentials for Alibaba Cloud here. {SIGN_IN}")
            return self._held


def found(given: Mapping[str, str], take: Session, now: Callable[[], float] = time.time) -> Credentials | None:
    """The credentials under these variables; None where there are none. Raises `Refused` for those that can't be used.

    `take` is asked for the session where it takes one, and may raise `Refused` too.
    """
    key, secret = _first(given, KEY), _first(given, SECRET)
    if key and secret:
        return Credentials(key, secret, _first(given, TOKEN))
    if key or secret:
        raise Refused(f"only half of an access key is set, {'its id' if key else 'its secret'}. {SIGN_IN}")
    if not _first(given, PROFILE):
        if address := _first(given, ADDRESS):
            return take(None, {"mode": "CredentialsURI", "credentials_uri": address})
        if role := _first(given, INSTANCE):
            return take(None, {"mode": "EcsRamRole", "ram_role_name": role})
    file = _file(given)
    name = _profile(given, file)
    return _of(name, _profiles(file), take, now(), file, LONGEST_CHAIN) if name else None


def present() -> bool:
    """Whether there are any; no session is asked for. Raises `Refused` for those that can't be used."""
    return found(os.environ, lambda of, _: of or Credentials("", "")) is not None


def for_the_engine() -> dict[str, str]:
    """What has the provider find the same: the current profile, where no variable names credentials or a profile.

    It reads no address from a profile, but from a variable. Raises `Refused` where the file can't be read.
    """
    given = os.environ
    named = _first(given, PROFILE)
    if _first(given, KEY) or (not named and _first(given, (*ADDRESS, *INSTANCE))):
        return {}
    file = _file(given)
    name = _profile(given, file)
    if not name:
        return {}
    profile = _profiles(file).get(name, {})
    handed = {ADDRESS[-1]: str(profile.get("credentials_uri") or "")} if mode_of(profile) == "credentialsuri" else {}
    return handed if named else {PROFILE[-1]: name, **handed}


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((given[name].strip() for name in names if given.get(name, "").strip()), "")


def _file(given: Mapping[str, str]) -> Path:
    named = _first(given, FILE)
    return Path(named or "~/.aliyun/config.json").expanduser()


def _profile(given: Mapping[str, str], file: Path) -> str:
    """Name of the profile to use; empty where there is none to choose."""
    return _first(given, PROFILE) or (str(_content(file).get("current") or "") if file.is_file() else "")


def _profiles(file: Path) -> dict[str, Mapping[str, Any]]:
    listed = _content(file).get("profiles")
    profiles = listed if isinstance(listed, list) else []
    return {str(profile.get("name")): profile for profile in profiles if isinstance(profile, dict)}


def _content(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refused(f"{file}: {error.strerror}. {SIGN_IN}") from None
    except ValueError:
        raise Refused(f"{file}: is not the JSON that `aliyun configure` writes. {SIGN_IN}") from None
    return content if isinstance(content, dict) else {}


def _of(
    name: str, profiles: Mapping[str, Mapping[str, Any]], take: Session, now: float, file: Path, left: int
) -> Credentials:
    """The credentials of a profile, by its mode."""
    profile = profiles.get(name)
    if profile is None:
        raise Refused(f"{file}: there is no profile '{plain(name, 60)}'. {SIGN_IN}")
    where = f"{file}: profile '{plain(name, 60)}'"
    mode = mode_of(profile)
    match mode:
        case "ak" | "ststoken":
            return _keys(profile, where, token=mode == "ststoken")
        case "ecsramrole":
            _has("ram_role_name", profile, where)
            return take(None, profile)
        case "credentialsuri" if left == LONGEST_CHAIN:  # the provider takes no role with what one hands out
            _has("credentials_uri", profile, where)
            return take(None, profile)
        case "ramrolearn":
            return take(_keys(profile, where, token=bool(profile.get("sts_token"))), profile)
        case "chainableramrolearn":
            if not left:
                raise Refused(f"{where}: takes more than {LONGEST_CHAIN} roles one by way of the other. {SIGN_IN}")
            source = str(profile.get("source_profile") or "")
            return take(_of(source, profiles, take, now, file, left - 1), profile)
        case "cloudsso" | "oauth":
            until = float(profile.get("sts_expiration") or 0)
            if until < now + SPARE_S:
                raise Refused(
                    f"{where}: what was signed in has ended. Sign in anew: `aliyun configure --mode "
                    f"{profile['mode']} --profile {plain(name, 60)}`"
                )
            ends = datetime.fromtimestamp(until, UTC).isoformat()
            return replace(_keys(profile, where, token=True), expires=ends)
    raise Refused(
        f"{where}: is of mode '{plain(str(profile.get('mode', '')), 60)}'; only AK, StsToken, RamRoleArn, "
        "ChainableRamRoleArn, EcsRamRole, CredentialsURI (as nobody's source_profile), CloudSSO and OAuth can be used "
        "here, as the engine's provider reads no others. Name another in ALIBABA_CLOUD_PROFILE, or set "
        "ALIBABA_CLOUD_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_SECRET and ALIBABA_CLOUD_SECURITY_TOKEN"
    )


def mode_of(profile: Mapping[str, Any]) -> str:
    """A profile's mode, in lower case."""
    return str(profile.get("mode", "")).lower()


def _has(name: str, profile: Mapping[str, Any], where: str) -> None:
    if not profile.get(name):
        raise Refused(f"{where}: has no {name}. Give it one: `aliyun configure --mode {profile['mode']}`")


def _keys(profile: Mapping[str, Any], where: str, *, token: bool) -> Credentials:
    values = [str(profile.get(name) or "") for name in ("access_key_id", "access_key_secret", "sts_token")]
    if not all(values[: 3 if token else 2]):
        raise Refused(f"{where}: has no {'token, ' if token else ''}access key id and secret. {SIGN_IN}")
    return Credentials(values[0], values[1], values[2] if token else "")
