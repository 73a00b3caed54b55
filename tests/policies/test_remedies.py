"""Remedies: what they set makes the control pass, is all that changes, and is set where somebody asked for it alone."""

import copy
import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi_policy import EnforcementLevel
from pulumi_policy import policy as sdk
from pulumi_policy.deserialize import SPECIAL_SECRET_SIG, SPECIAL_SIG_KEY
from pulumi_policy.policy import proto
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE

from emulator.provider.schema import resource_type
from policies.control import Verdict, judge_alone, remedy
from policies.controls import declared
from policies.pack import Pack
from policies.resources import Resource
from policies.servicer import install
from policies.settings import InvalidSettings, Settings, parse
from policies.values import UNKNOWN, placed, plain
from policies.verdicts import settled

TODAY = datetime.date(2026, 11, 30)
SETTINGS = parse({"cost_tags": ["team", "cost.center"], "tag_values": {"team": "research", "cost.center": "4711"}})
CONTROLS = {control.id: control for control in declared(SETTINGS) if control.remedies}
PAIRS = [(name, kind) for name, control in CONTROLS.items() for kind in sorted(control.remedies)]
TEMPLATE, INSTANCE = "aws:ec2/launchTemplate:LaunchTemplate", "alicloud:ecs/instance:Instance"


def resource(kind: str, props: Mapping[str, Any]) -> Resource:
    return Resource(kind, "x", f"urn:pulumi:s::p::{kind}::x", plain(props))


def verdict(name: str, judged: Resource) -> Verdict:
    found = [judgement.verdict for judgement in judge_alone(CONTROLS[name], judged)]
    return max(found, key=lambda one: one.gravity, default=Verdict.NOT_APPLICABLE)


def mended(name: str, kind: str, props: Mapping[str, Any]) -> tuple[dict[tuple[str, ...], Any], Any]:
    """What the remedy sets, and the properties with it."""
    edits, changed = remedy(CONTROLS[name], resource(kind, props)), props
    for path, value in edits.items():
        changed = placed(changed, path, value)
    return dict(edits), changed


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value that isn't made of others, by its path; an empty list or mapping is one."""
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    found = [leaf for key, item in entries for leaf in leaves(item, (*path, str(key)))]
    yield from found or [(path, value)]


TEXT = st.one_of(st.just(UNKNOWN_STRING_VALUE), st.text("abc", max_size=3))
HOPS = st.one_of(st.just(UNKNOWN_STRING_VALUE), st.integers(1, 64), st.integers(1, 64).map(float))
METADATA = {
    "httpTokens": st.one_of(TEXT, st.sampled_from(["required", "optional"])),
    "httpPutResponseHopLimit": HOPS,
    "httpEndpoint": TEXT,
}
ENTRY = st.fixed_dictionaries(
    {"key": st.one_of(TEXT, st.sampled_from(["team", "cost.center"])), "value": TEXT},
    optional={"propagateAtLaunch": st.booleans()},
)


