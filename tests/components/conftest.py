"""The recording kit: runs a program under Pulumi's mocks and keeps all that it registered.

Assertions are made on what a program *sent* (`Record`), never on what mocks answered. Mocks run no provider, so they
accept wrong property names and values; `tests/emulator` and `tests/e2e` cover that.
"""

import asyncio
import copy
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import pytest
from google.protobuf import json_format
from pulumi.runtime import mocks, rpc
from pulumi.runtime.proto import provider_pb2

from components.aws import cluster as aws_cluster
from components.bundle import Bundle, build
from components.clouds import CLOUDS
from components.cluster import TrainingCluster

ACCOUNT = "123456789012"
ALI_ACCOUNT = "1234567890123456"
CLUSTER = "trainwright:index:TrainingCluster"
UNKNOWN = rpc.UNKNOWN
ABSENT_IMAGE = "ami-00000000"
"""An image that the cloud doesn't have."""
IMAGES = {
    "ami-00000001": {"bootMode": "uefi", "tpmSupport": "v2.0"},
    "ami-00000002": {"bootMode": "uefi-preferred"},
    "ami-00000003": {"bootMode": "legacy-bios"},
}
"""Images that state how they boot, and whether for NitroTPM; others state neither."""

STACK: dict[str, Any] = {
    "region": "us-west-2",
    "network": {"cidr": "10.0.0.0/16", "zones": ["us-west-2a"]},
    "nodes": {"type": "m6a.large", "image": "ami-0123456789abcdef0", "desired": 2, "max": 4},
    "job": {"name": "gpt", "dataset": "text"},
}
ALI: dict[str, Any] = {
    "cloud": "alicloud",
    "region": "ap-southeast-1",
    "network": {"cidr": "10.0.0.0/16", "zones": ["ap-southeast-1a"]},
    "nodes": {"type": "ecs.g8i.24xlarge", "image": "m-t4n0123456789abcdefgh", "desired": 2, "max": 4},
    "security": {"kms_instance": "kst-sgp0123456789abcdef"},
    "job": {"name": "gpt", "dataset": "text"},
}
NUMBERED = {"alicloud:cms/monitorGroup:MonitorGroup": "7671"}
"""Ids of what the cloud numbers."""
ABSENT_ALI_IMAGE = "m-t4n00000000000000000"
"""An image that Alibaba Cloud doesn't have."""


@dataclass(frozen=True)
class Record:
    """One registration. `inputs` are plain, by their names on the wire; `secrets` are the paths of the secret ones."""

    type: str
    name: str
    urn: str
    parent: str
    inputs: dict[str, Any]
    secrets: frozenset[str]
    provider: str
    dependencies: frozenset[str]
    made_of: dict[str, frozenset[str]]
    """URNs of the resources that each input was made of."""
    protect: bool
    retain_on_delete: bool
    ignore_changes: tuple[str, ...]
    replace_on_changes: tuple[str, ...]
    deleted_with: str
    """URN of the resource whose deletion is its own, too."""

    @property
    def key(self) -> tuple[str, str]:
        """Its type and its name, the hash of a content in it left out."""
        return self.type, re.sub("-launch-[0-9a-f]{7}$", "-launch-HASH", self.name)


@dataclass
class Records:
    """All registrations of one program, in order."""

    all: list[Record] = field(default_factory=list)

    def one(self, kind: str, name: str | None = None) -> Record:
        """The only record of a type (its last part is enough), and of a name where one is given."""
        found = [r for r in self.all if r.type.endswith(f":{kind}") and name in {None, r.name}]
        assert len(found) == 1, f"{kind} {name or ''}: {[r.key for r in found]} of {[r.key for r in self.all]}"
        return found[0]

    def of(self, kind: str) -> list[Record]:
        return [record for record in self.all if record.type.endswith(f":{kind}")]

    def children(self) -> list[Record]:
        return [record for record in self.all if record.type != CLUSTER]


