"""Judges policy documents as AWS would."""

import fnmatch
import re


def _list(value):
    return value if isinstance(value, list) else [value]


def _filled(text, context):
    """The text with its policy variables filled in; one that isn't known matches nothing."""
    return re.sub(r"\$\{([^}]+)\}", lambda found: str(context.get(found[1], "\0")), text)


def _compare(operator, given, wanted):
    match operator:
        case "StringEquals" | "Bool" | "ArnEquals":
            return given == wanted
        case "StringLike" | "ArnLike":
            return fnmatch.fnmatchcase(given, wanted)
        case "NumericLessThan":
            return float(given) < float(wanted)
    raise AssertionError(f"unknown operator {operator}")


def _applies(statement, action, resource, context):
    """Whether the statement is about the action. Knows the operators that we use."""

    def holds(operator, wanted):
        if operator == "Null":
            return all((key not in context) == (value == "true") for key, value in wanted.items())
        plain = operator.removesuffix("IfExists")
        for key, values in wanted.items():
            if key not in context:
                if plain == operator:
                    return False  # what an operator without IfExists means by an absent key
                continue
            given = str(context[key])
            if not any(_compare(plain, given, _filled(str(value), context)) for value in _list(values)):
                return False
        return True

    return (
        any(fnmatch.fnmatchcase(action, pattern) for pattern in _list(statement["Action"]))
        and any(fnmatch.fnmatchcase(resource, _filled(pattern, context)) for pattern in _list(statement["Resource"]))
        and all(holds(*condition) for condition in statement.get("Condition", {}).items())
    )


def _effects(document, action, resource, context):
    found = (s["Effect"] for s in document["Statement"] if _applies(s, action, resource, context or {}))
    return set(found)


def allows(document, action, resource, context=None):
    """Whether a policy allows the action: an Allow that matches, and no Deny."""
    return _effects(document, action, resource, context) == {"Allow"}


def denies(document, action, resource, context=None):
    """Whether a policy denies the action outright, whatever allows it elsewhere."""
    return "Deny" in _effects(document, action, resource, context)


def of(document, principal):
    """The statements of a resource's policy that are about this principal."""
    return {**document, "Statement": [s for s in document["Statement"] if s["Principal"] == principal]}
