"""A review as SARIF 2.1.0 (OASIS), for code scanning: what is broken, exempt or unknown, at the stack's file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from cli.compliance import words
from cli.compliance.review import BINDING, Judged, Outcome, Review, outcome
from policies.control import Severity
from policies.verdicts import Settled

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
TOLD = (Outcome.BROKEN, Outcome.ERROR, Outcome.EXEMPT, Outcome.UNKNOWN)

SCORES = {Severity.LOW: "3.0", Severity.MEDIUM: "5.5", Severity.HIGH: "8.0", Severity.CRITICAL: "9.5"}
"""`security-severity`, by whose ranges GitHub calls an alert low, medium, high or critical."""


def text(review: Review) -> str:
    """The review as SARIF."""
    return json.dumps(log(review), indent=2)


def log(review: Review) -> dict[str, Any]:
    """The log, in what JSON holds."""
    driver = {
        "name": "Trainwright",
        "semanticVersion": _version(),
        "rules": [_rule(judged) for judged in review.judged],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"PROJECT": {"description": {"text": "The folder with Pulumi.yaml."}}},
        "invocations": [{"executionSuccessful": True}],
        "results": list(_results(review)),
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415

    return version("trainwright")


def _level(judged: Judged) -> str:
    return "error" if judged.level in BINDING else "warning"


def _rule(judged: Judged) -> dict[str, Any]:
    control = judged.control
    mapped = words.clauses(judged)
    return {
        "id": control.id,
        "shortDescription": {"text": control.title},
        "fullDescription": {"text": f"{control.title}. {mapped}".strip()},
        "help": {"text": f"{control.fix}."},
        "defaultConfiguration": {"level": _level(judged)},
        "properties": {
            "tags": ["security", control.topic, *control.frameworks],
            "security-severity": SCORES[control.severity],
        },
    }


def _results(review: Review) -> Iterator[dict[str, Any]]:
    for index, judged in enumerate(review.judged):
        for one in judged.of(*TOLD):
            yield _result(review, index, judged, one)


def _result(review: Review, index: int, judged: Judged, one: Settled) -> dict[str, Any]:
    resource, unknown = one.result.resource, outcome(one) is Outcome.UNKNOWN
    said = "; ".join(words.places(one))
    more = f" ({words.expired(one)})" if one.expired else ""
    found: dict[str, Any] = {
        "ruleId": judged.control.id,
        "ruleIndex": index,
        "kind": "open" if unknown else "fail",
        "level": "none" if unknown else _level(judged),
        "message": {"text": f"{resource.name}: {said}{more}. {judged.control.fix}."},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(review.subject.file), "uriBaseId": "PROJECT"},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [{"name": resource.name, "fullyQualifiedName": resource.urn, "kind": "resource"}],
            }
        ],
        "partialFingerprints": {
            "controlAndResource/v1": hashlib.sha256(f"{judged.control.id} {resource.urn}".encode()).hexdigest()
        },
    }
    if one.exemption:
        found["suppressions"] = [{"kind": "external", "status": "accepted", "justification": words.exempt(one)}]
    return found
