"""Encryption at rest: disks, buckets, file systems, queues, topics, logs, copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from policies.checks import both, equal, failed, governed, present, true, undecided, where
from policies.control import Check, Control, Judgement, Severity, StackCheck, Verdict
from policies.resources import Resource, Stack
from policies.values import UNKNOWN, at

TOPIC = "encryption"

AT_REST: Mapping[str, tuple[str, ...]] = {
    "hipaa": ("164.312(a)(2)(iv)", "164.308(a)(1)(ii)(B)"),
    "gdpr": ("Art. 32",),
    "iso27001": ("A.8.24",),
    "pci": ("3.5.1",),
    "soc2": ("PI1.5",),
}
OWN_KEY: Mapping[str, tuple[str, ...]] = {"iso27001": ("A.8.24",), "pci": ("3.5.1",)}

BUCKET_ENCRYPTION = (
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
)
OSS_ENCRYPTION = ("alicloud:oss/bucketServerSideEncryption:BucketServerSideEncryption",)

S3_OBJECTS = ("aws:s3/bucketObject:BucketObject", "aws:s3/bucketObjectv2:BucketObjectv2")
OSS_OBJECT = "alicloud:oss/bucketObject:BucketObject"

OWN_KEY_OF_AWS = ("aws/", "alias/aws/")
"""How the names of keys begin that AWS itself keeps (KMS developer guide, "AWS managed keys")."""


def _encrypted(*paths: str) -> Check:
    return both(*(true(path) for path in paths))


def _template(resource: Resource) -> Iterator[Judgement]:
    """Every disk of a template; without any, the root disk is as the image and the account's default have it."""
    if resource.at("blockDeviceMappings") in (None, []):
        yield failed("blockDeviceMappings", "not set, so that the root disk is as the image has it")
    yield from true("blockDeviceMappings.*.ebs.encrypted")(resource)


def _keyed(*paths: str) -> Check:
    """A key of one's own at each path, and none that the cloud keeps."""
    return both(*(_own_key(path) for path in paths))


def _own_key(path: str) -> Check:
    there = present(path, "a key of your own")

    def check(resource: Resource) -> Iterator[Judgement]:
        for judgement in there(resource):
            value = at(resource.props, judgement.path)
            theirs = not _is_own(value)
            yield Judgement(Verdict.FAIL, judgement.path, f"{value} is the cloud's own key") if theirs else judgement

    return check


def _is_own(key: Any) -> bool:
    """A key isn't one that AWS keeps; one that isn't known yet was made by another resource."""
    return not (isinstance(key, str) and any(name in key for name in OWN_KEY_OF_AWS))


def _bucket(inline: str, types: Iterable[str], setting: str, test: Check, what: str) -> StackCheck:
    """A bucket's encryption is as `test` says: written in the bucket at `inline`, or a resource of its own."""
    own = governed(types, "bucket", what, test)

    def check(resource: Resource, stack: Stack) -> Iterator[Judgement]:
        written = resource.at(inline)
        if written is UNKNOWN:
            yield undecided(inline)
        elif written:
            within = Resource(resource.type, resource.name, resource.urn, {setting: written} if setting else written)
            yield from test(within)
        else:
            yield from own(resource, stack)

    return check


def _queue(resource: Resource) -> Iterator[Judgement]:
    """A queue has a key, or wasn't told to do without SQS's own encryption."""
    keyed = list(present("kmsMasterKeyId", "a key")(resource))
    own = list(true("sqsManagedSseEnabled", absent=Verdict.PASS)(resource))
    yield from keyed if keyed[0].verdict is Verdict.PASS else own


SSE = "rules.*.applyServerSideEncryptionByDefault"
KMS_NAMES, BY_KMS = frozenset({"aws:kms", "aws:kms:dsse"}), "aws:kms or aws:kms:dsse"
KMS = where(f"{SSE}.sseAlgorithm", KMS_NAMES.__contains__, BY_KMS)
PASS = Verdict.PASS

