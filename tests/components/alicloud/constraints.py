"""What a provider of Alibaba Cloud takes of a resource's arguments, beyond their names and types.

Two sources: the docstrings of the installed SDK (4.0.0, of terraform-provider-alicloud v1.295), as far as their
sentences can be read (`documented`), and `constraints.csv`, with what they leave out: what the provider checks itself
(its source is of v1.289, the newest at hand), and what its docs or an API's reference say in prose. Where both speak of
the values of one argument, the table stands.

An argument is its path by wire names, lists left out (`lifecycleRules.transitions.days`); in a row it may carry the
values that it is about (`sseType=KMS`, several with `/`). A rule's value names arguments beside it in the same way.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from emulator.provider import schema
from emulator.provider.wire import UNKNOWN

TABLE = Path(__file__).with_name("constraints.csv")

VALUES = {"one of", "between", "length", "matches", "entries", "distinct", "json"}
"""Rules about the value of one argument; the others are about which stand beside each other."""


@dataclass(frozen=True)
class Constraint:
    """One row: of which resource (`oss.Bucket`) and argument, which rule with which value, and who says so."""

    resource: str
    argument: str
    rule: str
    value: str
    source: str

    @property
    def path(self) -> str:
        """The argument's path, without the values that it may carry."""
        return re.split("[=~]", self.argument)[0]


def short(token: str) -> str:
    """`alicloud:oss/bucket:Bucket` as `oss.Bucket`."""
    _, module, name = token.split(":")
    return f"{module.partition('/')[0]}.{name}"


@cache
def stated() -> tuple[Constraint, ...]:
    """The table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(Constraint(**row) for row in csv.DictReader(file))


@cache
def known(token: str) -> tuple[Constraint, ...]:
    """All that is known of a resource's arguments."""
    table = [one for one in stated() if one.resource == short(token)]
    said = {one.path for one in table if one.rule in VALUES}
    return *table, *(one for one in documented(token) if one.rule not in VALUES or one.path not in said)


def violations(token: str, inputs: dict[str, Any]) -> Iterator[str]:
    """What a provider would refuse of these inputs, in words."""
    for one in known(token):
        for value, beside in _places(inputs, one.path.split(".") if one.path else []):
            if one.argument != one.path and not _holds(one.argument.rpartition(".")[2], beside, inputs):
                continue
            if not _kept(one, value, beside, inputs):
                shown = f" {value!r}" if one.path else ""
                yield f"{one.resource} {one.argument}{shown}: {one.rule} {one.value} ({one.source})"


