"""What a stack's configuration may say of controls, how it is refused, and how exemptions hold and end."""

import datetime
import json

import pytest

from policies.control import Control, Judgement, Result, Severity, Verdict
from policies.controls import declared
from policies.resources import Resource
from policies.settings import InvalidSettings, Settings, from_config, parse
from policies.verdicts import settled

BUCKET = Resource("aws:s3/bucket:Bucket", "data", "urn:pulumi:s::p::aws:s3/bucket:Bucket::data", {})
EXEMPTION = {
    "control": "STO-PUBLIC-02",
    "resource": "data",
    "owner": "me@example.com",
    "reason": "public weights",
    "expires": "2026-06-30",
}
LAST_DAY = datetime.date(2026, 6, 30)


def control(name: str) -> Control:
    return next(one for one in declared(Settings()) if one.id == name)


def result(verdict: Verdict, resource: Resource = BUCKET) -> Result:
    return Result(control("STO-PUBLIC-02"), resource, (Judgement(verdict, "acl", "is public-read"),))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("frameworks", ["hippa"], r"policies:frameworks: hippa: no such framework. Choose from hipaa, gdpr"),
        ("severity", "severe", r"policies:severity: .*'low', 'medium', 'high' or 'critical'"),
        ("levels", {"STO-PUBLIC-02": "must"}, r"policies:levels.STO-PUBLIC-02: .*'mandatory'"),
        ("clouds", ["azure"], r"policies:clouds.0: "),
        ("tls", "1.1", r"policies:tls: "),
        ("region", ["eu-central-1"], r"policies:region: Extra inputs"),
        ("exemptions", [{**EXEMPTION, "owner": ""}], r"policies:exemptions.0.owner: "),
        ("exemptions", [{**EXEMPTION, "expires": "soon"}], r"policies:exemptions.0.expires: "),
        (
            "exemptions",
            [{key: EXEMPTION[key] for key in ("control", "resource")}],
            r"exemptions.0.reason: Field required",
        ),
        ("exemptions", [EXEMPTION, EXEMPTION], r"exemptions: STO-PUBLIC-02 of data stands twice"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_path(key, value, said):
    with pytest.raises(InvalidSettings, match=said):
        parse({key: value})


def test_every_problem_is_said_at_once():
    with pytest.raises(InvalidSettings) as refused:
        parse({"severity": "severe", "tls": "1.1", "typo": 1})
    assert len(str(refused.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"levels": {"STO-PUBLIC-99": "advisory"}}, "policies:levels.STO-PUBLIC-99: there is no such control"),
        ({"topics": ["networks"]}, "policies:topics: there is no topic 'networks', but audit, cost"),
        ({"exemptions": [{**EXEMPTION, "control": "X"}]}, "policies:exemptions.0.control: there is no control 'X'"),
    ],
)
def test_what_names_nothing_is_refused_and_never_ignored(values, said):
    """A typo in an exemption or level would otherwise change nothing, unseen."""
    settings = parse(values)
    with pytest.raises(InvalidSettings, match=said):
        settings.select(declared(settings))


def test_the_engines_texts_are_read_as_what_they_hold():
    settings = from_config({
        "policies:frameworks": '["hipaa"]',
        "policies:tls": "1.3",
        "policies:exemptions": json.dumps([EXEMPTION]),
        "trainwright:region": "us-west-2",
    })  # fmt: skip
    assert settings.frameworks == ("hipaa",)
    assert settings.tls == "1.3"
    assert settings.exemptions[0].expires == LAST_DAY


def test_a_date_may_stand_without_quotes():
    """Pulumi reads it as a time: `2026-06-30 00:00:00 +0000 UTC` is what policies get."""
    value = json.dumps([{**EXEMPTION, "expires": "2026-06-30 00:00:00 +0000 UTC"}])
    assert from_config({"policies:exemptions": value}).exemptions[0].expires == LAST_DAY


def test_no_configuration_means_every_control_at_mandatory():
    settings = from_config({})
    chosen = settings.select(declared(settings))
    assert len(chosen) >= 60
    assert {settings.level_of(one) for one in chosen} == {"mandatory"}


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ({"frameworks": ["gdpr"]}, lambda one: one.frameworks.get("gdpr")),
        ({"severity": "high"}, lambda one: one.severity >= Severity.HIGH),
        ({"topics": ["network"]}, lambda one: one.topic == "network"),
        ({"clouds": ["alicloud"]}, lambda one: "alicloud" in one.clouds),
        ({"levels": {"NET-FLOW-01": "disabled"}}, lambda one: one.id != "NET-FLOW-01"),
    ],
)
def test_controls_are_chosen_by_what_the_settings_name(values, kept):
    settings = parse({"regions": ["eu-central-1"], **values})
    known = declared(settings)
    assert settings.select(known) == [one for one in known if kept(one)]


@pytest.mark.parametrize(("day", "breach"), [(LAST_DAY, False), (LAST_DAY + datetime.timedelta(days=1), True)])
def test_an_exemption_holds_to_its_last_day_and_then_fails(day, breach):
    told = settled(result(Verdict.FAIL), parse({"exemptions": [EXEMPTION]}), day)
    assert told.breach is breach
    assert (told.exemption is None) is breach
    assert ("Its exemption by me@example.com ended on 2026-06-30" in told.words) is breach


@pytest.mark.parametrize("pattern", ["data", "da*", BUCKET.urn, "urn:*:Bucket::data"])
def test_an_exemption_names_a_resource_by_name_or_urn(pattern):
    settings = parse({"exemptions": [{**EXEMPTION, "resource": pattern}]})
    assert not settled(result(Verdict.FAIL), settings, LAST_DAY).breach


@pytest.mark.parametrize("pattern", ["dat", "DATA", "metadata", "Bucket::data"])
def test_an_exemption_of_another_resource_excuses_nothing(pattern):
    settings = parse({"exemptions": [{**EXEMPTION, "resource": pattern}]})
    assert settled(result(Verdict.FAIL), settings, LAST_DAY).breach


def test_an_exemption_excuses_no_control_that_failed_itself():
    """Nobody has judged the resource then."""
    assert settled(result(Verdict.ERROR), parse({"exemptions": [EXEMPTION]}), LAST_DAY).breach


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.UNKNOWN, Verdict.NOT_APPLICABLE])
def test_what_is_well_or_not_known_is_no_breach(verdict):
    told = settled(result(verdict), parse({"exemptions": [EXEMPTION]}), LAST_DAY)
    assert (told.breach, told.exemption, told.expired) == (False, None, None)
