"""`make bench-policy`: what the controls take, and Checkov beside them on the same resources.

    python -m benchmarks.policy [--resources N] [--rounds N] [--checkov PROGRAM]

The resources are thirteen types over and over, every other round of them in breach of what is judged. Checkov gets them
as Terraform's JSON, in which most properties are called as in Pulumi, and judges by the rules that have a control like
them (`SAME`), then by all of its own; each command is a process of its own, that reads a file and writes JSON.
Machines are noisy: quote ratios, and compare them with those of other runs on the same machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pulumi_policy import EnforcementLevel
from pulumi_policy import policy as sdk
from pulumi_policy.policy import proto
from rich.console import Console
from rich.table import Table

from policies.control import Verdict, judge
from policies.controls import declared
from policies.pack import Pack
from policies.resources import Stack
from policies.servicer import install
from policies.settings import Settings
from policies.state import read

LIMIT_S = 600
"""Longest wait for a command."""

SETTINGS = Settings(regions=("eu-central-1",), cost_tags=("team",))
PREFIX = "urn:pulumi:bench::bench::"

SAME = {
    "CKV_AWS_3": "ENC-DISK-01",
    "CKV_AWS_189": "ENC-DISK-02",
    "CKV_AWS_7": "KEY-ROTATE-01",
    "CKV_AWS_23": "NET-DESCRIBED-01",
    "CKV_AWS_24": "NET-INGRESS-02",
    "CKV_AWS_26": "ENC-QUEUE-01",
    "CKV_AWS_27": "ENC-QUEUE-01",
    "CKV_AWS_67": "AUD-TRAIL-01",
    "CKV_AWS_36": "AUD-TRAIL-03",
    "CKV_AWS_79": "NET-METADATA-01",
    "CKV_AWS_158": "ENC-LOGS-01",
    "CKV_AWS_42": "ENC-FILES-01",
    "CKV_AWS_184": "ENC-FILES-02",
    "CKV_AWS_130": "NET-PUBLIC-02",
    "CKV_AWS_20": "STO-PUBLIC-02",
    "CKV_AWS_21": "STO-VERSION-01",
    "CKV2_AWS_6": "STO-PUBLIC-01",
}
"""Rules of Checkov by the control that asks for the same. Source: Checkov, "Policy index", terraform."""

KEY = "arn:aws:kms:eu-central-1:123456789012:key/0f0e0d0c-0000-4000-8000-000000000000"

Kind = tuple[str, str, Callable[[bool], dict[str, Any]]]

KINDS: tuple[Kind, ...] = (
    ("aws:ebs/volume:Volume", "aws_ebs_volume", lambda well: {
        "availabilityZone": "eu-central-1a", "size": 100, "encrypted": well, **({"kmsKeyId": KEY} if well else {})}),
    ("aws:kms/key:Key", "aws_kms_key", lambda well: {"enableKeyRotation": well, "deletionWindowInDays": 30}),
    ("aws:ec2/securityGroup:SecurityGroup", "aws_security_group", lambda well: {
        "description": "nodes", "vpcId": "vpc-0a1b2c3d",
        "ingress": [{"protocol": "tcp", "fromPort": 443 if well else 22, "toPort": 443 if well else 22,
                     "cidrBlocks": ["10.0.0.0/8" if well else "0.0.0.0/0"],
                     **({"description": "from nodes"} if well else {})}]}),
    ("aws:sns/topic:Topic", "aws_sns_topic", lambda well: {"kmsMasterKeyId": KEY} if well else {}),
    ("aws:sqs/queue:Queue", "aws_sqs_queue", lambda well: {"kmsMasterKeyId": KEY} if well else
        {"sqsManagedSseEnabled": False}),
    ("aws:cloudtrail/trail:Trail", "aws_cloudtrail", lambda well: {
        "s3BucketName": "audit", "isMultiRegionTrail": well, "enableLogFileValidation": well}),
    ("aws:ec2/launchTemplate:LaunchTemplate", "aws_launch_template", lambda well: {
        "instanceType": "p4d.24xlarge", "metadataOptions": {"httpTokens": "required" if well else "optional"}}),
    ("aws:cloudwatch/logGroup:LogGroup", "aws_cloudwatch_log_group", lambda well: {
        "retentionInDays": 400, **({"kmsKeyId": KEY} if well else {})}),
    ("aws:efs/fileSystem:FileSystem", "aws_efs_file_system", lambda well: {
        "encrypted": well, **({"kmsKeyId": KEY} if well else {})}),
    ("aws:ec2/subnet:Subnet", "aws_subnet", lambda well: {
        "vpcId": "vpc-0a1b2c3d", "cidrBlock": "10.0.0.0/24", "mapPublicIpOnLaunch": not well}),
    ("aws:s3/bucket:Bucket", "aws_s3_bucket", lambda well: {"acl": "private" if well else "public-read"}),
    ("aws:s3/bucketVersioning:BucketVersioning", "aws_s3_bucket_versioning", lambda well: {
        "versioningConfiguration": {"status": "Enabled" if well else "Suspended"}}),
    ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "aws_s3_bucket_public_access_block", lambda well: {
        "blockPublicAcls": well, "blockPublicPolicy": well, "ignorePublicAcls": well, "restrictPublicBuckets": well}),
)  # fmt: skip
"""Pulumi's type, Terraform's, and the properties of one that is well or not."""

BUCKET = "aws:s3/bucket:Bucket"


def resources(count: int) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Pulumi's type, Terraform's, a name and properties; of each round of types, all are well or none is."""
    for number in range(count):
        round_, kind = divmod(number, len(KINDS))
        token, other, props = KINDS[kind]
        yield token, other, f"{other}-{round_}", props(round_ % 2 == 0)


