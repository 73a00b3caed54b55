"""The forms of a review: each says what was found, whole, stable and safe whatever a program calls its resources."""

from __future__ import annotations

import datetime
import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from cli.compliance import data, html, junit, sarif, table
from cli.compliance.review import Outcome, Review, Subject, review
from policies.frameworks import DISCLAIMER
from policies.resources import Resource, Stack
from policies.settings import parse
from policies.values import UNKNOWN

TODAY = datetime.date(2026, 11, 30)
VOLUME, BUCKET = "aws:ebs/volume:Volume", "aws:s3/bucket:Bucket"
EVIL = "<script>alert('x')</script>\x1b[31m\x00"


def resource(kind: str, name: str, **props: Any) -> Resource:
    return Resource(kind, name, f"urn:pulumi:s::p::{kind}::{name}", props)


def exempt(control: str, name: str, last_day: str) -> dict[str, str]:
    return {"control": control, "resource": name, "owner": "me@example.com", "reason": "why <so>", "expires": last_day}


def found(*more: Resource, **settings: Any) -> Review:
    stack = Stack((
        resource(VOLUME, "open", encrypted=False),
        resource(VOLUME, "good", encrypted=True, kmsKeyId="k"),
        resource(VOLUME, "later", encrypted=UNKNOWN, kmsKeyId=UNKNOWN),
        resource(BUCKET, "shared", acl="public-read"),
        *more,
    ))  # fmt: skip
    exemptions = [
        exempt("STO-PUBLIC-02", "shared", "2027-01-01"),
        exempt("ENC-DISK-02", "open", "2026-01-01"),
        exempt("NET-FLOW-01", "gone", "2027-01-01"),
    ]
    chosen = {"topics": ["encryption", "storage", "network"], "exemptions": exemptions, **settings}
    return review(stack, parse(chosen), Subject("prod", "stacks/Pulumi.prod.yaml", "as planned"), TODAY)


def outcome(review: Review, control: str) -> Outcome:
    return next(one.outcome for one in review.judged if one.control.id == control)


def test_a_control_comes_out_as_the_gravest_of_its_resources():
    told = found()
    assert outcome(told, "ENC-DISK-01") is Outcome.BROKEN
    assert outcome(told, "STO-PUBLIC-02") is Outcome.EXEMPT
    assert outcome(told, "ENC-FILES-01") is Outcome.NOT_APPLICABLE
    assert outcome(found(topics=["encryption"], exemptions=[]), "ENC-DISK-02") is Outcome.BROKEN


def test_every_exemption_is_listed_with_what_became_of_it():
    states = {one.control: state for one, state, _ in found().exemptions}
    assert states == {
        "STO-PUBLIC-02": "in force for 1 resource",
        "ENC-DISK-02": "expired; it no longer covers 1 resource",
        "NET-FLOW-01": "not needed: nothing of that name breaks it",
    }
    assert {state for _, state, _ in found(topics=["identity"]).exemptions} == {"its control isn't asked for"}


def test_residency_that_nobody_asked_for_is_said_not_to_be_judged():
    assert "RES-REGION-01" in found(topics=[]).not_asked
    assert found(topics=[], regions=["us-west-2"]).not_asked == ""
    assert found(topics=["network"]).not_asked == ""


def test_the_order_of_the_engine_changes_nothing():
    stack = [resource(VOLUME, name, encrypted=False) for name in "abc"]
    one, other = found(*stack), found(*reversed(stack))
    assert data.text(one) == data.text(other)
    assert table.plain_text(one) == table.plain_text(other)


def test_the_table_has_what_is_broken_first_and_says_of_like_resources_once():
    text = table.plain_text(found(*(resource(VOLUME, f"disk-{n:02}", encrypted=False) for n in range(20))))
    lines = text.splitlines()
    assert lines[0].startswith("prod breaks ")
    assert "disk-00, disk-01, disk-02, disk-03 and 17 more" in text
    assert text.count("encrypted: false, but must be true") == 1
    for said in ("fix: Set `encrypted`", "gdpr Art. 32", "exempt until 2027-01-01: why <so> (me@example.com)"):
        assert said in text
    assert "its exemption by me@example.com ended on 2026-01-01" in text
    assert " broken · 1 exempt · " in lines[-3]
    order = [
        line.strip()[0] for line in lines if line.startswith("  ") and line.strip()[0] in "✗~?✓-" and line[2] != " "
    ]
    encryption = order[: order.index("-") + 1]
    assert encryption == sorted(encryption, key="✗~?✓-".index)


def test_no_line_of_the_table_is_wider_than_can_be_read():
    assert max(map(len, table.plain_text(found()).splitlines())) <= table.WIDEST


