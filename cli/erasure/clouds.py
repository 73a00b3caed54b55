"""Which cloud is asked: a cluster's own, or the one that a key's ARN is of. Each is loaded for its own only."""

from __future__ import annotations

import os
import re

from cli.account import Account, account
from cli.erasure.scope import Cloud
from cli.errors import Refused
from cli.words import plain
from trainer import dialects

KEYS = {
    "aws": r"arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:key/[A-Za-z0-9-]+",
    "alicloud": r"acs:kms:([a-z0-9-]+):[0-9]{5,20}:key/[A-Za-z0-9-]+",
}
"""How ARNs of keys are written, with their region in a group."""


def cloud_of(asked: Account) -> Cloud:
    """What erasing asks of an account's cloud."""
    from cli.alicloud import Alicloud as Alibaba  # noqa: PLC0415

    if isinstance(asked, Alibaba):
        from cli.erasure.alicloud import Alicloud  # noqa: PLC0415

        return Alicloud(asked, os.environ.get(dialects.ENDPOINT, ""))
    from cli.erasure.aws import Aws  # noqa: PLC0415

    return Aws(asked.region)


def asked_for(key: str) -> Cloud:
    """Who is asked for the key of an ARN, in its own region. Raises `Refused` where it is none of a KMS."""
    for cloud, form in KEYS.items():
        if match := re.fullmatch(form, key):
            return cloud_of(account(cloud, match[1]))
    raise Refused(f"'{plain(key)}' is no key of AWS or Alibaba Cloud")
