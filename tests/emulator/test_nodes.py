"""The node runner: instances become nodes, nodes end with their instances, and dead nodes are replaced."""

import base64
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from botocore.exceptions import EndpointConnectionError

from emulator import nodes, processes
from emulator.instances import Member
from emulator.nodes import Backoff, Runner
from tests.emulator.conftest import wait_for

REPORT = """#!/usr/bin/env python3
import json, os, time
report = {"environment": dict(os.environ), "cores": sorted(os.sched_getaffinity(0)), "folder": os.getcwd()}
report["session"] = os.getsid(0) == os.getpid()
open(os.environ["HOME"] + "/part", "w").write(json.dumps(report))
os.rename(os.environ["HOME"] + "/part", os.environ["HOME"] + "/report")
time.sleep(1000)
"""


def output(world, instance):
    return (world.root(instance) / "var/log/cloud-init-output.log").read_text()


def kill(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_user_data_finds_the_environment_of_a_node_and_nothing_of_the_caller_s(world):
    (instance,) = world.booted(world.group(REPORT), 1)
    report = json.loads(world.file(instance, "root/report"))
    root = world.root(instance)
    url = report["environment"].pop("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    assert url.startswith("http://127.10.1.")
    assert report["environment"] == {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": f"{root}/root",
        "TMPDIR": f"{root}/tmp",
        "LANG": "C.UTF-8",
        "TRAINWRIGHT_ROOT": str(root),
        "AWS_ENDPOINT_URL": world.cloud.endpoint,
    }
    assert report["session"]
    assert report["folder"] == str(root)
    assert (root / "tmp").is_dir()
    assert (root / "var/lib/cloud/user-data").stat().st_mode & 0o777 == 0o700


def test_each_node_has_a_core_of_its_own(world):
    cores = os.sched_getaffinity(0)
    count = min(len(cores), 2)
    found = world.booted(world.group(REPORT, nodes=count), count)
    seen = [json.loads(world.file(instance, "root/report"))["cores"] for instance in found]
    assert all(len(one) == 1 for one in seen)
    assert len({one[0] for one in seen}) == count


@pytest.mark.parametrize("user_data", [None, "#cloud-config\nruncmd: [ls]\n"])
def test_what_cloud_init_would_not_run_as_a_script_leaves_an_idle_node_and_a_line_in_the_log(world, user_data):
    (instance,) = world.booted(world.group(user_data), 1)
    world.wait_for("the log's line", lambda: f"{instance}: booted" in world.log())
    (line,) = (line for line in world.log().splitlines() if f"{instance}: booted" in line)
    assert "does not begin with #!" in line
    time.sleep(0.6)
    assert world.state(instance) == "running"


def test_user_data_that_ends_well_leaves_the_node_up_with_what_it_started(world):
    script = "#!/bin/sh\nsetsid env -i sleep 1000 &\necho $! > $HOME/child\n"
    group = world.group(script)
    (instance,) = world.booted(group, 1)
    child = int(world.file(instance, "root/child"))
    world.wait_for("the end of user-data", lambda: "exit code 0" in output(world, instance))
    time.sleep(0.6)
    assert world.state(instance) == "running"
    assert processes.started(child) is not None
    world.client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    world.wait_for("the end of its child", lambda: processes.started(child) is None)


def test_a_node_that_fails_at_every_boot_is_replaced_at_growing_distances(world):
    group = world.group("#!/bin/sh\necho no such dataset\nexit 3\n")
    world.wait_for("a third failure", lambda: "may start in 2.0 s" in world.log())
    failures = [line for line in world.log().splitlines() if "ended with exit code 3" in line]
    assert [line.split("may start in ")[1] for line in failures] == ["0.5 s", "1.0 s", "2.0 s"]
    assert all("cloud-init-output.log: no such dataset; terminated" in line for line in failures)
    assert len(world.instances(group)) == 1


def test_only_the_latest_of_many_ended_nodes_are_kept_and_none_that_runs_goes(tmp_path):
    for number, name in enumerate(["i-oldest", "i-runs", "i-old", "i-new"]):
        (tmp_path / name / "var").mkdir(parents=True)
        os.utime(tmp_path / name, (number, number))
    (tmp_path / "i-runs.notice.json").touch()
    nodes.forget_nodes(tmp_path, {"i-runs"}, keep=1)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["i-new", "i-runs", "i-runs.notice.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one\n  two \n\nuser-data ended: exit code 3\n", "two"),
        ("user-data ended: exit code 3\n", "(nothing)"),
        ("", "(nothing)"),
        ("x" * 9000, "x" * 200),
    ],
)
def test_last_words_are_the_node_s_own_and_short(tmp_path, text, words):
    assert nodes.last_words(tmp_path / "none") == "(nothing)"
    (tmp_path / "output").write_text(text)
    assert nodes.last_words(tmp_path / "output") == words