CONTROLS: tuple[Control, ...] = (
    Control(
        "ENC-DISK-01",
        "Disks of nodes are encrypted",
        TOPIC,
        Severity.HIGH,
        "Set `encrypted` on the volume, and on every disk of templates and instances",
        AT_REST,
        checks={
            "aws:ebs/volume:Volume": _encrypted("encrypted"),
            "aws:ec2/launchTemplate:LaunchTemplate": _template,
            "aws:ec2/instance:Instance": _encrypted("rootBlockDevice.encrypted", "ebsBlockDevices.*.encrypted"),
            "aws:ec2/launchConfiguration:LaunchConfiguration": _encrypted(
                "rootBlockDevice.encrypted", "ebsBlockDevices.*.encrypted"
            ),
            "alicloud:ecs/ecsDisk:EcsDisk": _encrypted("encrypted"),
            "alicloud:ecs/disk:Disk": _encrypted("encrypted"),
            "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate": _encrypted(
                "systemDisk.encrypted", "dataDisks.*.encrypted"
            ),
            "alicloud:ecs/launchTemplate:LaunchTemplate": _encrypted("systemDisk.encrypted", "dataDisks.*.encrypted"),
            "alicloud:ecs/instance:Instance": _encrypted("systemDiskEncrypted", "dataDisks.*.encrypted"),
            "alicloud:ess/scalingConfiguration:ScalingConfiguration": _encrypted(
                "systemDiskEncrypted", "dataDisks.*.encrypted"
            ),
        },
    ),
    Control(
        "ENC-DISK-02",
        "Disks of nodes are encrypted with a key of your own",
        TOPIC,
        Severity.LOW,
        "Name a customer-managed key on the volume, and on every disk of templates and instances",
        OWN_KEY,
        checks={
            "aws:ebs/volume:Volume": _keyed("kmsKeyId"),
            "aws:ec2/launchTemplate:LaunchTemplate": _keyed("blockDeviceMappings.*.ebs.kmsKeyId"),
            "aws:ec2/instance:Instance": _keyed("rootBlockDevice.kmsKeyId", "ebsBlockDevices.*.kmsKeyId"),
            "alicloud:ecs/ecsDisk:EcsDisk": _keyed("kmsKeyId"),
            "alicloud:ecs/disk:Disk": _keyed("kmsKeyId"),
            "alicloud:ecs/instance:Instance": _keyed("systemDiskKmsKeyId", "dataDisks.*.kmsKeyId"),
            "alicloud:ess/scalingConfiguration:ScalingConfiguration": _keyed(
                "systemDiskKmsKeyId", "dataDisks.*.kmsKeyId"
            ),
        },
    ),
    Control(
        "ENC-BUCKET-01",
        "Buckets are encrypted by a key service",
        TOPIC,
        Severity.HIGH,
        "Set the bucket's default encryption to KMS, and that of objects which name one; on OSS, each declared must",
        {**AT_REST, "soc2": ("PI1.4",)},
        checks={
            # The bucket's default is theirs unless they name another; on OSS, the provider names AES256 where the
            # program names none (pulumi_alicloud, `oss.BucketObject`).
            **dict.fromkeys(S3_OBJECTS, where("serverSideEncryption", KMS_NAMES.__contains__, BY_KMS, absent=PASS)),
            OSS_OBJECT: equal("serverSideEncryption", "KMS"),
        },
        in_stack={
            "aws:s3/bucket:Bucket": _bucket(
                "serverSideEncryptionConfiguration.rules", BUCKET_ENCRYPTION, "rules", KMS, "default encryption"
            ),
            "aws:s3/bucketV2:BucketV2": governed(BUCKET_ENCRYPTION, "bucket", "default encryption", KMS),
            "alicloud:oss/bucket:Bucket": _bucket(
                "serverSideEncryptionRule", OSS_ENCRYPTION, "", equal("sseAlgorithm", "KMS"), "default encryption"
            ),
        },
    ),
    Control(
        "ENC-BUCKET-02",
        "Buckets are encrypted with a key of your own",
        TOPIC,
        Severity.LOW,
        "Name a customer-managed key in the bucket's default encryption, and on objects of OSS",
        OWN_KEY,
        checks={
            **dict.fromkeys(S3_OBJECTS, where("kmsKeyId", _is_own, "a key of your own", absent=PASS)),
            OSS_OBJECT: _keyed("kmsKeyId"),
        },
        in_stack={
            "aws:s3/bucket:Bucket": _bucket(
                "serverSideEncryptionConfiguration.rules",
                BUCKET_ENCRYPTION,
                "rules",
                _keyed(f"{SSE}.kmsMasterKeyId"),
                "default encryption",
            ),
            "aws:s3/bucketV2:BucketV2": governed(
                BUCKET_ENCRYPTION, "bucket", "default encryption", _keyed(f"{SSE}.kmsMasterKeyId")
            ),
            "alicloud:oss/bucket:Bucket": _bucket(
                "serverSideEncryptionRule", OSS_ENCRYPTION, "", _keyed("kmsMasterKeyId"), "default encryption"
            ),
        },
    ),
    Control(
        "ENC-FILES-01",
        "File systems are encrypted",
        TOPIC,
        Severity.HIGH,
        "Set `encrypted` (EFS) or `encrypt_type` (NAS) when the file system is made: it can't be changed later",
        {**AT_REST, "cis": ("AWS 3.3.1",)},
        # FSx always encrypts (FSx for Lustre user guide, "Data encryption in Amazon FSx for Lustre").
        checks={
            "aws:efs/fileSystem:FileSystem": true("encrypted"),
            "alicloud:nas/fileSystem:FileSystem": equal("encryptType", 1, 2),
        },
    ),
    Control(
        "ENC-FILES-02",
        "File systems are encrypted with a key of your own",
        TOPIC,
        Severity.LOW,
        "Name a customer-managed key when the file system is made: it can't be changed later",
        OWN_KEY,
        checks={
            "aws:efs/fileSystem:FileSystem": _keyed("kmsKeyId"),
            "aws:fsx/lustreFileSystem:LustreFileSystem": _keyed("kmsKeyId"),
            "alicloud:nas/fileSystem:FileSystem": both(
                # One that isn't encrypted at all breaks the control above.
                where("encryptType", lambda kind: kind != 1, "2, by a key of your own", absent=Verdict.PASS),
                _keyed("kmsKeyId"),
            ),
        },
    ),
    Control(
        "ENC-QUEUE-01",
        "Queues and topics are encrypted",
        TOPIC,
        Severity.MEDIUM,
        "Name a key, or let the service's own encryption be on",
        AT_REST,
        checks={
            # Encrypted by SQS itself unless it is told otherwise (SQS developer guide, "Encryption at rest").
            "aws:sqs/queue:Queue": _queue,
            "aws:sns/topic:Topic": present("kmsMasterKeyId", "a key"),
            "alicloud:message/serviceQueue:ServiceQueue": true("enableSse"),
        },
    ),
    Control(
        "ENC-LOGS-01",
        "Logs are encrypted with a key of your own",
        TOPIC,
        Severity.MEDIUM,
        "Name a customer-managed key on the log group, log store or trail",
        {"hipaa": ("164.312(a)(2)(iv)", "164.312(b)"), "iso27001": ("A.8.15",), "pci": ("10.3.2",), "soc2": ("CC7.3",)},
        checks={
            "aws:cloudwatch/logGroup:LogGroup": _keyed("kmsKeyId"),
            "aws:cloudtrail/trail:Trail": _keyed("kmsKeyId"),
            "alicloud:log/store:Store": both(
                true("encryptConf.enable"), present("encryptConf.userCmkInfo.cmkKeyId", "a key of your own")
            ),
        },
    ),
    Control(
        "ENC-COPY-01",
        "Copies of snapshots and images are encrypted",
        TOPIC,
        Severity.HIGH,
        "Set `encrypted` on the copy",
        AT_REST,
        checks={
            "aws:ebs/snapshotCopy:SnapshotCopy": true("encrypted"),
            "aws:ec2/amiCopy:AmiCopy": true("encrypted"),
            "alicloud:ecs/imageCopy:ImageCopy": true("encrypted"),
        },
    ),
)