class _Outputs(pulumi.runtime.Mocks):
    """What resources answer: their inputs, an ARN, and what else our components read of them."""

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        more = {
            "aws:s3/bucket:Bucket": {"bucket": f"{args.name}-1a2b3c4", "arn": f"arn:aws:s3:::{args.name}-1a2b3c4"},
            "aws:kms/key:Key": {"keyId": "key-1", "arn": f"arn:aws:kms:us-west-2:{ACCOUNT}:key/key-1"},
            "aws:ec2/launchTemplate:LaunchTemplate": {"latestVersion": 7},
            "aws:ec2/vpcEndpoint:VpcEndpoint": {"prefixListId": "pl-s3"},
            "aws:fsx/lustreFileSystem:LustreFileSystem": {"dnsName": "fs-1.fsx.example.com", "mountName": "abcdefgh"},
            "alicloud:oss/bucket:Bucket": {"bucket": args.inputs.get("bucket") or f"{args.name}-1a2b3c4"},
            "alicloud:nas/mountTarget:MountTarget": {
                "mountTargetDomain": "0a1b.ap-southeast-1.extreme.nas.aliyuncs.com"
            },
            "alicloud:kms/key:Key": {"arn": f"acs:kms:ap-southeast-1:{ALI_ACCOUNT}:key/{args.name}-id"},
            "alicloud:ram/role:Role": {"arn": f"acs:ram::{ALI_ACCOUNT}:role/{args.inputs.get('roleName')}"},
            "alicloud:vpc/network:Network": {"routeTableId": f"{args.name}-routes"},
            "alicloud:vpc/natGateway:NatGateway": {"snatTableIds": f"{args.name}-table"},
            "alicloud:ecs/eipAddress:EipAddress": {"ipAddress": "203.0.113.1"},
            "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate": {"latestVersionNumber": 7},
            "alicloud:ess/scalingRule:ScalingRule": {"ari": f"ari:acs:ess:{args.name}"},
        }.get(args.typ)
        if more is None:
            part, owner = ("acs", ALI_ACCOUNT) if args.typ.startswith("alicloud:") else ("arn:aws", ACCOUNT)
            more = {"arn": f"{part}:mock::{owner}:{args.name}"}
        made = NUMBERED.get(args.typ, f"{args.name}-id")
        return made, {"name": args.name, **args.inputs, **more}

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        match args.token:
            case "aws:index/getCallerIdentity:getCallerIdentity":
                return {"accountId": ACCOUNT, "arn": f"arn:aws:iam::{ACCOUNT}:user/someone"}
            case "aws:ssm/getParameter:getParameter":
                return {"insecureValue": "ami-0fedcba9876543210"}
            case "aws:ec2/getAmi:getAmi":
                ((image,),) = (wanted["values"] for wanted in args.args["filters"] if wanted["name"] == "image-id")
                if image == ABSENT_IMAGE:
                    raise LookupError("Your query returned no results. Please change your search criteria")
                return {"rootDeviceName": f"/dev/root-of-{image}", **IMAGES.get(image, {})}
            case "alicloud:index/getCallerIdentity:getCallerIdentity":
                who = f"acs:ram::{ALI_ACCOUNT}:user/someone"
                return {"accountId": ALI_ACCOUNT, "arn": who, "identityType": "RAMUser"}
            case "alicloud:ecs/getImages:getImages":
                found = args.args.get("imageId") or f"m-newest-of-{args.args['imageFamily']}"
                images = [] if found == ABSENT_ALI_IMAGE else [{"imageId": found, "id": found}]
                return {"ids": [image["id"] for image in images], "images": images}
            case "alicloud:vpc/getSwitches:getSwitches":
                return {"vswitches": [{"id": one, "cidrBlock": "10.9.0.0/24"} for one in args.args["ids"]]}
        raise AssertionError(args.token)


class _Unknown(_Outputs):
    """A preview of what doesn't exist yet: nothing is known of a resource but what the program itself said."""

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return "", {}


class _Monitor(mocks.MockMonitor):
    """Keeps each request before the mocks answer it: they drop options, and urns that are registered twice."""

    def __init__(self, answers: pulumi.runtime.Mocks, records: Records) -> None:
        super().__init__(answers)
        self.records = records

    def Invoke(self, request: Any) -> Any:
        """A look-up that finds nothing is an answer, as from a provider, and no error of the mocks."""
        try:
            return super().Invoke(request)
        except LookupError as error:
            return provider_pb2.InvokeResponse(failures=[provider_pb2.CheckFailure(reason=str(error))])

    def RegisterResource(self, request: Any) -> Any:
        if request.type != "pulumi:pulumi:Stack":
            secrets: set[str] = set()
            inputs = _plain(json_format.MessageToDict(request.object), "", secrets)
            self.records.all.append(
                Record(
                    request.type,
                    request.name,
                    self.make_urn(request.parent, request.type, request.name),
                    request.parent,
                    inputs,
                    frozenset(secrets),
                    request.provider,
                    frozenset(request.dependencies),
                    {name: frozenset(made.urns) for name, made in request.propertyDependencies.items()},
                    request.protect,
                    request.retainOnDelete,
                    tuple(request.ignoreChanges),
                    tuple(request.replaceOnChanges),
                    request.deletedWith,
                )
            )
        return super().RegisterResource(request)


