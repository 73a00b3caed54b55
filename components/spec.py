"""What the user wants: the stack's file, parsed and typed, every error at once, by its path in the file.

`parse` takes the values of a stack's `trainwright:` namespace. The models are the reference of the file: `make docs`
writes `docs/stack-file.md` from the descriptions below.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from components.catalog import Facts, Rates, faults, unpriceable
from components.clouds import form
from components.findings import Finding, Invalid, nearest

NAME = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
REGION = r"^[a-z]{2}(-[a-z]+)+(-[0-9])?$"
EMAIL = r"^[^@\s]+@[^@\s]+\.[^@\s]+$"

REASONS = {
    "extra_forbidden": "there is no such key",
    "missing": "is missing",
    "greater_than": "must be greater than {gt}, not {given}",
    "greater_than_equal": "must be at least {ge}, not {given}",
    "less_than": "must be less than {lt}, not {given}",
    "less_than_equal": "must be at most {le}, not {given}",
    "too_short": "is empty",
    "string_too_short": "is empty",
    "too_long": "has {actual_length} entries, at most {max_length} are possible",
    "string_too_long": "'{given}' is longer than {max_length} characters",
    "string_pattern_mismatch": "'{given}' is not of the right form",
    "literal_error": "'{given}' is not one of {expected}",
    "value_error": "{error}",
}
"""What is wrong, by pydantic's type of error, with what pydantic says of it."""

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a number",
    "string": "text",
    "bool": "true or false",
    "tuple": "a list",
    "dict": "a mapping",
}
"""What pydantic's types of errors begin with, and what the user should have written."""

LONGEST_SHOWN = 60
"""Characters of a wrong value that a message repeats."""


def _private_network(value: str) -> str:
    try:
        ipaddress.IPv4Network(value)
    except ValueError:
        reason = f"'{value}' is not an IPv4 network such as 10.0.0.0/16, with no bits set past its prefix"
        raise ValueError(reason) from None
    return value


def _number_as_text(value: Any) -> Any:
    """A number as it would be typed in a shell; what true and false would be there, nobody knows."""
    if value is True or value is False:
        raise ValueError(f"must be text or a number, not {str(value).lower()}: write it in quotes")
    return str(value) if isinstance(value, int | float) else value


class Part(BaseModel):
    """A part of the stack's file: no key beyond those declared, nothing changed after parsing."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_true_alone(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML's true and false, which Python would count as 1 and 0; and what pydantic would, such as `'on'`."""
        kind = cls.model_fields[info.field_name or ""].annotation
        if kind is bool and value is not None and not isinstance(value, bool):
            raise ValueError(f"must be true or false, not {_shortened(repr(value))}")
        if isinstance(value, bool) and kind is not bool:
            raise ValueError(f"must be {'text' if kind is str else 'a number'}, not {str(value).lower()}")
        return value


Principal = Annotated[str, Field(pattern=form("principal"), max_length=2048)]
"""Users, roles and sessions of roles, each by its own ARN: no account as a whole, and no wildcard."""


class Network(Part):
    """Where nodes live: one VPC, a private subnet in each zone, no way in, and out only as `egress` says."""

    cidr: Annotated[str, AfterValidator(_private_network)] = Field(
        "10.0.0.0/16", description="The VPC's IPv4 network, /16 to /27 for one zone."
    )
    zones: tuple[str, ...] = Field(
        min_length=1, max_length=3, description="Availability zones, one private subnet each. Gangs train best in one."
    )
    egress: Literal["bucket", "endpoints", "nat"] = Field(
        "bucket",
        description="What nodes reach beyond themselves: `bucket`, the cluster's bucket alone; `endpoints`, also the "
        "cloud's services, on AWS by interface endpoints of the VPC's own, on Alibaba Cloud at their addresses within "
        "every VPC (100.64.0.0/10); `nat`, the internet over HTTPS, by a NAT gateway a zone. Of S3 it is the cluster's "
        "bucket alone in each, of OSS in `bucket` alone.",
    )
    vpc: str | None = Field(
        None,
        pattern=form("vpc"),
        description="A VPC that is there already, with `subnets` and `route_tables`, instead of `cidr`.",
    )
    subnets: tuple[Annotated[str, Field(pattern=form("subnet"))], ...] = Field(
        (), max_length=3, description="Private subnets of `vpc`, for nodes of this cluster alone: one a zone, in order."
    )
    route_tables: tuple[Annotated[str, Field(pattern=form("route table"))], ...] = Field(
        (), max_length=3, description="Route tables of `subnets`, which the bucket's endpoint is added to."
    )


