"""Judges policy documents as AWS would."""

import fnmatch


def _list(value):
    return value if isinstance(value, list) else [value]


def allows(document, action, resource, context=None):
    """Whether a policy allows the action: an Allow that matches, and no Deny. Knows the operators that we use."""
    context = context or {}

    def holds(operator, wanted):
        for key, values in wanted.items():
            if key not in context:
                return False  # what an operator without IfExists means by an absent key
            match = fnmatch.fnmatchcase if operator == "StringLike" else str.__eq__
            if not any(match(str(context[key]), str(value)) for value in _list(values)):
                return False
        return True

    def applies(statement):
        return (
            any(fnmatch.fnmatchcase(action, pattern) for pattern in _list(statement["Action"]))
            and any(fnmatch.fnmatchcase(resource, pattern) for pattern in _list(statement["Resource"]))
            and all(holds(*condition) for condition in statement.get("Condition", {}).items())
        )

    effects = {statement["Effect"] for statement in document["Statement"] if applies(statement)}
    return effects == {"Allow"}
