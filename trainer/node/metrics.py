"""A node's metrics: each minute a line to a file, which is shipped to the run's prefix, and, if asked, to the cloud.

In a thread of its own, which nothing waits for: that metrics can't be had or sent is said once and disturbs no run.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.alicloud import Api
from trainer.console import say
from trainer.node.gauges import Gauges

EVERY_S = 60.0
"""Between samples: CloudWatch keeps one value a minute (its user guide, "Resolution")."""

MOST_ENTRIES = 10
"""Of one call of CloudMonitor's, which takes 21, in its URL."""

LONGEST_WAIT_S = 900.0
"""Before the cloud is tried again, once it has failed again and again."""

MOST_BYTES = 256 << 20
"""Of the file: half a year of a node with eight GPUs."""

PERCENT, RATE, COUNT = "Percent", "Bytes/Second", "Count"


class Outlet(ABC):
    """Where a cloud keeps metrics."""

    title: str

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._due = 0.0

    def put(self, sample: Mapping[str, Any]) -> None:
        """Send the sample, unless an earlier failure is still waited out. What fails is lost, and said once."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        if self._clock() < self._due:
            return
        try:
            self._send(sample)
        except (BotoCoreError, ClientError, OSError) as error:
            self._failures += 1
            self._due = self._clock() + min(LONGEST_WAIT_S, EVERY_S * 2.0**self._failures)
            if self._failures == 1:
                say(f"metrics don't reach {self.title}, and wait: {error}")
            return
        if self._failures:
            say(f"metrics reach {self.title} again, after {self._failures} failures")
        self._failures = 0

    @abstractmethod
    def _send(self, sample: Mapping[str, Any]) -> None:
        """Send it. Raises `OSError`, or boto3's errors."""


class CloudWatch(Outlet):
    """Puts samples into a namespace, without a dimension: a cluster's numbers cost the same for any number of nodes."""

    title = "CloudWatch"

    def __init__(self, namespace: str, client: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self.namespace = namespace
        self._client = client

    def _send(self, sample: Mapping[str, Any]) -> None:
        self._client = self._client or _connect()
        self._client.put_metric_data(Namespace=self.namespace, MetricData=list(data(sample)))


class CloudMonitor(Outlet):
    """Puts samples into an application group, all nodes' into one series (CloudMonitor API, "PutCustomMetric").

    Raw values, of which CloudMonitor makes averages and the like by the minute.
    """

    title = "CloudMonitor"

    def __init__(self, group: str, cluster: str, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self.group, self.cluster, self._api = group, cluster, api

    def _send(self, sample: Mapping[str, Any]) -> None:
        values = [(datum["MetricName"], value) for datum in data(sample) for value in datum["Values"]]
        for start in range(0, len(values), MOST_ENTRIES):
            entries: dict[str, str] = {}
            for number, (name, value) in enumerate(values[start : start + MOST_ENTRIES], start=1):
                entry = {
                    "GroupId": self.group,
                    "MetricName": name,
                    "Dimensions": json.dumps({"cluster": self.cluster}),
                    "Type": "0",
                    "Values": json.dumps({"value": value}),
                    "Time": f"{sample['time'] * 1000:.0f}",
                }
                entries |= {f"MetricList.{number}.{field}": text for field, text in entry.items()}
            self._api.call("cms", "PutCustomMetric", **entries)


def _connect() -> Any:
    import boto3  # noqa: PLC0415  a node that sends nothing never loads it
    from botocore.config import Config  # noqa: PLC0415

    config = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})
    return boto3.client("cloudwatch", config=config)


def data(sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The sample as CloudWatch takes it (its API, `MetricDatum`); the names are every cloud's.

    GPUs go as one metric with a value for each.
    """

    def datum(name: str, unit: str, *values: float) -> dict[str, Any]:
        return {"MetricName": name, "Unit": unit, "Values": list(values), "Timestamp": sample["time"]}

    yield datum("RunActive", COUNT, float(sample["active"]))
    if "waiting" in sample:
        yield datum("WaitingPerNode", COUNT, sample["waiting"])
    for key, name in (("cpu", "CPUUtilization"), ("memory", "MemoryUtilization"), ("disk", "DiskUtilization")):
        if key in sample:
            yield datum(name, PERCENT, sample[key])
    for key, name in (("net", "NetworkBytes"), ("fabric", "FabricBytes")):
        if f"{key}_in" in sample and f"{key}_out" in sample:
            yield datum(name, RATE, sample[f"{key}_in"] + sample[f"{key}_out"])
    gpus = sample.get("gpus", ())
    if uses := [gpu["use"] for gpu in gpus if gpu["use"] is not None]:
        yield datum("GPUUtilization", PERCENT, *uses)
    full = [(gpu["memory"], gpu["memory_total"]) for gpu in gpus]
    if shares := [100 * used / total for used, total in full if used is not None and total]:
        yield datum("GPUMemoryUtilization", PERCENT, *shares)


@dataclass
class Sampler:
    """Samples until closed. `active` says whether the run goes on; a fleet may be set to zero once no node's does."""

    path: Path
    gauges: Gauges
    cloud: Outlet | None = None
    active: bool = True
    more: Callable[[], Mapping[str, Any]] = dict
    """What else belongs into a sample."""
    latest: Mapping[str, Any] = field(default_factory=dict)
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _said: str = ""

    def start(self) -> None:
        """Begin: the first sample is taken at once."""
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)
        self._thread.start()

    def close(self, limit_s: float = 2.0) -> None:
        """End, within a limit of time: a driver that hangs is left behind."""
        self._closing.set()
        if self._thread:
            self._thread.join(limit_s)

    def _work(self) -> None:
        while True:
            try:
                self.sample()
            except Exception as error:  # whatever it is, it must not end the thread that tells whether a run goes on
                self._say(f"a sample of metrics is lost: {type(error).__name__}: {error}")
            if self._closing.wait(EVERY_S):
                return

    def sample(self) -> None:
        """Take one sample: write it, then send it."""
        sample = {"time": round(time.time(), 3), "active": self.active, **self.gauges.read(), **self.more()}
        self.latest = sample
        try:
            self._write(json.dumps(sample))
        except OSError as error:
            self._say(f"metrics can't be written: {error}")
        if self.cloud:
            self.cloud.put(sample)

    def _write(self, line: str) -> None:
        with self.path.open("ab") as file:
            if file.tell() >= MOST_BYTES:
                raise OSError(f"{self.path} has {MOST_BYTES >> 20} MiB, which is the most")
            file.write(f"{line}\n".encode())

    def _say(self, what: str) -> None:
        if what != self._said:
            say(what)
        self._said = what