def props_of(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Properties of a resource as the engine sends them, with what isn't known."""
    tags: st.SearchStrategy[Any] = st.dictionaries(st.sampled_from(["team", "cost.center", "Team", "x"]), TEXT)
    if kind == "aws:autoscaling/group:Group":
        # EC2 Auto Scaling has no two tags of one key.
        tags = st.lists(ENTRY, max_size=4, unique_by=lambda entry: entry["key"])
    within = st.one_of(st.just(UNKNOWN_STRING_VALUE), st.fixed_dictionaries({}, optional=METADATA))
    own = {"metadataOptions": within} if kind.startswith("aws:") else METADATA
    return st.fixed_dictionaries(
        {}, optional={**own, "tags": st.one_of(st.just(UNKNOWN_STRING_VALUE), tags), "a": TEXT}
    )


@pytest.mark.parametrize(("name", "kind"), PAIRS)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_remedy_makes_its_control_pass_changes_nothing_else_and_is_done_once(name, kind, data):
    props = data.draw(props_of(kind))
    before = copy.deepcopy(props)
    edits, changed = mended(name, kind, props)
    assert props == before, "what the engine sent was changed in place"
    if verdict(name, resource(kind, props)) is Verdict.FAIL:
        assert edits
        assert verdict(name, resource(kind, changed)) in {Verdict.PASS, Verdict.UNKNOWN}
    else:
        assert edits == {}
    assert mended(name, kind, changed)[0] == {}
    was, now = dict(leaves(props)), dict(leaves(changed))
    set_ = {path for path in now if any(path[: len(edit)] == edit for edit in edits)}
    assert {path: value for path, value in now.items() if path not in set_} == {
        path: value for path, value in was.items() if path not in set_ and (value not in ({}, []) or path in now)
    }


def test_each_case_that_fails_passes_with_its_remedy_where_there_is_one(cases):
    failing = [case for case in cases if (case.control, case.type) in PAIRS and case.verdict == "fail"]
    assert {(case.control, case.type) for case in failing} == set(PAIRS)
    for case in failing:
        judged, _ = case.stack()
        edits, changed = mended(case.control, judged.type, judged.props)
        assert edits, case
        assert verdict(case.control, resource(judged.type, changed)) is Verdict.PASS, case


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_what_a_remedy_sets_is_a_property_of_the_type(name, kind):
    assert kind in CONTROLS[name].checks
    known = resource_type(kind).state
    for props in ({}, {"metadataOptions": {"httpPutResponseHopLimit": 9}}, {"httpPutResponseHopLimit": 9}):
        assert {path[0] for path in mended(name, kind, props)[0]} <= set(known)


def test_tags_without_a_value_are_nobodys_to_invent():
    control = next(one for one in declared(parse({"cost_tags": ["team"]})) if one.id == "COST-TAG-01")
    assert remedy(control, resource("aws:s3/bucket:Bucket", {})) == {}
    with pytest.raises(InvalidSettings, match="tag_values: owner isn't among policies:cost_tags"):
        parse({"cost_tags": ["team"], "tag_values": {"owner": "me"}})


@pytest.mark.parametrize(("tokens", "said"), [("required", Verdict.ERROR), ("optional", Verdict.FAIL)])
def test_a_remedy_that_fails_itself_changes_nothing_and_is_told_beside_any_verdict(tokens, said):
    control = replace(CONTROLS["NET-METADATA-01"], remedies={TEMPLATE: lambda _: 1 / 0})
    judged = resource(TEMPLATE, {"metadataOptions": {"httpTokens": tokens}})
    assert remedy(control, judged) == {}
    told = settled(_result(control, judged), Settings(), TODAY)
    assert (told.result.verdict, told.breach, told.remedy) == (said, True, "")
    assert "the remedy itself failed: ZeroDivisionError" in told.words
    assert ("httpTokens: optional, but must be required" in told.words) is (said is Verdict.FAIL)


def test_a_remedy_that_asks_what_is_not_known_is_no_error():
    control = replace(CONTROLS["NET-METADATA-01"], remedies={TEMPLATE: lambda one: {("a",): bool(one.at("a"))}})
    judged = resource(TEMPLATE, {"a": UNKNOWN_STRING_VALUE, "metadataOptions": {"httpTokens": "required"}})
    assert remedy(control, judged) == {}
    assert _result(control, judged).verdict is Verdict.PASS


def test_a_breach_says_what_a_remedy_would_set():
    control = CONTROLS["NET-METADATA-01"]
    judged = resource(INSTANCE, {"httpTokens": "optional"})
    (found,) = (one for one in [settled(_result(control, judged), Settings(), TODAY)])
    assert found.remedy == "level `remediate` sets httpTokens to required"
    assert "Or: level `remediate` sets httpTokens to required." in found.words
    kept = settled(_result(control, resource(INSTANCE, {"httpTokens": "required"})), Settings(), TODAY)
    assert kept.remedy == ""


def _result(control: Any, judged: Resource) -> Any:
    from policies.control import Result

    return Result(control, judged, judge_alone(control, judged))


# --- On the framework's own path


@pytest.fixture
def remediated(monkeypatch):
    """What the pack makes of a resource under settings: its properties on the wire, None where nothing is changed."""

    def run(asked: dict[str, Any], kind: str, **props: Any) -> dict[str, Any] | None:
        monkeypatch.setattr(sdk, "_PolicyAnalyzerServicer", sdk._PolicyAnalyzerServicer)
        pack = Pack(parse(asked), TODAY)
        install(pack)
        server = sdk._PolicyAnalyzerServicer("trainwright", "1", pack.policies, EnforcementLevel.MANDATORY)
        request = proto.AnalyzeRequest(type=kind, urn=f"urn:pulumi:s::p::{kind}::x", name="x")
        request.properties.update(props)
        found = server.Remediate(request, None).remediations
        assert not any(one.diagnostic for one in found)
        return json.loads(json.dumps(_as_dict(found[-1].properties))) if found else None

    return run


def _as_dict(struct: Any) -> Any:
    from google.protobuf import json_format

    return json_format.MessageToDict(struct)


REMEDIATE = {"levels": {"NET-METADATA-01": "remediate", "NET-METADATA-02": "remediate"}}


def test_what_is_secret_or_not_known_stays_so(remediated):
    secret = {SPECIAL_SIG_KEY: SPECIAL_SECRET_SIG, "value": "hush"}
    options = {"httpPutResponseHopLimit": 9, "instanceMetadataTags": UNKNOWN_STRING_VALUE}
    found = remediated(
        REMEDIATE, TEMPLATE, userData=secret, imageId=UNKNOWN_STRING_VALUE, metadataOptions=options, x=[secret, 1]
    )
    assert found == {
        "userData": secret,
        "imageId": UNKNOWN_STRING_VALUE,
        "metadataOptions": {**options, "httpTokens": "required", "httpPutResponseHopLimit": 2},
        "x": [secret, 1],
    }


def test_what_is_set_within_a_secret_is_one(remediated):
    hidden = {SPECIAL_SIG_KEY: SPECIAL_SECRET_SIG, "value": {"httpTokens": "optional", "httpEndpoint": "enabled"}}
    found = remediated(REMEDIATE, TEMPLATE, metadataOptions=hidden)
    assert found == {"metadataOptions": {**hidden, "value": {"httpTokens": "required", "httpEndpoint": "enabled"}}}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"level": "advisory"},
        {"levels": {"NET-METADATA-02": "remediate"}},
        {"level": "remediate", "topics": ["storage"]},
        {"level": "remediate", "levels": {"NET-METADATA-01": "mandatory"}},
        {
            **REMEDIATE,
            "exemptions": [
                {"control": "NET-METADATA-01", "resource": "x", "owner": "o", "reason": "r", "expires": "2026-12-01"}
            ],
        },
    ],
    ids=["nothing said", "advisory", "another's", "not selected", "but for this", "exempt"],
)
def test_nothing_is_changed_that_nobody_asked_for(remediated, settings):
    assert remediated(settings, INSTANCE, httpTokens="optional", httpPutResponseHopLimit=1) is None


def test_an_exemption_that_has_ended_keeps_no_remedy_away(remediated):
    ended = {"control": "NET-METADATA-01", "resource": "x", "owner": "o", "reason": "r", "expires": "2026-11-29"}
    assert remediated({**REMEDIATE, "exemptions": [ended]}, INSTANCE) == {"httpTokens": "required"}


def test_remedies_of_one_resource_add_up(remediated):
    settings = {"level": "remediate", "cost_tags": ["team"], "tag_values": {"team": "research"}}
    assert remediated(settings, INSTANCE, tags={"a": "b"}, httpPutResponseHopLimit=9) == {
        "tags": {"a": "b", "team": "research"},
        "httpTokens": "required",
        "httpPutResponseHopLimit": 2,
    }


def test_what_is_not_known_is_left_alone():
    assert remedy(CONTROLS["NET-METADATA-01"], Resource(INSTANCE, "x", "u", {"httpTokens": UNKNOWN})) == {}
