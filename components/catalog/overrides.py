"""Facts that a stack's file states of instance types: changes to the table, or types that it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from components.catalog.types import InstanceType, contradictions, instance_types
from components.clouds import CLOUDS
from components.findings import Finding

STATED = {
    "aws": "aws ec2 describe-instance-types --instance-types {name}",
    "alicloud": "aliyun ecs DescribeInstanceTypes --InstanceTypes.1 {name}",
}
"""The command that says what a cloud states of a type."""

UNSTATED: Mapping[str, Mapping[str, object]] = {
    "aws": {},
    "alicloud": {
        **{"regions": (), "cluster_placement": False, "ipv4_per_interface": 1},
        **{"ebs_mbps": 0, "ebs_attachments": 0},
    },
}
"""Facts that a cloud doesn't state as EC2 does, and what stands for them in a type that the stack's file adds."""

Count = Annotated[int, Field(ge=0)]
Some = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class Facts(BaseModel):
    """What the cloud states of a type (`aws ec2 describe-instance-types`, `aliyun ecs DescribeInstanceTypes`).

    Whatever isn't named stays as it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    vcpus: Some | None = Field(None, description="vCPUs.")
    memory_gib: Positive | None = Field(None, description="Memory, GiB.")
    accelerator: str | None = Field(None, description="Name of the accelerators, such as H100.")
    accelerator_kind: Literal["gpu", "neuron", "fpga"] | None = Field(None, description="`gpu` is NVIDIA's.")
    accelerators: Count | None = Field(None, description="How many it has.")
    accelerator_memory_gib: Positive | None = Field(None, description="Memory of one accelerator, GiB.")
    network_gbps: Positive | None = Field(None, description="Bandwidth of the instance in total, Gbit/s.")
    network_cards: Some | None = Field(None, description="Network cards.")
    interfaces_per_card: Some | None = Field(None, description="Most network interfaces on one card.")
    fabric_interfaces: Count | None = Field(
        None, description="Most EFA interfaces, one a card; on Alibaba Cloud `EriQuantity`."
    )
    fabric_first_card: Count | None = Field(None, description="The first card that takes EFA.")
    ipv4_per_interface: Some | None = Field(None, description="IPv4 addresses that one interface takes.")
    encrypts_in_transit: bool | None = Field(None, description="Whether it encrypts what travels between instances.")
    cluster_placement: bool | None = Field(None, description="Whether cluster placement groups take it.")
    usage_classes: tuple[Literal["on-demand", "spot", "capacity-block"], ...] | None = Field(
        None, description="How it can be bought: `on-demand`, `spot`, `capacity-block`."
    )
    boot_modes: tuple[Literal["legacy-bios", "uefi"], ...] | None = Field(None, description="`legacy-bios`, `uefi`.")
    confidential: tuple[Literal["nitro-enclaves", "nitro-tpm", "sev-snp", "tdx"], ...] | None = Field(
        None, description="What of `nodes.confidential` it has."
    )
    bare_metal: bool | None = Field(None, description="Whether it runs without a hypervisor.")
    ebs_mbps: Some | None = Field(None, description="Most bandwidth to EBS, Mbit/s.")
    ebs_attachments: Some | None = Field(None, description="Most EBS volumes.")
    nvme_gb: Count | None = Field(None, description="Local NVMe in total, GB.")
    nvme_disks: Count | None = Field(None, description="Local NVMe disks.")
    architecture: Literal["x86_64", "arm64"] | None = Field(None, description="`x86_64` or `arm64`.")
    regions: tuple[str, ...] | None = Field(None, description="Regions that offer it.")


Overrides = Mapping[str, Facts]


def described(cloud: str, name: str, facts: Facts) -> InstanceType | Finding:
    """The type called `name` as the table and the stack's file have it, or the finding that says what is wrong."""
    path = f"catalog.overrides.{name}"
    given = facts.model_dump(exclude_none=True)
    known = instance_types(cloud).get(name)
    if known is None:
        needed = [field.name for field in fields(InstanceType) if field.default is MISSING]
        missing = [key for key in needed if key not in {*given, *UNSTATED[cloud], "name", "source"}]
        if missing:
            return Finding(
                path,
                f"the catalog has no type '{name}', and facts that it needs aren't stated: {', '.join(missing)}",
                f"Take them from `{STATED[cloud].format(name=name)}`, or correct the name",
            )
        kind = InstanceType(name=name, source="the stack's file", **{**UNSTATED[cloud], **given})
    else:
        unverified = tuple(fact for fact in known.unverified if fact not in given)
        source = f"{known.source}; {', '.join(given)} from the stack's file"
        kind = replace(known, **given, source=source, unverified=unverified)
    wrong = "; ".join(contradictions(kind, cloud))
    return Finding(path, wrong, "Correct the facts") if wrong else kind


def faults(cloud: str, overrides: Overrides) -> Iterator[Finding]:
    """Everything that is wrong with the facts that a stack's file states."""
    for name, facts in overrides.items():
        path = f"catalog.overrides.{name}"
        if not re.fullmatch(CLOUDS[cloud].forms["type"], name):
            example = CLOUDS[cloud].examples["type"]
            yield Finding(path, f"'{name}' can't be the name of a type", f"A type is written {example}")
        elif not facts.model_dump(exclude_none=True):
            yield Finding(path, "states nothing", "Name what to change, or take it out")
        elif isinstance(found := described(cloud, name, facts), Finding):
            yield found
