"""A review as JUnit's XML, which CI shows as tests: a suite a topic, a case for each control and resource.

Fails what fails the review; what is advisory passes, and says so in its output; what is exempt or unknown is skipped.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from cli.compliance import words
from cli.compliance.review import BINDING, Judged, Outcome, Review, outcome
from policies.verdicts import Settled

UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
"""What XML 1.0 has no room for (section 2.2, `Char`)."""


def text(review: Review) -> str:
    """The review as XML."""
    root = ElementTree.Element("testsuites", name=f"trainwright comply: {_clean(review.subject.name)}")
    for topic, controls in sorted(review.topics.items()):
        suite = ElementTree.SubElement(root, "testsuite", name=topic, timestamp=f"{review.today}T00:00:00")
        for judged in controls:
            _cases(suite, judged)
        _count(suite)
    _count(root)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _cases(suite: ElementTree.Element, judged: Judged) -> None:
    name = f"{judged.control.id} {judged.control.title}"
    if not judged.settled:
        case = _case(suite, judged, name)
        ElementTree.SubElement(case, "skipped", message="nothing in the stack that it judges")
    for one in judged.settled:
        _answer(_case(suite, judged, f"{name}: {one.result.resource.name}"), judged, one)


def _case(suite: ElementTree.Element, judged: Judged, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=f"trainwright.{judged.control.topic}", name=_clean(name))


def _answer(case: ElementTree.Element, judged: Judged, one: Settled) -> None:
    said = "\n".join(words.places(one))
    found = outcome(one)
    if one.breach and judged.level not in BINDING:
        ElementTree.SubElement(case, "system-out").text = _clean(f"advisory: {said}\n{judged.control.fix}.")
    elif found in (Outcome.BROKEN, Outcome.ERROR):
        tag = "error" if found is Outcome.ERROR else "failure"
        whole = "\n".join(filter(None, [one.result.resource.urn, said, words.expired(one), f"{judged.control.fix}."]))
        message = _clean(said.partition("\n")[0])
        kind = judged.control.severity.name.lower()
        ElementTree.SubElement(case, tag, message=message, type=kind).text = _clean(whole)
    elif found is Outcome.EXEMPT:
        ElementTree.SubElement(case, "skipped", message=_clean(words.exempt(one)))
    elif found is not Outcome.KEPT:
        ElementTree.SubElement(case, "skipped", message=_clean(said or str(found)))


def _count(element: ElementTree.Element) -> None:
    element.set("tests", str(len(list(element.iter("testcase")))))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(name, str(len(list(element.iter(tag)))))


def _clean(text: str) -> str:
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