def _places(node: Any, path: list[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each value at the path, with what stands beside it; the resource itself for an empty path."""
    if not path:
        yield None, node
        return
    first, rest = path[0], path[1:]
    if node.get(first) is None:
        return
    if not rest:
        yield node[first], node
        return
    for item in node[first] if isinstance(node[first], list) else [node[first]]:
        yield from _places(item, rest)


def _kept(one: Constraint, value: Any, beside: dict[str, Any], inputs: dict[str, Any]) -> bool:
    match one.rule:
        case "needs":
            return any(_holds(name, beside, inputs) for name in _alternatives(one.value))
        case "not with":
            return not _holds(one.value, beside, inputs)
        case "any":
            return any(_given(beside.get(name)) for name in one.value.split(" | "))
        case "exactly one":
            return sum(_given(beside.get(name)) for name in one.value.split(" | ")) == 1
        case "entries":
            return value == UNKNOWN or _within(len(value), one.value)
        case "distinct":
            return len({json.dumps(item, sort_keys=True) for item in value}) == len(value)
    values = value if isinstance(value, list) else [value]
    return all(item == UNKNOWN or _fits(one.rule, item, one.value) for item in values)


def _fits(rule: str, value: Any, wanted: str) -> bool:
    """Whether a value is one that the rule takes."""
    text = _text(value)
    match rule:
        case "one of":
            return text in wanted.split(" | ")
        case "between":
            return _within(float(value), wanted)
        case "length":
            return _within(len(text), wanted)
        case "matches":
            return re.search(wanted, text) is not None
        case "json":
            return _is_json(text)
    raise AssertionError(f"there is no rule '{rule}'")


def _alternatives(names: str) -> list[str]:
    """`a/b` is one of two arguments, `a=1/2` one argument of two values."""
    return [names] if "=" in names else names.split("/")


def _holds(condition: str, beside: dict[str, Any], inputs: dict[str, Any]) -> bool:
    """Whether an argument is given, and has one of the values or the form that the condition may name."""
    name = re.split("[=~]", condition)[0]
    operator, wanted = condition[len(name) :][:1], condition[len(name) :][1:]
    value = beside.get(name, inputs.get(name))
    if operator == "=":
        return value == UNKNOWN or _text(value) in wanted.split("/") or _text(value) == wanted
    return _given(value) and (not operator or re.search(wanted, _text(value)) is not None)


def _given(value: Any) -> bool:
    return value not in (None, "", [], {})


def _within(value: float, bounds: str) -> bool:
    least, most = bounds.split("..")
    return (not least or value >= float(least)) and (not most or value <= float(most))


def _text(value: Any) -> str:
    """A value as a table writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and value.is_integer() and value < 1e6 else str(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@cache
def documented(token: str) -> tuple[Constraint, ...]:
    """What the docstrings of the SDK say of a resource's arguments and of those within them."""
    kind = schema.resource_type(token)
    return tuple(_documented(short(token), kind.folder, kind.inputs, f"{token.rpartition(':')[2]}Args", ""))


def arguments(token: str) -> dict[str, schema.Property]:
    """Every argument of a resource, those within others too, by path."""
    kind = schema.resource_type(token)
    return dict(_arguments(kind.folder, kind.inputs, ""))


def _arguments(folder: Path, members: Any, path: str) -> Iterator[tuple[str, schema.Property]]:
    for name, known_ in members.items():
        yield f"{path}{name}", known_
        if (nested := _nested(known_)) and path.count(".") < 4:
            yield from _arguments(folder, schema._nested(folder, nested), f"{path}{name}.")


def _nested(known_: schema.Property) -> str:
    """The class of the objects that an argument holds, if it holds any."""
    found = re.search(r"'(\w+Args)'", known_.annotation)
    return found[1] if found else ""


def _documented(resource: str, folder: Path, members: Any, args: str, path: str) -> Iterator[Constraint]:
    said = _sentences(folder, args)
    wire = {re.sub("[_-]", "", known_.python).lower(): name for name, known_ in members.items()}
    for name, known_ in members.items():
        text = said.get(known_.python, "")
        numeric = "int" in known_.annotation or "float" in known_.annotation
        if "bool" not in known_.annotation:
            for argument, rule, value in _read(name, text, wire, numeric=numeric):
                yield Constraint(resource, f"{path}{argument}", rule, value, "docstring")
        if (nested := _nested(known_)) and path.count(".") < 4:
            yield from _documented(resource, folder, schema._nested(folder, nested), nested, f"{path}{name}.")


@cache
def _sentences(folder: Path, args: str) -> dict[str, str]:
    """What a class of arguments says of each, by its name in Python."""
    leaf = folder / (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", args.removesuffix("Args")).lower() + ".py")
    texts = [schema._text(file) for file in (leaf, folder / "_inputs.py") if file.is_file()]
    source, at = next((text, at) for text in texts if (at := text.find(f"\nclass {args}:\n")) >= 0)
    body = source[source.index("def __init__(", at) :]
    doc = body.partition('"""')[2].partition('"""')[0]
    found = re.finditer(r":param \S.*? (\w+): (.*?)(?=\n\s*:param |\Z)", doc, re.DOTALL)
    return {match[1]: " ".join(match[2].replace("\\", "").split()) for match in found}


TOKEN = r"[`'\"]?([\w./-]*\w)[`'\"]?"
"""A value as docstrings quote it, or don't."""

LISTS = re.compile(r"(?<![Dd]efault )\b[Vv]alues?(?: are)? ?[::] ?")
LISTED = re.compile(rf"{TOKEN}(?: \(default\))?(?=[,.;]|$| or | and )(,? ?(?:and |or )?)")
BULLET = re.compile(r"- [`*]*([\w./-]*\w)[`*]*(?: \(default\))?(?=[::]| -|\.|$)")
RANGE = re.compile(
    r"(?<![Dd]efault )\b[Vv]al(?:ues?|ue range)[^.:]{0,12}[::] ?[\[`]?(-?\d+)(?:, ?|-|`? to `?)(\d+)[\]`.]"
)
LENGTH = re.compile(r"`?(\d+)`?(?: to |~|-| and )`?(\d+)`?[^.]{0,30} characters")
CONFLICT = re.compile(r"conflicts? with `(\w+)`")
SET = r"`?(\w+)`? (?:is set to|set to|to|=|is) `?(?!set\b)([\w/-]+)`?(?: or `?([\w/-]+)`?)?(?=[ .,]|$)(?! =)"
REQUIRED = re.compile(rf"required (?:only )?(?:when|if) (?:the value of )?{SET}")
EFFECTIVE = re.compile(rf"(?:takes effect|valid)(?: only)? (?:if|when) (?:you set |the value of )?{SET}")


def _read(name: str, text: str, wire: dict[str, str], *, numeric: bool) -> Iterator[tuple[str, str, str]]:
    """The constraints in one argument's docstring."""
    if numeric and (found := RANGE.search(text)):
        yield name, "between", f"{found[1]}..{found[2]}"
    elif choices := _choices(text):
        yield name, "one of", " | ".join(choices)
    if found := LENGTH.search(text):
        yield name, "length", f"{found[1]}..{found[2]}"
    if re.search(r"cannot (?:start|begin) with [`\"']?http://", text):
        yield name, "matches", "^(?!https?://)"
    for other in CONFLICT.findall(text):
        if beside := _named(other, wire):
            yield name, "not with", beside
    for other, *values in REQUIRED.findall(text):
        if beside := _named(other, wire):
            yield f"{beside}={'/'.join(filter(None, values))}", "needs", name
    for other, *values in EFFECTIVE.findall(text):
        if beside := _named(other, wire):
            yield name, "needs", f"{beside}={'/'.join(filter(None, values))}"


def _named(word: str, wire: dict[str, str]) -> str | None:
    """The wire name of an argument that a docstring names in Terraform's way, or in the API's."""
    return wire.get(word.replace("_", "").lower())


def _choices(text: str) -> list[str]:
    """The values that a sentence lists: `Valid values: …`, in quotes, between commas or one to a bullet."""
    if not (found := LISTS.search(text)):
        return []
    rest = text[found.end() :]
    if rest.startswith("- "):
        return list(dict.fromkeys(BULLET.findall(re.split(r"\*\*NOTE|> ", rest)[0])))
    choices = []
    while match := LISTED.match(rest):
        choices.append(match[1])
        rest = rest[match.end() :]
        if not match[2].strip():
            break
    return choices if len(choices) > 1 or text[found.end() :][:1] in {"`", "'", '"'} else []