def is_setting(token: str) -> bool:
    """Whether it is a setting of a bucket."""
    return token.startswith(BUCKET.partition(":Bucket")[0]) and token != BUCKET


def bucket_of(name: str) -> str:
    """The name of the bucket in the same round."""
    return f"aws_s3_bucket-{name.rpartition('-')[2]}"


def as_state(count: int) -> str:
    """The resources as `pulumi stack export` writes them."""
    provider = f"{PREFIX}pulumi:providers:aws::p"
    entries: list[dict[str, Any]] = [
        {"urn": provider, "type": "pulumi:providers:aws", "id": "1", "inputs": {"region": "eu-central-1"}}
    ]
    for token, _, name, props in resources(count):
        links = {"bucket": [f"{PREFIX}{BUCKET}::{bucket_of(name)}"]} if is_setting(token) else {}
        given = {**props, "bucket": bucket_of(name)} if links else props
        about = {"custom": True, "id": name, "provider": f"{provider}::1", "propertyDependencies": links}
        entries.append({"urn": f"{PREFIX}{token}::{name}", "type": token, "inputs": given, **about})
    return json.dumps({"version": 3, "deployment": {"resources": entries}})


def as_terraform(count: int) -> str:
    """The resources as Terraform's JSON."""
    found: dict[str, dict[str, Any]] = {}
    for token, other, name, props in resources(count):
        given = _snake(props)
        if is_setting(token):
            given["bucket"] = f"${{aws_s3_bucket.{bucket_of(name)}.id}}"
        found.setdefault(other, {})[name] = given
    return json.dumps({"resource": found}, indent=1)  # Checkov quotes the lines of a resource in each result


