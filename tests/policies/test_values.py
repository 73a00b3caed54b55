"""What isn't known yet: nothing decides by it unseen, and nothing crashes at it."""

import pytest
from pulumi_policy.proxy import UNKNOWN_BOOLEAN_VALUE, UNKNOWN_STRING_VALUE, unknown_checking_proxy

from policies.checks import equal, present, true, where
from policies.control import Control, Judgement, Severity, Verdict, judge, judge_alone
from policies.resources import Resource, Stack
from policies.values import UNKNOWN, Undecided, at, plain, spread

UNDECIDED = {
    "truth": bool,
    "equality": lambda value: value == "x",
    "in a list": lambda value: value in ["x"],
    "in it": lambda value: "x" in value,
    "iteration": list,
    "length": len,
    "order": lambda value: value < 3,
    "an item": lambda value: value["x"],
    "a number": int,
    "text": str,
    "format": lambda value: f"{value}",
    "a member of a set": lambda value: value in {"x"},
}


@pytest.mark.parametrize("ask", UNDECIDED.values(), ids=UNDECIDED)
def test_whatever_decides_by_the_unknown_is_undecided(ask):
    with pytest.raises(Undecided):
        ask(UNKNOWN)


def test_the_frameworks_proxies_become_plain_values():
    """A proxy raises at `in` and at iteration though the key is known, and is neither dict nor list."""
    given = unknown_checking_proxy(
        {"a": UNKNOWN_STRING_VALUE, "b": {"c": [1.0, 2.5, UNKNOWN_BOOLEAN_VALUE]}, "d": True}
    )
    found = plain(given)
    assert found["a"] is UNKNOWN
    assert found["b"]["c"][:2] == [1, 2.5]
    assert type(found["b"]["c"][0]) is int
    assert found["b"]["c"][2] is UNKNOWN
    assert found["d"] is True


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("a.b", 1), ("a.x", None), ("x.y", None), ("list.1", "two"), ("list.7", None), ("text.x", None), ("", ...)],
)
def test_a_path_leads_to_a_value_or_to_nothing(path, wanted):
    value = {"a": {"b": 1}, "list": ["one", "two"], "text": "t"}
    assert at(value, path) == (value if wanted is ... else wanted)


def test_what_lies_in_the_unknown_is_unknown():
    assert at({"a": UNKNOWN}, "a.b.c") is UNKNOWN
    ((place, value),) = spread({"a": UNKNOWN}, "a.*.b")
    assert (place, value is UNKNOWN) == ("a", True)


def test_a_star_stands_for_each_entry_and_for_a_block_written_once():
    assert list(spread({"a": [{"b": 1}, {"b": 2}]}, "a.*.b")) == [("a.0.b", 1), ("a.1.b", 2)]
    assert list(spread({"a": {"b": 1}}, "a.*.b")) == [("a.b", 1)]
    assert list(spread({}, "a.*.b")) == []
    assert list(spread({"a": [{"b": [1, 2]}]}, "a.*.b.*")) == [("a.0.b.0", 1), ("a.0.b.1", 2)]


def resource(**props: object) -> Resource:
    return Resource("aws:t/t:T", "r", "urn:r", plain(props))


def control(**checks: object) -> Control:
    return Control("C", "t", "topic", Severity.LOW, "fix", {}, **checks)


@pytest.mark.parametrize("check", [true("a"), equal("a", "x"), where("a", lambda value: value in {"x"}, "x")])
def test_a_check_of_the_unknown_is_unknown_and_neither_pass_nor_fail(check):
    judged = list(check(resource(a=UNKNOWN_STRING_VALUE)))
    assert [judgement.verdict for judgement in judged] == [Verdict.UNKNOWN]


def test_what_is_unknown_but_given_counts_as_present():
    """A key made by another resource is wired: its ARN comes later, and is there."""
    assert next(iter(present("a", "a key")(resource(a=UNKNOWN_STRING_VALUE)))).verdict is Verdict.PASS
    assert next(iter(present("a.b", "a key")(resource(a=UNKNOWN_STRING_VALUE)))).verdict is Verdict.UNKNOWN


def test_judgements_before_the_unknown_stay():
    """A known breach beside a value that isn't known is a breach."""

    def check(one: Resource):
        yield Judgement(Verdict.FAIL, "a", "is wrong")
        bool(one.at("b"))

    found = judge_alone(control(checks={"aws:t/t:T": check}), resource(b=UNKNOWN_STRING_VALUE))
    assert [judgement.verdict for judgement in found] == [Verdict.FAIL, Verdict.UNKNOWN]


def test_an_error_in_one_control_hides_nothing():
    """Its own judgements before, its other resources and the other controls stand."""

    def breaks(one: Resource):
        yield Judgement(Verdict.PASS, "a", "fine")
        if one.name == "r":
            raise KeyError("x")

    other = Resource("aws:t/t:T", "other", "urn:other", {})
    controls = [control(checks={"aws:t/t:T": breaks}), control(checks={"aws:t/t:T": true("a")})]
    first, second, third, fourth = judge(controls, Stack((resource(a=True), other)))
    assert first.verdict is Verdict.ERROR
    assert "KeyError" in first.gravest[0].reason
    assert [judgement.verdict for judgement in first.judgements] == [Verdict.PASS, Verdict.ERROR]
    assert (second.verdict, third.verdict, fourth.verdict) == (Verdict.PASS, Verdict.PASS, Verdict.FAIL)
