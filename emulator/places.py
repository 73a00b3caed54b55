"""Where things of Alibaba Cloud lie here: the API server behind knows AWS's places, forms of ids and words alone.

All of them are in one of the server's regions, whatever theirs; tags of the server's objects keep what it has no place
for. Their names begin with `acs:`, which Alibaba Cloud keeps for itself as well (Tag guide, "Limits").
"""

import hashlib
import re

REGION = "ap-southeast-1"
"""The server's region that holds them; each vSwitch is in its first zone."""

PATH = "/_alicloud"
"""Below it, the server answers as Alibaba Cloud's own APIs do. No bucket has such a name."""

RESERVED = "acs:"
ZONE_TAG = "acs:zone"
"""The tag of a subnet that is a vSwitch: its zone, in Alibaba Cloud's words."""

BUCKET_TAG = "acs:oss"
"""The tag of a bucket that answers as OSS does."""

WAITING_TAG = "acs:waiting"
"""The tag of a group that waits for its first configuration: the sizes that it gets then."""

CONFIGURATIONS_TAG = "acs:configurations"
"""The tag of a group that has any: their numbers, and the version of its template that each is by now."""

_FORMS = {"vsw-": "subnet-", "vtb-": "rtb-"}


def region_of(zone: str) -> str:
    """The region of a zone: cn-hangzhou of cn-hangzhou-i, ap-southeast-1 of ap-southeast-1a."""
    return re.sub(r"-?[a-z]$", "", zone)


def served(id_: str) -> str:
    """The server's id of one of Alibaba Cloud's form."""
    return next((id_.replace(ours, theirs, 1) for ours, theirs in _FORMS.items() if id_.startswith(ours)), id_)


def shown(id_: str) -> str:
    """Alibaba Cloud's form of an id of the server's."""
    return next((id_.replace(theirs, ours, 1) for ours, theirs in _FORMS.items() if id_.startswith(theirs)), id_)


def own_tags(tags: dict[str, str]) -> dict[str, str]:
    """The tags that a user gave."""
    return {key: value for key, value in tags.items() if not key.startswith(RESERVED)}


def made_id(prefix: str, *of: str) -> str:
    """An id for what the server has none for: always the same for the same."""
    return f"{prefix}-{hashlib.sha256('/'.join(of).encode()).hexdigest()[:20]}"
