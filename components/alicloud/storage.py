"""The cluster's bucket: encrypted with the data key, versioned, reachable over TLS only, never public."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_alicloud as alicloud

from components import layout, record
from components.alicloud.security import CLAIMS, Document, bucket_arn, caller, document, kept
from components.bundle import Bundle, default_folder
from components.plan import Plan
from components.spec import Audit, Cold
from components.tiers import transitions

HEARTBEAT_BYTES = 64
"""What is smaller below `runs/` is a heartbeat."""

CHECKPOINT_BYTES = 1 << 20
"""What is larger below `runs/`, and was deleted, is a part of a retired checkpoint."""

COOLED_BYTES = 128 << 10
"""Nothing smaller moves, whatever its class: what agents agree through, fleet and manifests stay readable, and OSS
charges small objects of the colder classes as 64 KiB (OSS user guide, "Overview of storage classes")."""

CLASSES = {
    "infrequent": "IA",
    "instant-archive": "Archive",
    "archive": "ColdArchive",
    "deep-archive": "DeepColdArchive",
}

TLS = {"1.2": ["TLSv1.2", "TLSv1.3"], "1.3": ["TLSv1.3"]}
"""Versions that a bucket takes, by the least (OSS API, `PutBucketHttpsConfig`)."""

ZONED = frozenset(
    [
        *("cn-hangzhou", "cn-shanghai", "cn-beijing", "cn-zhangjiakou", "cn-wulanchabu", "cn-shenzhen", "cn-hongkong"),
        *("ap-northeast-1", "ap-southeast-1", "ap-southeast-5", "eu-central-1"),
    ]
)
"""Regions where a bucket can lie in three zones (OSS user guide, "Change the storage redundancy type of a bucket")."""

ELSEWHERE = ["policy", "logging"]
"""What resources of their own set on a bucket, and `oss.Bucket` would take away after a refresh: it reads both back as
its own, and finds none among its arguments (provider's `resource_alicloud_oss_bucket.go`). Encryption and versions it
would take away just so, so that they are its own arguments, and there from the bucket's first moment."""


@dataclass(frozen=True)
class Storage:
    """The bucket, the one of claims beside it, and what must be there before anything is put into them."""

    bucket: alicloud.oss.Bucket
    claims: alicloud.oss.Bucket
    """Named `<bucket>-claims`: objects that are created only if absent, with all that is in them (outcomes, records,
    users' code), which OSS can't promise where versions are kept ("PutObject", `x-oss-forbid-overwrite`)."""
    key_id: pulumi.Output[str]
    """Of the key that encrypts both."""
    ready: list[pulumi.Resource]


def bucket_policy(bucket: str) -> Document:
    """Nothing without TLS, on the bucket and on all that is in it; its version is the bucket's own setting.

    OSS's policies have no condition on the key that an object is encrypted with ("OSS authorization syntax and
    elements"): what is put without naming one gets the bucket's.
    """
    return document(
        {
            "Effect": "Deny",
            "Principal": ["*"],
            "Action": ["oss:*"],
            "Resource": [bucket_arn(bucket), f"{bucket_arn(bucket)}/*"],
            "Condition": {"Bool": {"acs:SecureTransport": ["false"]}},
        }
    )


def audit_bucket_policy(bucket: str, lock: str) -> Document:
    """The audit bucket's: as any bucket's here, and with `governance`, none of its identities deletes anything there.

    OSS has no lock that a permission lifts; this holds until somebody who may (`oss:PutBucketPolicy`) changes it, and
    for all of the record's days. The account itself, which owns the bucket, isn't held by a statement that has no
    condition (OSS user guide, "Bucket policies"). With `compliance`, OSS itself keeps what is there. Nobody has to be
    let in: the trail and OSS's logs come by roles of their own. No document says by which protocol they write; where it
    isn't HTTPS, a trail can't be created (InsufficientBucketPolicyException), and `up` says so.
    """
    return document(
        *bucket_policy(bucket)["Statement"],
        *(
            []
            if lock == "compliance"
            else [
                {
                    "Effect": "Deny",
                    "Principal": ["*"],
                    "Action": ["oss:DeleteObject", "oss:DeleteObjectVersion"],
                    "Resource": [f"{bucket_arn(bucket)}/*"],
                }
            ]
        ),
    )


def lifecycle(noncurrent_days: int, cold: tuple[Cold, ...] = ()) -> list[alicloud.oss.BucketLifecycleRuleArgsDict]:
    """What of the bucket goes by itself: versions that were replaced or deleted, never one that is current.

    What is current only moves to colder classes, as `cold` says.

    Rules may overlap (`lifecycle_rule_allow_same_action_overlap`), and the shorter time holds (OSS user guide,
    "Configuration examples", "How OSS resolves rule conflicts"). No two may have the same prefix (error 0014-00000085),
    whatever their sizes: `runs/` is left to `cold`, and its beginnings, below which nothing else lies, name it too.
    Uploads are given up by one rule alone, as those may never overlap (OSS user guide, "Lifecycle rules based on the
    last modified time").
    """
    soon: list[alicloud.oss.BucketLifecycleRuleNoncurrentVersionExpirationArgsDict] = [{"days": 1}]
    return [
        {
            "id": "forget-what-was-replaced",
            "enabled": True,
            "prefix": "",
            "noncurrent_version_expirations": [{"days": noncurrent_days}],
            "expirations": [{"expired_object_delete_marker": True}],
            "abort_multipart_uploads": [{"days": 1}],
        },
        {
            # Each node rewrites a beat of some twenty bytes every second.
            "id": "forget-heartbeats",
            "enabled": True,
            "prefix": layout.RUNS[:-1],
            "filter": {"object_size_less_than": HEARTBEAT_BYTES},
            "noncurrent_version_expirations": soon,
        },
        {
            # The trainer deletes all but the newest few; kept for days, they would cost more than those that count.
            "id": "forget-retired-checkpoints",
            "enabled": True,
            "prefix": layout.RUNS[:-2],
            "filter": {"object_size_greater_than": CHECKPOINT_BYTES},
            "noncurrent_version_expirations": soon,
        },
        *(
            {
                "id": f"cool-{prefix}",
                "enabled": True,
                "prefix": prefix,
                "filter": {"object_size_greater_than": COOLED_BYTES},
                "transitions": [{"days": rule.after_days, "storage_class": CLASSES[rule.class_]} for rule in rules],
            }
            for prefix, rules in transitions(cold).items()
        ),
    ]


def data_nodes_lifecycle() -> list[alicloud.oss.BucketLifecycleRuleArgsDict]:
    """Records of data nodes go a day after they were last written: those that are there rewrite theirs."""
    return [
        {
            "id": "forget-data-nodes-that-are-gone",
            "enabled": True,
            "prefix": layout.DATA_NODES,
            "expirations": [{"days": 1}],
            "noncurrent_version_expirations": [{"days": 1}],
        }
    ]


def audit_lifecycle(audit: Audit) -> list[alicloud.oss.BucketLifecycleRuleArgsDict]:
    """The record goes after its days; where versions are kept, one that isn't current stays for the lock's days more.

    OSS deletes nothing that its own lock still holds (OSS user guide, "Retention policies").
    """
    rule: alicloud.oss.BucketLifecycleRuleArgsDict = {
        "id": "forget-what-is-old",
        "enabled": True,
        "prefix": "",
        "expirations": [{"days": audit.retention_days}],
        "abort_multipart_uploads": [{"days": 1}],
    }
    if audit.lock == "governance":
        rule["noncurrent_version_expirations"] = [{"days": audit.lock_days}]
    return [rule]


def claims_lifecycle() -> list[alicloud.oss.BucketLifecycleRuleArgsDict]:
    """Of the claims: none goes by itself, or it could be made a second time; only uploads that were broken off do."""
    return [
        {
            "id": "forget-what-was-broken-off",
            "enabled": True,
            "prefix": "",
            "abort_multipart_uploads": [{"days": 1}],
        }
    ]


def redundancy(plan: Plan) -> str:
    """Three zones in production, where the region has such buckets; else one."""
    return "ZRS" if plan.spec.production and plan.spec.region in ZONED else "LRS"


def declare_bucket(plan: Plan, key_id: pulumi.Output[str], child: pulumi.ResourceOptions) -> Storage:
    """Declare the bucket, the one of claims, and all that governs them, which stays as long as they do.

    The provider names the bucket, `tf-oss-bucket-<time>`: names are unique in all of OSS, and Pulumi makes none here.
    Where it isn't production, destroying the stack empties the bucket, some thousand objects in each five minutes
    that the provider takes for it; a full one needs `destroy` more than once.

    OSS has no bucket key: each object that is written or read is a call to KMS, of which an account has 750 a second in
    a region (KMS product overview, "Performance data for KMS"), the one a second with it that each node's beat is.
    """
    name, options, stored = f"{plan.name}-data", kept(plan, child), plan.spec.storage
    rules = lifecycle(stored.noncurrent_days, stored.cold)
    if plan.data:
        rules += data_nodes_lifecycle()
    bucket = _bucket(plan, name, key_id, rules, True, options)
    beside, called = f"{plan.name}-claims", bucket.bucket.apply(lambda known: f"{known}{CLAIMS}")
    claims = _bucket(plan, beside, key_id, claims_lifecycle(), False, options, called)
    ready = [
        *_govern(plan, name, bucket, bucket.bucket.apply(bucket_policy), options),
        *_govern(plan, beside, claims, called.apply(bucket_policy), options),
    ]
    # What a claim says holds once it is there: no policy of RAM can ask for `x-oss-forbid-overwrite`, as one of IAM can
    # for its like. Of uploads at the same moment to a key that isn't there yet, this stops none (OSS API,
    # `PutBucketOverwriteConfig`): that one of them is first takes the header, which all of ours send.
    ready.append(alicloud.oss.BucketOverwriteConfig(beside, bucket=called, rules=[{"action": "forbid"}], opts=options))
    if any(rule.class_ == "instant-archive" for rule in stored.cold):
        # Else an Archive object is read only once it was restored, as one of ColdArchive is.
        ready.append(alicloud.oss.BucketArchiveDirectRead(name, bucket=bucket.bucket, enabled=True, opts=options))
    return Storage(bucket, claims, key_id, ready)


def declare_audit_bucket(
    plan: Plan, key_id: pulumi.Output[str], child: pulumi.ResourceOptions
) -> tuple[alicloud.oss.Bucket, list[pulumi.Resource]]:
    """Declare the bucket of the audit record, locked, and what must be there before anything is written to it.

    With `compliance`, OSS's retention policy locks each object for the days asked, from when it was last written: none
    is changed or deleted, by nobody, and the policy itself only grows. It is locked as it is made, or it would be void
    after a day (OSS API, `InitiateBucketWorm`, `CompleteBucketWorm`). No bucket has it and versions (same place), nor
    needs both: nothing is written over. OSS's lock of single versions, "ObjectWorm", is for invited accounts alone.
    While anything is locked, the bucket can't be deleted, and destroying the stack ends at it.
    """
    name, options, audit = f"{plan.name}-audit", kept(plan, child), plan.spec.audit
    bucket = _bucket(plan, name, key_id, audit_lifecycle(audit), audit.lock == "governance", options)
    policy = bucket.bucket.apply(lambda known: audit_bucket_policy(known, audit.lock))
    ready = _govern(plan, name, bucket, policy, options)
    if audit.lock == "compliance":
        after = pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=ready))
        ready.append(
            alicloud.oss.BucketWorm(
                name, bucket=bucket.bucket, retention_period_in_days=audit.lock_days, status="Locked", opts=after
            )
        )
    return bucket, ready


