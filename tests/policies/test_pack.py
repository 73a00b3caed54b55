"""The pack on the framework's own path: what the engine asks and gets, without an engine."""

import datetime
import json

import grpc
import pytest
from pulumi_policy import EnforcementLevel
from pulumi_policy import policy as sdk
from pulumi_policy.policy import proto

from policies import record
from policies.pack import Pack
from policies.servicer import install
from policies.settings import Settings
from policies.values import UNKNOWN

TODAY = datetime.date(2026, 11, 30)
VOLUME, BUCKET = "aws:ebs/volume:Volume", "aws:s3/bucket:Bucket"
UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
OPEN = json.dumps({"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*"}})


class Refused(Exception):
    """What gRPC raises when a call is aborted."""


class Context:
    def abort(self, code: grpc.StatusCode, why: str) -> None:
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        raise Refused(why)


@pytest.fixture
def server(monkeypatch):
    """The pack as served; `configure` is what the engine calls with the stack's configuration."""
    monkeypatch.setattr(sdk, "_PolicyAnalyzerServicer", sdk._PolicyAnalyzerServicer)
    pack = Pack(Settings(), TODAY)
    install(pack)
    return sdk._PolicyAnalyzerServicer("trainwright", "1", pack.policies, EnforcementLevel.MANDATORY)


def configure(server, **config: str) -> None:
    request = proto.AnalyzerStackConfigureRequest(config={f"policies:{name}": value for name, value in config.items()})
    server.ConfigureStack(request, Context())


def urn(kind: str, name: str = "x") -> str:
    return f"urn:pulumi:s::p::{kind}::{name}"


def analyzed(server, kind: str, **props: object) -> dict[str, str]:
    """Violations of one resource, by policy."""
    request = proto.AnalyzeRequest(type=kind, urn=urn(kind), name="x")
    request.properties.update(props)
    return {told.policyName: told.message for told in server.Analyze(request, None).diagnostics}


def analyzed_stack(server, *resources: tuple[str, str, dict[str, object], dict[str, list[str]]]) -> dict[str, str]:
    request = proto.AnalyzeStackRequest()
    for kind, name, props, links in resources:
        found = request.resources.add(type=kind, urn=urn(kind, name), name=name)
        found.properties.update(props)
        for key, urns in links.items():
            found.propertyDependencies[key].urns.extend(urns)
    return {told.policyName: told.message for told in server.AnalyzeStack(request, None).diagnostics}


def test_a_breach_is_told_with_place_reason_and_fix(server):
    told = analyzed(server, VOLUME, encrypted=False)["enc-disk-01"]
    assert "ENC-DISK-01 fail: x: encrypted: false, but must be true. Set `encrypted`" in told


def test_what_is_not_known_is_no_violation_and_hides_none(server):
    told = analyzed(server, VOLUME, encrypted=False, kmsKeyId=UNKNOWN_TEXT, size=UNKNOWN_TEXT)
    assert "enc-disk-01" in told
    assert "enc-disk-01" not in analyzed(server, VOLUME, encrypted=UNKNOWN_TEXT)


def test_resources_are_judged_by_what_points_to_them(server):
    policy = "aws:s3/bucketPolicy:BucketPolicy"
    wired = {"bucket": [urn(BUCKET, "a")]}
    told = analyzed_stack(
        server,
        (BUCKET, "a", {}, {}),
        (BUCKET, "b", {}, {}),
        (policy, "p", {"bucket": UNKNOWN_TEXT, "policy": OPEN}, wired),
    )
    assert "STO-PUBLIC-03 fail: a: " in told["sto-public-03-in-stack"]


def test_the_engine_configures_levels_selection_and_exemptions(server):
    exemption = {"control": "ENC-DISK-02", "resource": "x", "owner": "o", "reason": "r", "expires": "2026-12-01"}
    configure(server, exemptions=json.dumps([exemption]), levels='{"ENC-DISK-01": "advisory"}', topics='["encryption"]')
    request = proto.AnalyzeRequest(type=VOLUME, urn=urn(VOLUME), name="x")
    request.properties.update({"encrypted": False})
    told = {one.policyName: one.enforcementLevel for one in server.Analyze(request, None).diagnostics}
    assert told == {"enc-disk-01": proto.ADVISORY}


