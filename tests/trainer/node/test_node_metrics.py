"""Samples reach their file, the run's prefix and CloudWatch, and what goes wrong on the way disturbs nothing."""

import itertools
import json
import threading
import time

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from trainer import layout
from trainer.alicloud import ApiError
from trainer.node import metrics, shipping
from trainer.node.gauges import Gauges
from trainer.node.metrics import CloudMonitor, CloudWatch, Sampler, data
from trainer.node.shipping import Shipper
from trainer.store import FileStore

GPU = {"use": 90.0, "memory": 20.0, "memory_total": 80.0, "celsius": 60.0, "watts": 300.0}
UNKNOWN = dict.fromkeys(GPU)
SAMPLE = {
    "time": 1_790_000_000.5,
    "active": True,
    "cpu": 12.5,
    "memory": 50.0,
    "disk": 10.0,
    "net_in": 100,
    "net_out": 20,
    "fabric_in": 1000,
    "fabric_out": 500,
    "gpus": [GPU, {**GPU, "use": 0.0, "memory": 0.0}, UNKNOWN],
}


class Client:
    """A CloudWatch that answers, or doesn't."""

    def __init__(self):
        self.error = None
        self.calls = []

    def put_metric_data(self, **request):
        self.calls.append(request)
        if self.error:
            raise self.error


class Fixed:
    def read(self):
        return {"memory": 50.0}


def test_a_sample_becomes_eight_numbers_of_the_cluster_with_each_gpu_counted():
    found = {datum["MetricName"]: (datum["Unit"], datum["Values"]) for datum in data(SAMPLE)}
    assert found == {
        "RunActive": ("Count", [1.0]),
        "CPUUtilization": ("Percent", [12.5]),
        "MemoryUtilization": ("Percent", [50.0]),
        "DiskUtilization": ("Percent", [10.0]),
        "NetworkBytes": ("Bytes/Second", [120]),
        "FabricBytes": ("Bytes/Second", [1500]),
        "GPUUtilization": ("Percent", [90.0, 0.0]),
        "GPUMemoryUtilization": ("Percent", [25.0, 0.0]),
    }
    assert not any("Dimensions" in datum for datum in data(SAMPLE)), "a dimension of nodes is paid for, node by node"


def test_what_a_sample_lacks_is_not_sent():
    assert [datum["MetricName"] for datum in data({"time": 1, "active": False, "gpus": [UNKNOWN]})] == ["RunActive"]