def _snake(value: Any) -> Any:
    """Terraform's names of properties; a block that occurs once is a list there."""
    if isinstance(value, list):
        return [_snake(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    inner = {name: [item] if isinstance(item, Mapping) else item for name, item in value.items()}
    return {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower(): _snake(item) for name, item in inner.items()}


def seconds(work: Callable[[], object]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def served(stack: Stack) -> Callable[[], None]:
    """The framework's own path from requests to violations, for each resource and for the stack, as in the engine."""
    pack = Pack(SETTINGS, datetime.datetime.now(datetime.UTC).date())
    install(pack)
    server = sdk._PolicyAnalyzerServicer("bench", "1", pack.policies, EnforcementLevel.MANDATORY)
    whole = proto.AnalyzeStackRequest()
    alone = []
    for resource in stack.resources:
        about = {"type": resource.type, "urn": resource.urn, "name": resource.name}
        alone.append(proto.AnalyzeRequest(**about))
        alone[-1].properties.update(resource.props)
        entry = whole.resources.add(**about)
        entry.properties.update(resource.props)
        for name, urns in resource.links.items():
            entry.propertyDependencies[name].urns.extend(urns)

    def work() -> None:
        for request in alone:
            server.Analyze(request, None)
        server.AnalyzeStack(whole, None)

    return work


def run(command: list[str]) -> tuple[float, str]:
    """How long a command takes, and its output; it may say by its code that something is broken."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode not in {0, 1} or not done.stdout:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return time.perf_counter() - began, done.stdout


def agreement(stack: Stack, told: str) -> tuple[int, int]:
    """Of the verdicts of rules in `SAME`, how many are those of our controls, and how many there are."""
    ours = {
        (result.control.id, result.resource.name): result.verdict
        for result in judge(SETTINGS.select(declared(SETTINGS)), stack)
    }
    checks = json.loads(told)["results"]
    same = [
        ours[SAME[check["check_id"]], check["resource"].partition(".")[2]] is verdict
        for name, verdict in (("failed_checks", Verdict.FAIL), ("passed_checks", Verdict.PASS))
        for check in checks[name]
    ]
    return sum(same), len(same)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resources", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkov", type=Path, help="its program; without it, it is left out")
    options = parser.parse_args()
    text = as_state(options.resources)
    stack = read(text)
    controls = SETTINGS.select(declared(SETTINGS))
    results = sum(1 for _ in judge(controls, stack))
    judged = min(seconds(lambda: list(judge(controls, stack))) for _ in range(options.rounds))
    work = served(stack)
    framework = min(seconds(work) for _ in range(options.rounds))
    table = Table(title=f"{len(stack.resources)} resources, {len(controls)} controls, {results} results")
    for heading in ("what", "time", "per resource and control"):
        table.add_column(heading)
    for what, took in (("judge()", judged), ("the framework's Analyze and AnalyzeStack", framework)):
        table.add_row(what, f"{took:.2f} s", f"{took / results * 1e6:.0f} µs")
    console = Console(width=110)
    console.print(table)
    if options.checkov:
        console.print(beside(options.checkov, text, options.resources, options.rounds, stack))


def beside(program: Path, state: str, count: int, rounds: int, stack: Stack) -> Table:
    """The commands in turn, and the ratios of their best times."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "state.json").write_text(state)
        (Path(folder) / "main.tf.json").write_text(as_terraform(count))
        trainwright = str(Path(sys.executable).with_name("trainwright"))
        comply = [trainwright, "comply", "--state", f"{folder}/state.json", "--format", "json"]
        common = ["-f", f"{folder}/main.tf.json", "--framework", "terraform_json", "-o", "json", "--skip-download"]
        checkov = [str(program), *common, "--quiet"]
        rules = ",".join(SAME)
        best: dict[str, float] = {}
        told = ""
        for _ in range(rounds):
            for name, command in (
                ("trainwright comply, all controls", comply),
                ("Checkov, the rules that have a control like them", [str(program), *common, "--check", rules]),
                ("Checkov, all rules", checkov),
            ):
                took, output = run(command)
                best[name] = min(took, best.get(name, took))
                told = output if "have a control" in name else told
    same, of = agreement(stack, told)
    ours = next(iter(best.values()))
    table = Table(title=f"Beside Checkov: {same} of {of} verdicts by like rules are the same")
    for heading in ("command", "time", "ratio"):
        table.add_column(heading)
    for name, took in best.items():
        table.add_row(name, f"{took:.1f} s", f"{took / ours:.1f}")
    return table


if __name__ == "__main__":
    main()
