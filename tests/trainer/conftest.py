"""Services on loopback: an S3 and an OSS, shared by the tests of what talks to the object store, and a test's own."""

import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.trainer.oss import Oss


class Answering(BaseHTTPRequestHandler):
    """Answers by a status and a text, and prints nothing of it."""

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def serve() -> Iterator[Callable[[type[BaseHTTPRequestHandler]], str]]:
    """Serves what a handler answers until the test ends; gives the address."""
    started: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(handler: type[BaseHTTPRequestHandler]) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        started.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in started:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of moto's server."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new bucket, found as boto3 finds things: through the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    name = f"b-{uuid.uuid4().hex[:12]}"
    boto3.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def oss(s3_endpoint: str, serve: Callable[[type[BaseHTTPRequestHandler]], str]) -> Oss:
    """A server that answers as OSS does."""
    return Oss(s3_endpoint, serve)


@pytest.fixture
def oss_bucket(oss: Oss, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a bucket with versions, which has a bucket of claims without, as a cluster's has."""
    boto3.client("s3").create_bucket(Bucket=f"{s3_bucket}-claims")
    oss.versioned.add(s3_bucket)
    monkeypatch.setenv("TRAINWRIGHT_OSS_ENDPOINT", oss.url)
    monkeypatch.setenv("ALIBABA_CLOUD_REGION_ID", "cn-hangzhou")
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "test")
    return s3_bucket