def _plain(value: Any, path: str, secrets: set[str]) -> Any:
    """The value without its wrapping; notes the paths at which it was wrapped as a secret."""
    if isinstance(value, dict):
        if value.get(rpc._special_sig_key) == rpc._special_secret_sig:
            secrets.add(path)
            return _plain(value["value"], path, secrets)
        return {key: _plain(item, f"{path}.{key}".lstrip("."), secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, f"{path}.{index}", secrets) for index, item in enumerate(value)]
    return value


DECLARED: dict[str, Records] = {}
"""What clusters have registered in this session, by all that it follows from."""


class Mocked:
    """Runs programs under mocks. `records` keeps what the last one registered, also where it failed."""

    def __init__(self) -> None:
        self.records = Records()

    def declare(self, program: Callable[[], Any], *, preview: bool = False) -> Records:
        """What `program` registers. Raises what it raises, also from within its `apply`s."""
        self.records = Records()
        answers = _Unknown() if preview else _Outputs()
        pulumi.runtime.set_mocks(
            answers, project="trainwright", stack="test", preview=preview, monitor=_Monitor(answers, self.records)
        )
        pulumi.runtime.test(lambda: program() and None)()
        twice = [key for key, count in Counter((r.urn, r.parent) for r in self.records.all).items() if count > 1]
        assert not twice, f"registered twice: {twice}"
        return self.records

    def cluster(
        self, values: Any, *, name: str = "c1", preview: bool = False, opts: pulumi.ResourceOptions | None = None
    ) -> Records:
        """What a cluster of these values registers: a copy, where a test before has declared the same."""
        if opts or not isinstance(values, dict):
            return self.declare(lambda: TrainingCluster(name, values, opts), preview=preview)
        built = "" if aws_cluster.build is build else str(aws_cluster.build(Path()).path)  # a real one writes a file
        key = json.dumps([values, name, preview, built, str(Path.cwd())], sort_keys=True, default=repr)
        if key not in DECLARED:
            DECLARED[key] = self.declare(lambda: TrainingCluster(name, values), preview=preview)
        self.records = copy.deepcopy(DECLARED[key])
        return self.records


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The bundle of this checkout."""
    return build(tmp_path_factory.mktemp("bundle"))


@pytest.fixture
def mocked(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mocked]:
    """Pulumi's mocks with an event loop of the test's own, and the bundle built once for all tests."""
    for cloud in CLOUDS:
        monkeypatch.setattr(f"components.{cloud}.cluster.build", lambda _: bundle)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield Mocked()
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def stack() -> Callable[..., dict[str, Any]]:
    """Values of a small stack that is right, changed at dotted paths; `None` takes a key away."""

    return _changing(STACK)


@pytest.fixture
def ali() -> Callable[..., dict[str, Any]]:
    """As `stack`, on Alibaba Cloud."""
    return _changing(ALI)


def _changing(base: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    def make(changes: dict[str, Any] | None = None) -> dict[str, Any]:
        values = copy.deepcopy(base)
        for path, value in (changes or {}).items():
            *parents, last = path.split(".")
            part = values
            for parent in parents:
                part = part.setdefault(parent, {})
            if value is None:
                part.pop(last, None)
            else:
                part[last] = value
        return values

    return make


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the checkout's own `.local`."""
    monkeypatch.setitem(os.environ, "TRAINWRIGHT_HOME", str(tmp_path / "home"))


def pytest_configure(config: pytest.Config) -> None:
    """Importing one resource of an SDK loads its whole module, the deprecated ones with it."""
    for sdk in ("pulumi_aws", "pulumi_alicloud"):
        config.addinivalue_line("filterwarnings", f"ignore::DeprecationWarning:{sdk}.*")
