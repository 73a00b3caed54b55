"""Property values as controls see them: plain JSON, in which what a preview can't know yet is `UNKNOWN`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from pulumi_policy import proxy, secret
from pulumi_policy.secret import Secret

PROXIES = (proxy._DictProxy, proxy._ListProxy, secret._DictSecretsProxy, secret._ListSecretsProxy)
"""What pulumi_policy wraps properties in."""

SENTINELS = frozenset(value for name, value in vars(proxy).items() if name.startswith("UNKNOWN_"))
"""What the engine sends in place of values that aren't known (pulumi_policy.proxy)."""

ANY = "*"
"""In a path: each entry of a list."""


class Undecided(Exception):
    """A control would have decided by a value that isn't known yet."""


class Unknown:
    """The value of what isn't known yet. Only `is` may be asked of it: all else that decides by it is `Undecided`."""

    __slots__ = ()

    def _undecided(self, *_: object) -> NoReturn:
        raise Undecided

    __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _undecided
    __len__ = __iter__ = __getitem__ = __contains__ = __int__ = __float__ = _undecided

    def __hash__(self) -> int:
        raise Undecided

    def __str__(self) -> str:
        raise Undecided

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


def plain(value: Any) -> Any:
    """A value without the proxies that pulumi_policy wraps it in, and with `UNKNOWN` for its sentinels."""
    if isinstance(value, str):
        return UNKNOWN if value in SENTINELS else value
    if isinstance(value, float) and value.is_integer():
        return int(value)  # all numbers come over the wire as floats
    if isinstance(value, PROXIES):
        value = value["__target"]
    if isinstance(value, Secret):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return value


def placed(whole: Any, path: Sequence[str], value: Any) -> Any:
    """A copy of what the engine sent, with a value set at a path and nothing else changed.

    What isn't known and what is secret stay so; a list grows by an entry where its length is the index.
    """
    if isinstance(whole, Secret):
        return Secret(placed(whole.value, path, value))
    if isinstance(whole, PROXIES):
        whole = whole["__target"]
    if not path:
        return value
    name, *rest = path
    if isinstance(whole, list):
        index = int(name)
        entry = whole[index] if index < len(whole) else None
        return [*whole[:index], placed(entry, rest, value), *whole[index + 1 :]]
    within = dict(whole or {})
    return {**within, name: placed(within.get(name), rest, value)}


def at(value: Any, path: str) -> Any:
    """The value at a dotted path: `None` where there is none, `UNKNOWN` where it or what it lies in isn't known."""
    for part in path.split(".") if path else ():
        if value is UNKNOWN or value is None:
            return value
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def spread(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value at a path with `*` for each entry of a list, with its own path; none where a list is absent.

    A list that isn't known is one `UNKNOWN`. A single mapping where a list may stand counts as a list of one: providers
    flatten blocks that can occur once.
    """
    before, star, after = path.partition(ANY)
    if not star:
        yield path, at(value, path)
        return
    place = before.rstrip(".")
    entries = at(value, place)
    if entries is UNKNOWN:
        yield place, UNKNOWN
    elif isinstance(entries, Mapping):
        yield from _within(place, entries, after)
    else:
        for index, entry in enumerate(entries or ()):
            yield from _within(f"{place}.{index}" if place else str(index), entry, after)


def _within(place: str, entry: Any, after: str) -> Iterator[tuple[str, Any]]:
    for path, found in spread(entry, after.lstrip(".")):
        yield f"{place}.{path}".rstrip("."), found
