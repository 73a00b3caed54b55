"""A node's latest sample for Prometheus to fetch: text, at a port of its private address, where the node is told so.

Nothing but numbers is shown, and nobody is asked who they are: the security group lets in the cluster's nodes alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ASKING_S = 10
"""For one who asks, to say what."""

PLAIN = {
    "active": ("run_active", "Whether the run goes on."),
    "cpu": ("cpu_percent", "Time that processors were not idle."),
    "memory": ("memory_percent", "Memory in use."),
    "disk": ("disk_percent", "Scratch in use."),
    "net_in": ("network_receive_bytes_per_second", "What all interfaces received."),
    "net_out": ("network_transmit_bytes_per_second", "What all interfaces sent."),
    "fabric_in": ("fabric_receive_bytes_per_second", "What fast devices received."),
    "fabric_out": ("fabric_transmit_bytes_per_second", "What fast devices sent."),
}
"""Of a sample's numbers: the gauge's name, without what all begin with, and what it is."""

GPU = {
    "use": ("gpu_percent", "Time that the GPU was busy."),
    "memory": ("gpu_memory_mebibytes", "The GPU's memory in use."),
    "memory_total": ("gpu_memory_total_mebibytes", "The GPU's memory."),
    "celsius": ("gpu_celsius", "The GPU's temperature."),
    "watts": ("gpu_watts", "The GPU's power."),
}


def text(sample: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A sample in Prometheus's text format ("Exposition formats"); '' before there is one."""
    return "".join(f"{line}\n" for line in _lines(sample, labels))


def _lines(sample: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[str]:
    for key, (name, what) in PLAIN.items():
        if key in sample:
            yield from _head(name, what)
            yield _value(name, labels, sample[key])
    for key, (name, what) in GPU.items():
        values = [(number, gpu.get(key)) for number, gpu in enumerate(sample.get("gpus", ()))]
        if any(value is not None for _, value in values):
            yield from _head(name, what)
            for number, value in values:
                if value is not None:
                    yield _value(name, {**labels, "gpu": str(number)}, value)


def _head(name: str, what: str) -> Iterator[str]:
    yield f"# HELP trainwright_{name} {what}"
    yield f"# TYPE trainwright_{name} gauge"


def _value(name: str, labels: Mapping[str, str], value: float) -> str:
    told = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
    return f"trainwright_{name}{{{told}}} {float(value)}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def serve(address: str, port: int, sample: Callable[[], Mapping[str, Any]], labels: Mapping[str, str]) -> int:
    """Answer from now on, in threads of its own, and return the port. Raises `OSError` where it is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout = ASKING_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            content = text(sample(), labels).encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing of each question."""

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="prometheus", daemon=True).start()
    return int(server.server_port)
