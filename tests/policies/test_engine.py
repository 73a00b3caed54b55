"""The pack in the real engine, over the stand-ins: it refuses what breaks a control, and settings that can't be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from policies import pack
from tools import environment, pulumi_cli

pytestmark = pytest.mark.engine

PACK = Path(pack.__file__).parent

PROJECT = f"""
name: mine
runtime: {{name: python, options: {{virtualenv: {sys.prefix}}}}}
"""

PROGRAM = """
import json
import pulumi_aws as aws

aws.ebs.Volume("scratch", availability_zone="us-west-2b", size=1, encrypted=False, kms_key_id="k")
bucket = aws.s3.Bucket("shared")
policy = {"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*"}}
aws.s3.BucketPolicy("shared", bucket=bucket.id, policy=json.dumps(policy))
"""

LOOSE = """
import pulumi
import pulumi_alicloud as alicloud
import pulumi_aws as aws

aws.ec2.LaunchTemplate("loose", user_data=pulumi.Output.secret("aGk="), metadata_options={"http_tokens": "optional"})
aws.s3.Bucket("untagged", tags={"a": "b"})
alicloud.ecs.EcsLaunchTemplate("loose-too", launch_template_name="loose-too", http_put_response_hop_limit=64)
"""

COMPLETED = """
import json
import pulumi
import pulumi_alicloud as alicloud

call = {"ScalingConfigurationId": "{{ configuration }}", "HttpTokens": "required"}
task = {"Service": "ESS", "API": "ModifyScalingConfiguration", "Parameters": call}
tasks = [{"Name": "complete", "Action": "ACS::ExecuteAPI", "Properties": task}]
template = alicloud.oos.Template("t", template_name="t", content=json.dumps({"Tasks": tasks}))
group = alicloud.ess.ScalingGroup("group", min_size=0, max_size=1)
for name in ("whole", "lacking"):
    config = alicloud.ess.ScalingConfiguration(name, scaling_group_id=group.id, image_id="m-1")
    if name == "whole":
        given = pulumi.Output.json_dumps({"configuration": config.id})
        alicloud.oos.Execution(name, template_name=template.template_name, parameters=given)
"""

TOKENS = """
config:
  alicloud:region: cn-hangzhou
  policies:topics: [network]
"""

REMEDIES = """
config:
  aws:region: us-west-2
  alicloud:region: cn-hangzhou
  policies:topics: [network, cost]
  policies:cost_tags: [team]
  policies:tag_values: {team: research}
  policies:levels: {NET-METADATA-01: LEVEL, NET-METADATA-02: LEVEL, COST-TAG-01: LEVEL}
"""

SETTINGS = """
config:
  aws:region: us-west-2
  policies:severity: high
  policies:levels: {ENC-DISK-01: advisory}
  policies:exemptions:
    - {control: STO-PUBLIC-01, resource: shared, owner: me@example.com, reason: public, expires: 2999-01-01}
"""


@pytest.fixture
def preview(tmp_path):
    """Preview a program under the pack, with a stack's file; the exit code and all that was said."""
    home, folder = tmp_path / "home", tmp_path / "project"
    folder.mkdir()
    cli = pulumi_cli.present()
    environment.prepare(home, cli)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PULUMI_"))}
    variables = {**ours, **environment.embedded(home, cli)}
    (folder / "Pulumi.yaml").write_text(PROJECT)

    def run(stack_file: str, program: str = PROGRAM) -> tuple[int, str]:
        (folder / "__main__.py").write_text(program)
        (folder / "Pulumi.test.yaml").write_text(stack_file)
        options = ["--stack", "test", "--non-interactive", "--color", "never"]
        said = ""
        for command in (["stack", "select", "--create"], ["preview", "--diff", "--policy-pack", str(PACK)]):
            done = subprocess.run(
                ["pulumi", *command, *options],
                cwd=folder,
                env=variables,
                text=True,
                capture_output=True,
                timeout=120,
                check=False,
            )
            said += done.stdout + done.stderr
        return done.returncode, said

    return run


def test_a_broken_program_is_refused_in_the_controls_words_by_the_stacks_settings(preview):
    code, said = preview(SETTINGS)
    assert code != 0
    assert "[advisory]" in said
    words = " ".join(said.split())
    assert "ENC-DISK-01 fail: scratch: encrypted: false, but must be true. Set `encrypted`" in words
    assert "STO-PUBLIC-03 fail: shared: shared.policy: a statement lets everybody in" in words
    assert "STO-PUBLIC-01 fail" not in words, "an exemption that holds was not heard of"
    assert "STO-VERSION-01 fail" not in words, "less severe than was asked for"


def test_settings_that_cannot_be_meant_are_refused_in_words(preview):
    code, said = preview("config:\n  aws:region: us-west-2\n  policies:severity: severe\n")
    assert code != 0
    assert "policies:severity: Input should be 'low', 'medium', 'high' or 'critical'" in said
    assert "Traceback" not in said


def test_remedies_are_applied_to_what_is_declared_where_they_were_asked_for(preview):
    code, said = preview(REMEDIES.replace("LEVEL", "remediate"), LOOSE)
    words = " ".join(said.split()).replace(" : ", ": ")
    assert code == 0, said
    assert 'httpTokens: "required"' in words
    assert "httpPutResponseHopLimit: 2" in words
    assert 'team: "research"' in words
    assert "aGk=" not in said, "a remedy let a secret out"


def test_no_remedy_is_applied_that_nobody_asked_for(preview):
    code, said = preview(REMEDIES.replace("LEVEL", "advisory"), LOOSE)
    words = " ".join(said.split()).replace(" : ", ": ")
    assert code == 0, said
    assert 'httpTokens: "optional"' in words
    assert "httpPutResponseHopLimit: 64" in words
    assert "level `remediate` sets metadataOptions.httpTokens to required" in words
    assert "level `remediate` sets tags.team to research" in words


def test_what_completes_a_configuration_is_seen_before_either_is_there(preview):
    code, said = preview(TOKENS, COMPLETED)
    words = " ".join(said.split())
    assert code != 0
    assert "NET-METADATA-01 fail: lacking: httpEndpoint: a scaling configuration can't be declared to ask" in words
    assert "NET-METADATA-01 fail: whole" not in words
