"""Policy documents are read by what they say: the same said otherwise reads the same."""

import json

import pytest

from policies.documents import narrows, statements
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


@pytest.mark.parametrize(
    ("operator", "key", "values", "narrow"),
    [
        ("StringEquals", "aws:SourceAccount", "123456789012", True),
        ("StringEqualsIgnoreCase", "AWS:SOURCEACCOUNT", "123456789012", True),
        ("ForAnyValue:StringEquals", "aws:SourceAccount", "123456789012", True),
        ("StringEquals", "aws:SourceAccount", ["123456789012", "210987654321"], True),
        ("StringEquals", "aws:SourceAccount", [], False),
        ("StringEquals", "aws:Other", "123456789012", False),
        ("StringLike", "aws:SourceAccount", ["123456789012", "*"], False),
        ("StringLike", "aws:SourceAccount", "12345678901?", False),
        ("StringNotEquals", "aws:SourceAccount", "123456789012", False),
        ("StringEqualsIfExists", "aws:SourceAccount", "123456789012", False),
        ("ForAllValues:StringEquals", "aws:SourceAccount", "123456789012", False),
        ("Null", "aws:SourceAccount", "false", False),
        ("StringEquals", "aws:SourceAccount", "${aws:PrincipalAccount}", False),
        ("ArnLike", "aws:SourceArn", "arn:aws:s3:::bucket", True),
        ("ArnLike", "aws:SourceArn", "arn:aws:s3:::*", False),
        ("ArnLike", "aws:SourceArn", "arn:aws:sns:*:123456789012:*", True),
        ("ArnEquals", "aws:SourceArn", "arn:aws:sns:us-west-2:*:topic", False),
        ("ArnLike", "aws:SourceArn", "*", False),
        ("StringLike", "aws:SourceArn", "arn:aws:iam::123456789012:role/*", True),
        # A role whose path is `:iam::123456789012:role/` matches, whoever has it.
        ("StringLike", "aws:SourceArn", "arn:*:iam::123456789012:role/*", False),
        ("StringLike", "acs:SourceArn", "acs:ecs:cn-hangzhou:123456789012:instance/*", True),
        ("StringLike", "acs:SourceArn", "acs:ecs:cn-hangzhou:*:instance/*", False),
        ("IpAddress", "aws:SourceIp", "203.0.113.7", True),
        ("IpAddress", "aws:SourceIp", "10.0.0.0/2", True),
        ("IpAddress", "aws:SourceIp", "0.0.0.0/1", False),
        ("IpAddress", "aws:SourceIp", ["203.0.113.0/24", "::/0"], False),
        ("IpAddress", "aws:SourceIp", ["0.0.0.0/2", "64.0.0.0/2"], False),
        ("IpAddress", "aws:SourceIp", "anywhere", False),
        ("NotIpAddress", "aws:SourceIp", "203.0.113.0/24", False),
    ],
)
def test_a_condition_narrows_by_an_operator_that_asks_and_by_values_that_are_fixed(operator, key, values, narrow):
    (found,) = statements({"Statement": {**ONE, "Condition": {operator: {key: values}}}})
    assert narrows(found, {"aws:sourceaccount", "aws:sourcearn", "acs:sourcearn", "aws:sourceip"}) is narrow


def test_what_is_not_known_is_undecided_and_no_document_an_error():
    with pytest.raises(Undecided):
        statements(UNKNOWN)
    for text in ("no JSON", "[]", "3"):
        with pytest.raises(ValueError):  # noqa: PT011  json's own
            statements(text)
    assert statements("{}") == ()
