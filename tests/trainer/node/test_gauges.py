"""What a node's hardware does, read from a made-up kernel's files and a made-up driver's tool."""

import os
import time

import pytest

from trainer.node import gauges
from trainer.node.gauges import Gauges


class Machine:
    """A kernel's files below a folder, and a clock."""

    def __init__(self, folder):
        self.root = folder / "root"
        self.now = 100.0
        self.gauges = Gauges(folder / "not/yet", root=self.root, clock=lambda: self.now)
        self.cpu(busy=100, idle=100)
        self.write("proc/meminfo", "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  250 kB\n")
        self.network(eth0=(0, 0))

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def cpu(self, busy, idle):
        self.write("proc/stat", f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n")

    def network(self, **interfaces):
        rows = "".join(
            f"{name:>6}: {received} 1 0 0 0 0 0 0 {sent} 2 0 0 0 0 0 0\n"
            for name, (received, sent) in {"lo": (9999, 9999), **interfaces}.items()
        )
        self.write("proc/net/dev", f"Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n{rows}")

    def fabric(self, device, received, sent, drops=0):
        for name, value in (("rx_bytes", received), ("tx_bytes", sent), ("rx_drops", drops)):
            self.write(f"sys/class/infiniband/{device}/ports/1/hw_counters/{name}", f"{value}\n")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_what_the_kernel_counts_is_given_by_the_second_from_the_second_reading_on(machine):
    machine.fabric("rdmap0s6", 0, 0)
    machine.fabric("rdmap1s6", 10, 0)
    first = machine.gauges.read()
    assert first.keys() == {"memory", "disk"}, "a total since boot is no rate"
    machine.now += 10
    machine.cpu(busy=175, idle=125)
    machine.network(lo=(77777, 77777), eth0=(1000, 0), eth1=(500, 200))
    machine.fabric("rdmap0s6", 4000, 8000, drops=20)
    machine.fabric("rdmap1s6", 1010, 0)
    second = machine.gauges.read()
    del second["disk"]
    assert second == {
        "cpu": 75.0,
        "memory": 75.0,
        "net_in": 150,
        "net_out": 20,
        "fabric_in": 500,
        "fabric_out": 800,
        "fabric_drops": 2,
    }


def test_a_counter_that_began_anew_gives_no_number(machine):
    """A driver that was reset would make a rate below zero, or one since the machine's boot."""
    machine.network(eth0=(5000, 5000))
    machine.gauges.read()
    machine.now += 10
    machine.network(eth0=(10, 6000))
    found = machine.gauges.read()
    assert "net_in" not in found
    assert found["net_out"] == 100


def test_this_machines_own_files_can_be_read(tmp_path):
    found = Gauges(tmp_path)
    found.read()
    time.sleep(0.05)
    second = found.read()
    assert 0 < second["memory"] < 100
    assert 0 <= second["disk"] <= 100
    assert {"net_in", "net_out"} <= second.keys()


def test_what_is_not_there_is_said_once_and_stops_nothing_else(machine, capsys):
    (machine.root / "proc/net/dev").unlink()
    machine.write("proc/meminfo", "MemTotal: none\n")
    for _ in range(3):
        found = machine.gauges.read()
    assert found.keys() == {"disk"}
    said = capsys.readouterr().out
    assert said.count("no network gauge: ") == said.count("no memory gauge: ") == 1
    assert "fabric" not in said, "a node without EFA lacks nothing"


SMI = """#!/bin/sh
echo "$@" > {folder}/asked
cat <<'END'
97, 70000, 81559, 61, 640.12
[N/A], 100, 81559, [N/A], [N/A]
END
"""


@pytest.fixture
def driver(machine, tmp_path, monkeypatch):
    def install(script):
        tool = tmp_path / "bin/nvidia-smi"
        tool.parent.mkdir()
        tool.write_text(script.format(folder=tmp_path))
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
        machine.gauges.gpus = 2
        return tmp_path / "asked"

    return install


def test_each_gpus_numbers_come_from_the_driver_and_what_it_does_not_know_is_nothing(machine, driver):
    asked = driver(SMI)
    assert machine.gauges.read()["gpus"] == [
        {"use": 97.0, "memory": 70000.0, "memory_total": 81559.0, "celsius": 61.0, "watts": 640.12},
        {"use": None, "memory": 100.0, "memory_total": 81559.0, "celsius": None, "watts": None},
    ]
    fields = "utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw"
    assert asked.read_text().split() == [f"--query-gpu={fields}", "--format=csv,noheader,nounits"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\nexec sleep 60\n", "no gpus gauge: nvidia-smi took longer than"),
        ("#!/bin/sh\necho 'Unable to determine the device handle'; exit 15\n", "Unable to determine the device handle"),
        ("#!/bin/sh\necho '97, 3'\n", "no gpus gauge: "),
    ],
    ids=["hangs", "fails", "says something else"],
)
def test_b4_a_driver_that_hangs_or_fails_costs_its_numbers_and_a_bounded_time(
    machine, driver, monkeypatch, capsys, script, said
):
    monkeypatch.setattr(gauges, "GPU_LIMIT_S", 0.3)
    driver(script)
    begun = time.monotonic()
    found = machine.gauges.read()
    assert time.monotonic() - begun < 30
    assert "gpus" not in found
    assert "memory" in found
    assert said in capsys.readouterr().out


def test_a_node_without_gpus_asks_no_driver(machine, driver):
    asked = driver(SMI)
    machine.gauges.gpus = 0
    assert "gpus" not in machine.gauges.read()
    assert not asked.exists()


def test_erdmas_counters_have_names_of_their_own(machine):
    for received in (0, 5000):
        for name, value in (("rx_bytes_cnt", received), ("tx_bytes_cnt", 2 * received), ("rx_disable_drop_cnt", 0)):
            machine.write(f"sys/class/infiniband/erdma_0/ports/1/hw_counters/{name}", f"{value}\n")
        found = machine.gauges.read()
        machine.now += 10
    assert (found["fabric_in"], found["fabric_out"], found["fabric_drops"]) == (500, 1000, 0)