def test_wrong_settings_are_refused_in_words(server):
    with pytest.raises(Refused, match="policies:severity: "):
        configure(server, severity="severe")
    with pytest.raises(Refused, match=r"policies:levels\.X: there is no such control"):
        configure(server, levels='{"X": "advisory"}')


def test_without_configuration_everything_is_mandatory(server):
    assert {policy.enforcementLevel for policy in server.GetAnalyzerInfo(None, None).policies} == {proto.MANDATORY}


def test_every_policy_says_what_it_is_mapped_to(server):
    told = {policy.name: policy for policy in server.GetAnalyzerInfo(None, None).policies}
    assert len({name.removesuffix("-in-stack") for name in told}) >= 60
    assert told["enc-disk-01"].framework.name == "hipaa"
    assert "gdpr:Art. 32" in told["enc-disk-01"].tags
    assert all(policy.description and policy.remediation_steps for policy in told.values())


def test_a_broken_control_is_its_own_violation_and_spares_the_others(server, monkeypatch):
    """The framework lets an exception end the whole call, and with it the deployment."""
    from policies import pack

    def judged(control, resource):
        if control.id == "ENC-DISK-01":
            return pack_judge(broken(control), resource)
        return pack_judge(control, resource)

    def broken(control):
        from dataclasses import replace

        return replace(control, checks={VOLUME: lambda _: 1 / 0})

    pack_judge = pack.judge_alone
    monkeypatch.setattr(pack, "judge_alone", judged)
    told = analyzed(server, VOLUME, encrypted=False)
    assert "the control itself failed: ZeroDivisionError" in told["enc-disk-01"]
    assert "ENC-DISK-02 fail" in told["enc-disk-02"]


def test_properties_are_read_once_and_not_once_for_each_policy(server, monkeypatch):
    """Of a thousand resources, the framework's own loops take six seconds."""
    read: list[object] = []
    own = sdk.deserialize_properties
    monkeypatch.setattr(sdk, "deserialize_properties", lambda *given: read.append(1) or own(*given))
    analyzed_stack(server, *((BUCKET, name, {}, {}) for name in "abc"))
    assert len(read) == 3
    read.clear()
    assert analyzed(server, "aws:ec2/internetGateway:InternetGateway") == {}
    assert read == []


def test_a_recording_says_what_the_program_declares(tmp_path):
    """Outputs know not what the cloud fills in; inputs have no id. What is only looked up isn't the program's."""
    server = sdk._PolicyAnalyzerServicer("r", "1", record.policies(tmp_path / "f"), EnforcementLevel.ADVISORY)
    root = "pulumi:pulumi:Stack"
    assert analyzed(server, BUCKET, acl="private", tags=UNKNOWN_TEXT) == analyzed(server, root) == {}
    outputs = {"acl": "private", "arn": "arn:aws:s3:::b", "policy": UNKNOWN_TEXT}
    assert (
        analyzed_stack(
            server, (BUCKET, "x", outputs, {"tags": [urn(BUCKET, "y")]}), (BUCKET, "y", {}, {}), (root, "s", {}, {})
        )
        == {}
    )
    (found,) = record.read((tmp_path / "f").read_text()).resources
    assert found.props == {"acl": "private", "tags": found.props["tags"], "arn": "arn:aws:s3:::b"}
    assert found.props["tags"] is UNKNOWN


def test_a_recording_keeps_a_stack_whole():
    from policies.resources import Resource, Stack

    one = Resource(BUCKET, "x", urn(BUCKET), {"a": [UNKNOWN, {"b": 1}]}, {"a": frozenset({"u", "v"})}, UNKNOWN, True)
    (read,) = record.read(record.text(Stack((one,)))).resources
    assert (read.name, read.links, read.region is UNKNOWN, read.protect) == ("x", one.links, True, True)
    assert read.props["a"][0] is UNKNOWN
    assert read.props["a"][1] == {"b": 1}
