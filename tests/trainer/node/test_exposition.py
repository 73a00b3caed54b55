"""A sample as Prometheus reads it."""

import urllib.request
from urllib.error import HTTPError

import pytest

from trainer.node import exposition

SAMPLE = {
    "time": 1.0,
    "active": True,
    "cpu": 12.5,
    "net_in": 1_000_000,
    "gpus": [{"use": 90.0, "memory": None}, {"use": None, "memory": None}],
}
LABELS = {"cluster": 'c"1', "node": "i-1"}


def test_each_number_is_a_gauge_with_its_node_and_gpu():
    assert exposition.text(SAMPLE, LABELS).splitlines() == [
        "# HELP trainwright_run_active Whether the run goes on.",
        "# TYPE trainwright_run_active gauge",
        'trainwright_run_active{cluster="c\\"1",node="i-1"} 1.0',
        "# HELP trainwright_cpu_percent Time that processors were not idle.",
        "# TYPE trainwright_cpu_percent gauge",
        'trainwright_cpu_percent{cluster="c\\"1",node="i-1"} 12.5',
        "# HELP trainwright_network_receive_bytes_per_second What all interfaces received.",
        "# TYPE trainwright_network_receive_bytes_per_second gauge",
        'trainwright_network_receive_bytes_per_second{cluster="c\\"1",node="i-1"} 1000000.0',
        "# HELP trainwright_gpu_percent Time that the GPU was busy.",
        "# TYPE trainwright_gpu_percent gauge",
        'trainwright_gpu_percent{cluster="c\\"1",node="i-1",gpu="0"} 90.0',
    ]
    assert exposition.text({}, LABELS) == ""


def test_whoever_asks_gets_the_latest_and_nothing_else():
    latest = [{"active": True}]
    port = exposition.serve("127.0.0.1", 0, lambda: latest[0], {"node": "i-1"})
    url = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert 'trainwright_run_active{node="i-1"} 1.0' in answer.read().decode()
    latest[0] = {"active": False}
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        assert 'trainwright_run_active{node="i-1"} 0.0' in answer.read().decode()
    with pytest.raises(HTTPError, match="404"):
        urllib.request.urlopen(f"{url}/etc/passwd", timeout=5)


def test_a_port_that_is_taken_is_an_os_error():
    port = exposition.serve("127.0.0.1", 0, dict, {})
    with pytest.raises(OSError, match="in use"):
        exposition.serve("127.0.0.1", port, dict, {})
