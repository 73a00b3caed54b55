"""Keys and the nodes' identity. Policies are pure functions, so that tests can hold them to what they grant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_alicloud as alicloud

from components import layout
from components.plan import Plan, Pool

Document = dict[str, Any]

ROTATION = "365d"
"""How often a key's material is renewed; AWS's default, too."""


@dataclass(frozen=True)
class Identity:
    """What the fleet needs to give its nodes their role."""

    role: alicloud.ram.Role
    name: pulumi.Output[str]
    """What instances are given: a RAM role has no instance profile beside it."""
    ready: list[pulumi.Resource]
    """What must be there before a node can use its role."""


CLUSTER_TAG = "trainwright:cluster"
"""The tag that says whose something is, on all that takes tags (`Plan.tags`)."""

CLAIMS = "-claims"
"""What the name of the bucket beside the cluster's own ends with (`storage.Storage`): the same keys, each written once,
so that whoever may do something to an object there may do it here, too."""


def bucket_arn(bucket: str) -> str:
    """ARN of a bucket, whose name is its own in all of OSS."""
    return f"acs:oss:*:*:{bucket}"


def bucket_arns(bucket: str) -> list[str]:
    """ARNs of the cluster's bucket and of that of claims."""
    return [bucket_arn(bucket), bucket_arn(f"{bucket}{CLAIMS}")]


def keys(bucket: str, *patterns: str) -> list[str]:
    """ARNs of objects in both, by their keys, in which `*` stands for anything."""
    return [f"{arn}/{pattern}" for arn in bucket_arns(bucket) for pattern in patterns]


def objects(bucket: str, *prefixes: str) -> list[str]:
    """ARNs of the objects in both whose keys begin so."""
    return keys(bucket, *(f"{prefix}*" for prefix in prefixes))


def key_arn(key_id: str) -> str:
    """ARN of a key, as policies name it: an id is given once."""
    return f"acs:kms:*:*:key/{key_id}"


def key_policy(account_id: str) -> Document:
    """The policy of each key: the account governs it, and RAM says who else does what.

    One policy serves all keys: in its own account, KMS asks whether the key's policy *or* RAM allows what is asked
    (KMS user guide, "Key policy overview", "Any Allow is sufficient"), so that narrower statements here would narrow
    nothing. `root` is the account itself; its users and roles, `acs:ram::<id>:*`, would all be let in.

    ECS takes its own role to the key, AliyunECSDiskEncryptDefaultRole, which an account authorizes once, and tags the
    key with `acs:ecs:disk-encryption` when a first disk is made (ECS user guide, "Encryption-related permissions").
    Until then Auto Scaling starts nothing: InvalidParameter.KMSKeyId.KMSUnauthorized. The role can't be named here, as
    a principal must exist.
    """
    return document(
        {
            "Effect": "Allow",
            "Principal": {"RAM": [f"acs:ram::{account_id}:root"]},
            "Action": ["kms:*"],
            "Resource": ["*"],
        }
    )


def service_trust(service: str, condition: Document | None = None) -> Document:
    """Only the service takes the role, where it can say so for the condition's account and resource only."""
    trust: Document = {"Effect": "Allow", "Principal": {"Service": [service]}, "Action": "sts:AssumeRole"}
    return document({**trust, "Condition": condition} if condition else trust)


def node_trust() -> Document:
    """Only instances take the nodes' role."""
    return service_trust("ecs.aliyuncs.com")


def use_data_key(key_id: str) -> Document:
    """To read and write the bucket's objects: OSS asks KMS in the name of who asks OSS.

    RAM has no condition for requests that come through OSS alone. Who holds this can call KMS too, and gets nothing by
    it: the data keys of objects, encrypted, are nowhere to be read.
    """
    return {"Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": key_arn(key_id)}


