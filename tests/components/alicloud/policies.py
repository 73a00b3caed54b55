"""Judges policy documents as RAM would."""

import fnmatch

ELEMENTS = {"Effect", "Action", "Resource", "Condition", "Principal"}
"""Of a statement (RAM user guide, "Policy structure and syntax"): no `Sid`, and what else RAM knows, we don't use."""


def _list(value):
    return value if isinstance(value, list) else [value]


def _compare(operator, given, wanted):
    match operator:
        case "StringEquals" | "Bool":
            return given == wanted
        case "StringNotEquals":
            return given != wanted
        case "StringEqualsIgnoreCase":
            return given.lower() == wanted.lower()
        case "StringLike":
            return fnmatch.fnmatchcase(given, wanted)
        case "NumericLessThan":
            return float(given) < float(wanted)
    raise AssertionError(f"unknown operator {operator}")


def _applies(statement, action, resource, context):
    """Whether the statement is about the action. A key that the request doesn't have meets no condition."""
    assert statement.keys() <= ELEMENTS, f"RAM refuses {statement.keys() - ELEMENTS}"

    def holds(operator, wanted):
        return all(
            key in context and any(_compare(operator, str(context[key]), str(value)) for value in _list(values))
            for key, values in wanted.items()
        )

    return (
        any(fnmatch.fnmatchcase(action, pattern) for pattern in _list(statement["Action"]))
        and any(fnmatch.fnmatchcase(resource, pattern) for pattern in _list(statement["Resource"]))
        and all(holds(*condition) for condition in statement.get("Condition", {}).items())
    )


def _effects(document, action, resource, context):
    assert document["Version"] == "1", "the only version that RAM takes"
    return {s["Effect"] for s in document["Statement"] if _applies(s, action, resource, context or {})}


def allows(document, action, resource, context=None):
    """Whether a policy allows the action: an Allow that matches, and no Deny."""
    return _effects(document, action, resource, context) == {"Allow"}


def denies(document, action, resource, context=None):
    """Whether a policy denies the action outright, whatever allows it elsewhere."""
    return "Deny" in _effects(document, action, resource, context)


def of(document, principal):
    """The statements of a resource's policy that are about this principal."""
    return {**document, "Statement": [s for s in document["Statement"] if s["Principal"] == principal]}
