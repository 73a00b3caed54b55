"""What executions of OOS set of scaling configurations that are declared without it: that metadata asks for tokens.

No scaling configuration can be declared to ask for tokens (pulumi_alicloud 4.0, `ess.ScalingConfiguration`), but ESS's
ModifyScalingConfiguration, which takes `HttpTokens`, can be called by an execution before any node starts from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from policies.checks import equal, failed, passed, shown, undecided
from policies.control import Judgement, Verdict
from policies.resources import Resource, Stack
from policies.values import UNKNOWN, at

CONFIGURATION = "alicloud:ess/scalingConfiguration:ScalingConfiguration"
EXECUTION = "alicloud:oos/execution:Execution"
TEMPLATE = "alicloud:oos/template:Template"

TOKENS, REQUIRED = "HttpTokens", "required"

MAY_NOT_BE_DONE = frozenset({"When", "OnError", "Loop"})
"""Keys of a task that may be left out, whose failure may be passed over ("Tasks"), or that is done once for each entry
of a list, which may have none ("Loop")."""

NEXT, END = "ACS::NEXT", "ACS::END"
CHOICE = "ACS::Choice"

COMPUTED = "{{"
"""What is in a value that OOS finds out as it executes, if it isn't a parameter: another task's output, or a text with
any of them in it."""

PARAMETER = re.compile(r"\{\{\s*(\w+)\s*\}\}")
"""A value that is one of the template's parameters (OOS user guide, "Parameters")."""


def inactive(config: Resource) -> Iterator[Judgement]:
    """A configuration isn't declared active while it may still answer without tokens: nodes would start from it."""
    service, active = _service(config), config.at("active")
    if service.verdict is Verdict.FAIL and active is not UNKNOWN and active in (True, "true"):
        yield failed("active", "true, so that nodes may start before anything has it ask for tokens")


def asks_for_tokens(config: Resource, stack: Stack) -> Iterator[Judgement]:
    """The service is off, or an execution has the configuration ask for tokens, and none has it do without."""
    service = _service(config)
    if service.verdict is not Verdict.FAIL:
        yield service
        return
    said = [found for execution in stack.of(EXECUTION) for found in _said(execution, config, stack)]
    reason = (
        "a scaling configuration can't be declared to ask for tokens: launch from a template, complete it by an "
        f"execution of OOS that calls ModifyScalingConfiguration with {TOKENS} {REQUIRED}, or disable the service"
    )
    yield from said or [failed("httpEndpoint", reason)]


def _service(config: Resource) -> Judgement:
    (judgement,) = equal("httpEndpoint", "disabled")(config)
    return judgement


def _said(execution: Resource, config: Resource, stack: Stack) -> Iterator[Judgement]:
    """What the calls of an execution that change this configuration set of its tokens."""
    made_of, name = execution.links.get("templateName", frozenset()), execution.at("templateName")
    templates = [
        (template, "content")
        for template in stack.of(TEMPLATE)
        if template.urn in made_of or (isinstance(name, str) and name in template.names)
    ]
    for source, path in templates or [(execution, "templateContent")]:
        content = source.at(path)
        links = source.links.get(path, frozenset()) | execution.links.get("parameters", frozenset())
        if content is not UNKNOWN:
            yield from _set(_read(content), execution, config, links, stack)
        elif _is(config, UNKNOWN, links, stack) is not False:
            yield undecided(f"{execution.name}.{path}")


def _set(
    template: Mapping[str, Any], execution: Resource, config: Resource, links: frozenset[str], stack: Stack
) -> Iterator[Judgement]:
    parameters = execution.at("parameters")
    given = None if parameters is UNKNOWN else _read(parameters)

    def value(written: Any) -> Any:
        named = PARAMETER.fullmatch(written) if isinstance(written, str) else None
        if not named:
            return written
        return UNKNOWN if given is None else given.get(named[1], at(template, f"Parameters.{named[1]}.Default"))

    reached = True
    for task in template.get("Tasks") or ():
        sure = reached and all(at(task, key) is None for key in MAY_NOT_BE_DONE)
        reached = reached and _goes_on(task)
        call = at(task, "Properties")
        if at(call, "Service") != "ESS" or at(call, "API") != "ModifyScalingConfiguration":
            continue
        tokens, place = value(at(call, f"Parameters.{TOKENS}")), f"{execution.name}.{at(task, 'Name')}"
        meant = _is(config, value(at(call, "Parameters.ScalingConfigurationId")), links, stack)
        if tokens is None or meant is False:
            continue
        if tokens is UNKNOWN or meant is None or _computed(tokens):
            yield undecided(place)
        elif tokens != REQUIRED:
            yield failed(place, f"sets {TOKENS} to {shown(tokens)}, but must to {REQUIRED}")
        elif sure:
            yield passed(place, f"sets {TOKENS} to {REQUIRED}")


def _goes_on(task: Any) -> bool:
    """Whether an execution that doesn't fail at a task comes to the one behind it ("Tasks", "ACS::Choice")."""
    onward = at(task, "OnSuccess") in (None, NEXT) and at(task, "OnError") in (None, NEXT, END)
    return onward and not at(task, "IsEnd") and at(task, "Action") != CHOICE


def _computed(value: Any) -> bool:
    """Whether OOS finds a value out as it executes: by a reference, or by a function."""
    return COMPUTED in value if isinstance(value, str) else isinstance(value, Mapping)


def _is(config: Resource, named: Any, links: frozenset[str], stack: Stack) -> bool | None:
    """Whether a call is about this configuration: by its id, or by what the call was made of; None if not known.

    An id that is known is never that of a configuration which has none yet; it may be of one whose id isn't told.
    """
    if _computed(named):
        return None
    if named is not UNKNOWN:
        own = config.at("id")
        if own is None and named is not None and config.urn in links:
            return None
        return isinstance(own, str) and named == own
    others = {other.urn for other in stack.of(CONFIGURATION)} & links
    if config.urn in others:
        return True if len(others) == 1 else None
    return False if others else None


def _read(text: Any) -> Mapping[str, Any]:
    """A template or parameters, JSON or YAML (OOS user guide, "Templates"); nothing, where it is neither."""
    try:
        content = yaml.safe_load(text) if isinstance(text, str) else text
    except yaml.YAMLError:
        return {}
    return content if isinstance(content, Mapping) else {}
