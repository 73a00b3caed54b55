"""The two clouds side by side: what each declares for each key of a stack's file, or the finding that says why not.

A row asks for one thing, beside the smallest stack and what the thing needs; what a cloud then declares more, or
otherwise, is read off what the component registers, and what it can't do, off the findings about the plan. Nothing of
the page `docs/clouds.md` is written by hand but `tools/asked.py`; a test holds that it has all keys.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from typing import Any

from components.checks import judge
from components.clouds import CLOUDS
from components.cluster import InvalidArgs
from components.findings import Finding, Invalid, Severity, errors
from emulator.provider import schema
from tools.asked import NEUTRAL, ROWS, Row
from tools.declared import Found, Resource, declare
from tools.resources import CLUSTER, HASHED, stack

GROUPS = {
    "": "All of it",
    "network": "Network",
    "nodes": "Nodes",
    "data_nodes": "Data nodes",
    "storage": "Storage",
    "security": "Security",
    "audit": "Audit",
    "scaling": "Scaling",
}
"""Titles, by what keys begin with."""

SHOWN_PROPERTIES = 3
"""Most properties of one type that a cell names."""

MOST_TYPES = 4
"""Most types with the same properties that a cell names."""

IMAGE: Found = {"aws:ec2/getAmi:getAmi": {"bootMode": "uefi", "tpmSupport": "v2.0"}}
"""What look-ups find: an image that has all that a key may need of one."""

NUMBERED = frozenset({"alicloud:cms/monitorGroup:MonitorGroup"})
"""Types whose ids are digits."""


@dataclass(frozen=True)
class Side:
    """What one cloud makes of a row. `changed` are properties by type; `findings` are those that the row brings."""

    added: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    changed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    looked_up: tuple[Finding, ...] = ()
    """Where nothing is declared for it: why an image that has nothing is refused."""

    @property
    def declared(self) -> bool:
        """Anything is declared for it."""
        return bool(self.added or self.removed or self.changed)


def side(row: Row, cloud: str) -> Side:
    """What a cloud makes of a row. Raises `Invalid` where what stands beside it is refused by itself."""
    before = stack(row.beside, cloud)
    after = stack({**row.beside, **row.changes}, cloud)
    known = {str(finding) for finding in judge(CLUSTER, before)[1]}
    try:
        findings = judge(CLUSTER, after)[1]
    except Invalid as invalid:
        return Side(findings=invalid.findings)
    was, now = _resources(before), _resources(after)
    made = Side(
        Counter(kind for kind, name in now if (kind, name) not in was),
        Counter(kind for kind, name in was if (kind, name) not in now),
        _changed(was, now),
        tuple(finding for finding in findings if str(finding) not in known),
    )
    return made if made.declared else replace(made, looked_up=_lacking(after))


def _lacking(values: Mapping[str, Any]) -> tuple[Finding, ...]:
    """What is refused of these values once the image is looked up, if that one has nothing."""
    try:
        declare(CLUSTER, values, _made)
    except InvalidArgs as invalid:
        return invalid.findings
    return ()


def smallest(cloud: str) -> Side:
    """What every cluster of a cloud declares."""
    values = stack({}, cloud)
    return Side(Counter(kind for kind, _ in _resources(values)), findings=tuple(judge(CLUSTER, values)[1]))


def _changed(was: Mapping[Any, Resource], now: Mapping[Any, Resource]) -> dict[str, frozenset[str]]:
    """Properties that differ, by type, of what is there before and after."""
    found: dict[str, set[str]] = {}
    for key in was.keys() & now.keys():
        old, new = was[key].inputs, now[key].inputs
        if differ := {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}:
            found.setdefault(key[0], set()).update(differ)
    return {kind: frozenset(names) for kind, names in sorted(found.items())}


def _resources(values: Mapping[str, Any]) -> dict[tuple[str, str], Resource]:
    """What a stack declares of the cloud, by short type and name, but for the trainer and the record of the launch."""
    cloud = str(values.get("cloud", "aws"))
    return {
        (short(one.type), HASHED.sub("", one.name)): one
        for one in _declared(json.dumps(values, sort_keys=True))
        if one.type.startswith(f"{cloud}:") and not one.name.startswith((f"{CLUSTER}-launch-", f"{CLUSTER}-bundle"))
    }


@cache
def _declared(values: str) -> tuple[Resource, ...]:
    """What the values, as JSON, declare; tests and page ask for the same again and again."""
    return tuple(declare(CLUSTER, json.loads(values), _made, IMAGE).resources)


def _made(token: str, name: str, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A resource as a cloud makes it: each plain output holds words, or a number, that follow from its name."""
    state = dict(inputs)
    for key, known in schema.resource_type(token).state.items():
        kinds = re.findall(r"_builtins\.(\w+)", known.annotation)
        if key not in state and kinds in (["str"], ["int"]) and "Sequence" not in known.annotation:
            state[key] = f"{name}-{key}" if kinds == ["str"] else 1
    return ("7671" if token in NUMBERED else f"{name}-id"), state


