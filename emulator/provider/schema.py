"""What the installed Pulumi SDK declares of a resource type, and checks of properties against it.

The SDK's generated sources are read as text, never imported: one leaf file and slices of `_inputs.py` take a few
milliseconds, while importing the same declarations takes half a second and 80 MiB (facts/pulumi.md, section 5).
"""

import ast
import difflib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from emulator.provider.wire import ASSET, SIGNATURE, UNKNOWN, is_asset

_ARGUMENT = re.compile(r"^ {17}(\w+): (.+?)( = None)?(?:,|\):)$", re.MULTILINE)
_GETTER = re.compile(r'@pulumi\.getter\(name="(\w+)"\)\n(?:(?!    @pulumi\.getter).*\n)*?    def (\w+)\(')

_DEPRECATED = re.compile(r'@_utilities\.deprecated\("""(?:(?!""").)*"""\)\n    def (\w+)\(', re.DOTALL)
_OUTPUT = re.compile(r"def (\w+)\(self\) -> pulumi\.Output\[(Optional)?")


@dataclass(frozen=True)
class Failure:
    """One property that doesn't fit: its path in the resource, and what is wrong with it."""

    path: str
    reason: str


@dataclass(frozen=True)
class Property:
    """One declared property: its names on the wire and in Python, its type as the SDK writes it."""

    name: str
    python: str
    annotation: str
    required: bool
    deprecated: bool = False

    @cached_property
    def type(self) -> ast.expr:
        """The parsed annotation."""
        return ast.parse(self.annotation, mode="eval").body


@dataclass(frozen=True)
class ResourceType:
    """One resource type of an SDK: its inputs, and its whole state (inputs and outputs)."""

    token: str
    folder: Path
    inputs: Mapping[str, Property]
    state: Mapping[str, Property]
    computed: frozenset[str]  # state that is always set, by the cloud where not by the program

    @property
    def outputs(self) -> frozenset[str]:
        """Names of the properties that only the cloud sets."""
        return frozenset(self.state) - frozenset(self.inputs)


class UnknownType(LookupError):
    """The installed SDK has no such resource type."""


@cache
def sdk_folder(package: str) -> Path:
    """Folder of the installed SDK of a package (`aws`, `alicloud`). Raises UnknownType if it isn't installed."""
    spec = importlib.util.find_spec(f"pulumi_{package}")
    if spec is None or not spec.submodule_search_locations:
        raise UnknownType(f"the Python package pulumi_{package} is not installed")
    return Path(spec.submodule_search_locations[0])


@cache
def resource_type(token: str) -> ResourceType:
    """The declarations of a type token like `aws:ec2/vpc:Vpc`. Raises UnknownType, with the nearest right tokens."""
    package = token.partition(":")[0]
    root = sdk_folder(package)
    index = _text(root / "__init__.py")
    at = index.find(f'"{token}": "')
    if at < 0:
        known = re.findall(rf'"({package}:[^"]+)": "', index)
        raise UnknownType(f"the installed pulumi_{package} has no type {token}{_nearest(token, known)}")
    module = index[index.rindex('"fqn": "', 0, at) + 8 :].partition('"')[0]
    folder = root.joinpath(*module.split(".")[1:])
    source = _source(folder, token)
    inputs = _class(source, source.find("@pulumi.input_type\n") + 1)
    state = _class(source, source.find("@pulumi.input_type\nclass _") + 1)
    declared = {**inputs, **state}
    set_ = {python for python, optional in _OUTPUT.findall(source) if not optional}
    computed = frozenset(name for name, known in declared.items() if known.python in set_)
    return ResourceType(token, folder, inputs, declared, computed)


def sdk_version(package: str) -> str:
    """Version of the installed SDK."""
    return str(json.loads(_text(sdk_folder(package) / "pulumi-plugin.json"))["version"])


def provider_inputs(package: str) -> Mapping[str, Property]:
    """What the package's provider itself can be configured with."""
    source = _text(sdk_folder(package) / "provider.py")
    return _class(source, source.find("@pulumi.input_type\n") + 1)


def check(kind: ResourceType, props: Mapping[str, Any]) -> list[Failure]:
    """Every property that the SDK's signatures refuse: unknown, of a wrong type, or missing."""
    return list(_check_members(kind.folder, kind.inputs, props, ""))


def unknown_names(declared: Mapping[str, Property], props: Mapping[str, Any], path: str = "") -> Iterator[Failure]:
    """The properties whose name nothing declares, with the nearest right ones."""
    for name in props:
        if name not in declared and not name.startswith("__"):
            near = _nearest(name, sorted({*declared, *(known.python for known in declared.values())}))
            yield Failure(path + name, f"there is no property '{path}{name}'{near}")


