"""A review as JSON, whose form docs/compliance.md describes: `version` grows when what is there changes its meaning."""

from __future__ import annotations

import json
from typing import Any

from cli.compliance.review import Judged, Review, outcome
from policies.frameworks import DISCLAIMER
from policies.settings import Exemption
from policies.verdicts import Settled

VERSION = 1


def text(review: Review) -> str:
    """The review as JSON text."""
    return json.dumps(as_json(review), indent=2)


def as_json(review: Review) -> dict[str, Any]:
    """The review, in what JSON holds."""
    return {
        "version": VERSION,
        "subject": {"name": review.subject.name, "file": review.subject.file, "resources": review.resources},
        "date": review.today.isoformat(),
        "compliant": not review.failed,
        "summary": {str(name): count for name, count in review.outcomes.items()},
        "settings": review.settings.model_dump(mode="json"),
        "not_judged": [control.id for control in review.idle],
        "controls": [_control(judged) for judged in review.judged],
        "exemptions": [{**_exemption(one), "state": state} for one, state, _ in review.exemptions],
        "frameworks": [vars(framework) for framework in review.frameworks],
        "disclaimer": DISCLAIMER,
    }


def _control(judged: Judged) -> dict[str, Any]:
    control = judged.control
    return {
        "id": control.id,
        "title": control.title,
        "topic": control.topic,
        "severity": control.severity.name.lower(),
        "level": judged.level,
        "frameworks": {name: list(clauses) for name, clauses in control.frameworks.items()},
        "fix": control.fix,
        "outcome": str(judged.outcome),
        "results": [_result(one) for one in judged.settled],
    }


def _result(one: Settled) -> dict[str, Any]:
    resource = one.result.resource
    return {
        "urn": resource.urn,
        "type": resource.type,
        "name": resource.name,
        "outcome": str(outcome(one)),
        "breach": one.breach,
        "exemption": _exemption(one.exemption) if one.exemption else None,
        "expired": _exemption(one.expired) if one.expired else None,
        "remedy": one.remedy or None,
        "judgements": [
            {"verdict": str(judgement.verdict), "path": judgement.path, "reason": judgement.reason}
            for judgement in one.result.judgements
        ],
    }


def _exemption(exemption: Exemption) -> dict[str, Any]:
    return exemption.model_dump(mode="json")
