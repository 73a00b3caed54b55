"""What differs between two sets of properties, as a provider tells it: paths, kinds of change, and sameness."""

import json
from collections.abc import Iterator
from enum import Enum
from itertools import zip_longest
from typing import Any

from emulator.provider.wire import is_asset


class Change(Enum):
    """How one property differs."""

    ADD = "add"
    DELETE = "delete"
    UPDATE = "update"


def same(old: Any, new: Any) -> bool:
    """Whether two values mean the same to the cloud: equal, or the same JSON document, asset or "true" for true."""
    if old == new:
        return type(old) is type(new) or not isinstance(old, bool | str)
    if is_asset(old) and is_asset(new) and old.get("hash"):
        return bool(old["hash"] == new.get("hash"))
    if isinstance(old, dict) and isinstance(new, dict):
        return all(same(old.get(key), new.get(key)) for key in old | new)
    if isinstance(old, list) and isinstance(new, list):
        return all(same(before, after) for before, after in zip_longest(old, new))
    if isinstance(old, str) and isinstance(new, str):
        return _document(old) is not None and _document(old) == _document(new)
    return False


def changes(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Change]]:
    """The smallest properties that differ, by their paths (`tags.Owner`, `rules[0].prefix`)."""
    if same(old, new):
        return
    if old is None:
        yield path, Change.ADD
    elif new is None:
        yield path, Change.DELETE
    elif isinstance(old, dict) and isinstance(new, dict) and not is_asset(new):
        for key in sorted(old | new):
            yield from changes(old.get(key), new.get(key), _member(path, key))
    elif isinstance(old, list) and isinstance(new, list):
        for i, (before, after) in enumerate(zip_longest(old, new)):
            yield from changes(before, after, f"{path}[{i}]")
    else:
        yield path, Change.UPDATE


def top(path: str) -> str:
    """The resource's own property that a path lies in."""
    return path.partition(".")[0].partition("[")[0]


def _member(path: str, key: str) -> str:
    if not path:
        return key
    return f"{path}.{key}" if key.replace("_", "a").isalnum() else f'{path}["{key}"]'


def _document(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