def test_json_has_every_control_and_every_result():
    told = data.as_json(found())
    assert json.loads(data.text(found())) == told
    assert set(told) == {
        "version", "subject", "date", "compliant", "summary", "settings", "not_judged", "controls", "exemptions",
        "frameworks", "disclaimer",
    }  # fmt: skip
    assert told["version"] == 1
    (disks,) = (one for one in told["controls"] if one["id"] == "ENC-DISK-01")
    assert set(disks) == {"id", "title", "topic", "severity", "level", "frameworks", "fix", "outcome", "results"}
    assert [result["outcome"] for result in disks["results"]] == ["kept", "unknown", "broken"]
    assert disks["results"][2]["judgements"] == [
        {"verdict": "fail", "path": "encrypted", "reason": "false, but must be true"}
    ]
    assert sum(told["summary"].values()) == len(told["controls"])


def test_sarif_has_what_its_schema_asks_for():
    """SARIF 2.1.0, sections 3.13, 3.14, 3.19, 3.27: the required members, and the words that enumerations allow."""
    log = sarif.log(found())
    (run,) = log["runs"]
    assert (log["version"], bool(run["tool"]["driver"]["name"])) == ("2.1.0", True)
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for one in run["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
        assert one["message"]["text"]
        assert one["kind"] in {"fail", "open"}
        assert one["level"] == "none" if one["kind"] == "open" else one["level"] in {"error", "warning"}
        (place,) = one["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "stacks/Pulumi.prod.yaml"
        assert place["logicalLocations"][0]["fullyQualifiedName"].startswith("urn:pulumi:")
    suppressed = [one["ruleId"] for one in run["results"] if "suppressions" in one]
    assert suppressed == ["STO-PUBLIC-02"]
    prints = [one["partialFingerprints"]["controlAndResource/v1"] for one in run["results"]]
    assert len(set(prints)) == len(prints)


def test_junit_fails_what_fails_the_review_and_no_more():
    root = ElementTree.fromstring(junit.text(found(levels={"ENC-DISK-02": "advisory"})))
    assert [suite.get("name") for suite in root] == ["encryption", "network", "storage"]
    for element in (root, *root):
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped"), ("errors", "error")):
            assert int(element.get(name)) == len(element.findall(f".//{tag}"))
    by = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    disks = "ENC-DISK-01 Disks of nodes are encrypted"
    assert (by[f"{disks}: open"], by[f"{disks}: good"], by[f"{disks}: later"]) == (["failure"], [], ["skipped"])
    advisory = next(tags for name, tags in by.items() if name.startswith("ENC-DISK-02") and name.endswith(": open"))
    assert advisory == ["system-out"]
    assert next(tags for name, tags in by.items() if name.startswith("STO-PUBLIC-02")) == ["skipped"]


class Outline(HTMLParser):
    """What a page is made of, and whether every element that opens also closes."""

    VOID = frozenset({"meta", "br", "link", "img"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in {"href", "src"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_one_whole_file_with_everything_a_reviewer_asks_for():
    page = html.page(found())
    outline = Outline(page)
    assert outline.open == []
    assert not {"script", "link", "img", "iframe"} & set(outline.tags)
    assert all(link.startswith("#") and link[1:] in outline.ids for link in outline.links)
    assert "url(" not in page
    text = re.sub(r"<[^>]+>", " ", page)
    for said in (
        "encrypted: false, but must be true",
        "why &lt;so&gt;",
        "me@example.com",
        "HIPAA Security Rule",
        "prowler",
        DISCLAIMER,
        "164.312(a)(2)(iv)",
    ):
        assert said in text
    for judged in found().judged:
        assert judged.control.id in text
    assert "@media print" in page
    assert "prefers-color-scheme: dark" in page


@pytest.mark.parametrize("write", [html.page, junit.text, table.plain_text, sarif.text, data.text])
def test_names_of_a_programs_making_do_no_harm(write):
    written = write(found(resource(VOLUME, EVIL, encrypted=False)))
    assert "\x1b" not in written
    assert "\x00" not in written
    if write is html.page:
        assert "<script" not in written
    if write is junit.text:
        ElementTree.fromstring(written)


def test_a_thousand_broken_resources_make_no_page_that_nobody_can_open():
    many = found(*(resource(VOLUME, f"disk-{n}", encrypted=False, size=n) for n in range(1000)))
    assert len(html.page(many)) < 500_000
    assert len(table.plain_text(many).splitlines()) < 200


def test_a_finding_that_has_a_remedy_says_what_it_would_set():
    loose = resource("aws:ec2/instance:Instance", "loose", metadataOptions={"httpTokens": "optional"})
    told = found(loose, resource("alicloud:ess/scalingConfiguration:ScalingConfiguration", "config"))
    said = "level `remediate` sets metadataOptions.httpTokens to required"
    remedies = {
        result["name"]: result["remedy"]
        for control in data.as_json(told)["controls"]
        if control["id"] == "NET-METADATA-01"
        for result in control["results"]
    }
    assert remedies == {"loose": said, "config": None}
    assert said in " ".join(table.plain_text(told).split())
    assert said in html.page(told)
