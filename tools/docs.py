"""`make docs`: writes the pages of docs/ that follow from the code. A test holds that they are up to date."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from components.spec import Spec

FOLDER = Path(__file__).resolve().parent.parent / "docs"
MARK = "<!-- Written by `make docs`; do not edit. -->"


def stack_file() -> str:
    """The reference of a stack's file, from the models in `components/spec.py`."""
    head = [
        MARK,
        "# The stack's file",
        "",
        "A stack is a file `stacks/Pulumi.<stack>.yaml`; its keys lie below `config:`, each with `trainwright:` before",
        "it. A key that is not listed here is an error. [stacks/Pulumi.local.yaml](../stacks/Pulumi.local.yaml) is an",
        "example.",
        "",
    ]
    return "\n".join([*head, *_section("", Spec)]) + "\n"


def _section(path: str, model: type[BaseModel]) -> Iterator[str]:
    if path:
        yield f"## `{path}`"
        yield ""
        yield cleandoc(model.__doc__ or "")
        yield ""
    yield "| key | type | default | what |"
    yield "|---|---|---|---|"
    nested = []
    for name, field in model.model_fields.items():
        full = f"{path}.{name}" if path else name
        parts, entries = _models(field.annotation), _entries(field.annotation)
        nested += [(full, part) for part in parts]
        listed = get_origin(field.annotation) is tuple
        if entries:
            nested.append((f"{full}.<{'number' if listed else 'name'}>", entries))
        kind = _type(field.annotation)
        if parts or entries:
            kind = "list of mappings" if listed else "mapping"
        yield f"| `{full}` | {kind} | {_default(field)} | {field.description} |"
    yield ""
    for full, part in nested:
        yield from _section(full, part)


def _models(kind: object) -> list[type[BaseModel]]:
    """The models that a key may hold: its own, that of a part that may be absent, or those of a choice."""
    if found := _model(kind):
        return [found]
    inner = get_args(kind) if get_origin(kind) in {Union, UnionType, Annotated} else ()
    return [model for argument in inner for model in _models(argument)]


def _model(kind: object) -> type[BaseModel] | None:
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _entries(kind: object) -> type[BaseModel] | None:
    """The model of a mapping's values, or of a list's items, where they have one."""
    origin, arguments = get_origin(kind), get_args(kind)
    return _model(arguments[1] if origin is dict else arguments[0]) if origin in {dict, tuple} else None


def _type(kind: object) -> str:
    names = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "nothing"}
    if kind in names:
        return names[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin in {Union, UnionType}:
        return " or ".join(_type(argument) for argument in arguments if argument is not type(None))
    if origin is tuple:
        return f"list of {_type(arguments[0])}s"
    if origin is dict:
        return f"mapping of {_type(arguments[0])} to {_type(arguments[1])}"
    return str(kind)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, BaseModel) or default in (None, "", {}, PydanticUndefined):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def resources() -> str:
    """The reference of what a cluster declares."""
    from tools.resources import page  # noqa: PLC0415  the other page doesn't wait for Pulumi

    return f"{MARK}\n{page()}"


def clouds() -> str:
    """What each cloud declares for each key of the stack's file."""
    from tools.clouds import page  # noqa: PLC0415

    return f"{MARK}\n{page()}"


def controls() -> str:
    """The reference of the controls in `policies/`."""
    from tools.controls import page  # noqa: PLC0415

    return f"{MARK}\n{page()}"


PAGES = {"stack-file.md": stack_file, "resources.md": resources, "clouds.md": clouds, "controls.md": controls}


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
