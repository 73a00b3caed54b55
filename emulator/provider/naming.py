"""Names that a provider chooses itself, and made-up ids and ARNs of the right form.

What a plan shows follows from the URN and, for names, the engine's seed of this creation, so that the same program
gives the same plan. Source of the name's form and limits: the AWS provider's own auto-naming, `<name>-<7 hex digits>`.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Any

from emulator.provider.alicloud import forms
from emulator.provider.schema import ResourceType
from emulator.provider.wire import Props

ACCOUNT = "123456789012"

_OSS_BUCKET = "alicloud:oss/bucket:Bucket"
_NAMED_BY = {"aws:s3/bucket:Bucket": "bucket", "aws:s3/bucketV2:BucketV2": "bucket", _OSS_BUCKET: "bucket"}
_LIMITS = {
    "aws:s3/bucket:Bucket": 63,
    "aws:s3/bucketV2:BucketV2": 63,
    "aws:iam/role:Role": 64,
    "aws:iam/policy:Policy": 128,
    "aws:iam/rolePolicy:RolePolicy": 128,
    "aws:iam/instanceProfile:InstanceProfile": 128,
    "aws:ec2/launchTemplate:LaunchTemplate": 128,
    "aws:sqs/queue:Queue": 80,
}
_ID_PREFIXES = {
    "instance": "i",
    "volume": "vol",
    "networkInterface": "eni",
    "flowLog": "fl",
    "networkAcl": "acl",
    "lustreFileSystem": "fs",
    "dataRepositoryAssociation": "dra",
}


class NameTooLong(ValueError):
    """A resource's name leaves no room for the suffix that makes it unique."""


class Nameless(ValueError):
    """A resource has to be named by the program, and isn't."""


def urn_name(urn: str) -> str:
    """A resource's name in its program."""
    return urn.rpartition("::")[2]


def urn_stack(urn: str) -> str:
    """The stack that a resource belongs to."""
    return urn.removeprefix("urn:pulumi:").partition("::")[0]


def naming_property(kind: ResourceType) -> str | None:
    """The input that names the resource in the cloud, where the provider may choose it.

    It chooses none for an input that is deprecated (pulumi-terraform-bridge, `applyDefaults`).
    """
    name = _NAMED_BY.get(kind.token, "name")
    known = kind.inputs.get(name)
    return name if known and not known.required and not known.deprecated else None


def is_auto_name(urn: str, name: object) -> bool:
    """Whether the provider chose this name."""
    stem = re.escape(urn_name(urn).lower())
    return isinstance(name, str) and re.search(rf"{stem}-[0-9a-f]{{7}}(\.fifo)?$", name.lower()) is not None


def auto_named(kind: ResourceType, urn: str, old: Mapping[str, Any], new: Props, seed: bytes) -> Props:
    """The inputs with a name: the given one, else the one chosen before, else a fresh one.

    Raises NameTooLong and Nameless.
    """
    key = naming_property(kind)
    if names := forms.NAMES.get(kind.token):
        if all(new.get(name) is None for name in names):
            raise Nameless(f"'{names[0]}' is missing: the cloud demands a name, and the provider makes none here")
        return new
    if kind.token == _OSS_BUCKET:  # the provider names it as it makes it
        return new
    if kind.token.startswith("aws:s3/bucketObject"):
        return {"key": urn_name(urn), **new}
    if key is None or new.get(key) is not None or new.get(f"{key}Prefix") is not None:
        return new
    if is_auto_name(urn, old.get(key)):
        return {**new, key: old[key]}
    name = f"{urn_name(urn)}-{hashlib.sha256(urn.encode() + seed).hexdigest()[:7]}"
    limit = _LIMITS.get(kind.token, 255)
    if len(name) > limit:
        raise NameTooLong(f"'{name}' is longer than the {limit} characters a {key} may have; set '{key}' yourself")
    match kind.token:
        case "aws:s3/bucket:Bucket" | "aws:s3/bucketV2:BucketV2":
            name = name.lower()
        case "aws:kms/alias:Alias":
            name = f"alias/{name}"
        case "aws:sqs/queue:Queue" if new.get("fifoQueue"):
            name = f"{name}.fifo"
    return {**new, key: name}


def prefixed(kind: ResourceType, props: Props) -> Props:
    """The inputs with a name made from the prefix that they give instead of one; a bucket of OSS needs none."""
    key = naming_property(kind)
    if kind.token == _OSS_BUCKET and props.get("bucket") is None:
        return {**props, "bucket": forms.bucket_name(secrets.token_hex(13))}
    if key is None or props.get(key) is not None or props.get(f"{key}Prefix") is None:
        return props
    return {**props, key: props[f"{key}Prefix"] + secrets.token_hex(9)}


def partition(region: str) -> str:
    """The ARN partition of an AWS region."""
    return "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"


def arn(service: str, region: str, resource: str, *, regional: bool = True, account: bool = True) -> str:
    """An ARN in the embedded cloud's account."""
    place, owner = region if regional else "", ACCOUNT if account else ""
    return f"arn:{partition(region)}:{service}:{place}:{owner}:{resource}"


def made_up(
    kind: ResourceType, urn: str, props: Mapping[str, Any], region: str, known_id: str | None = None
) -> tuple[str, Props]:
    """An id, unless it is known, and the outputs of a resource that no API holds: from its URN and, if any, name."""
    package, _, rest = kind.token.partition(":")
    if package == "alicloud":
        return forms.made_up(kind, urn, props, region, ACCOUNT, known_id)
    service, _, noun = rest.partition(":")[0].partition("/")
    noun = noun or rest.rpartition(":")[2]
    digits = hashlib.sha256(urn.encode()).hexdigest()
    prefix = _ID_PREFIXES.get(noun, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", noun).lower())
    own_id = known_id or f"{prefix}-{digits[:17]}"
    key = naming_property(kind)
    name = props.get(key) if key else None
    outputs: Props = {}
    for output in sorted(kind.outputs):
        if output == "arn" and package == "aws":
            outputs[output] = arn(service.lower(), region, f"{prefix}/{name or own_id}")
        elif output in ("ownerId", "accountId"):
            outputs[output] = ACCOUNT
        elif output == "dnsName":
            outputs[output] = f"{own_id}.{service.lower()}.{region}.amazonaws.com"
        elif output == "mountName":
            outputs[output] = digits[-8:]
        elif output.endswith(("Id", "Arn")) and "str" in kind.state[output].annotation:
            outputs[output] = f"{output}-{hashlib.sha256(f'{urn}{output}'.encode()).hexdigest()[:17]}"
    return own_id, outputs