def node_policy(bucket: str, key_id: str) -> Document:
    """What a node may do: read bundles, datasets and records of the fleet, and write below `runs/`, with the data key.

    Listing is not limited to prefixes, as a condition on `oss:Prefix` holds for no GET. A node must be able to tell
    "not there yet" from "not allowed".

    What was declared and retried is said by people alone. All other pages of the audit record are a node's to add, and
    here a policy can't say that it changes none: OSS has no condition for `x-oss-forbid-overwrite` (OSS user guide,
    "OSS authorization syntax and elements"). Nodes delete none, the bucket keeps what is written over, and each page's
    claim has what was written first.
    """
    return document(
        {
            "Effect": "Allow",
            "Action": ["oss:ListObjects", "oss:ListMultipartUploads"],
            "Resource": bucket_arns(bucket),
        },
        {
            "Effect": "Allow",
            "Action": "oss:GetObject",
            "Resource": [
                *keys(bucket, layout.FLEET),
                *objects(bucket, layout.BUNDLES, layout.DATASETS, layout.RUNS, layout.DATA_NODES),
            ],
        },
        {
            "Effect": "Allow",
            "Action": ["oss:PutObject", "oss:ListParts", "oss:AbortMultipartUpload"],
            "Resource": objects(bucket, layout.RUNS),
        },
        {
            "Effect": "Deny",
            "Action": "oss:PutObject",
            "Resource": objects(bucket, *(f"{layout.RUNS}*/{layout.AUDIT}{page}-" for page in ("launch", "retry"))),
        },
        {
            "Effect": "Allow",
            "Action": "oss:DeleteObject",
            "Resource": objects(bucket, f"{layout.RUNS}*/{layout.CHECKPOINTS}"),
        },
        use_data_key(key_id),
    )


def data_node_policy(bucket: str, key_id: str) -> Document:
    """What a data node may do: read bundles and datasets, write what it says of itself, with the data key.

    It has no part in runs and may not read them. It takes its own record away when it leaves.
    """
    return document(
        {"Effect": "Allow", "Action": "oss:ListObjects", "Resource": bucket_arns(bucket)},
        {"Effect": "Allow", "Action": "oss:GetObject", "Resource": objects(bucket, layout.BUNDLES, layout.DATASETS)},
        {"Effect": "Allow", "Action": "oss:PutObject", "Resource": objects(bucket, layout.DATA)},
        {"Effect": "Allow", "Action": "oss:DeleteObject", "Resource": objects(bucket, layout.DATA_NODES)},
        use_data_key(key_id),
    )


def declare_key(plan: Plan, child: pulumi.ResourceOptions) -> alicloud.kms.Key:
    """Declare the customer key that encrypts bucket and disks."""
    return _key(plan, "data", f"Data of cluster {plan.name}", child)


def declare_logs_key(plan: Plan, child: pulumi.ResourceOptions) -> alicloud.kms.Key:
    """Declare the customer key that encrypts the record of what was done, and alarms; no node may use it."""
    return _key(plan, "logs", f"Audit record of cluster {plan.name}", child)


def declare_evidence_key(plan: Plan, child: pulumi.ResourceOptions) -> alicloud.kms.Key:
    """Declare the key that signs certificates of erasure; its private half never leaves KMS, and it encrypts nothing.

    It does not rotate, as no asymmetric key does (KMS user guide, "Understanding KMS keys"). Operators sign with it and
    auditors check, as their roles say.
    """
    return _key(plan, "evidence", f"Signs evidence of cluster {plan.name}", child, signs=True)


def _key(
    plan: Plan, purpose: str, description: str, child: pulumi.ResourceOptions, *, signs: bool = False
) -> alicloud.kms.Key:
    kind: dict[str, Any] = (
        {"key_spec": "EC_P256", "key_usage": "SIGN/VERIFY"}
        if signs
        else {
            "key_spec": "Aliyun_AES_256",
            "key_usage": "ENCRYPT/DECRYPT",
            "automatic_rotation": "Enabled",
            "rotation_interval": ROTATION,
        }
    )
    if plan.spec.production:
        kind |= {
            "deletion_protection": "Enabled",
            "deletion_protection_description": "In production; turn this off first, once nothing needs the key",
        }
    key = alicloud.kms.Key(
        f"{plan.name}-{purpose}",
        description=description,
        dkms_instance_id=plan.spec.security.kms_instance,
        **kind,
        pending_window_in_days=30 if plan.spec.production else 7,
        policy=account(child).apply(lambda account_id: json.dumps(key_policy(account_id))),
        tags=dict(plan.tags),
        opts=kept(plan, child),
    )
    alias = unique(f"{plan.name}-{purpose}", child).apply(lambda known: f"alias/{known}")
    alicloud.kms.Alias(f"{plan.name}-{purpose}", alias_name=alias, key_id=key.id, opts=child)
    return key


def declare_identity(
    plan: Plan, bucket: pulumi.Output[str], key_id: pulumi.Output[str], child: pulumi.ResourceOptions
) -> Identity:
    """Declare the nodes' role."""
    return _identity(plan, plan.pool, node_policy, bucket, key_id, child)