class Nodes(Part):
    """The fleet: what a node is and how many there are."""

    type: str = Field(description="Instance type, one of `trainwright catalog`.")
    image: str = Field(
        pattern=form("image"),
        description="Machine image with Python, PyTorch and, for GPU types, NVIDIA's driver. On AWS `ami-…`, or "
        "`ssm:/path` of a public parameter, resolved when a node is launched; on Alibaba Cloud `m-…`, the id of a "
        "public image, or `family:name`.",
    )
    desired: int = Field(1, ge=1, le=1000, description="Nodes to keep running.")
    min: int = Field(1, ge=1, description="Fewest nodes that train; with fewer, the run waits.")
    max: int | None = Field(None, ge=1, le=1000, description="Most nodes the fleet may grow to; `desired` if unset.")
    disk_gb: int = Field(
        100,
        ge=8,
        le=16384,
        description="Encrypted root disk, GiB; on Alibaba Cloud 20 to 2048, or to 500 with eRDMA, `reserved` or `tdx`.",
    )
    python: str = Field(
        "python3",
        pattern=r"^[A-Za-z0-9_./-]+$",
        max_length=255,
        description="The image's Python that has PyTorch.",
    )
    capacity: Literal["on-demand", "spot", "mixed", "reserved", "capacity-block"] = Field(
        "on-demand", description="How nodes are bought."
    )
    alternatives: tuple[str, ...] = Field(
        (),
        max_length=39,
        description="Other types that will do, best first, for `spot` and `mixed`; alike in interfaces and GPUs.",
    )
    on_demand_base: int = Field(0, ge=0, le=1000, description="Nodes of a `mixed` fleet that are never spot.")
    on_demand_share: int = Field(
        0, ge=0, le=100, description="Percentage of a `mixed` fleet's nodes above that base that are not spot."
    )
    spot_strategy: (
        Literal[
            "price-capacity-optimized",
            "capacity-optimized",
            "capacity-optimized-prioritized",
            "lowest-price",
            "priority",
        ]
        | None
    ) = Field(
        None,
        description="Which spot pools nodes are taken from: on AWS `price-capacity-optimized` if unset, or any but "
        "`priority`; on Alibaba Cloud `priority` if unset, the types in the order in which they are named, or "
        "`lowest-price`.",
    )
    spot_hours: Literal[0, 1] | None = Field(
        None,
        description="Hours after its launch in which a spot node isn't taken back, on Alibaba Cloud: 1 if unset, or 0. "
        "AWS promises none.",
    )
    reservation: str | None = Field(
        None,
        pattern=form("reservation"),
        description="For `reserved` and `capacity-block`: the reservation's id, `cr-…`, on Alibaba Cloud `crp-…` or "
        "`eap-…` of a private pool in target mode; or `create`, for `reserved`.",
    )
    fabric: Literal["auto", "tcp"] = Field(
        "auto", description="`auto` is EFA or eRDMA where the type has it, else TCP."
    )
    nic_layout: Literal["guide", "ip-saving"] = Field(
        "guide",
        description="Network interfaces of an EFA node: as the EC2 User Guide has them, an ENA one and EFA-only ones; "
        "or `ip-saving`, one fewer, the first being both. eRDMA has one layout.",
    )
    confidential: Literal["none", "nitro-enclaves", "nitro-tpm", "sev-snp", "tdx"] = Field(
        "none",
        description="What guards memory or boot; the type, and for all but the first the image, must have it: "
        "`tdx` on Alibaba Cloud, the others on AWS.",
    )
    prometheus_port: int | None = Field(
        None,
        ge=1024,
        le=65535,
        description="Port at which nodes show their metrics to Prometheus, at their private addresses; none if unset. "
        "The cluster's own nodes reach it and nothing else does.",
    )
    containers: bool = Field(False, description="Workers run in containers: lets instance metadata cross one more hop.")
    refresh: bool = Field(
        True,
        description="Replace running nodes when what they boot with changes (job, image, type, trainer): all at once, "
        "as a gang can't train half in the old way. Nodes that boot so already stay. Nothing is rolled back: where the "
        "new ones fail to boot, `failed_boots` ends it.",
    )
    failed_boots: int = Field(
        10,
        ge=1,
        le=1000,
        description="Nodes that may fail within an hour before the fleet is set to zero, so that one which can't boot "
        "isn't launched and paid for over and over. Spot interruptions are not counted. A fleet that `scaling` sizes "
        "launches none from then on, until `trainwright retry`.",
    )


