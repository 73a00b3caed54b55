"""Policy documents are read by what they say: the same said otherwise reads the same."""

import json

import pytest

from policies.documents import statements
from policies.values import UNKNOWN, Undecided

PLAIN = {
    "Statement": [
        {
            "Sid": "x",
            "Effect": "Deny",
            "Principal": "*",
            "Action": ["s3:GetObject"],
            "Resource": ["arn:aws:s3:::b/*"],
            "Condition": {"Bool": {"aws:SecureTransport": ["false"]}},
        }
    ]
}
ONE = PLAIN["Statement"][0]


@pytest.mark.parametrize(
    "document",
    [
        PLAIN,
        json.dumps(PLAIN),
        json.dumps(PLAIN, indent=4),
        {"Statement": ONE},
        {"Statement": [{**ONE, "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*"}]},
        {"Statement": [{**ONE, "Condition": {"Bool": {"AWS:securetransport": False}}}]},
        {"Statement": [{**ONE, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]},
    ],
    ids=["mapping", "text", "indented", "one statement", "no lists", "another case", "no list in a condition"],
)
def test_one_meaning_has_one_reading(document):
    (found,) = statements(document)
    assert not found.allow
    assert found.of_everyone
    assert found.names_action("s3:getobject")
    assert found.names_resource("arn:aws:s3:::b/key")
    assert found.condition("Bool", "aws:SecureTransport") == ("false",)
    assert found.condition("BoolIfExists", "aws:SecureTransport") == ()


@pytest.mark.parametrize(
    ("principal", "everyone"),
    [
        ("*", True),
        ({"AWS": "*"}, True),
        ({"AWS": ["arn:aws:iam::1:root", "*"]}, True),
        ({"RAM": ["*"]}, True),
        ({"AWS": "arn:aws:iam::1:root"}, False),
        ({"Service": "s3.amazonaws.com"}, False),
    ],
)
def test_everyone_is_told_from_someone(principal, everyone):
    (found,) = statements({"Statement": {**ONE, "Principal": principal}})
    assert found.of_everyone is everyone


@pytest.mark.parametrize(
    ("pattern", "action", "named"),
    [
        ("s3:*", "s3:PutObject", True),
        ("*", "s3:PutObject", True),
        ("s3:Get*", "s3:PutObject", False),
        ("s3:?utObject", "s3:PutObject", True),
        ("S3:PUTOBJECT", "s3:PutObject", True),
    ],
)
def test_actions_are_named_by_wildcards_in_any_case(pattern, action, named):
    (found,) = statements({"Statement": {**ONE, "Action": pattern}})
    assert found.names_action(action) is named


def test_not_turns_a_name_around():
    without = {key: value for key, value in ONE.items() if key not in {"Action", "Resource"}}
    (found,) = statements({"Statement": {**without, "NotAction": "s3:Get*", "NotResource": "arn:aws:s3:::a/*"}})
    assert found.names_action("s3:PutObject")
    assert not found.names_action("s3:GetObject")
    assert found.names_resource("arn:aws:s3:::b/x")
    assert not found.names_resource("arn:aws:s3:::a/x")


def test_what_is_not_known_is_undecided_and_no_document_an_error():
    with pytest.raises(Undecided):
        statements(UNKNOWN)
    for text in ("no JSON", "[]", "3"):
        with pytest.raises(ValueError):  # noqa: PT011  json's own
            statements(text)
    assert statements("{}") == ()
