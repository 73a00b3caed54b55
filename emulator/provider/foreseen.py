"""Ids and ARNs that a creation would give, made up in a preview already: so that policies are judged by their text.

Only where `TRAINWRIGHT_FORESEEN` is set: a preview that people read doesn't show what is made up as if it were known.
"""

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from emulator.provider import naming
from emulator.provider.schema import ResourceType
from emulator.provider.wire import UNKNOWN, Props

VARIABLE = "TRAINWRIGHT_FORESEEN"

_FORMS: dict[str, tuple[str, str]] = {
    "aws:cloudwatch/logGroup:LogGroup": ("{name}", "arn:{partition}:logs:{region}:{account}:log-group:{name}"),
    "aws:cloudwatch/metricAlarm:MetricAlarm": ("{name}", "arn:{partition}:cloudwatch:{region}:{account}:alarm:{name}"),
    "aws:iam/instanceProfile:InstanceProfile": ("{name}", "arn:{partition}:iam::{account}:instance-profile/{name}"),
    "aws:iam/policy:Policy": ("arn:{partition}:iam::{account}:policy/{name}",) * 2,
    "aws:iam/role:Role": ("{name}", "arn:{partition}:iam::{account}:role/{name}"),
    "aws:kms/key:Key": ("{uuid}", "arn:{partition}:kms:{region}:{account}:key/{uuid}"),
    "aws:s3/bucket:Bucket": ("{name}", "arn:{partition}:s3:::{name}"),
    "aws:s3/bucketV2:BucketV2": ("{name}", "arn:{partition}:s3:::{name}"),
    "aws:sns/topic:Topic": ("arn:{partition}:sns:{region}:{account}:{name}",) * 2,
    "aws:sqs/queue:Queue": (
        "https://sqs.{region}.amazonaws.com/{account}/{name}",
        "arn:{partition}:sqs:{region}:{account}:{name}",
    ),
}
"""Id and ARN of types for which `naming.made_up` has others. Source: AWS' Service Authorization Reference, "Resource
types"."""

_FIRST_VERSIONS = ("latestVersion", "latestVersionNumber")


def wanted() -> bool:
    """Whether previews get ids."""
    return bool(os.environ.get(VARIABLE))


def foreseen(kind: ResourceType, urn: str, props: Mapping[str, Any], region: str) -> tuple[str, Props]:
    """The id and state that a creation would give; what doesn't follow from the inputs stays unknown."""
    id_, state = naming.made_up(kind, urn, props, region)
    if kind.token in _FORMS:
        key = "bucket" if "bucket" in kind.inputs else naming.naming_property(kind)
        name = props.get(key or "")
        digits = hashlib.sha256(urn.encode()).hexdigest()
        words = {
            "name": name if isinstance(name, str) and name != UNKNOWN else id_,
            "account": naming.ACCOUNT,
            "region": region,
            "partition": naming.partition(region),
            "uuid": f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15:18]}-{digits[18:30]}",
        }
        id_, arn = (form.format(**words) for form in _FORMS[kind.token])
        known: Props = {"arn": arn, "keyId": id_, "url": id_, "bucketDomainName": f"{id_}.s3.amazonaws.com"}
        state |= {name: value for name, value in known.items() if name in kind.outputs}
    first = {name: 1 for name in _FIRST_VERSIONS if name in kind.outputs}
    return id_, {**dict.fromkeys(kind.computed, UNKNOWN), **state, **first, **props}