class DataNodes(Part):
    """Nodes, bought on demand, that hold the run's dataset and serve it to those that train, inside the VPC.

    Shards travel without TLS, to nodes of the cluster alone, where most types encrypt what travels between instances
    (EC2 user guide, "Data protection in Amazon EC2"). Each is verified by its SHA-256; where one fails, the bucket is
    read.
    """

    type: str = Field(description="Instance type, one for storage such as `i4i.32xlarge` or `i3en.24xlarge`.")
    count: int = Field(
        1, ge=1, le=10, description="Data nodes to keep, also after the run; each holds the whole dataset."
    )
    image: str | None = Field(
        None,
        pattern=form("image"),
        description="Their machine image, with what `nodes.image` needs; that one if unset.",
    )
    disk_gb: int = Field(100, ge=8, le=16384, description="Encrypted root disk, GiB.")


class Cold(Part):
    """What of the bucket moves to a cheaper class of storage as it ages, and isn't needed by a run any more.

    `infrequent` is S3's Standard-IA and OSS's IA; `instant-archive`, Glacier Instant Retrieval and Archive with
    real-time access; `archive`, Glacier Flexible Retrieval and ColdArchive; `deep-archive`, Glacier Deep Archive and
    DeepColdArchive. From the last two, objects are read only after a restore of hours; in each class, they are paid for
    some months at least.
    """

    prefix: str = Field(
        pattern=r"^[A-Za-z0-9._/-]+$",
        max_length=200,
        description="What keys begin with, below `datasets/` or `runs/`, such as `runs/gpt-0a1b2c3d/`.",
    )
    after_days: int = Field(ge=1, le=36500, description="Days after which an object, if not replaced, moves.")
    class_: Literal["infrequent", "instant-archive", "archive", "deep-archive"] = Field(
        alias="class", description="Where it moves: each is cheaper to keep in than the one before, and dearer to read."
    )


class Warm(Part):
    """A file system before the bucket, so that datasets are read without being fetched by each node.

    On AWS FSx for Lustre (PERSISTENT_2 on SSDs, compressed with LZ4), which shows the bucket's datasets: changes to
    `datasets/` in the bucket appear in it. On Alibaba Cloud Extreme NAS, which nodes fill: what the first fetches, the
    others read. It lies in the one zone of the nodes, encrypted with the data key; nothing of it is written to the
    bucket. A node checks that the dataset there is whole by the hash of each shard, and otherwise, or where it can't
    mount it, fetches it from the bucket as ever.
    """

    size_gib: int = Field(
        1200,
        ge=1200,
        description="Size, GiB: on AWS 1200, or a multiple of 2400; on Alibaba Cloud any up to 262,144.",
    )
    throughput: Literal[125, 250, 500, 1000] = Field(
        125,
        description="Megabytes a second for each TiB of it; on Alibaba Cloud, where size alone gives it, the least.",
    )


class Storage(Part):
    """The bucket that holds bundle, datasets and runs, and what is faster or cheaper than it."""

    noncurrent_days: int = Field(
        7,
        ge=1,
        description="Days that overwritten and deleted objects can be brought back; retired checkpoints, one day.",
    )
    warm: Warm | None = Field(
        None, description="A fast file system with the bucket's datasets for nodes: `size_gib`, `throughput`."
    )
    cold: tuple[Cold, ...] = Field(
        (), max_length=20, description="What moves to colder classes as it ages: `prefix`, `after_days`, `class`."
    )