def test_cloudwatch_takes_it_and_averages_over_all_gpus_of_all_nodes(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    with mock_aws():
        now = time.time()
        for use in (100.0, 50.0):
            CloudWatch("Trainwright/b").put({**SAMPLE, "time": now, "gpus": [{**GPU, "use": use}] * 2})
        watch = boto3.client("cloudwatch")
        listed = watch.list_metrics(Namespace="Trainwright/b")["Metrics"]
        assert len({metric["MetricName"] for metric in listed}) == 8
        asked = {"Namespace": "Trainwright/b", "MetricName": "GPUUtilization", "Period": 600, "Statistics": ["Average"]}
        (point,) = watch.get_metric_statistics(StartTime=now - 300, EndTime=now + 300, **asked)["Datapoints"]
    assert point["Average"] == 75


REFUSED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutMetricData")
AWAY = EndpointConnectionError(endpoint_url="https://monitoring.us-west-2.amazonaws.com")


@pytest.mark.parametrize("error", [REFUSED, AWAY, ConnectionResetError("reset")], ids=str)
def test_a_cloudwatch_that_fails_is_said_once_and_asked_ever_more_rarely_until_it_answers(capsys, error):
    client, now = Client(), [0.0]
    cloud = CloudWatch("space", client, clock=lambda: now[0])
    client.error = error
    asked = []
    for _ in range(120):  # two hours
        before = len(client.calls)
        cloud.put(SAMPLE)
        asked += [now[0]] * (len(client.calls) - before)
        now[0] += 60
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert gaps[:4] == [120, 240, 480, 900]
    assert max(gaps) == metrics.LONGEST_WAIT_S
    client.error, now[0] = None, now[0] + 900
    cloud.put(SAMPLE)
    cloud.put(SAMPLE)
    assert len(client.calls) == len(asked) + 2, "once it answers, every sample goes"
    said = capsys.readouterr().out
    assert said.count("metrics don't reach CloudWatch, and wait: ") == 1
    assert said.count("metrics reach CloudWatch again") == 1


def test_credentials_that_never_come_cost_no_more_than_a_word(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # another test's, with credentials
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    CloudWatch("space").put(SAMPLE)
    assert "metrics don't reach CloudWatch, and wait: Unable to locate credentials" in capsys.readouterr().out


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_samples_come_at_once_then_in_their_time_and_tell_when_the_run_has_ended(tmp_path, monkeypatch, wait_for):
    monkeypatch.setattr(metrics, "EVERY_S", 0.02)
    client, path = Client(), tmp_path / "samples.jsonl"
    sampler = Sampler(path, Fixed(), CloudWatch("space", client))
    sampler.start()
    wait_for("three samples", lambda: len(client.calls) >= 3)
    sampler.active = False
    seen = len(client.calls)
    wait_for("what comes after the run", lambda: len(client.calls) >= seen + 2)
    sampler.close()
    lines = _lines(path)
    assert {**lines[0], "time": 0} == {"time": 0, "active": True, "memory": 50.0}
    assert lines[-1]["active"] is False
    assert [call["Namespace"] for call in client.calls] == ["space"] * len(lines)
    assert client.calls[-1]["MetricData"][0]["Values"] == [0.0]
    assert not [thread for thread in threading.enumerate() if thread.name == "sampler"]


def test_without_a_namespace_samples_are_written_all_the_same(tmp_path):
    Sampler(tmp_path / "samples.jsonl", Fixed()).sample()
    assert len(_lines(tmp_path / "samples.jsonl")) == 1


def test_nothing_that_goes_wrong_ends_the_thread_and_each_fault_is_said_once(tmp_path, monkeypatch, wait_for, capsys):
    """If it ended, nobody would hear that the run has ended, and the fleet would be paid for until somebody looks."""
    monkeypatch.setattr(metrics, "EVERY_S", 0.01)
    reads = []

    class Broken:
        def read(self):
            reads.append(1)
            raise RuntimeError("a gauge nobody thought of")

    sampler = Sampler(tmp_path / "samples.jsonl", Broken())
    sampler.start()
    wait_for("more samples", lambda: len(reads) > 5)
    sampler.close()
    assert capsys.readouterr().out.count("a sample of metrics is lost: RuntimeError: a gauge nobody thought of") == 1


def test_a_full_disk_loses_the_file_and_not_what_goes_to_cloudwatch(tmp_path, capsys):
    client = Client()
    sampler = Sampler(tmp_path / "no folder/samples.jsonl", Fixed(), CloudWatch("space", client))
    sampler.sample()
    sampler.sample()
    assert len(client.calls) == 2
    assert capsys.readouterr().out.count("metrics can't be written: ") == 1


def test_the_file_does_not_grow_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "MOST_BYTES", 1000)
    sampler = Sampler(tmp_path / "samples.jsonl", Fixed())
    for _ in range(100):
        sampler.sample()
    assert 1000 <= sampler.path.stat().st_size < 1200


def test_closing_waits_for_no_driver_that_hangs(tmp_path):
    release, returned = threading.Event(), threading.Event()

    class Hung:
        def read(self):
            release.wait(20)
            returned.set()
            return {}

    sampler = Sampler(tmp_path / "samples.jsonl", Hung())
    sampler.start()
    sampler.close(limit_s=0.1)
    assert not returned.is_set()
    release.set()


def test_samples_go_to_the_runs_prefix_over_all_generations(tmp_path, monkeypatch):
    """The agent's own log and these are of the node: a generation's end must not end them."""
    monkeypatch.setattr(shipping, "SHORTEST_S", 0.01)
    store, path = FileStore(tmp_path / "store"), tmp_path / "samples.jsonl"
    shipper = Shipper(store)
    shipper.add(path, lambda chunk: layout.sample_chunk("i-1", chunk), lasting=True)
    sampler = Sampler(path, Gauges(tmp_path))
    sampler.sample()
    shipper.start()
    shipper.end_generation()
    time.sleep(0.2)
    sampler.sample()
    shipper.close()
    lines = store.get("samples/i-1/000000.jsonl").decode().splitlines()
    assert len(lines) == 2
    assert all(json.loads(line)["active"] for line in lines)


class Cms:
    """CloudMonitor's API: it takes so many entries a call."""

    def __init__(self):
        self.calls, self.error = [], None

    def call(self, service, action, **told):
        assert (service, action) == ("cms", "PutCustomMetric")
        if self.error:
            raise self.error
        self.calls.append(told)
        return {"Code": "200"}


def _entries(calls):
    found = []
    for told in calls:
        numbers = {int(name.split(".")[1]) for name in told}
        assert numbers == set(range(1, len(numbers) + 1)), "counted from 1, without gaps"
        assert len(numbers) <= 21, "the most that the API takes"
        fields = ("GroupId", "MetricName", "Dimensions", "Type", "Values", "Time")
        found += [{field: told[f"MetricList.{n}.{field}"] for field in fields} for n in sorted(numbers)]
    return found


def test_cloudmonitor_gets_the_numbers_that_cloudwatch_gets_one_entry_a_value():
    api = Cms()
    sample = {**SAMPLE, "gpus": [GPU] * 8, "waiting": 1.5}
    CloudMonitor("4242", "b-1", api).put(sample)
    entries = _entries(api.calls)
    names = [entry["MetricName"] for entry in entries]
    assert names.count("GPUUtilization") == names.count("GPUMemoryUtilization") == 8
    assert set(names) == {datum["MetricName"] for datum in data(sample)}
    (waiting,) = [entry for entry in entries if entry["MetricName"] == "WaitingPerNode"]
    assert waiting == {
        "GroupId": "4242",
        "MetricName": "WaitingPerNode",
        "Dimensions": '{"cluster": "b-1"}',
        "Type": "0",
        "Values": '{"value": 1.5}',
        "Time": "1790000000500",
    }


def test_a_cloudmonitor_that_fails_is_said_once_and_waited_out(capsys):
    api, now = Cms(), [0.0]
    cloud = CloudMonitor("4242", "b-1", api, clock=lambda: now[0])
    api.error = ApiError("cms PutCustomMetric: NoPermission")
    for _ in range(3):
        cloud.put(SAMPLE)
    api.error = None
    now[0] = 60
    cloud.put(SAMPLE)
    assert api.calls == [], "the failure is still waited out"
    now[0] = 200
    cloud.put(SAMPLE)
    assert api.calls
    said = capsys.readouterr().out
    assert said.count("metrics don't reach CloudMonitor, and wait: cms PutCustomMetric: NoPermission") == 1
    assert "metrics reach CloudMonitor again" in said


def test_a_sample_has_what_the_queue_adds_and_the_latest_is_kept(tmp_path):
    sampler = Sampler(tmp_path / "samples.jsonl", Fixed(), more=lambda: {"waiting": 2.0})
    sampler.sample()
    assert sampler.latest["waiting"] == 2.0
    assert json.loads((tmp_path / "samples.jsonl").read_text())["waiting"] == 2.0