def test_a_node_whose_processes_are_killed_is_terminated_and_replaced_while_others_stay(world):
    group = world.group(world.STAY, nodes=2)
    one, other = world.booted(group, 2)
    world.wait_for("both scripts", lambda: all(len(world.processes(node)) == 2 for node in (one, other)))
    mates = world.processes(other)
    kill(world.processes(one))
    world.wait_for("its termination", lambda: world.state(one) == "terminated")
    world.wait_for(
        "a replacement", lambda: len([i for i in world.instances(group) if i != one and world.processes(i)]) == 2
    )
    assert world.processes(other) == mates


def test_scaling_out_and_in_and_deletion_are_followed(world):
    group = world.group(world.STAY)
    autoscaling = world.client("autoscaling")
    (first,) = world.booted(group, 1)
    autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3)
    three = world.booted(group, 3)
    assert first in three
    autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    left = set(world.instances(group))
    for gone in set(three) - left:
        world.wait_for("the end of a node", lambda gone=gone: not world.processes(gone))
    (stays,) = left
    assert world.processes(stays)
    autoscaling.delete_auto_scaling_group(AutoScalingGroupName=world.groups.pop(), ForceDelete=True)
    world.wait_for("the end of the last node", lambda: not world.processes(stays))


def test_a_terminated_node_may_leave_in_order_and_its_disk_is_gone_but_its_output_is_kept(world, http):
    script = "#!/bin/sh\ntrap 'echo leaving; exit 0' TERM\ntouch $TMPDIR/big\necho up\nsleep 1000 & wait\n"
    (instance,) = world.booted(world.group(script), 1)
    world.wait_for("the script", lambda: "up" in output(world, instance))
    url = world.metadata(instance)
    world.client("ec2").terminate_instances(InstanceIds=[instance])
    world.wait_for("its end", lambda: not (world.root(instance) / "tmp").exists())
    assert "leaving" in output(world, instance)
    with pytest.raises(OSError, match="refused"):
        http.token(url)


def test_a_replacement_runs_the_template_version_that_the_group_has_by_then(world):
    script = "#!/bin/sh\necho {} > $HOME/version\nexec sleep 1000\n"
    group = world.group(script.format("one"))
    (first,) = world.booted(group, 1)
    ec2, autoscaling = world.client("ec2"), world.client("autoscaling")
    described = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]
    template = described["LaunchTemplate"]["LaunchTemplateId"]
    data = {
        "ImageId": "ami-0123456789abcdef0",
        "InstanceType": "p4d.24xlarge",
        "UserData": base64.b64encode(script.format("two").encode()).decode(),
    }
    version = ec2.create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData=data)
    number = str(version["LaunchTemplateVersion"]["VersionNumber"])
    autoscaling.update_auto_scaling_group(
        AutoScalingGroupName=group, LaunchTemplate={"LaunchTemplateId": template, "Version": number}
    )
    time.sleep(0.5)
    assert world.instances(group) == [first]
    ec2.terminate_instances(InstanceIds=[first])
    (second,) = world.booted(group, 1, besides={first})
    assert world.file(second, "root/version") == "two\n"


def test_delays_double_up_to_half_a_minute_and_start_over_after_a_sound_node():
    backoff = Backoff()
    delays = []
    for _ in range(9):
        backoff.failed(now=100, lived=1)
        delays.append(backoff.until - 100)
    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    backoff.failed(now=100, lived=60)
    assert backoff.until == 100.5


class QuietApi:
    """An API with one instance, which fails when told to."""

    endpoint = "http://127.0.0.1:9"
    member = Member("i-1", "group", "us-west-2")

    def __init__(self, instance):
        self.down = False
        self.terminated = []
        self._instance = instance

    def members(self, region):
        if self.down:
            raise EndpointConnectionError(endpoint_url=self.endpoint)
        return [self.member]

    def instance(self, member):
        return self._instance

    def terminate(self, member):
        self.terminated.append(member.id)


@pytest.fixture
def quiet(tmp_path, an_instance):
    runner = Runner(QuietApi(an_instance(user_data=b"")), tmp_path, lambda: ["us-west-2"])
    yield runner
    runner.close()


def test_an_api_that_fails_costs_no_node_and_is_logged_once(quiet, tmp_path, caplog):
    quiet.tick()
    # A process just started is known by its folder once it has left its parent's program.
    wait_for("the node's first process", lambda: processes.belonging_to(tmp_path))
    before = quiet.api.terminated, processes.belonging_to(tmp_path)
    quiet.api.down = True
    for _ in range(3):
        quiet.tick()
    assert (quiet.api.terminated, processes.belonging_to(tmp_path)) == before
    assert len([record for record in caplog.records if "cannot be listed" in record.message]) == 1
    quiet.api.down = False
    quiet.tick()
    assert (quiet.api.terminated, processes.belonging_to(tmp_path)) == before


def test_a_node_that_cannot_be_started_counts_as_failed_and_is_not_tried_at_once_again(quiet, monkeypatch):
    def refuse(*_arguments):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(nodes, "_start", refuse)
    quiet.tick()
    quiet.tick()
    assert quiet.api.terminated == ["i-1"]