class Security(Part):
    """Who may do what, and how connections to the bucket are made."""

    tls: Annotated[Literal["1.2", "1.3"], BeforeValidator(str)] = Field(
        "1.2", description="Least version of TLS that the buckets take."
    )
    kms_instance: str | None = Field(
        None,
        pattern=r"^kst-[a-z0-9]{10,30}$",
        description="On Alibaba Cloud: the KMS instance (`kst-…`), of the software kind, that holds the keys. "
        "Without one, an account has a single key in each region, which takes no policy and isn't its own to rotate.",
    )
    trainers: tuple[Principal, ...] = Field(
        (),
        max_length=20,
        description="ARNs of users and roles that may put datasets, read runs and, where there is a queue, submit jobs "
        "and end runs.",
    )
    operators: tuple[Principal, ...] = Field(
        (),
        max_length=20,
        description="ARNs of users and roles that may see and scale the group, have it launch again once its breaker "
        "has stopped it, and open sessions on its nodes.",
    )
    auditors: tuple[Principal, ...] = Field(
        (), max_length=20, description="ARNs of users and roles that may read trail, logs and configuration."
    )


class Audit(Part):
    """The record of who did what, and alarms."""

    enabled: bool = Field(
        False,
        description="Record API calls, with those on the bucket's objects, and network flows; encrypted and locked.",
    )
    retention_days: int = Field(365, ge=1, le=3653, description="Days that the record is kept.")
    lock: Literal["governance", "compliance"] = Field(
        "governance",
        description="Who may delete the record early: `governance`, whoever holds the permission to bypass the lock, "
        "on Alibaba Cloud to change the bucket's policy; `compliance`, nobody, not even the account's root user.",
    )
    lock_days: int = Field(90, ge=1, le=3653, description="Days that the record is locked; `retention_days` at most.")
    budget_usd: float | None = Field(
        None,
        gt=0,
        description="Monthly cost of the whole account, in US dollars, that `emails` are told of; on AWS alone.",
    )
    emails: tuple[Annotated[str, Field(pattern=EMAIL, max_length=254)], ...] = Field(
        (), max_length=10, description="Who is told of alarms and of the budget; each confirms a first message."
    )


class Queue(Part):
    """The cluster's queue of jobs, and how many nodes what waits in it asks for. Each that waits is a message."""

    backlog: int = Field(1, ge=1, le=100_000, description="Messages that may wait for each node before more are added.")
    attempts: int = Field(
        3, ge=1, le=1000, description="Times that a message is handed out before it is put aside, as a dead letter."
    )


class Schedule(Part):
    """A size that the fleet is set to, again and again."""

    cron: str = Field(
        max_length=255, description="When: minute, hour, day of month, month, day of week, such as `0 7 * * MON-FRI`."
    )
    time_zone: str = Field(
        "Etc/UTC",
        description="The time zone of `cron`, by its IANA name, such as Europe/Berlin; on Alibaba Cloud one without "
        "summer time, such as Asia/Singapore.",
    )
    nodes: int = Field(ge=0, le=1000, description="Nodes to keep running from then on; `nodes.max` at most.")


class Scaling(Part):
    """What changes the fleet's size by itself. Each change costs a gang that trains a checkpoint and a restart."""

    gpu_target: int | None = Field(
        None, ge=1, le=100, description="GPU utilisation, percent, above which nodes are added; it takes none away."
    )
    queue: Queue | None = Field(
        None,
        description="`true`, or a mapping: a queue of the cluster's own, for jobs of `trainwright submit`. Its "
        "nodes train them one after another, once `job`, as it was first, has ended; its backlog adds nodes, all that "
        "it asks for at once, and `nodes.min` at least; from zero, too.",
    )
    schedules: tuple[Schedule, ...] = Field((), max_length=100, description="Sizes by the clock.")
    idle_minutes: int | None = Field(
        None,
        ge=5,
        le=240,
        description="Minutes after the run's end, with nothing in the queue, that the fleet is set to zero; with "
        "`queue` 15 if unset, else never.",
    )
    warmup_seconds: int = Field(
        600,
        ge=60,
        le=3600,
        description="Seconds in which nodes that were added boot, join and train; till then they count as on the way.",
    )

    @field_validator("queue", mode="before")
    @classmethod
    def _true_is_a_queue(cls, value: Any) -> Any:
        """`queue: true` is a queue with nothing said of it, `false` none."""
        return ({} if value else None) if isinstance(value, bool) else value


class Catalog(Part):
    """Instance types as you know them better than the catalog does."""

    overrides: dict[str, Facts] = Field(
        default_factory=dict, description="Facts by instance type: what to change of a known one, or all of a new one."
    )


