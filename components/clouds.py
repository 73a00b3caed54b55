"""The clouds, as far as decisions differ between them: words, forms of names, limits. Everything else is alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A cloud. `forms` are regular expressions of what is written in its own way, by what it is."""

    title: str
    fabric: str
    """Its fast network, as `Plan.fabric` and a node's configuration call it."""
    fabric_title: str
    metrics: str
    """Its service for metrics and alarms."""
    store: str
    """Its object store."""
    warm: str
    """Its file system before the bucket."""
    disks: str
    """What root disks are."""
    identities: str
    """Its service for users, roles and their rights."""
    smallest_subnet: int
    """Longest prefix of a subnet."""
    reserved_addresses: int
    """Addresses that it keeps in each subnet."""
    zone: str
    """How a zone is written, after its region."""
    most_tags: int
    """On a resource, with room for our own and for those that services add."""
    longest_tag: tuple[int, int]
    """Characters of a tag's key and of its value."""
    disk_gb: tuple[int, int]
    """The smallest and the largest root disk, GiB."""
    most_types: int
    """Types that one group takes."""
    regions: frozenset[str] = frozenset()
    """Its regions, where the catalog doesn't know which of them offer a type."""
    forms: Mapping[str, str]
    examples: Mapping[str, str] = field(default_factory=dict)
    """How each is written, in words for a message."""


_HEX = "[0-9a-f]{8}([0-9a-f]{9})?"
_ID = "[a-z0-9]{17,25}"

_CN = "hangzhou shanghai beijing shenzhen zhangjiakou huhehaote wulanchabu qingdao heyuan guangzhou chengdu nanjing"
_AP = "northeast-1 northeast-2 southeast-1 southeast-3 southeast-5 southeast-6 southeast-7"
_ELSEWHERE = (
    "cn-fuzhou cn-wuhan-lr cn-hongkong us-east-1 us-west-1 na-south-1 eu-central-1 eu-west-1 me-east-1 me-central-1"
)
_ALIBABA_REGIONS = frozenset(
    [*(f"cn-{name}" for name in _CN.split()), *(f"ap-{name}" for name in _AP.split()), *_ELSEWHERE.split()]
)
"""ECS user guide, "Regions and zones", without those of finance and government."""

CLOUDS = {
    "aws": Cloud(
        title="AWS",
        fabric="efa",
        fabric_title="EFA",
        metrics="CloudWatch",
        store="S3",
        warm="FSx for Lustre",
        disks="gp3",
        identities="IAM",
        smallest_subnet=28,  # VPC user guide, "Subnet sizing"
        reserved_addresses=5,  # the same
        zone="[a-z]",
        most_tags=40,  # of the 50 that a resource takes (Tagging AWS resources user guide, "Tag naming limits")
        longest_tag=(128, 256),  # the same
        disk_gb=(8, 16384),  # EBS user guide, "General Purpose SSD volumes"
        most_types=40,  # Auto Scaling user guide, "Quotas": overrides of a mixed instances policy
        forms={
            "image": rf"ami-{_HEX}|ssm:/[A-Za-z0-9_./-]+",
            "vpc": f"vpc-{_HEX}",
            "subnet": f"subnet-{_HEX}",
            "route table": f"rtb-{_HEX}",
            "reservation": f"create|cr-{_HEX}",
            "principal": r"arn:aws(-[a-z]+)*:(iam::[0-9]{12}:(user|role)|sts::[0-9]{12}:assumed-role)"
            r"/[A-Za-z0-9_+=,.@/-]+",
            "type": r"(?!ecs\.)[a-z][a-z0-9-]*\.[a-z0-9-]+",
        },
        examples={
            "image": "ami-… or ssm:/path of a public parameter",
            "vpc": "vpc-0123456789abcdef0",
            "subnet": "subnet-0123456789abcdef0",
            "route table": "rtb-0123456789abcdef0",
            "reservation": "create, or cr-…",
            "principal": "arn:aws:iam::123456789012:role/name",
            "type": "p5.48xlarge",
            "type for storage": "i4i.32xlarge or i3en.24xlarge",
        },
    ),
    "alicloud": Cloud(
        title="Alibaba Cloud",
        fabric="erdma",
        fabric_title="eRDMA",
        metrics="CloudMonitor",
        store="OSS",
        warm="Extreme NAS",
        disks="ESSD",
        identities="RAM",
        smallest_subnet=29,  # VPC user guide, "Overview of VPCs and vSwitches": /16 to /29
        reserved_addresses=4,  # the same: the first and the last three
        zone="-?[a-z]",  # cn-hangzhou-i, ap-southeast-1a
        most_tags=8,  # of the 10 that a bucket takes (oss.Bucket, `tags`)
        longest_tag=(64, 128),  # of all that take tags, ESS takes the shortest (ess.ScalingGroup, `tags`)
        disk_gb=(20, 2048),  # ess.ScalingConfiguration, `system_disk_size`, of an ESSD PL1
        most_types=10,  # ess.ScalingConfiguration, `instance_types`
        regions=_ALIBABA_REGIONS,
        forms={
            "image": r"m-[a-z0-9]{10,30}|[a-z0-9_]+(\.[a-z0-9_]+)*\.vhd|family:[A-Za-z][A-Za-z0-9:._-]{1,127}",
            "vpc": f"vpc-{_ID}",
            "subnet": f"vsw-{_ID}",
            "route table": f"vtb-{_ID}",
            "reservation": f"create|(crp|eap)-{_ID}",
            "principal": r"acs:ram::[0-9]{5,20}:(user|role)/[A-Za-z0-9._@-]+",
            "type": r"ecs\.[a-z0-9-]+\.[a-z0-9]+",
        },
        examples={
            "image": "m-…, the id of a public image that ends in .vhd, or family:name",
            "vpc": "vpc-bp1opxu1zkhn00g5lr2ts",
            "subnet": "vsw-bp1s5fnvk4gn2tws0362a",
            "route table": "vtb-bp145q7glnuzdvzu2pgsy",
            "reservation": "create, crp-… of a capacity reservation or eap-… of an elasticity assurance",
            "principal": "acs:ram::1234567890123456:role/name",
            "type": "ecs.g8i.24xlarge",
            "type for storage": "ecs.i4.32xlarge",
        },
    ),
}
"""By their names in the stack's file."""


def form(what: str) -> str:
    """The pattern of what any cloud takes; `checks.of_the_cloud` says which takes what."""
    return "^(" + "|".join(cloud.forms[what] for cloud in CLOUDS.values()) + ")$"
