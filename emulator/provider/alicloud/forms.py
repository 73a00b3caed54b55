"""Ids, ARNs and other outputs of Alibaba Cloud's own forms, made up where no API holds them, and in previews.

Sources: the ids that terraform-provider-alicloud sets (`SetId` of each resource), each product's API reference for the
prefixes, and the RAM documentation, "Policy elements", for ARNs.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from emulator.provider.schema import ResourceType
from emulator.provider.wire import UNKNOWN, Props

_PREFIXES = {
    "alarm": "ear",
    "bandwidthPackage": "cbwp",
    "capacityReservation": "crp",
    "configuration": "asc",
    "ecsDeploymentSet": "ds",
    "ecsDisk": "d",
    "ecsLaunchTemplate": "lt",
    "eipAddress": "eip",
    "elasticityAssurance": "eap",
    "flowLog": "fl",
    "forwardTable": "ftb",
    "gatewayEndpoint": "vpce",
    "instance": "i",
    "key": "key",
    "lifecycleHook": "ash",
    "natGateway": "ngw",
    "network": "vpc",
    "networkAcl": "nacl",
    "routeTable": "vtb",
    "router": "vrt",
    "scalingConfiguration": "asc",
    "scalingGroup": "asg",
    "scalingRule": "asr",
    "securityGroup": "sg",
    "snatEntry": "snat",
    "snatTable": "stb",
    "switch": "vsw",
    "vpcEndpoint": "ep",
    "vpc": "vpc",
    "vswitch": "vsw",
}
"""What ids begin with, by the noun of a type or of an output."""

_IDS = {
    "alicloud:actiontrail/trail:Trail": "{trailName}",
    "alicloud:cms/alarmContactGroup:AlarmContactGroup": "{alarmContactGroupName}",
    "alicloud:cms/monitorGroup:MonitorGroup": "{number}",
    "alicloud:kms/alias:Alias": "{aliasName}",
    "alicloud:log/project:Project": "{projectName}",
    "alicloud:log/store:Store": "{projectName}:{logstoreName}",
    "alicloud:message/serviceQueue:ServiceQueue": "{queueName}",
    "alicloud:nas/fileSystem:FileSystem": "extreme-{digits}",
    "alicloud:nas/mountTarget:MountTarget": "{fileSystemId}:{domain}",
    "alicloud:oos/template:Template": "{templateName}",
    "alicloud:oss/bucket:Bucket": "{bucket}",
    "alicloud:oss/bucketObject:BucketObject": "{key}",
    "alicloud:ram/policy:Policy": "{policyName}",
    "alicloud:ram/role:Role": "{roleName}",
    "alicloud:ram/rolePolicyAttachment:RolePolicyAttachment": "role:{policyName}:{policyType}:{roleName}",
}
"""Ids that are not a prefix and digits: of inputs, by their names, `number`, `digits` and `domain`."""

_ARNS = {
    "alicloud:kms/key:Key": "acs:kms:{region}:{account}:key/{id}",
    "alicloud:ram/role:Role": "acs:ram::{account}:role/{id}",
}

NAMES = {
    "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate": ("launchTemplateName", "name"),
    "alicloud:ram/policy:Policy": ("policyName", "name"),
    "alicloud:ram/role:Role": ("roleName", "name"),
}
"""What has to be named, by one of two inputs: the API demands it, and Pulumi makes a name only where an input `name`
is in use still (terraform-bridge, `applyDefaults`)."""


def made_up(
    kind: ResourceType, urn: str, props: Mapping[str, Any], region: str, account: str, known_id: str | None = None
) -> tuple[str, Props]:
    """An id, unless it is known, and the outputs of a resource; from its URN and inputs."""
    _, _, rest = kind.token.partition(":")
    service, _, noun = rest.partition(":")[0].partition("/")
    digits = hashlib.sha256(urn.encode()).hexdigest()
    domain = f"{digits[:10]}-{digits[10:15]}.{region}.nas.aliyuncs.com"
    words: defaultdict[str, str] = defaultdict(lambda: digits[:20])
    words |= {name: value for name, value in props.items() if isinstance(value, str) and value != UNKNOWN}
    words |= {"account": account, "region": region, "digits": digits[:8], "number": _number(digits), "domain": domain}
    if noun == "bucket" and words.get("bucket") is None:
        words["bucket"] = bucket_name(digits)
    form = _IDS.get(kind.token) or ("{bucket}" if service == "oss" else f"{_prefix(noun)}-{digits[:20]}")
    id_ = known_id or form.format_map(words)
    words["id"] = id_
    outputs: Props = {}
    for name in kind.state.keys() - props.keys():
        if name == "arn":
            outputs[name] = _ARNS.get(kind.token, f"acs:{service}:{{region}}:{{account}}:{noun.lower()}/{{id}}")
            outputs[name] = outputs[name].format_map(words)
        elif name in ("ownerId", "accountId", "owner") and name in kind.outputs:
            outputs[name] = account
        elif name == "mountTargetDomain":
            outputs[name] = domain
        elif name == "ipAddress":
            outputs[name] = f"198.51.100.{int(digits[:2], 16)}"
        elif name in kind.computed and (of := _named(name)) and "str" in kind.state[name].annotation:
            outputs[name] = f"{_prefix(of)}-{hashlib.sha256(f'{urn}{name}'.encode()).hexdigest()[:20]}"
    if noun == "bucket":
        outputs |= {
            "bucket": words["bucket"],
            "location": f"oss-{region}",
            "extranetEndpoint": f"oss-{region}.aliyuncs.com",
            "intranetEndpoint": f"oss-{region}-internal.aliyuncs.com",
        }
    return id_, outputs


def bucket_name(digits: str) -> str:
    """The name that the provider gives a bucket which is given none."""
    return f"tf-oss-bucket-{digits[:26]}"


def _named(output: str) -> str:
    """The noun that an output has the id of: `routeTable` for routeTableId, `snatTable` for snatTableIds."""
    stem = output.removesuffix("s").removesuffix("Id")
    return stem if stem != output.removesuffix("s") else ""


def _prefix(noun: str) -> str:
    return _PREFIXES.get(noun, noun.lower())


def _number(digits: str) -> str:
    return str(int(digits[:8], 16))