def _check_members(
    folder: Path, declared: Mapping[str, Property], props: Mapping[str, Any], path: str
) -> Iterator[Failure]:
    yield from unknown_names(declared, props, path)
    for name, known in declared.items():
        value = props.get(name)
        if value is None:
            if known.required:
                yield Failure(path + name, f"the required property '{path}{name}' is missing")
        else:
            yield from _check_value(folder, known.type, value, path + name)


def _check_value(folder: Path, type_: ast.expr, value: Any, path: str) -> Iterator[Failure]:
    if value == UNKNOWN:
        return
    match type_:
        case ast.Subscript(value=ast.Attribute(attr="Input") | ast.Name(id="Optional"), slice=inner):
            yield from _check_value(folder, inner, value, path)
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=choices)):
            results = [list(_check_value(folder, choice, value, path)) for choice in choices]
            if all(results):
                yield from results[0]
        case ast.Subscript(value=ast.Name(id="Sequence" | "Mapping" as form), slice=inner):
            yield from _check_items(folder, form, inner, value, path)
        case _:
            yield from _check_leaf(folder, type_, value, path)


def _check_items(folder: Path, form: str, inner: ast.expr, value: Any, path: str) -> Iterator[Failure]:
    match form, inner, value:
        case "Sequence", _, list():
            for i, item in enumerate(value):
                yield from _check_value(folder, inner, item, f"{path}[{i}]")
        case "Mapping", ast.Tuple(elts=[_, member]), dict():
            for key, item in value.items():
                if item is not None and not key.startswith("__"):
                    yield from _check_value(folder, member, item, f"{path}.{key}")
        case _:
            yield _wrong(path, "a list" if form == "Sequence" else "a map", value)


def _check_leaf(folder: Path, type_: ast.expr, value: Any, path: str) -> Iterator[Failure]:
    match type_:
        case ast.Constant(value=str(name)) if declared := _nested(folder, name):
            if isinstance(value, dict):
                yield from _check_members(folder, declared, value, f"{path}.")
            else:
                yield _wrong(path, "an object", value)
        case ast.Attribute(value=ast.Name(id="_builtins"), attr=scalar):
            if value is not None and not _is_scalar(scalar, value):
                yield _wrong(path, _SCALARS[scalar], value)
        case ast.Attribute(attr="Asset" | "Archive") if not is_asset(value):
            yield _wrong(path, "an asset (pulumi.FileAsset, pulumi.StringAsset) or archive", value)


_SCALARS = {"str": "a string", "bool": "true or false", "int": "a whole number", "float": "a number"}


def _is_scalar(scalar: str, value: Any) -> bool:
    match scalar:
        case "str":
            return isinstance(value, str)
        case "bool":
            return isinstance(value, bool)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong(path: str, wanted: str, value: Any) -> Failure:
    match value:
        case bool():
            got = str(value).lower()
        case str():
            got = f'the string "{value if len(value) < 40 else value[:37] + "..."}"'
        case int() | float():
            got = f"the number {value}"
        case list():
            got = "a list"
        case {**members} if members.get(SIGNATURE) == ASSET:
            got = "an asset"
        case _:
            got = "an object"
    return Failure(path, f"'{path}' must be {wanted}, not {got}")


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _source(folder: Path, token: str) -> str:
    """The leaf file that declares the token; its usual name first, since a folder may hold hundreds."""
    mark = f'type_token("{token}")'
    name = token.rpartition(":")[2]
    usual = folder / (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() + ".py")
    for path in (usual, *sorted(folder.glob("*.py"))):
        if path.is_file() and mark in _text(path):
            return _text(path)
    raise UnknownType(f"{folder} holds no class of {token}: the installed SDK is incomplete, install it again")


@cache
def _nested(folder: Path, name: str) -> Mapping[str, Property] | None:
    """Members of an input type by its name; None for enums and whatever else the engine sees as a plain value."""
    for path in (folder / "_inputs.py", folder.parent / "_inputs.py"):
        if path.is_file():
            source = _text(path)
            if (at := source.find(f"\nclass {name.rpartition('.')[2]}:\n")) >= 0:
                return _class(source, at + 1)
    return None


def _class(source: str, at: int) -> Mapping[str, Property]:
    """What the generated input class at this place declares, in its constructor's order, by the wire names."""
    start = source.index("def __init__(", at)
    ends = [end for mark in ("\nclass ", "\n@pulumi.") if (end := source.find(mark, start)) >= 0]
    body = source[start : min(ends, default=len(source))]
    signature = body[: body.index("):\n") + 3]
    wire = {python: name for name, python in _GETTER.findall(body)}
    old = set(_DEPRECATED.findall(body))
    return {
        wire.get(python, python): Property(wire.get(python, python), python, annotation, not default, python in old)
        for python, annotation, default in _ARGUMENT.findall(signature)
    }
