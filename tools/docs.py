"""`make docs`: writes the pages of docs/ that follow from the code. A test holds that they are up to date."""

from __future__ import annotations

from collections.abc import Iterator
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
        yield f"{(model.__doc__ or '').strip()}"
        yield ""
    yield "| key | type | default | what |"
    yield "|---|---|---|---|"
    nested = []
    for name, field in model.model_fields.items():
        full = f"{path}.{name}" if path else name
        part, entries = _model(field.annotation), _entries(field.annotation)
        if part:
            nested.append((full, part))
        elif entries:
            nested.append((f"{full}.<name>", entries))
        kind = "mapping" if part or entries else _type(field.annotation)
        yield f"| `{full}` | {kind} | {_default(field)} | {field.description} |"
    yield ""
    for full, part in nested:
        yield from _section(full, part)


def _model(kind: object) -> type[BaseModel] | None:
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _entries(kind: object) -> type[BaseModel] | None:
    """The model of a mapping's values, where they have one."""
    return _model(get_args(kind)[1]) if get_origin(kind) is dict else None


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
    if isinstance(default, BaseModel) or default in (None, {}, PydanticUndefined):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


PAGES = {"stack-file.md": stack_file}


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