def declare_data_identity(
    plan: Plan, data: Pool, bucket: pulumi.Output[str], key_id: pulumi.Output[str], child: pulumi.ResourceOptions
) -> Identity:
    """Declare the data nodes' role."""
    return _identity(plan, data, data_node_policy, bucket, key_id, child)


def _identity(
    plan: Plan,
    pool: Pool,
    policy_of: Callable[[str, str], Document],
    bucket: pulumi.Output[str],
    key_id: pulumi.Output[str],
    child: pulumi.ResourceOptions,
) -> Identity:
    name = f"{plan.name}-{pool.one}"
    role = alicloud.ram.Role(
        name,
        role_name=unique(name, child),
        description=f"{pool.one.replace('-', ' ').capitalize()}s of cluster {plan.name}",
        assume_role_policy_document=json.dumps(node_trust()),
        tags=dict(plan.tags),
        force=True,
        opts=child,
    )
    policy = pulumi.Output.all(bucket, key_id).apply(lambda known: policy_of(*known))
    return Identity(role, role.role_name, attach(plan, pool.one, role.role_name, policy, child))


def attach(
    plan: Plan,
    suffix: str,
    role_name: pulumi.Input[str],
    policy: pulumi.Output[Document],
    child: pulumi.ResourceOptions,
    called: pulumi.Output[str] | None = None,
) -> list[pulumi.Resource]:
    """Declare a policy, named `<cluster>-<suffix>`, and that the role has it: RAM has no policies inside of roles.

    A policy is forced away with its older versions, of which RAM keeps five, and a new one drops the oldest
    (provider's `ram.Policy`, `rotate_strategy`). RAM knows it as `called`, else by a `unique` name. Returns what must
    be there before the role has it.
    """
    name = f"{plan.name}-{suffix}"
    made = alicloud.ram.Policy(
        name,
        policy_name=called or unique(name, child),
        description=f"Permissions of cluster {plan.name}: {suffix}",
        policy_document=policy.apply(json.dumps),
        rotate_strategy="DeleteOldestNonDefaultVersionWhenLimitExceeded",
        force=True,
        tags=dict(plan.tags),
        opts=child,
    )
    attached = alicloud.ram.RolePolicyAttachment(
        name, policy_name=made.policy_name, policy_type="Custom", role_name=role_name, opts=child
    )
    return [made, attached]


def kept(plan: Plan, child: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """Options of what holds data: protected, and left in the account when the stack goes, where it is production."""
    keep = plan.spec.production
    return pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(protect=keep, retain_on_delete=keep))


def asking(child: pulumi.ResourceOptions) -> pulumi.InvokeOptions:
    """Options of a look-up, made with the provider of the resources that have the options `child`."""
    return pulumi.InvokeOptions(parent=child.parent, provider=child.provider)


def account(child: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Id of the account that the resources with the options `child` are in."""
    found: pulumi.Output[str] = alicloud.get_caller_identity_output(opts=asking(child)).account_id
    return found


def caller(child: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """ARN of the user or the role's session that declares the resources with the options `child`."""
    found: pulumi.Output[str] = alicloud.get_caller_identity_output(opts=asking(child)).arn
    return found


def unique(name: str, child: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """The name with seven digits that follow from account, project and stack: for what is there once in an account.

    The provider names nothing whose `name` is deprecated (pulumi-terraform-bridge, `applyDefaults`), and RAM's roles
    and policies, keys' aliases and more have only that, or another property. What `kept` leaves behind still has its
    name when the stack is made again: that is named `beside` something.
    """
    place = f"{pulumi.get_project()}/{pulumi.get_stack()}/{name}"
    made: pulumi.Output[str] = account(child).apply(lambda account_id: numbered(name, f"{account_id}/{place}"))
    return made


def beside(name: str, other: pulumi.Output[str]) -> pulumi.Output[str]:
    """The name with seven digits that follow from another one, which is new each time and all the cloud's."""
    made: pulumi.Output[str] = other.apply(lambda known: numbered(name, f"{known}/{name}"))
    return made


def numbered(name: str, whole: str) -> str:
    """The name with seven digits that follow from `whole`."""
    return f"{name}-{hashlib.sha256(whole.encode()).hexdigest()[:7]}"


def document(*statements: Document) -> Document:
    """A policy document of the statements. Statements have no `Sid` (RAM user guide, "Policy structure and syntax")."""
    return {"Version": "1", "Statement": list(statements)}