class Model(Part):
    """The bundled GPT-style model."""

    layers: int = Field(4, ge=1, description="Transformer blocks.")
    heads: int = Field(4, ge=1, description="Attention heads; twice their number divides `width`.")
    width: int = Field(128, ge=8, description="Embedding width.")
    context: int = Field(128, ge=8, description="Tokens in a sample.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout probability.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Model:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of twice heads ({2 * self.heads})")
        return self


class Checkpoint(Part):
    """When the run is saved, and how many saves are kept."""

    every_steps: int = Field(50, ge=1, description="Optimizer steps between checkpoints.")
    every_seconds: float = Field(300.0, gt=0, description="Seconds between checkpoints, whichever comes first.")
    keep: int = Field(3, ge=2, description="Newest checkpoints kept; never fewer than two, as the last may be torn.")
    keep_days: float = Field(
        0.0,
        ge=0,
        description="Days after which one of these goes too, counted back from the newest; 0 for no limit. The newest "
        "two stay.",
    )


Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
Setting = Annotated[str, BeforeValidator(_number_as_text), Field(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=1024)]
"""A variable of a process, and its value: one line of text; a number is what YAML makes of `0`."""

ENVIRONMENT = (
    "Variables for each worker, by name, such as `NCCL_DEBUG: WARN`; they stand above those that the cluster sets (see "
    "[environment.md](environment.md)). No secrets: whoever may read the bucket can read them."
)

MOST_HOURS = 24 * 366

HOURS = (
    "The most hours that the run may take, from its first generation on, with all waits and interruptions; then it "
    "ends as failed, whatever it does. 0: no limit. Another limit is no other run; each node knows the one that it was "
    "launched with, and the oldest node's counts."
)

NCCL_DEBUG = (
    "Have NCCL tell, in a log of each rank's own, which network, plugins and rings it takes: `NCCL_DEBUG=INFO`; "
    "`trainwright logs --stream nccl` shows it."
)


class Job(Part):
    """The run: what is trained, on which data, for how long."""

    name: str = Field(pattern=NAME, max_length=40, description="The run's name: lower-case letters, digits, hyphens.")
    dataset: str = Field(
        pattern=NAME,
        max_length=63,
        description="A dataset in the bucket, put there by `trainwright data pack`; named like the run.",
    )
    steps: int = Field(400, ge=1, description="Optimizer steps.")
    seed: int = Field(1, ge=0, lt=2**63, description="Seed of initial weights and of the order of samples.")
    batch: int = Field(32, ge=1, description="Samples in an optimizer step, over all workers, however many.")
    micro_batch: int = Field(8, ge=1, description="Most samples in one forward pass of a worker.")
    learning_rate: float = Field(1e-3, gt=0, description="Peak learning rate.")
    warmup_steps: int = Field(20, ge=0, description="Steps over which the learning rate rises.")
    weight_decay: float = Field(0.1, ge=0, description="AdamW's weight decay.")
    clip: float = Field(1.0, gt=0, description="Largest gradient norm.")
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="Autocast precision. With `fp32`, GPUs take matrix products in TF32 where they have it."
    )
    sharding: Literal["ddp", "fsdp"] = Field(
        "ddp",
        description="How workers share the model: `ddp`, each holds all of it; `fsdp`, each holds a part of each, "
        "for models beyond one GPU's memory.",
    )
    activation_checkpointing: bool = Field(
        False, description="Recompute each block's activations in the backward pass, which takes time and saves memory."
    )
    compile: bool = Field(False, description="Compile each block with torch.compile; takes a minute at each start.")
    deterministic: bool = Field(
        False,
        description="On GPUs, take only algorithms that round alike each time, which costs speed. A run that is cut "
        "off then computes bit for bit what an uncut one does, on as many workers, as it does on CPUs anyway. Without "
        "it, GPUs differ by rounding, most of all in attention's backward pass. Another number of workers rounds "
        "differently in any case, and with dropout it draws other masks.",
    )
    model: Model = Field(default_factory=Model, description="The model.")
    checkpoint: Checkpoint = Field(default_factory=Checkpoint, description="Checkpoints.")
    environment: dict[Variable, Setting] = Field(default_factory=dict, max_length=64, description=ENVIRONMENT)
    nccl_debug: bool = Field(False, description=NCCL_DEBUG)
    hours: float = Field(0.0, ge=0, le=MOST_HOURS, description=HOURS)


