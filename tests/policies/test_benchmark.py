"""What `make bench-policy` compares is comparable: the same resources to both, and rules that ask for the same."""

import json

from benchmarks.policy import KINDS, SAME, SETTINGS, as_state, as_terraform
from policies.control import Verdict, judge
from policies.controls import declared
from policies.state import read


def test_each_like_control_passes_in_one_round_and_fails_in_the_next():
    stack = read(as_state(2 * len(KINDS)))
    controls = [control for control in declared(SETTINGS) if control.id in SAME.values()]
    assert {control.id for control in controls} == set(SAME.values())
    found: dict[tuple[str, str], set[Verdict]] = {}
    for result in judge(controls, stack):
        found.setdefault((result.control.id, result.resource.name[-1]), set()).add(result.verdict)
    for control in controls:
        assert Verdict.PASS in found[control.id, "0"]
        assert Verdict.FAIL in found[control.id, "1"]


def test_terraform_gets_the_same_resources():
    resources = json.loads(as_terraform(1000))["resource"]
    assert sum(map(len, resources.values())) == len(read(as_state(1000)).resources) == 1000
    setting = resources["aws_s3_bucket_versioning"]["aws_s3_bucket_versioning-0"]
    assert setting["versioning_configuration"] == [{"status": "Enabled"}]
    assert setting["bucket"] == "${aws_s3_bucket.aws_s3_bucket-0.id}"
    assert "aws_s3_bucket-0" in resources["aws_s3_bucket"]
