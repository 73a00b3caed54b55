"""An S3 on loopback, shared by the tests of what talks to the object store."""

import uuid
from collections.abc import Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.trainer.oss import Oss


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
def oss(s3_endpoint: str) -> Iterator[Oss]:
    """A server that answers as OSS does."""
    server = Oss(s3_endpoint)
    yield server
    server.close()


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