class CommandJob(Part):
    """With `command`, the run of your own program: the agent starts it once for each worker, with what torchrun
    puts into its environment; see [environment.md](environment.md). There are none of the bundled trainer's keys then.
    """

    name: str = Field(pattern=NAME, max_length=40, description="The run's name: lower-case letters, digits, hyphens.")
    command: tuple[Annotated[str, Field(min_length=1, max_length=4096)], ...] = Field(
        min_length=1,
        max_length=256,
        description="The program and its arguments, word by word; no shell reads them. A first word `python` is the "
        "Python of `nodes.python`.",
    )
    code: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="A folder of your code, from where Pulumi.yaml lies: it goes to every node, where the command runs "
        "in it. Without version control, caches and files named like secrets; 64 MiB and 5,000 files at most.",
    )
    dataset: str = Field(
        "",
        pattern=f"{NAME}|^$",
        max_length=63,
        description="A dataset in the bucket, put there by `trainwright data pack`, which nodes fetch first; none if "
        "unset.",
    )
    launcher: Literal["torchrun-env", "mpirun", "deepspeed"] = Field(
        "torchrun-env",
        description="What starts the command: `torchrun-env`, the agent, once for each worker; `mpirun`, of the image, "
        "on the leader, for which agents start its daemons on the others; `deepspeed`, of the image, on each node.",
    )
    environment: dict[Variable, Setting] = Field(default_factory=dict, max_length=64, description=ENVIRONMENT)
    nccl_debug: bool = Field(False, description=NCCL_DEBUG)
    hours: float = Field(0.0, ge=0, le=MOST_HOURS, description=HOURS)


TRAINED, COMMANDED = "[trained]", "[commanded]"
"""How pydantic's locations tell the two kinds of jobs apart: no key of a file looks so."""

JOBS: dict[str, type[Part]] = {TRAINED: Job, COMMANDED: CommandJob}


def _kind_of_job(value: Any) -> str:
    """A job with a command, or what was meant for one, is the user's own, whatever else it says."""
    own = any(map(_means_command, value)) if isinstance(value, Mapping) else isinstance(value, CommandJob)
    return COMMANDED if own else TRAINED


def _means_command(key: Any) -> bool:
    known = [*Job.model_fields, *CommandJob.model_fields]
    return get_close_matches(str(key), known, n=1) == ["command"]


AnyJob = Annotated[Annotated[Job, Tag(TRAINED)] | Annotated[CommandJob, Tag(COMMANDED)], Discriminator(_kind_of_job)]


class Spec(Part):
    """A stack's file."""

    cloud: Literal["aws", "alicloud"] = Field("aws", description="The cloud that the cluster runs on.")
    region: str = Field(pattern=REGION, description="The cloud's region, such as us-west-2. There is no default.")
    production: bool = Field(
        False,
        description="Protect what holds data or the audit record from deletion, and keep it when the stack goes. "
        "Needs `audit.enabled`.",
    )
    tags: dict[str, str] = Field(default_factory=dict, description="Tags on everything that can carry them.")
    network: Network = Field(description="Where nodes live: `cidr`, `zones`.")
    nodes: Nodes = Field(description="The fleet: `type`, `image`, `desired` and more.")
    data_nodes: DataNodes | None = Field(
        None, description="Nodes that serve the dataset inside the VPC: `type`, `count` and more; none if unset."
    )
    storage: Storage = Field(default_factory=Storage, description="The bucket.")
    security: Security = Field(default_factory=Security, description="Roles of people, and the bucket's TLS.")
    audit: Audit = Field(default_factory=Audit, description="The record of who did what, alarms and a budget.")
    scaling: Scaling | None = Field(
        None,
        description="What changes the fleet's size by itself; with it, nodes send metrics to their cloud, about eight "
        "in all, however many nodes; `nodes.desired` is then where a fleet starts that a policy or schedule sets.",
    )
    catalog: Catalog = Field(default_factory=Catalog, description="Changes to the catalog of instance types.")
    prices: dict[str, Rates] = Field(
        default_factory=dict, description="Your prices by instance type, where the catalog has none or another."
    )
    job: AnyJob = Field(
        description="The training job: `name`, `dataset`, `steps` and more; or `name`, `command` of your own program."
    )

    @field_validator("production", mode="before")
    @classmethod
    def _text_at_the_top(cls, value: Any) -> Any:
        """Pulumi's own true and false there, and there alone (its CLI's reference, "pulumi config set")."""
        return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def from_config(config: Mapping[str, str], namespace: str = "trainwright") -> dict[str, Any]:
    """A stack's values from Pulumi's own form of them: full keys, and whatever is not a scalar as JSON."""
    prefix = f"{namespace}:"
    return {key.removeprefix(prefix): _decoded(value) for key, value in config.items() if key.startswith(prefix)}


