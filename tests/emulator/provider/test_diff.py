"""Differences: none between what means the same, and the smallest paths of those that count."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.provider.diff import Change, changes, same, top
from emulator.provider.wire import ASSET, SIGNATURE, to_dict, to_struct

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc{}", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert not list(changes(value, value))


@given(VALUES, VALUES)
def test_values_differ_exactly_if_a_change_is_told(old: Any, new: Any) -> None:
    assert bool(list(changes(old, new, "p"))) != same(old, new)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_properties_come_back_from_the_wire_as_they_went(props: dict[str, Any]) -> None:
    assert to_dict(to_struct(props)) == props


def test_paths_name_the_smallest_thing_that_differs() -> None:
    old = {"tags": {"a": "1", "b.c": "2"}, "rules": [{"port": 1}, {"port": 2}], "gone": 1}
    new = {"tags": {"a": "x", "b.c": "3"}, "rules": [{"port": 1}, {"port": 3}, {"port": 4}], "new": 1}
    assert dict(changes(old, new)) == {
        "tags.a": Change.UPDATE,
        'tags["b.c"]': Change.UPDATE,
        "rules[1].port": Change.UPDATE,
        "rules[2]": Change.ADD,
        "gone": Change.DELETE,
        "new": Change.ADD,
    }
    assert {top(path) for path in dict(changes(old, new))} == {"tags", "rules", "gone", "new"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('{"a": [1], "b": 2}', '{"b":2,"a":[1]}', True),
        ('{"a": 1}', '{"a": 2}', False),
        ("{a", "{a ", False),
        (True, 1, False),
        (1, 1.0, True),
        ({SIGNATURE: ASSET, "hash": "h", "path": "/a"}, {SIGNATURE: ASSET, "hash": "h", "path": "/b"}, True),
        ({SIGNATURE: ASSET, "hash": "h"}, {SIGNATURE: ASSET, "hash": "i"}, False),
    ],
)
def test_what_means_the_same(old: Any, new: Any, expected: bool) -> None:
    assert same(old, new) is expected