def short(token: str) -> str:
    """`alicloud:oss/bucket:Bucket` as `oss.Bucket`."""
    _, module, name = token.split(":")
    return f"{module.partition('/')[0]}.{name}"


def page() -> str:
    """The page."""
    notes = Notes()
    lines = [*_head(), "## Every cluster", "", *_columns("")]
    lines += [_line("the least", {cloud: smallest(cloud) for cloud in CLOUDS}, notes), ""]
    for group, rows in groupby(ROWS, key=group_of):
        lines += [f"## {GROUPS[group]}", "", *_columns("key")]
        lines += [_line(row.title, {cloud: side(row, cloud) for cloud in CLOUDS}, notes) for row in rows]
        lines.append("")
    lines += ["## What differs, and why", "", "What the checks say of each, in `trainwright preview` too.", ""]
    lines += notes.lines()
    lines += ["", "## What is the same", "", "No resource is declared by these keys, and all that is below them.", ""]
    lines += ["| key | what it is |", "|---|---|", *(f"| `{key}` | {what} |" for key, what in NEUTRAL.items())]
    return "\n".join(lines) + "\n"


class Notes:
    """Findings by number, each text once, with the clouds that it is said of."""

    def __init__(self) -> None:
        self._clouds: dict[str, list[str]] = {}

    def number(self, cloud: str, finding: Finding) -> int:
        """The number that the finding has, or gets."""
        what = "refused" if finding.severity is Severity.ERROR else "with a warning"
        text = f"{what}, `{finding.path}`: {finding.reason}. {finding.fix}".rstrip(" .") + "."
        said = self._clouds.setdefault(text, [])
        if CLOUDS[cloud].title not in said:
            said.append(CLOUDS[cloud].title)
        return list(self._clouds).index(text) + 1

    def lines(self) -> list[str]:
        """The list, as the page has it."""
        found = enumerate(self._clouds.items(), start=1)
        return [f"{number}. {' and '.join(clouds)}, {text}" for number, (text, clouds) in found]


def group_of(row: Row) -> str:
    """The group of the page that a row is in."""
    first, dot, _ = row.keys[0].partition(".")
    return first if dot else ""


def _head() -> list[str]:
    return [
        "# The clouds, side by side",
        "",
        "What each cloud declares for each key of the [stack's file](stack-file.md): what it adds to the smallest",
        "cluster, with as little beside the key as it needs, and which properties it changes. `userData` is what nodes",
        "boot with. A number in brackets is a finding below: a key is refused there, or taken with a warning.",
        "",
    ]


def _columns(what: str) -> list[str]:
    titles = [what, *(cloud.title for cloud in CLOUDS.values())]
    return [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]


def _line(title: str, sides: Mapping[str, Side], notes: Notes) -> str:
    """A row of a table; what findings say is put into the notes."""
    cells = [title]
    for cloud, made in sides.items():
        numbers = [notes.number(cloud, finding) for finding in (*made.findings, *made.looked_up)]
        cells.append(f"{_cell(made)} ({', '.join(map(str, numbers))})" if numbers else _cell(made))
    return f"| {' | '.join(cells)} |"


def _cell(made: Side) -> str:
    """What is added, changed and taken away, in few words."""
    if made.looked_up:
        return "asks it of the image"
    if not made.declared:
        return "refused" if errors(made.findings) else "nothing"
    by_names: dict[frozenset[str], list[str]] = {}
    for kind, names in made.changed.items():
        by_names.setdefault(names, []).append(kind)
    changes = [f"{_kinds(kinds)} ({_shortened(names)})" for names, kinds in by_names.items()]
    said = {"adds": _counted(made.added), "changes": ", ".join(changes), "takes away": _counted(made.removed)}
    return "; ".join(f"{verb} {what}" for verb, what in said.items() if what)


def _shortened(names: frozenset[str]) -> str:
    """The first of some properties, and how many more there are."""
    shown = [f"`{name}`" for name in sorted(names)[:SHOWN_PROPERTIES]]
    more = len(names) - len(shown)
    return " and ".join(filter(None, (", ".join(shown), f"{more} more" if more else "")))


def _kinds(kinds: list[str]) -> str:
    return f"{len(kinds)} types" if len(kinds) > MOST_TYPES else ", ".join(f"`{kind}`" for kind in kinds)


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"`{kind}`" + (f" ({count})" if count > 1 else "") for kind, count in sorted(kinds.items()))