def _decoded(value: str) -> Any:
    """A value of Pulumi's configuration; text that only begins like JSON stays text, for `parse` to judge."""
    try:
        return json.loads(value) if value[:1] in {"{", "["} else value
    except ValueError:
        return value


def parse(values: Mapping[str, Any]) -> Spec:
    """The spec in a stack's values (keys without their `trainwright:`). Raises `Invalid` with every error there is."""
    try:
        spec = Spec.model_validate(values)
    except ValidationError as error:
        raise Invalid([_finding(detail) for detail in error.errors()]) from None
    overrides = spec.catalog.overrides
    if wrong := [*faults(spec.cloud, overrides), *unpriceable(spec.cloud, spec.prices, overrides)]:
        raise Invalid(wrong)
    return spec


def _finding(detail: ErrorDetails) -> Finding:
    """One pydantic error as a finding: its path as in the file, its reason in plain words, its fix."""
    location, kind, given = detail["loc"], detail["type"], detail["input"]
    path = ".".join(str(part) for part in location if part != "[key]" and part not in JOBS) or "stack"
    if given is None and location and kind != "missing":
        reason = "is empty"
    elif kind in REASONS:
        reason = REASONS[kind].format(given=_shortened(str(given)), **detail.get("ctx", {}))
    elif kind in {"model_type", "model_attributes_type"}:
        reason = f"must be a mapping with keys such as {', '.join(sorted(_keys(location))[:4])}"
    else:
        wanted = next((words for start, words in KINDS.items() if kind.startswith(start)), detail["msg"])
        reason = f"must be {wanted}, not {_shortened(repr(given))}"
    fix = ""
    if kind == "extra_forbidden":
        fix = nearest(str(location[-1]), _keys(location[:-1]))
        if COMMANDED in location and location[-1] in Job.model_fields:
            fix = "It is the bundled trainer's: give the command its own settings as arguments"
        elif TRAINED in location and location[-1] in CommandJob.model_fields:
            fix = "It belongs to `job.command`, a program of your own"
    elif kind == "tuple_type" and isinstance(given, str) and re.fullmatch(r"[\w./= -]+", given):
        fix = f"Write [{_shortened(', '.join(given.split()))}]"
    elif kind in {"missing", "too_short", "string_pattern_mismatch"}:
        fix = _description(location)
    return Finding(path, reason, f"{fix} Add it to the stack's file" if kind == "missing" else fix)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _model(path: Sequence[int | str]) -> type[BaseModel] | None:
    """The model that stands at `path`, or None where the path leads to a plain value."""
    model: type[BaseModel] | None = Spec
    parts = iter(path)
    for part in parts:
        if str(part) in JOBS:
            model = JOBS[str(part)]
            continue
        field = _fields(model).get(str(part))
        if field and get_origin(field.annotation) in {dict, tuple}:
            next(parts, None)  # the name or the number of an entry
        options = (field.annotation, *get_args(field.annotation)) if field else ()
        model = next((option for option in options if isinstance(option, type) and issubclass(option, BaseModel)), None)
    return model


def _keys(path: Sequence[int | str]) -> list[str]:
    return list(_fields(_model(path)))


def _description(path: Sequence[int | str]) -> str:
    if isinstance(path[-1], int):
        path = path[:-1]  # of the list that the entry is in
    field = _fields(_model(path[:-1])).get(str(path[-1]))
    return field.description or "" if field else ""


def _fields(model: type[BaseModel] | None) -> dict[str, FieldInfo]:
    """The fields of a model, by their keys in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()} if model else {}