def _bucket(
    plan: Plan,
    name: str,
    key_id: pulumi.Output[str],
    rules: list[alicloud.oss.BucketLifecycleRuleArgsDict],
    versioned: bool,
    options: pulumi.ResourceOptions,
    called: pulumi.Output[str] | None = None,
) -> alicloud.oss.Bucket:
    """Declare a bucket, encrypted with the key; in how many zones it lies is decided when it is made.

    Another redundancy would make another bucket, and a stack that becomes one of production keeps its own.
    """
    unmanaged = pulumi.ResourceOptions(ignore_changes=[*ELSEWHERE, "redundancy_type"])
    return alicloud.oss.Bucket(
        name,
        bucket=called,
        redundancy_type=redundancy(plan),
        server_side_encryption_rule={"sse_algorithm": "KMS", "kms_master_key_id": key_id},
        versioning={"status": "Enabled"} if versioned else None,
        lifecycle_rules=rules or None,
        lifecycle_rule_allow_same_action_overlap=True if rules else None,
        force_destroy=not plan.spec.production,
        tags=dict(plan.tags),
        opts=pulumi.ResourceOptions.merge(options, unmanaged),
    )


def _govern(
    plan: Plan,
    name: str,
    bucket: alicloud.oss.Bucket,
    policy: pulumi.Output[Document],
    options: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Close the bucket to the public, and to old TLS, and let its policy govern it."""
    closed = alicloud.oss.BucketPublicAccessBlock(name, bucket=bucket.bucket, block_public_access=True, opts=options)
    private = alicloud.oss.BucketAcl(name, bucket=bucket.bucket, acl="private", opts=options)
    new_tls = alicloud.oss.BucketHttpsConfig(
        name, bucket=bucket.bucket, enable=True, tls_versions=TLS[plan.spec.security.tls], opts=options
    )
    governed = alicloud.oss.BucketPolicy(name, bucket=bucket.bucket, policy=policy.apply(json.dumps), opts=options)
    return [closed, private, new_tls, governed]


def declare_objects(
    plan: Plan, storage: Storage, bundle: Bundle, child: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declare what nodes find in the bucket at boot: the bundle, the user's own code, and the fleet's sizes.

    The first page of the run's audit record comes with them, and the run itself where there is a queue. That is written
    once: nodes are not replaced at the same moment, if at all, and must not disagree on which run comes first.
    """
    fleet = {"min": plan.fleet.min, "desired": plan.fleet.desired, "max": plan.fleet.max}
    child = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=storage.ready))
    once = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(ignore_changes=["content"]))
    stays = pulumi.ResourceOptions(retain_on_delete=True)
    objects: list[pulumi.Resource] = []

    def put(suffix: str, key: str, opts: pulumi.ResourceOptions, **content: pulumi.Input[str]) -> None:
        # Where it isn't named, the provider has an object encrypted with OSS's own key.
        objects.append(
            alicloud.oss.BucketObject(
                f"{plan.name}-{suffix}",
                bucket=storage.bucket.bucket,
                key=key,
                server_side_encryption="KMS",
                kms_key_id=storage.key_id,
                opts=opts,
                **content,
            )
        )

    if code := plan.code:
        # Named by its hash; a run that waits in the queue may need it once the file names another folder.
        source = str(code.write(default_folder()))
        put("code", code.key, pulumi.ResourceOptions.merge(child, stays), source=source)
    if plan.spec.scaling and plan.spec.scaling.queue:
        turn = {"run": plan.run.id, "job": dict(plan.run.job), "number": 0, "by": "", "submitted": 0.0}
        put("own", layout.OWN, once, content=json.dumps(turn))
    launched = record.launch(plan, bundle)
    # Its name has the content's hash: what was declared before stays in the bucket, with who declared it then.
    put(
        f"launch-{record.digest(launched)[:7]}",
        record.key(launched),
        pulumi.ResourceOptions.merge(once, stays),
        content=caller(child).apply(lambda who: json.dumps({"by": who, **launched}, indent=1)),
    )
    put("bundle", bundle.key, child, source=str(bundle.path))
    put("fleet", layout.FLEET, child, content=json.dumps(fleet))
    return objects
