"""No verb says AWS's words to somebody whose cluster is elsewhere: what is a cloud's own is in that cloud's modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.workspace import REPOSITORY

OWN = {
    "cli/aws.py": "what AWS is asked",
    "cli/erasure/aws.py": "what AWS is asked",
    "cli/alicloud.py": "what Alibaba Cloud is asked",
    "cli/credentials.py": "how one signs in to Alibaba Cloud",
    "cli/erasure/alicloud.py": "what Alibaba Cloud is asked",
    "cli/erasure/alicloud_keys.py": "what Alibaba Cloud is asked",
    "cli/sessions.py": "how one signs in to Alibaba Cloud",
    "cli/leftovers/aws.py": "what AWS is asked",
    "cli/leftovers/alicloud.py": "what Alibaba Cloud is asked",
    "cli/oss.py": "Alibaba Cloud's protocol",
    "cli/variables.py": "names of variables, which lead clients of both",
}
"""Modules of one cloud, or of what is not said to anybody."""

WORDS = re.compile(
    r"\b(aws|boto3|s3|sqs|ec2|iam|kms:|cloudwatch|efa|fsx|lustre|autoscaling|aliyun|alibaba|oss|ess|ram|erdma|cpfs|nas)\b",
    re.IGNORECASE,
)
BOTH = re.compile(r"AWS or Alibaba Cloud|EFA, or eRDMA|arn:aws|acs:kms")
"""What has the words of both, or the forms by which they are told apart."""

MEANT = {
    ("cli/verbs/catalog.py", "aws"): "the catalog that is shown by default",
    ("cli/verbs/catalog.py", "--efa"): "what the flag was called before there was another cloud",
    ("cli/catalog.py", "aws"): "the catalog that is shown by default",
    ("cli/account.py", "oss://"): "whose advice is given",
    ("cli/erasure/clouds.py", "aws"): "whose keys have which form",
    ("cli/erasure/cluster.py", "aws"): "where a cluster is unless it says otherwise",
}
"""What is there on purpose, and why."""


def strings(path: Path) -> Iterator[str]:
    """What is not a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


MODULES = sorted(path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "cli").rglob("*.py"))


@pytest.mark.parametrize("module", [name for name in MODULES if name not in OWN])
def test_what_only_one_cloud_has_is_said_by_its_own_modules_alone(module: str) -> None:
    found = [
        text
        for text in strings(REPOSITORY / module)
        if WORDS.search(text) and not BOTH.search(text) and (module, text) not in MEANT
    ]
    assert found == []


def test_the_exceptions_are_still_there() -> None:
    for module, text in MEANT:
        assert text in strings(REPOSITORY / module)
    assert OWN.keys() <= set(MODULES)
